//! Notifications: the pass gathers them under its lock; after the pass, one thread at a time
//! delivers them in order.
//!
//! # How it works
//!
//! The pass [`post`](Notifier::post)s nodes that left the cache. The node itself carries key and
//! value, so a notification copies nothing, and the listener gets the value that was removed. A
//! thread that [`deliver`](Notifier::deliver)s becomes the *deliverer*, unless another thread is.
//! It takes a block of notifications at a time and calls the listener for each node in order, with no
//! lock held. It gives the role up in the same hold of the lock in which it finds the queue empty.
//! So a thread that finds a deliverer leaves the work to that thread, and no notification stays
//! behind. `maintenance/delivery.rs` decides which threads deliver, and when.
//!
//! A thread that has posted *offers* a delivery to the threads that call listeners, unless one is
//! offered already. The thread that takes the offer delivers, withdraws the offer, and looks at the
//! queue once more.
//!
//! # Invariants
//!
//! 1. Nodes are posted in the order of the removals of each key, and delivered in the order of
//!    posting: one queue, one deliverer.
//! 2. A posted node is freed only after it was delivered: delivered nodes come back only through
//!    [`OnDelivered`].
//! 3. If the queue is not empty, then either there is a deliverer, which will look at the queue
//!    again, or the last deliverer was told to stop, or no thread was asked to deliver since the
//!    last post.
//! 4. A delivery is offered from a successful [`offer`](Notifier::offer) to the end of the delivery
//!    that was offered, or to its refusal. So one is offered at a time, except by the drop of the
//!    last handle: it withdraws an offer that an executor has not taken, and offers another. If
//!    the executor's task is run after all, its end may end the other offer early; the thread that
//!    waits then offers once more.
//!
//! # Cost
//!
//! A post moves what a pass has gathered into the queue as a whole, or copies 16 bytes for each of
//! a few notifications, under a lock of the notifier's own that is taken once for each pass; where
//! the listener keeps up, a post allocates nothing. A delivery takes that lock once or twice for each
//! chunk of up to [`CALLS_PER_CHUNK`] notifications. The queue has no bound, since no notification
//! may be lost and no caller may wait for a slow listener: a listener that never returns keeps
//! every removed value in memory.

use crate::contain::contain;
use crate::listener::{Listener, RemovalCause};
use crate::load::cycle::{NotedWait, thread_number};
use crate::node::NodePtr;
use crate::scheduler::{inside_listener, listening};
use crate::sync::{AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, yield_now};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Calls of the listener in a chunk, after which the delivered nodes are given back.
const CALLS_PER_CHUNK: usize = 32;

/// Up to this length a block of the queue takes in more notifications.
const BLOCK_LEN: usize = 128;
/// Up to this room an emptied block is kept, to be filled again.
const MAX_SPARE_ROOM: usize = 8 * BLOCK_LEN;

/// How many later notifications a call that waits for deliveries includes, beside those that were
/// posted before it.
const EXTRA_DELIVERIES: u64 = 1024;

/// The same for a call that waits for other threads: these go on while it wakes up.
const EXTRA_AWAITED: u64 = 128;

/// How long a waiting thread sleeps before it looks again, woken or not.
const LONGEST_WAIT: Duration = Duration::from_millis(5);

/// How often in a row a call that waits offers a delivery in vain, before it waits no longer.
const MAX_REFUSALS: u32 = 2;

/// How a wait for other threads has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    Delivered,
    /// The caller's condition has ended it.
    Stopped,
    /// No thread takes the offer.
    Refused,
    /// The offer was neither taken nor refused for long.
    NotBegun,
}

/// Whether a delivery is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offered {
    No,
    /// No thread has taken the offer yet.
    Open,
    /// A thread has taken the offer.
    Begun,
}

/// One removal to be delivered.
pub(crate) struct Notification<K, V> {
    pub(crate) node: NodePtr<K, V>,
    pub(crate) cause: RemovalCause,
}

/// The notifications of one cache.
pub(crate) struct Notifier<K, V> {
    listener: Option<Listener<K, V>>,
    state: Mutex<State<K, V>>,
    /// The state has changed.
    moved: Condvar,
    /// How many threads wait until others have delivered.
    waiters: AtomicUsize,
    panics: AtomicU64,
}

