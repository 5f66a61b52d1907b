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
//! # Invariants
//!
//! 1. Nodes are posted in the order of the removals of each key, and delivered in the order of
//!    posting: one queue, one holder of the token.
//! 2. A posted node is freed only after it was delivered: delivered nodes come back only through
//!    [`OnDelivered`].
//! 3. If the queue is not empty, then either a thread holds the token and will check the queue
//!    again, or no thread was asked to deliver since the last post.
//!
//! # Cost
//!
//! A post copies 16 bytes for each notification, under a lock of the notifier's own that is taken
//! once for each pass; where the listener keeps up, a post allocates nothing. The queue has no
//! bound, since no notification may be lost and no caller may wait for a slow listener: a listener
//! that never returns keeps every removed value in memory.

use crate::listener::{Listener, RemovalCause, call, inside_listener};
use crate::node::NodePtr;
use crate::sync::{AtomicU64, Condvar, Mutex, Ordering};
use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;

/// Calls of the listener between two readings of the clock.
pub(crate) const CALLS_PER_CLOCK_READ: usize = 32;

/// Notifications in a block of the queue.
const BLOCK_LEN: usize = 128;
/// How many emptied blocks are kept to be filled again.
const MAX_SPARE_BLOCKS: usize = 4;

/// How many later notifications a call of `deliver_all` delivers beside those that were posted
/// before it.
const EXTRA_DELIVERIES: u64 = 1024;

/// One removal to be delivered.
pub(crate) struct Notification<K, V> {
    pub(crate) node: NodePtr<K, V>,
    pub(crate) cause: RemovalCause,
}

/// The right to deliver, which one thread has at a time.
pub(crate) struct Token(Mutex<()>);

impl Token {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(()))
    }

    /// Runs `work` while holding the token, again and again until `is_empty` says that nothing is
    /// left after the token was given back. Returns at once if another thread has the token.
    ///
    /// A poster pushes, then tries to take the token; a holder gives it back, then looks for more.
    /// Both use the lock of the queue. If the holder looks before the push, the poster finds the
    /// token given back.
    pub(crate) fn run(&self, mut work: impl FnMut(), mut is_empty: impl FnMut() -> bool) {
        while let Some(held) = self.0.try_lock() {
            work();
            drop(held);
            if is_empty() {
                return;
            }
        }
    }
}

/// The notifications that wait.
struct Queue<K, V> {
    /// In the order of posting, in blocks, so that a post does not copy the notifications that
    /// already wait.
    blocks: VecDeque<Vec<Notification<K, V>>>,
    /// Blocks that were delivered and emptied, to be filled again.
    spare: Vec<Vec<Notification<K, V>>>,
    /// The vector in which the holder of the token gathers delivered nodes.
    nodes: Vec<NodePtr<K, V>>,
}

impl<K, V> Queue<K, V> {
    /// Moves what a pass has gathered to the end of the queue.
    fn extend(&mut self, gathered: &mut Vec<Notification<K, V>>) {
        let mut rest = gathered.drain(..);
        while rest.len() > 0 {
            if self
                .blocks
                .back()
                .is_none_or(|last| last.len() == BLOCK_LEN)
            {
                // Most caches have a few notifications at a time.
                let few = self.blocks.is_empty() && rest.len() < BLOCK_LEN;
                let room = if few { rest.len() } else { BLOCK_LEN };
                let block = self.spare.pop();
                self.blocks
                    .push_back(block.unwrap_or_else(|| Vec::with_capacity(room)));
            }
            if let Some(last) = self.blocks.back_mut() {
                let room = BLOCK_LEN - last.len();
                last.extend(rest.by_ref().take(room));
            }
        }
    }
}

/// The notifications of one cache.
pub(crate) struct Notifier<K, V> {
    listener: Option<Listener<K, V>>,
    queue: Mutex<Queue<K, V>>,
    token: Token,
    posted: AtomicU64,
    delivered: AtomicU64,
    /// The lock of threads that wait until `delivered` has reached the count that they saw posted.
    wait_lock: Mutex<()>,
    moved: Condvar,
    panics: AtomicU64,
}

