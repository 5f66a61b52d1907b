//! Deliveries: the pass posts what has left under its lock; after the pass, one thread at a time
//! calls the listener for it, in order.
//!
//! # How it works
//!
//! The pass [`post`](Notifier::post)s nodes that left the cache. The node itself carries key and
//! value, so a notification copies nothing, and the listener gets the value that was removed. A
//! thread that [`deliver`](Notifier::deliver)s becomes the *deliverer*, unless another thread is.
//! It takes a few notifications at a time and calls the listener for each node in order, with no
//! lock held. It gives the role up in the hold of the lock in which it finds the queue empty, or
//! has reached its limit. So a thread that finds a deliverer leaves the work to that thread.
//!
//! A run that has posted, or a call in its place, *offers* a delivery to the crew, unless one is
//! offered already or a thread delivers. The thread that takes the offer delivers, withdraws the
//! offer, and looks at the queue once more.
//!
//! # Which thread delivers
//!
//! | the mode | what a call removes is reported by | what expires or is evicted, by | calls that wait for it |
//! |---|---|---|---|
//! | [`Delivery::Background`] | a thread of the crew | a thread of the crew | none |
//! | [`Delivery::Caller`] | that call, before it returns | the call whose pass removes it, else a thread of the crew | each one that removes |
//!
//! `run_pending_tasks` and the drop of the last handle wait in both modes.
//!
//! # Invariants
//!
//! 1. Nodes are posted in the order of the removals of each key, and delivered in the order of
//!    posting: one queue, one deliverer.
//! 2. A posted node is freed only after it was delivered: only [`deliver`](Notifier::deliver) gives
//!    nodes back.
//! 3. If the queue is not empty, a thread delivers, and will look at the queue again. Or a delivery
//!    is offered, or about to be, since the last deliverer has stopped at its limit. Or no thread
//!    was asked to deliver since the last post.
//! 4. A delivery is offered from a successful [`begin_offer`](Notifier::begin_offer) to the end of
//!    the delivery that was offered, or to its refusal. So one is offered at a time.
//!
//! # Cost
//!
//! A post copies 16 bytes for each notification, and moves none of those that wait. Where the
//! listener keeps up, it allocates nothing. The queue has no bound: no notification may be lost,
//! and no caller may wait for a slow listener. One that never returns keeps every removed value in
//! memory.

use super::Engine;
use crate::contain::{AtEnd, contain};
use crate::listener::{Delivery, Listener, RemovalCause};
use crate::node::NodePtr;
use crate::scheduler::{CREW, in_listener, inside_listener, is_crew_thread};
use crate::stripe::thread_number;
use crate::sync::cycle::NotedWait;
use crate::sync::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering, yield_now};
use crate::time;
use std::collections::VecDeque;
use std::time::Duration;

/// How many notifications a thread delivers before other caches get their turn.
pub(super) const CALLS_PER_TURN: u64 = 1024;

/// Notifications in a chunk: so many are taken back together, at most, when they are delivered.
const CHUNK_LEN: usize = 32;
/// At most this many emptied chunks are kept, and room for as many in an empty queue.
const SPARE_CHUNKS: usize = 32;

/// How many later notifications a call that waits for deliveries includes, beside those that were
/// posted before it. Among them are those that the listener's own calls have posted.
pub(crate) const EXTRA_DELIVERIES: u64 = 128;

/// How long a waiting thread sleeps before it looks again, woken or not.
const LONGEST_WAIT: Duration = Duration::from_millis(5);

/// How often in a row a call that waits offers a delivery in vain, before it waits no longer.
const MAX_REFUSALS: u32 = 2;

/// One removal to be delivered: the node that has left, and why.
pub(crate) type Notification<K, V> = (NodePtr<K, V>, RemovalCause);

/// At most [`CHUNK_LEN`] of them, posted one after the other.
type Chunk<K, V> = Vec<Notification<K, V>>;

/// The notifications of one cache.
pub(crate) struct Notifier<K, V> {
    listener: Option<Listener<K, V>>,
    state: Mutex<DeliveryState<K, V>>,
    /// The state has changed.
    moved: Condvar,
    panics: AtomicU64,
}

struct DeliveryState<K, V> {
    /// The notifications that wait, in the order of posting. In chunks, none of them empty, so that
    /// a post does not move those that wait already.
    queue: VecDeque<Chunk<K, V>>,
    /// Emptied chunks, to be filled again.
    spare: Vec<Chunk<K, V>>,
    /// The thread that delivers.
    deliverer: Option<u64>,
    posted: u64,
    delivered: u64,
    /// Whether a delivery is offered.
    offered: bool,
    /// How many threads wait until others have delivered.
    waiters: usize,
}

