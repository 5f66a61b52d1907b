//! Notifications: the pass gathers them under its lock; after the pass, one thread at a time
//! delivers them in order.
//!
//! # How it works
//!
//! The pass [`post`](Notifier::post)s nodes that left the cache. The node itself carries key and
//! value, so a notification copies nothing, and the listener gets the value that was removed. A
//! thread that [`deliver`](Notifier::deliver)s tries to take the *token*. Its holder calls the
//! listener for each node in order, with no lock held. A thread that finds the token taken leaves
//! the work to the holder, which gives the token back and then checks the queue once more, so that
//! no notification stays behind. `maintenance/delivery.rs` decides which threads deliver, and when.
//!
//! A thread that has posted *offers* a delivery to the threads that call listeners, unless one is
//! offered already. The thread that takes the offer delivers, withdraws the offer, and looks at the
//! queue once more.
//!
//! # Invariants
//!
//! 1. Nodes are posted in the order of the removals of each key, and delivered in the order of
//!    posting: one queue, one holder of the token.
//! 2. A posted node is freed only after it was delivered: delivered nodes come back only through
//!    [`OnDelivered`].
//! 3. If the queue is not empty, then either a thread holds the token and will check the queue
//!    again, or no thread was asked to deliver since the last post.
//! 4. A delivery is offered from a successful [`offer`](Notifier::offer) to the end of the delivery
//!    that was offered, or to its refusal. So at most one is offered at a time.
//!
//! # Cost
//!
//! A post moves what a pass has gathered into the queue as a whole, or copies 16 bytes for each of
//! a few notifications, under a lock of the notifier's own that is taken once for each pass; where
//! the listener keeps up, a post allocates nothing. The queue has no bound, since no notification
//! may be lost and no caller may wait for a slow listener: a listener that never returns keeps
//! every removed value in memory.

use crate::listener::{Listener, RemovalCause, call, inside_listener};
use crate::load::cycle::{NotedWait, thread_number};
use crate::node::NodePtr;
use crate::sync::{AtomicU8, AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, yield_now};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Calls of the listener in a chunk, after which the delivered nodes are given back.
const CALLS_PER_CHUNK: usize = 32;

/// Up to this length a block of the queue takes in more notifications.
const BLOCK_LEN: usize = 128;
/// How many emptied blocks are kept to be filled again, and up to which room.
const MAX_SPARE_BLOCKS: usize = 4;
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

/// No delivery is offered.
const NONE: u8 = 0;
/// A delivery is offered, and no thread has taken the offer.
const OFFERED: u8 = 1;
/// A thread has taken the offer.
const BEGUN: u8 = 2;

/// One removal to be delivered.
pub(crate) struct Notification<K, V> {
    pub(crate) node: NodePtr<K, V>,
    pub(crate) cause: RemovalCause,
}

/// The right to deliver, which one thread has at a time, and what its holder keeps in hand.
pub(crate) struct Token<T>(Mutex<T>);

impl<T> Token<T> {
    pub(crate) fn new(in_hand: T) -> Self {
        Self(Mutex::new(in_hand))
    }

    /// Runs `work` while holding the token, again and again until `is_empty` says that nothing is
    /// left after the token was given back, or `work` says to stop; true for the latter. Returns at
    /// once if another thread has the token.
    ///
    /// A poster pushes, then tries to take the token; a holder gives it back, then looks for more.
    /// Both use the lock of the queue. If the holder looks before the push, the poster finds the
    /// token given back.
    pub(crate) fn run(
        &self,
        mut work: impl FnMut(&mut T) -> bool,
        mut is_empty: impl FnMut() -> bool,
    ) -> bool {
        while let Some(mut held) = self.0.try_lock() {
            let stopped = work(&mut held);
            drop(held);
            if stopped || is_empty() {
                return stopped;
            }
        }
        false
    }

    fn is_free(&self) -> bool {
        // Not a plain look: it must come after what this thread has done before.
        self.0.try_lock().is_some()
    }
}

/// The notifications that wait.
struct Queue<K, V> {
    /// In the order of posting, in blocks, so that a post does not copy the notifications that
    /// already wait.
    blocks: VecDeque<Vec<Notification<K, V>>>,
    /// Blocks that were delivered and emptied, to be filled again.
    spare: Vec<Vec<Notification<K, V>>>,
}

/// What the holder of the token has taken from the queue. If a delivery stops, the next holder goes
/// on here.
struct InHand<K, V> {
    block: Vec<Notification<K, V>>,
    /// How many of the block were delivered.
    delivered: usize,
    /// The nodes that were delivered and not yet passed to [`OnDelivered`].
    nodes: Vec<NodePtr<K, V>>,
}

