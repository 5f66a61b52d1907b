//! Rings of threads that would wait for each other.
//!
//! A thread that leads a load and waits for another load can be part of a ring: leader, waits for,
//! leader, and so on, through any number of caches. Each thread that is about to wait notes for
//! what it waits in one table of the process and follows the ring under that table's lock. A wait
//! that would close a ring is refused.
//!
//! # Why there is no false alarm
//!
//! Every wait in the ring but the last was noted before, under the same lock, and still lasts when
//! it is read: its waiter has no verdict yet. A thread that waits does not end the loads that it
//! leads, so what was read of the ring stays true while the rest is read.
//!
//! A load that no thread leads (a lease, a task between two polls) ends the search.

use super::{Load, Ticket};
use crate::sync::IS_MODEL;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What each waiting thread waits for. Always `parking_lot`'s: an explorer's threads do not look
/// for rings.
static WAITS: parking_lot::Mutex<BTreeMap<u64, Wait>> = parking_lot::Mutex::new(BTreeMap::new());

struct Wait {
    load: Arc<dyn Blocks>,
    ticket: Ticket,
}

/// A load of any cache.
trait Blocks: Send + Sync {
    fn blocks(&self, ticket: Ticket) -> Option<u64>;
}

impl<K: Send + Sync, V: Send + Sync> Blocks for Load<K, V> {
    fn blocks(&self, ticket: Ticket) -> Option<u64> {
        Load::blocks(self, ticket)
    }
}

/// A wait that is refused, since its thread would wait for itself; through so many other threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    pub(crate) others: usize,
}

/// The number of the calling thread; 0 if it is not known, as in a thread's last moments.
pub(crate) fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static NUMBER: Cell<u64> = const { Cell::new(0) });
    if IS_MODEL {
        return 0;
    }
    let draw = |number: &Cell<u64>| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    };
    NUMBER.try_with(draw).unwrap_or(0)
}

/// Waits for a load as a thread, unless that would close a ring.
pub(crate) fn wait_in<K, V, R>(
    load: &Arc<Load<K, V>>,
    ticket: Ticket,
    wait: impl FnOnce() -> R,
) -> Result<R, Ring>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let me = thread_number();
    if me == 0 {
        return Ok(wait());
    }
    let mut waits = WAITS.lock();
    let mut leader = load.blocks(ticket);
    let mut others = 0;
    while let Some(thread) = leader {
        if thread == me {
            return Err(Ring { others });
        }
        others += 1;
        leader = waits
            .get(&thread)
            .filter(|_| others <= waits.len())
            .and_then(|wait| wait.load.blocks(wait.ticket));
    }
    let load: Arc<dyn Blocks> = Arc::<Load<K, V>>::clone(load);
    // One wait a thread: a thread that waits runs no other code.
    waits.insert(me, Wait { load, ticket });
    drop(waits);
    let noted = Noted(me);
    let answer = wait();
    drop(noted);
    Ok(answer)
}

/// A thread's wait, as long as it lasts.
struct Noted(u64);

impl Drop for Noted {
    fn drop(&mut self) {
        let wait = WAITS.lock().remove(&self.0);
        // With the lock released: a key may be dropped with it.
        drop(wait);
    }
}