impl<K, V> DeliveryState<K, V> {
    fn append(&mut self, mut posted: &[Notification<K, V>]) {
        while !posted.is_empty() {
            if self.queue.back().is_none_or(|last| last.len() == CHUNK_LEN) {
                let spare = self.spare.pop();
                let chunk = spare.unwrap_or_else(|| Vec::with_capacity(CHUNK_LEN));
                self.queue.push_back(chunk);
            }
            if let Some(last) = self.queue.back_mut() {
                let fitting = posted.len().min(CHUNK_LEN - last.len());
                last.extend_from_slice(&posted[..fitting]);
                posted = &posted[fitting..];
            }
        }
    }

    /// Keeps an emptied chunk to be filled again, unless there are enough.
    fn keep(&mut self, emptied: Chunk<K, V>) {
        if self.spare.len() < SPARE_CHUNKS {
            self.spare.push(emptied);
        }
    }

    /// Moves as many as it has room for to a chunk that was taken before.
    fn fill(&mut self, taken: &mut Chunk<K, V>) {
        while taken.len() < CHUNK_LEN {
            let Some(first) = self.queue.front_mut() else {
                break;
            };
            let more = first.len().min(CHUNK_LEN - taken.len());
            taken.extend(first.drain(..more));
            if first.is_empty() {
                if let Some(emptied) = self.queue.pop_front() {
                    self.keep(emptied);
                }
            }
        }
    }
}

impl<K, V> Notifier<K, V> {
    pub(crate) fn new(listener: Option<Listener<K, V>>) -> Self {
        Self {
            listener,
            state: Mutex::new(DeliveryState {
                queue: VecDeque::new(),
                spare: Vec::new(),
                deliverer: None,
                posted: 0,
                delivered: 0,
                offered: false,
                waiters: 0,
            }),
            moved: Condvar::new(),
            panics: AtomicU64::new(0),
        }
    }

    /// Appends what a pass has gathered. For the holder of the maintenance lock (delivery 1).
    pub(crate) fn post(&self, gathered: &mut Vec<Notification<K, V>>) {
        if gathered.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        state.posted += gathered.len() as u64;
        state.append(gathered);
        drop(state);
        gathered.clear();
    }

    /// How many were posted since the cache was built.
    pub(crate) fn posted(&self) -> u64 {
        self.state.lock().posted
    }

    /// Notifications not yet delivered.
    pub(crate) fn waiting(&self) -> u64 {
        let state = self.state.lock();
        state.posted - state.delivered
    }

    /// Delivers until nothing is left, or until `most` or more were delivered since the cache was
    /// built. Hands delivered nodes to `done`. Returns at once if another thread delivers. A panic
    /// of the listener is caught and counted.
    pub(crate) fn deliver(&self, most: u64, mut done: impl FnMut(&mut Vec<Notification<K, V>>)) {
        let Some(listener) = &self.listener else {
            return;
        };
        let mut state = self.state.lock();
        if state.deliverer.is_some() {
            return;
        }
        state.deliverer = Some(thread_number());
        while state.delivered < most {
            let Some(mut taken) = state.queue.pop_front() else {
                break;
            };
            let mut called = 0;
            while called < taken.len() {
                drop(state);
                for (node, cause) in &taken[called..] {
                    let heard =
                        in_listener(|| contain(|| listener(node.key(), node.value(), *cause)));
                    if heard.is_none() {
                        // Relaxed: a statistic.
                        self.panics.fetch_add(1, Ordering::Relaxed);
                    }
                }
                called = taken.len();
                state = self.state.lock();
                // What was posted meanwhile comes back together with these.
                state.fill(&mut taken);
            }
            if state.queue.is_empty() {
                state.queue.shrink_to(SPARE_CHUNKS);
            }
            drop(state);
            done(&mut taken);
            state = self.state.lock();
            state.delivered += called as u64;
            state.keep(taken);
        }
        state.deliverer = None;
        // If notifications are left, a thread that waits takes over.
        self.release(state);
    }

    /// Releases the state, which has changed, and wakes the threads that wait for that.
    fn release(&self, state: MutexGuard<'_, DeliveryState<K, V>>) {
        let is_awaited = state.waiters > 0;
        drop(state);
        if is_awaited {
            self.moved.notify_all();
            // Lets them run before this thread goes on.
            yield_now();
        }
    }

    /// Begins an offer, which the caller has to make: true if notifications wait, no delivery is
    /// offered, and no thread delivers, which would look at the queue again.
    pub(crate) fn begin_offer(&self) -> bool {
        let mut state = self.state.lock();
        if state.deliverer.is_some() || state.offered || state.queue.is_empty() {
            return false;
        }
        state.offered = true;
        true
    }