/// The notifications of one cache.
pub(crate) struct Notifier<K, V> {
    listener: Option<Listener<K, V>>,
    queue: Mutex<Queue<K, V>>,
    token: Token<InHand<K, V>>,
    /// The thread that holds the token, or held it last.
    deliverer: AtomicU64,
    posted: AtomicU64,
    delivered: AtomicU64,
    /// Whether a delivery is offered: [`NONE`], [`OFFERED`] or [`BEGUN`].
    offered: AtomicU8,
    /// How many threads wait until others have delivered.
    waiters: AtomicUsize,
    wait_lock: Mutex<()>,
    moved: Condvar,
    panics: AtomicU64,
}

/// The callback that takes delivered nodes back.
pub(crate) type OnDelivered<'a, K, V> = &'a mut dyn FnMut(&mut Vec<NodePtr<K, V>>);

impl<K, V> Notifier<K, V> {
    pub(crate) fn new(listener: Option<Listener<K, V>>) -> Self {
        Self {
            listener,
            queue: Mutex::new(Queue {
                blocks: VecDeque::new(),
                spare: Vec::new(),
            }),
            token: Token::new(InHand {
                block: Vec::new(),
                delivered: 0,
                nodes: Vec::new(),
            }),
            deliverer: AtomicU64::new(0),
            posted: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            offered: AtomicU8::new(NONE),
            waiters: AtomicUsize::new(0),
            wait_lock: Mutex::new(()),
            moved: Condvar::new(),
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
        let mut queue = self.queue.lock();
        // Release, partner `deliver_all`, `await_delivered`: a thread that sees the count also sees
        // the posts.
        self.posted
            .fetch_add(gathered.len() as u64, Ordering::Release);
        match queue.blocks.back_mut() {
            Some(last) if last.len() + gathered.len() <= BLOCK_LEN => last.append(gathered),
            _ => {
                let empty = queue.spare.pop().unwrap_or_default();
                queue.blocks.push_back(std::mem::replace(gathered, empty));
            }
        }
    }

    /// Notifications not yet delivered.
    pub(crate) fn waiting(&self) -> u64 {
        // Reads `delivered` first: in the other order the difference could fall below zero.
        let delivered = self.delivered.load(Ordering::Acquire);
        self.posted.load(Ordering::Acquire) - delivered
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
        let stopped = self.token.run(
            |in_hand| {
                // Relaxed: a thread that waits compares it at intervals.
                self.deliverer.store(thread_number(), Ordering::Relaxed);
                loop {
                    while in_hand.nodes.len() < CALLS_PER_CHUNK
                        && let Some((node, cause)) = self.next(in_hand)
                    {
                        in_hand.nodes.push(node);
                        if call(listener, node.key(), node.value(), cause).is_none() {
                            // Relaxed: a statistic.
                            self.panics.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    let count = in_hand.nodes.len() as u64;
                    if count == 0 {
                        return false;
                    }
                    done(&mut in_hand.nodes);
                    self.note_delivered(count);
                    if !keep_going() {
                        return true;
                    }
                }
            },
            || self.queue.lock().blocks.is_empty(),
        );
        if stopped {
            // A thread that waits takes over.
            self.wake_waiters();
        }
        stopped
    }

    /// For a thread that has ended the delivery that was offered: whether to offer another. Not if
    /// another thread has the token: that thread looks at the queue when it has given it back.
    pub(crate) fn offer_next(&self) -> bool {
        self.token.is_free() && self.offer()
    }

    /// Whether the caller has to offer a delivery: notifications wait, and none is offered.
    ///
    /// SeqCst, partner `end_offer`: it withdraws the offer, then looks at the queue; this thread
    /// posted, then looks for the offer.
    pub(crate) fn offer(&self) -> bool {
        self.waiting() > 0
            && self
                .offered
                .compare_exchange(NONE, OFFERED, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
    }

    /// A thread takes the offer.
    pub(crate) fn begin_offer(&self) {
        self.offered.store(BEGUN, Ordering::SeqCst);
    }

    /// The delivery that was offered has ended, or was refused. The caller then looks whether to
    /// [`offer`](Self::offer) again.
    pub(crate) fn end_offer(&self) {
        self.offered.store(NONE, Ordering::SeqCst);
        self.wake_waiters();
    }

    /// Takes the oldest notification.
    fn next(&self, in_hand: &mut InHand<K, V>) -> Option<(NodePtr<K, V>, RemovalCause)> {
        if in_hand.delivered == in_hand.block.len() {
            let mut queue = self.queue.lock();
            let next = queue.blocks.pop_front().unwrap_or_default();
            let mut emptied = std::mem::replace(&mut in_hand.block, next);
            in_hand.delivered = 0;
            let has_room = (1..=MAX_SPARE_ROOM).contains(&emptied.capacity());
            if queue.spare.len() < MAX_SPARE_BLOCKS && has_room {
                emptied.clear();
                queue.spare.push(emptied);
            }
        }
        let &Notification { node, cause } = in_hand.block.get(in_hand.delivered)?;
        in_hand.delivered += 1;
        Some((node, cause))
    }

    /// The thread that delivers, or 0.
    fn deliverer(&self) -> u64 {
        if self.token.is_free() {
            return 0;
        }
        self.deliverer.load(Ordering::Relaxed)
    }

    fn note_delivered(&self, count: u64) {
        // SeqCst, partner `wait_begins`.
        self.delivered.fetch_add(count, Ordering::SeqCst);
        self.wake_waiters();
    }

    fn wake_waiters(&self) {
        if self.has_waiters() {
            // Taking the lock orders this before the check of a waiter that is about to sleep.
            drop(self.wait_lock.lock());
            self.moved.notify_all();
            // Lets it run before this thread goes on.
            yield_now();
        }
    }

    fn has_delivered(&self, target: u64) -> bool {
        self.delivered.load(Ordering::SeqCst).wrapping_sub(target) as i64 >= 0
    }

    /// Counts the calling thread as one that waits, until the answer is dropped.
    fn wait_begins(&self) -> impl Drop + '_ {
        struct Waiter<'a>(&'a AtomicUsize);
        impl Drop for Waiter<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        // SeqCst, partner `wake_waiters`: this thread counts itself, then looks; the other thread
        // makes a change, then looks whether a thread waits.
        self.waiters.fetch_add(1, Ordering::SeqCst);
        Waiter(&self.waiters)
    }

    /// Whether a thread waits that will free what was delivered.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiters.load(Ordering::SeqCst) > 0
    }

    /// Waits for a change, if `holds` says so. For a thread that is counted as one that waits.
    fn wait_while(&self, holds: impl FnOnce() -> bool) {
        let mut wait_lock = self.wait_lock.lock();
        if holds() {
            self.moved.wait_for(&mut wait_lock, LONGEST_WAIT);
        }
    }

    /// Delivers, or waits for the thread that does, until everything posted before the call was
    /// delivered; then also up to [`EXTRA_DELIVERIES`] that were posted since. Not for a thread
    /// inside a listener.
    pub(crate) fn deliver_all(&self, done: OnDelivered<'_, K, V>) {
        debug_assert!(!inside_listener());
        if self.listener.is_none() {
            return;
        }
        let target = self.posted.load(Ordering::Acquire);
        loop {
            // Notifications that the listener's own calls have posted are delivered as well, up to
            // a bound: otherwise other threads could keep this thread busy for ever.
            self.deliver(|| !self.has_delivered(target + EXTRA_DELIVERIES), done);
            if self.has_delivered(target) {
                return;
            }
            // Another thread delivers.
            let (_waiter, wait) = (self.wait_begins(), NotedWait::begin());
            if !wait.may_wait_for_delivery(self.deliverer()) {
                return;
            }
            self.wait_while(|| !self.has_delivered(target) && !self.token.is_free());
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
        let target = self.posted.load(Ordering::Acquire) + EXTRA_AWAITED;
        let (mut delivered, mut refusals) = (self.delivered.load(Ordering::SeqCst), 0);
        let mut since = Instant::now();
        let (_waiter, wait) = (self.wait_begins(), NotedWait::begin());
        loop {
            if self.waiting() == 0 || self.has_delivered(target) {
                return Awaited::Delivered;
            }
            if !keep_waiting() || !wait.may_wait_for_delivery(self.deliverer()) {
                return Awaited::Stopped;
            }
            let seen = self.delivered.load(Ordering::SeqCst);
            if seen != delivered || self.offered.load(Ordering::SeqCst) == BEGUN {
                (delivered, refusals, since) = (seen, 0, Instant::now());
            }
            if self.offered.load(Ordering::SeqCst) == NONE {
                refusals += 1;
                if refusals > MAX_REFUSALS || !offer() {
                    return Awaited::Refused;
                }
                continue;
            }
            if patience.is_some_and(|patience| since.elapsed() > patience) {
                return Awaited::NotBegun;
            }
            let same = || {
                self.delivered.load(Ordering::SeqCst) == seen
                    && self.offered.load(Ordering::SeqCst) != NONE
            };
            self.wait_while(same);
        }
    }

    pub(crate) fn listener_panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }
}