struct State<K, V> {
    /// The notifications that wait, in the order of posting. In blocks, so that a post does not
    /// copy those that already wait.
    blocks: VecDeque<Vec<Notification<K, V>>>,
    /// A block that was delivered and emptied, to be filled again.
    spare: Vec<Notification<K, V>>,
    /// The thread that delivers.
    deliverer: Option<u64>,
    posted: u64,
    delivered: u64,
    offered: Offered,
}

/// The callback that takes delivered nodes back.
pub(crate) type OnDelivered<'a, K, V> = &'a mut dyn FnMut(&[Notification<K, V>]);

impl<K, V> Notifier<K, V> {
    pub(crate) fn new(listener: Option<Listener<K, V>>) -> Self {
        Self {
            listener,
            state: Mutex::new(State {
                blocks: VecDeque::new(),
                spare: Vec::new(),
                deliverer: None,
                posted: 0,
                delivered: 0,
                offered: Offered::No,
            }),
            moved: Condvar::new(),
            waiters: AtomicUsize::new(0),
            panics: AtomicU64::new(0),
        }
    }

    pub(crate) fn has_listener(&self) -> bool {
        self.listener.is_some()
    }

    /// Appends what a pass has gathered. For the holder of the maintenance lock (notify 1).
    pub(crate) fn post(&self, gathered: &mut Vec<Notification<K, V>>) {
        if gathered.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        state.posted += gathered.len() as u64;
        match state.blocks.back_mut() {
            Some(last) if last.len() + gathered.len() <= BLOCK_LEN => last.append(gathered),
            _ => {
                let empty = std::mem::take(&mut state.spare);
                state.blocks.push_back(std::mem::replace(gathered, empty));
            }
        }
    }

    /// Notifications not yet delivered.
    pub(crate) fn waiting(&self) -> u64 {
        let state = self.state.lock();
        state.posted - state.delivered
    }

    /// Delivers until nothing is left, or until `keep_going`, which it calls at intervals, returns
    /// false. Returns at once if another thread delivers. True if `keep_going` ended it. A panic of
    /// the listener is caught and counted.
    pub(crate) fn deliver(
        &self,
        mut keep_going: impl FnMut() -> bool,
        done: OnDelivered<'_, K, V>,
    ) -> bool {
        let Some(listener) = &self.listener else {
            return false;
        };
        let mut state = self.state.lock();
        if state.deliverer.is_some() {
            return false;
        }
        state.deliverer = Some(thread_number());
        let mut stopped = false;
        while !stopped && let Some(mut block) = state.blocks.pop_front() {
            drop(state);
            let mut told = 0;
            for chunk in block.chunks(CALLS_PER_CHUNK) {
                for Notification { node, cause } in chunk {
                    let call = || listener(node.key(), node.value(), *cause);
                    if listening(|| contain(call)).is_none() {
                        // Relaxed: a statistic.
                        self.panics.fetch_add(1, Ordering::Relaxed);
                    }
                }
                told += chunk.len();
                done(chunk);
                self.state.lock().delivered += chunk.len() as u64;
                self.wake_waiters();
                stopped = !keep_going();
                if stopped {
                    break;
                }
            }
            state = self.state.lock();
            block.drain(..told);
            if !block.is_empty() {
                state.blocks.push_front(block);
            } else if block.capacity() <= MAX_SPARE_ROOM {
                state.spare = block;
            }
        }
        state.deliverer = None;
        drop(state);
        if stopped {
            // A thread that waits takes over.
            self.wake_waiters();
        }
        stopped
    }

    /// For a thread that has ended the delivery that was offered: whether to offer another. Not if
    /// another thread delivers: that thread looks at the queue before it ends.
    pub(crate) fn offer_next(&self) -> bool {
        self.state.lock().deliverer.is_none() && self.offer()
    }

    /// Whether the caller has to offer a delivery: notifications wait, and none is offered.
    pub(crate) fn offer(&self) -> bool {
        let mut state = self.state.lock();
        let offers = state.posted > state.delivered && state.offered == Offered::No;
        if offers {
            state.offered = Offered::Open;
        }
        offers
    }

    /// A thread takes the offer.
    pub(crate) fn begin_offer(&self) {
        self.state.lock().offered = Offered::Begun;
    }