    /// How many were delivered since the cache was built.
    pub(crate) fn delivered(&self) -> u64 {
        self.state.lock().delivered
    }

    /// The delivery that was offered has ended, or was refused. The caller then looks whether to
    /// [begin](Self::begin_offer) another offer.
    pub(crate) fn end_offer(&self) {
        let mut state = self.state.lock();
        state.offered = false;
        self.release(state);
    }

    /// Whether a thread waits that will free what was delivered.
    pub(crate) fn has_waiters(&self) -> bool {
        self.state.lock().waiters > 0
    }

    /// Waits until `most` were delivered since the cache was built, or all that were posted. While
    /// no thread delivers, calls `deliver`. Ends early if `keep_waiting`, which it calls at
    /// intervals, returns false. Not for a thread inside a listener.
    pub(crate) fn deliver_or_wait(
        &self,
        most: u64,
        mut deliver: impl FnMut(),
        keep_waiting: impl FnMut() -> bool,
    ) {
        self.wait_for(
            most,
            |state| state.deliverer.is_some(),
            || {
                deliver();
                true
            },
            keep_waiting,
        );
    }

    /// As [`deliver_or_wait`](Self::deliver_or_wait), but while no thread delivers, and no delivery
    /// is offered, calls `offer`: false if no thread takes the offer. Then this ends, and returns
    /// false as well.
    pub(crate) fn await_delivered(
        &self,
        most: u64,
        offer: impl FnMut() -> bool,
        keep_waiting: impl FnMut() -> bool,
    ) -> bool {
        self.wait_for(
            most,
            |state| state.deliverer.is_some() || state.offered,
            offer,
            keep_waiting,
        )
    }

    /// Waits until `most` were delivered, or all that were posted. Calls `tell` unless the listener
    /// is told, or soon will be. False if `tell` says that it never will.
    ///
    /// Ends early, too, if the thread that delivers waits for a load that the calling thread leads.
    /// If it waits for long for one that no thread leads, the calling thread may be the one to end
    /// it.
    fn wait_for(
        &self,
        most: u64,
        is_told: impl Fn(&DeliveryState<K, V>) -> bool,
        mut tell: impl FnMut() -> bool,
        mut keep_waiting: impl FnMut() -> bool,
    ) -> bool {
        debug_assert!(!inside_listener());
        let mut seen = 0;
        let mut refusals = 0;
        let mut wait = NotedWait::begin();
        self.state.lock().waiters += 1;
        let _ends = AtEnd(&self.state, |state| state.lock().waiters -= 1);
        loop {
            // `tell` may run listeners, and `keep_waiting` a ticker.
            wait.go_on();
            let state = self.state.lock();
            let delivered = state.delivered;
            let deliverer = state.deliverer;
            if delivered >= most.min(state.posted) {
                return true;
            }
            let must_tell = !is_told(&state);
            drop(state);
            if !keep_waiting() || !wait.lasts(deliverer.as_slice()) {
                return true;
            }
            if delivered != seen || deliverer.is_some() {
                seen = delivered;
                refusals = 0;
            }
            if must_tell {
                refusals += 1;
                if refusals > MAX_REFUSALS || !tell() {
                    return false;
                }
                continue;
            }
            let mut state = self.state.lock();
            if state.delivered == seen && is_told(&state) {
                self.moved.wait_for(&mut state, LONGEST_WAIT);
            }
        }
    }

    pub(crate) fn listener_panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// For how many chunks the queue keeps room.
    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        self.state.lock().queue.capacity()
    }

    /// Where the notifications that wait stand in memory, in their order.
    #[cfg(test)]
    pub(crate) fn places(&self) -> Vec<usize> {
        let state = self.state.lock();
        let waiting = state.queue.iter().flatten();
        waiting.map(|one| std::ptr::from_ref(one).addr()).collect()
    }
}

impl<K, V> Engine<K, V> {
    /// Whether a call that removes an entry returns after the listener has heard of it.
    #[inline]
    pub(crate) fn tells_callers(&self) -> bool {
        matches!(self.delivery, Some(Delivery::Caller))
    }

    /// Retires nodes that were delivered: they are to be freed.
    fn retire_told(&self, told: &mut Vec<Notification<K, V>>) {
        let part_of = |node: NodePtr<K, V>| self.number_of_part(node.shard());
        let mut waiting = told.drain(..).peekable();
        while let Some(&(first, _)) = waiting.peek() {
            let number = part_of(first);
            let mut state = self.parts[number].state.lock();
            // Those of other parts wait until this lock is released.
            while let Some((node, _)) = waiting.next_if(|&(node, _)| part_of(node) == number) {
                state.freeing.retire(node.shard(), node);
            }
        }
    }
}

