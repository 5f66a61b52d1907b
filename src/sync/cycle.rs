//! Cycles of threads that would wait for each other.
//!
//! A thread that leads a load and waits for another load can be part of a cycle: leader, waits for,
//! leader, and so on, through any number of caches. Before a thread waits, it notes in one table of
//! the process for which load it waits. Under the lock of that table it follows the chain of waits.
//! A wait that would close a cycle is refused.
//!
//! A load that no thread leads (a lease, a task between two polls) ends the search. DESIGN.md says
//! why there is no false alarm.
//!
//! # Waits for a thread
//!
//! A thread may wait for another thread rather than for a load. That one may deliver notifications
//! just now, and wait for a load inside the listener. Or it may be at work on a cache that ends. It
//! looks where that leads at intervals ([`NotedWait::lasts`]). If there is a cycle, it waits no
//! longer. If no thread leads a load, the thread may be the very one that has to end it: it has the
//! lease, or the task is its own. Nothing shows that, so it waits for a limited time
//! ([`PATIENCE`]). Such a wait refuses no other.

use super::place::{self, Stage};
use crate::atomic64::AtomicU64;
use crate::hash::NumberMap;
use crate::stripe::thread_number;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The wait of each waiting thread. Always `parking_lot`'s: an explorer's threads do not look for
/// cycles.
static WAITING_THREADS: parking_lot::Mutex<NumberMap<u64, Wait>> =
    parking_lot::const_mutex(HashMap::with_hasher(BuildHasherDefault::new()));

fn waiting_threads() -> parking_lot::MutexGuard<'static, NumberMap<u64, Wait>> {
    WAITING_THREADS.lock()
}

enum Wait {
    Load(Arc<dyn WaitTarget>, Ticket),
    /// For the thread of this number. Such a wait ends by itself if it closes a cycle.
    Thread(u64),
}

/// How long a thread waits for another one that waits for a load that no thread leads.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where the wait of a thread leads, from one waiting thread to the next.
enum Outlook {
    /// To a thread that goes on, or that waits in a cycle without the thread that asks.
    Goes,
    /// Back to the thread that asks, through so many `others`, of which so many wait for `loads`.
    /// The waits of the rest end by themselves.
    Cycle { others: usize, loads: usize },
    /// To a load that no thread leads, or that ends just now.
    Unled,
}

/// Where a wait of the thread `me` for the thread `first` leads.
fn follow(waits: &NumberMap<u64, Wait>, me: u64, first: Option<u64>) -> Outlook {
    let mut next = first;
    let mut others = 0;
    let mut loads = 0;
    while let Some(thread) = next {
        if thread == me {
            return Outlook::Cycle { others, loads };
        }
        others += 1;
        if others > waits.len() {
            return Outlook::Goes;
        }
        next = match waits.get(&thread) {
            None => return Outlook::Goes,
            Some(Wait::Load(load, ticket)) => {
                loads += 1;
                load.awaited_thread(*ticket)
            }
            Some(Wait::Thread(by)) => Some(*by),
        };
    }
    Outlook::Unled
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

/// A load of any cache, or the turn of a refresh.
pub(crate) trait WaitTarget: Send + Sync {
    /// The thread for which a waiter has to wait, or 0 for any that is free: `None` if it need not
    /// wait any more, or no thread leads.
    fn awaited_thread(&self, ticket: Ticket) -> Option<u64>;

    /// The thread of a waiter is about to sleep.
    fn falls_asleep(&self, ticket: Ticket);
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

/// The wait of the calling thread, as long as it lasts. Meanwhile the thread has given up its place
/// (`place`).
pub(crate) struct NotedWait {
    /// The thread's number, or 0.
    me: u64,
    /// Since when each look has found a load that no thread leads; for a wait for threads.
    unled_since: Option<Instant>,
    /// At which stage the thread was before.
    stage: Option<Stage>,
}

impl NotedWait {
    pub(crate) fn begin() -> Self {
        let stage = place::stage();
        place::give_up();
        Self {
            me: thread_number(),
            unled_since: None,
            stage,
        }
    }

    /// Waits for a load, unless that would close a cycle: an error is the number of other threads
    /// in it.
    pub(crate) fn wait_for(
        self,
        load: Arc<dyn WaitTarget>,
        ticket: Ticket,
        wait: impl FnOnce(),
    ) -> Result<(), usize> {
        let me = self.me;
        if me != 0 {
            let mut waits = waiting_threads();
            let outlook = follow(&waits, me, load.awaited_thread(ticket));
            if let Outlook::Cycle { others, loads } = outlook {
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

    /// Whether the calling thread waits longer for what these threads do.
    pub(crate) fn lasts(&mut self, threads: &[u64]) -> bool {
        let mut is_unled = false;
        for &thread in threads {
            match self.outlook(thread) {
                Outlook::Goes => {}
                Outlook::Cycle { .. } => return false,
                Outlook::Unled => is_unled = true,
            }
        }
        if !is_unled {
            self.unled_since = None;
            return true;
        }
        let since = *self.unled_since.get_or_insert_with(Instant::now);
        since.elapsed() < PATIENCE
    }

    /// Waits on after other code has run, for which the calling thread did not wait. The caller
    /// holds no lock: to give a place up may start a thread.
    pub(crate) fn go_on(&self) {
        self.end();
        place::give_up();
    }

    fn end(&self) {
        let wait = waiting_threads().remove(&self.me);
        // With the lock released: a key may be dropped with it.
        drop(wait);
    }

    /// Where it leads if the calling thread waits for what the thread `by` does.
    fn outlook(&self, by: u64) -> Outlook {
        let me = self.me;
        if me == 0 || by == 0 {
            return Outlook::Goes;
        }
        let mut waits = waiting_threads();
        let outlook = follow(&waits, me, Some(by));
        let former = waits.insert(me, Wait::Thread(by));
        drop(waits);
        drop(former);
        match outlook {
            // A cycle without loads is none: a thread that delivers waits for no delivery. The
            // notes of threads that have just delivered, and now wait for each other, look like
            // one.
            Outlook::Cycle { loads: 0, .. } => Outlook::Goes,
            _ => outlook,
        }
    }
}

/// Whether a wait of the calling thread is noted.
#[cfg(test)]
pub(crate) fn is_noted() -> bool {
    waiting_threads().contains_key(&thread_number())
}

impl Drop for NotedWait {
    /// The calling thread holds no lock.
    fn drop(&mut self) {
        self.end();
        place::return_to(self.stage);
    }
}
