//! Cycles of threads that would wait for each other.
//!
//! A thread that leads a load and waits for another load can be part of a cycle: leader, waits for,
//! leader, and so on, through any number of caches. Before a thread waits, it notes in one table of
//! the process for which load it waits. Under the lock of that table it follows the chain of waits.
//! A wait that would close a cycle is refused.
//!
//! # Why there is no false alarm
//!
//! Every wait in the cycle but the last was noted before, under the same lock, and still lasts when
//! it is read: its waiter has no verdict yet. A thread that waits does not end the loads that it
//! leads. So the waits that were read first still last while the other waits are read.
//!
//! A load that no thread leads (a lease, a task between two polls) ends the search.
//!
//! A thread may wait for another thread rather than for a load: until notifications are delivered,
//! for the thread that delivers just now, which may wait for a load inside the listener; or, at the
//! end of a cache, for threads at work on it. It looks for a cycle at intervals, and waits no
//! longer if there is one ([`NotedWait::may_wait_for_thread`]). Such a wait refuses no other.

use super::place;
use crate::atomic64::AtomicU64;
use crate::stripe::thread_number;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The wait of each waiting thread. Always `parking_lot`'s: an explorer's threads do not look for
/// cycles.
static WAITING_THREADS: parking_lot::Mutex<BTreeMap<u64, Wait>> =
    parking_lot::const_mutex(BTreeMap::new());

fn waiting_threads() -> parking_lot::MutexGuard<'static, BTreeMap<u64, Wait>> {
    WAITING_THREADS.lock()
}

enum Wait {
    Load(Arc<dyn WaitTarget>, Ticket),
    /// For the thread of this number. Such a wait ends by itself if it closes a cycle.
    Thread(u64),
}

/// A cycle that a wait of the thread `me` for the thread `first` would close: the number of other
/// threads in it, and how many of them wait for loads. The waits of the rest end by themselves.
fn find_cycle(waits: &BTreeMap<u64, Wait>, me: u64, first: Option<u64>) -> Option<(usize, usize)> {
    let (mut next, mut others, mut loads) = (first, 0, 0);
    while let Some(thread) = next {
        if thread == me {
            return Some((others, loads));
        }
        others += 1;
        next = match waits.get(&thread).filter(|_| others <= waits.len())? {
            Wait::Load(load, ticket) => {
                loads += 1;
                load.awaited_thread(*ticket)
            }
            Wait::Thread(by) => Some(*by),
        };
    }
    None
}

/// A waiter's place in the order of all waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(u64);

impl Ticket {
    /// The next ticket of the process.
    pub(crate) fn draw() -> Self {
        // Always the standard library's: a model's atomics cannot be static, and the order among
        // tickets that are drawn at the same time means nothing.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A load of any cache.
pub(crate) trait WaitTarget: Send + Sync {
    /// The thread for which a waiter has to wait: `None` if it need not wait any more, or no thread
    /// leads.
    fn awaited_thread(&self, ticket: Ticket) -> Option<u64>;

    /// Whether a waiter is among the first `count` that wait.
    fn is_among_next(&self, ticket: Ticket, count: usize) -> bool;
}

/// The message about a refused wait: the thread would wait for itself, through this number of other
/// threads, for the load of the key with this hash.
pub(crate) fn fault(others: usize, hash: u64) -> String {
    let who = match others {
        0 => "which this thread leads itself".to_string(),
        1 => "whose leader, another thread, waits for a load that this thread leads".to_string(),
        others => format!(
            "whose leader waits, through {others} threads, for a load that this thread leads"
        ),
    };
    format!(
        "deadlock: this call would wait for the load of the key with the hash {hash:#018x}, \
         {who}; the call is refused"
    )
}

/// The wait of the calling thread, as long as it lasts: the thread's number, or 0.
pub(crate) struct NotedWait(u64);

impl NotedWait {
    pub(crate) fn begin() -> Self {
        place::give_up();
        Self(thread_number())
    }

    /// Waits for a load, unless that would close a cycle: an error is the number of other threads
    /// in it.
    pub(crate) fn wait_for(
        self,
        load: Arc<dyn WaitTarget>,
        ticket: Ticket,
        wait: impl FnOnce(),
    ) -> Result<(), usize> {
        let me = self.0;
        if me != 0 {
            let mut waits = waiting_threads();
            if let Some((others, loads)) = find_cycle(&waits, me, load.awaited_thread(ticket)) {
                if loads == others {
                    return Err(others);
                }
            }
            // One wait a thread: a thread that waits runs no other code.
            waits.insert(me, Wait::Load(load, ticket));
        }
        wait();
        Ok(())
    }

    /// Whether the thread may go on to wait for what the thread `by` does. False if that one waits,
    /// directly or through other threads, for a load that this thread leads: its listener, say,
    /// calls the cache, and this thread is inside a loader.
    pub(crate) fn may_wait_for_thread(&self, by: u64) -> bool {
        let me = self.0;
        if me == 0 || by == 0 {
            return true;
        }
        let mut waits = waiting_threads();
        // A cycle without loads is none: a thread that delivers waits for no delivery. The notes of
        // threads that have just delivered, and now wait for each other, look like one.
        let closes = find_cycle(&waits, me, Some(by)).is_some_and(|(_, loads)| loads > 0);
        let former = waits.insert(me, Wait::Thread(by));
        drop(waits);
        drop(former);
        !closes
    }
}

/// Whether a wait of the calling thread is noted.
#[cfg(test)]
pub(crate) fn is_noted() -> bool {
    waiting_threads().contains_key(&thread_number())
}

impl Drop for NotedWait {
    fn drop(&mut self) {
        let wait = waiting_threads().remove(&self.0);
        // With the lock released: a key may be dropped with it.
        drop(wait);
    }
}