impl<K, V> Engine<K, V> {
    /// Offers a delivery, if there is something to deliver, none is offered, and no thread
    /// delivers. False if no thread can be started for it.
    pub(super) fn offer_delivery(&self) -> bool {
        let notifier = &self.notifier;
        if !notifier.begin_offer() {
            return true;
        }
        let is_taken = CREW.deliver_soon(&self.waking.cache);
        if !is_taken {
            notifier.end_offer();
        }
        is_taken
    }

    /// Has the listener called soon for what waits. Where no thread can be started for that, calls
    /// it here.
    pub(super) fn offer_or_deliver(&self) {
        if !self.offer_delivery() {
            self.deliver_here();
        }
    }

    /// The work of the thread that takes an offered delivery. True if it has to be offered again.
    pub(crate) fn deliver(&self) -> bool {
        let (notifier, waking) = (&self.notifier, &self.waking);
        let most = notifier.delivered() + CALLS_PER_TURN;
        let mut frees = false;
        notifier.deliver(most, |told| {
            self.retire_told(told);
            // A thread that waits for deliveries, and so sees these, frees them itself.
            frees |= !notifier.has_waiters();
        });
        notifier.end_offer();
        if frees && !waking.cache.is_closed() {
            // The ticker, or the alarm, may panic: what waits is offered all the same.
            contain(|| waking.request_soon(&self.clock));
        }
        notifier.begin_offer()
    }

    /// Delivers on the calling thread what waits now, or waits for the thread that does. Inside a
    /// listener it does not wait: if a thread delivers for this cache, perhaps this one further up
    /// its stack, that thread delivers the rest.
    pub(super) fn deliver_here(&self) {
        let (notifier, inside) = (&self.notifier, inside_listener());
        let posted = notifier.posted();
        // What the listener's own calls have posted is delivered as well, up to a bound: otherwise
        // other threads could keep this thread busy for ever.
        let most = posted + EXTRA_DELIVERIES;
        let deliver = || notifier.deliver(most, |told| self.retire_told(told));
        deliver();
        if notifier.waiting() == 0 {
            return;
        }
        if !inside {
            notifier.deliver_or_wait(posted, deliver, || true);
        }
        // Posted by other threads meanwhile: this call does not wait for them.
        let is_offered = self.offer_delivery();
        if inside && !is_offered {
            // No thread can be started, and this one waits for no other: it delivers all.
            notifier.deliver(u64::MAX, |told| self.retire_told(told));
        }
    }

    /// Between the passes of a run: offers a delivery, delivers, or waits for the thread that does.
    /// True if other work is due before all was delivered.
    pub(super) fn deliver_from_run(&self) -> bool {
        let waking = &self.waking;
        if waking.scheduler.is_background() {
            // The scheduler thread calls no listener, and waits for none.
            _ = self.offer_delivery();
            return false;
        }
        // An alarm's task runs on a thread of the program.
        match &self.delivery {
            Some(Delivery::Caller) => self.deliver_here(),
            Some(Delivery::Background) if !inside_listener() && !self.has_pending() => {
                let next = self.next_visit();
                let mut is_due = false;
                self.await_delivery(|| {
                    let now = self.clock.now();
                    is_due =
                        waking.is_run_due(now) || next.is_some_and(|next| time::is_due(now, next));
                    !is_due
                });
                return is_due;
            }
            // The run goes on while another thread delivers.
            _ => _ = self.offer_delivery(),
        }
        false
    }

    /// Waits until the shared threads have delivered what waits now. Delivers it itself on one of
    /// them, which may be the only one, or if no thread can be started.
    fn await_delivery(&self, keep_waiting: impl FnMut() -> bool) {
        let notifier = &self.notifier;
        if notifier.waiting() == 0 {
            return;
        }
        if is_crew_thread() {
            return self.deliver_here();
        }
        let most = notifier.posted() + EXTRA_DELIVERIES;
        if !notifier.await_delivered(most, || self.offer_delivery(), keep_waiting) {
            self.deliver_here();
        }
    }

    /// `run_pending_tasks`: when it returns, all that was posted before the call is delivered.
    pub(super) fn deliver_pending(&self) {
        if self.tells_callers() {
            self.deliver_here();
        } else if inside_listener() {
            self.offer_delivery();
        } else {
            self.await_delivery(|| true);
        }
    }

    /// The end of the cache: applies what was written before, and waits until the listener has
    /// heard of all removals, from the thread that the mode names. False if the listener waits for
    /// this thread.
    pub(crate) fn tell_rest(&self) -> bool {
        if !self.drain_last() {
            return true;
        }
        if self.tells_callers() {
            self.deliver_here();
        } else {
            self.await_delivery(|| true);
        }
        self.notifier.waiting() == 0
    }
}