/// A block while it is delivered. If delivery stops, the rest of the block goes back to the front
/// of the queue. Only the holder of the token takes blocks, so no later block was taken meanwhile.
struct BlockInDelivery<'a, K, V> {
    block: Vec<Notification<K, V>>,
    /// How many of the block were delivered.
    delivered: usize,
    /// The nodes that were delivered and not yet passed to [`OnDelivered`].
    nodes: Vec<NodePtr<K, V>>,
    queue: &'a Mutex<Queue<K, V>>,
}

impl<K, V> Drop for BlockInDelivery<'_, K, V> {
    fn drop(&mut self) {
        self.block.drain(..self.delivered);
        let block = std::mem::take(&mut self.block);
        let mut queue = self.queue.lock();
        queue.nodes = std::mem::take(&mut self.nodes);
        if !block.is_empty() {
            queue.blocks.push_front(block);
        } else if queue.spare.len() < MAX_SPARE_BLOCKS {
            queue.spare.push(block);
        }
    }
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
                nodes: Vec::new(),
            }),
            token: Token::new(),
            posted: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
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
        // Release, partner `deliver_all`: a thread that sees the count also sees the posts.
        self.posted
            .fetch_add(gathered.len() as u64, Ordering::Release);
        queue.extend(gathered);
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
        let stopped = Cell::new(false);
        self.token.run(
            || {
                while let Some(mut left) = self.next() {
                    while left.delivered < left.block.len() {
                        while left.nodes.len() < CALLS_PER_CLOCK_READ
                            && let Some(&Notification { node, cause }) =
                                left.block.get(left.delivered)
                        {
                            left.delivered += 1;
                            self.call(listener, node, cause);
                            left.nodes.push(node);
                        }
                        let count = left.nodes.len() as u64;
                        done(&mut left.nodes);
                        self.note_delivered(count);
                        if !keep_going() {
                            stopped.set(true);
                            return;
                        }
                    }
                }
            },
            || stopped.get() || self.queue.lock().blocks.is_empty(),
        );
        stopped.get()
    }

    /// The oldest block that waits. For the holder of the token.
    fn next(&self) -> Option<BlockInDelivery<'_, K, V>> {
        let mut queue = self.queue.lock();
        let block = queue.blocks.pop_front()?;
        Some(BlockInDelivery {
            block,
            delivered: 0,
            nodes: std::mem::take(&mut queue.nodes),
            queue: &self.queue,
        })
    }

    fn call(&self, listener: &Listener<K, V>, node: NodePtr<K, V>, cause: RemovalCause) {
        let outcome = call(listener, node.key(), node.value(), cause);
        if outcome.is_none() {
            // Relaxed: a statistic.
            self.panics.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn note_delivered(&self, count: u64) {
        // Release, partner: `deliver_all`.
        self.delivered.fetch_add(count, Ordering::Release);
        // Taking the lock orders this before the check of a waiter that is about to sleep.
        drop(self.wait_lock.lock());
        self.moved.notify_all();
    }

    /// Delivers, or waits for the thread that does, until everything posted before the call was
    /// delivered. Not for a thread inside a listener.
    pub(crate) fn deliver_all(&self, done: OnDelivered<'_, K, V>) {
        debug_assert!(!inside_listener());
        if self.listener.is_none() {
            return;
        }
        let target = self.posted.load(Ordering::Acquire);
        let reached =
            |count: u64| self.delivered.load(Ordering::Acquire).wrapping_sub(count) as i64 >= 0;
        loop {
            // Notifications that the listener's own calls have posted are delivered as well, up to
            // a bound: otherwise other threads could keep this thread busy for ever.
            self.deliver(|| !reached(target + EXTRA_DELIVERIES), done);
            let mut wait_lock = self.wait_lock.lock();
            if reached(target) {
                return;
            }
            // Another thread delivers. It may stop early and leave the rest without waking this
            // thread: hence the timeout.
            self.moved
                .wait_for(&mut wait_lock, Duration::from_millis(1));
        }
    }

    pub(crate) fn listener_panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }
}