    /// The delivery that was offered has ended, or was refused. The caller then looks whether to
    /// [`offer`](Self::offer) again.
    pub(crate) fn end_offer(&self) {
        self.state.lock().offered = Offered::No;
        self.wake_waiters();
    }

    /// After a change of the state.
    fn wake_waiters(&self) {
        if self.has_waiters() {
            self.moved.notify_all();
            // Lets it run before this thread goes on.
            yield_now();
        }
    }

    /// Counts the calling thread as one that waits, until the answer is dropped.
    fn wait_begins(&self) -> impl Drop + '_ {
        struct Waiter<'a>(&'a AtomicUsize);
        impl Drop for Waiter<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.waiters.fetch_add(1, Ordering::Relaxed);
        Waiter(&self.waiters)
    }

    /// Whether a thread waits that will free what was delivered.
    ///
    /// Relaxed: a thread counts itself before it looks at the state under the lock, and another
    /// changes the state under the lock before it asks this. So either the first thread sees the
    /// change, or the other one sees that it waits.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) > 0
    }

    /// Waits for a change, if `holds` says so. For a thread that is counted as one that waits.
    fn wait_while(&self, holds: impl FnOnce(&State<K, V>) -> bool) {
        let mut state = self.state.lock();
        if holds(&state) {
            self.moved.wait_for(&mut state, LONGEST_WAIT);
        }
    }

    /// Delivers, or waits for the thread that does, until everything posted before the call was
    /// delivered; then also up to [`EXTRA_DELIVERIES`] that were posted since. Not for a thread
    /// inside a listener.
    pub(crate) fn deliver_all(&self, done: OnDelivered<'_, K, V>) {
        debug_assert!(!inside_listener());
        let target = self.state.lock().posted;
        let is_delivered = |target| self.state.lock().delivered >= target;
        loop {
            // Notifications that the listener's own calls have posted are delivered as well, up to
            // a bound: otherwise other threads could keep this thread busy for ever.
            self.deliver(|| !is_delivered(target + EXTRA_DELIVERIES), done);
            if is_delivered(target) {
                return;
            }
            // Another thread delivers.
            let (_waiter, wait) = (self.wait_begins(), NotedWait::begin());
            let deliverer = self.state.lock().deliverer;
            if !wait.may_wait_for_delivery(deliverer.unwrap_or(0)) {
                return;
            }
            self.wait_while(|state| state.delivered < target && state.deliverer.is_some());
        }
    }

    /// Waits until other threads have delivered everything posted before the call, and what was
    /// posted meanwhile, up to [`EXTRA_AWAITED`]. While it waits, it calls `offer` to see to it
    /// that a delivery is offered, and ends early if `keep_waiting`, which it calls at intervals,
    /// returns false. Not for a thread inside a listener.
    pub(crate) fn await_delivered(
        &self,
        mut offer: impl FnMut() -> bool,
        patience: Option<Duration>,
        mut keep_waiting: impl FnMut() -> bool,
    ) -> Awaited {
        debug_assert!(!inside_listener());
        let (mut seen, mut refusals, mut since) = (0, 0, Instant::now());
        let (_waiter, wait) = (self.wait_begins(), NotedWait::begin());
        let target = self.state.lock().posted + EXTRA_AWAITED;
        loop {
            let state = self.state.lock();
            let (delivered, offered, deliverer) = (state.delivered, state.offered, state.deliverer);
            if delivered == state.posted || delivered >= target {
                return Awaited::Delivered;
            }
            drop(state);
            if !keep_waiting() || !wait.may_wait_for_delivery(deliverer.unwrap_or(0)) {
                return Awaited::Stopped;
            }
            if delivered != seen || offered == Offered::Begun {
                (seen, refusals, since) = (delivered, 0, Instant::now());
            }
            if offered == Offered::No {
                refusals += 1;
                if refusals > MAX_REFUSALS || !offer() {
                    return Awaited::Refused;
                }
                continue;
            }
            if patience.is_some_and(|patience| since.elapsed() > patience) {
                return Awaited::NotBegun;
            }
            self.wait_while(|state| state.delivered == seen && state.offered != Offered::No);
        }
    }

    pub(crate) fn listener_panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }
}
