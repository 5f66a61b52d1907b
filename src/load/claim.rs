//! A call claims a key: it gets the key's value, or the guard of a load, or it waits for another
//! call's load until that has a verdict for it.
//!
//! Threads and tasks take the same steps; [`wait`](super::wait) says how a thread waits.

use super::cycle::thread_number;
use super::guard::{CallGuard, Guard, Keyless};
use super::key::{CacheKey, CacheValue, Key, Owned};
use super::state::{Load, Outcome, RevokedBy, Ticket, Verdict, Want};
use super::table::SameHashLoads;
use super::wait::{block_on, has_to_wait};
use crate::listener::RemovalCause;
use crate::maintenance::WriteOutcome;
use crate::map::Revalidated;
use crate::node::NodePtr;
use crate::operations::{Change, Cloned, Core, Hold, LoadView, Lookup};
use crate::stats::Count;
use crate::time::NEVER;
use equivalent::Equivalent;
use std::future::poll_fn;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The answer to a claim.
pub(crate) enum Claim<'a, K, V, S> {
    /// The key's live value, or that of another call's load. Boxed, as values may be large: each
    /// frame through which an answer goes would have to have room for one.
    Value(Box<Keyless<V>>),
    /// The call leads; this is the live entry that a call which takes turns leads over.
    Guard(CallGuard<'a, K, V, S>, Option<Box<Keyless<V>>>),
    /// Another call's load fails or has failed, in a way that this call shares.
    Failed(Outcome<V>),
    /// The call would have to wait, and may not.
    Busy,
}

/// Over which entries of the key a call's code runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// None that is live.
    Absent,
    /// One that is stale.
    Stale,
    /// Any, or none.
    Any,
}

/// What a call wants of the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) want: Want,
    pub(crate) over: Over,
    /// Whether the call waits for another call's load.
    pub(crate) may_wait: bool,
    /// Whether the call takes the error that is remembered, rather than leads.
    pub(crate) heeds_failures: bool,
}

impl Request {
    /// The request of a call that wants a value.
    pub(crate) const fn value(want: Want) -> Self {
        Self {
            want,
            over: Over::Absent,
            may_wait: true,
            heeds_failures: false,
        }
    }

    /// The request of a call that runs its own code, whether the key has an entry or not.
    pub(crate) const fn turn(may_wait: bool) -> Self {
        Self {
            want: Want::OwnTurn,
            over: Over::Any,
            may_wait,
            heeds_failures: false,
        }
    }

    /// Whether the load is a reload if the key has a live entry.
    fn reloads(&self) -> bool {
        self.over != Over::Absent && self.want != Want::OwnTurn
    }

    /// The same for a call that takes an error that is remembered.
    pub(crate) const fn heeding_failures(self) -> Self {
        Self {
            heeds_failures: true,
            ..self
        }
    }
}

/// A call that has yet to get its claim.
pub(crate) struct Claimant<'a, K, V, S, Y: Key<K>> {
    core: &'a Core<K, V, S>,
    key: Y,
    /// The key's hash, once it has been computed.
    hash: Option<u64>,
    ask: Request,
    /// The place in the order of waiters, drawn when the call first waits.
    ticket: Option<Ticket>,
    /// The load that it waits for.
    waits: Option<Arc<Load<K, V>>>,
}

impl<'a, K, V, S, Y: Key<K>> Claimant<'a, K, V, S, Y> {
    pub(crate) fn new(core: &'a Core<K, V, S>, key: Y, ask: Request) -> Self {
        Self {
            core,
            key,
            hash: None,
            ask,
            ticket: None,
            waits: None,
        }
    }

    pub(super) fn with_hash(mut self, hash: u64) -> Self {
        self.hash = Some(hash);
        self
    }

    /// A call that had other work to do now waits like any other call.
    pub(super) fn wait_now(&mut self, ask: Request) {
        self.ask = ask;
        if let (Some(load), Some(ticket)) = (&self.waits, self.ticket) {
            load.wait_now(ticket);
        }
    }

    /// Ends the wait of this call. If it had been told to lead, the next waiter leads.
    fn stop(&mut self) {
        if let (Some(load), Some(ticket)) = (self.waits.take(), self.ticket)
            && load.is_of_this_process()
            && load.leave(ticket)
        {
            drop(Guard::new(self.core, load));
        }
    }
}

impl<'a, K: CacheKey, V: CacheValue, S: BuildHasher, Y: Key<K>> Claimant<'a, K, V, S, Y> {
    /// The key's value as of `get`, at the first call; later calls do not look it up.
    pub(super) fn look_up(&mut self) -> Option<V> {
        if self.hash.is_some() {
            return None;
        }
        let key = self.key.query();
        let hash = self.core.hash(key);
        let value = Cloned::look_up_hashed(self.core, hash, key);
        // Set after the user code: if that panics, the next poll starts from here.
        self.hash = Some(hash);
        value
    }

    /// The claim of a call that does not wait, or whose wait has ended with this verdict; `None` if
    /// the call has to wait now.
    pub(super) fn step(&mut self, told: Option<Verdict<V>>) -> Option<Claim<'a, K, V, S>> {
        let former = self.waits.take();
        let offered = match told {
            Some(Verdict::Ended(Outcome::Value(shared))) => {
                return Some(Claim::Value(Keyless::of_load(&self.core.shared, &shared)));
            }
            Some(Verdict::Ended(failure)) => return Some(Claim::Failed(failure)),
            Some(Verdict::Leads) => former,
            Some(Verdict::Retry) | None => None,
        };
        let hash = match self.hash {
            Some(hash) => hash,
            None => *self.hash.insert(self.core.hash(self.key.query())),
        };
        let loads = self.core.loads();
        match loads.begin(offered, &mut self.key, hash, &self.ask, &mut self.ticket) {
            Ok(claim) => Some(claim),
            Err(load) => {
                self.waits = Some(load);
                None
            }
        }
    }

    /// The claim, by polls. The first may follow a [`step`](Self::step).
    pub(crate) fn poll_claim(&mut self, cx: &mut Context<'_>) -> Poll<Claim<'a, K, V, S>> {
        self.core.maintenance.check_process();
        loop {
            let mut told = None;
            if let (Some(load), Some(ticket)) = (&self.waits, self.ticket) {
                told = load.poll(ticket, cx.waker());
                if told.is_none() {
                    match has_to_wait(Some(self.core), load, ticket, cx.waker()) {
                        Ok(true) => return Poll::Pending,
                        Ok(false) => self.stop(),
                        Err(cycle) => {
                            self.stop();
                            panic!("{cycle}");
                        }
                    }
                }
            }
            if let Some(claim) = self.step(told) {
                return Poll::Ready(claim);
            }
        }
    }

    /// The claim of a thread.
    ///
    /// # Panics
    ///
    /// If the thread would wait for itself.
    #[track_caller]
    pub(crate) fn claim(&mut self) -> Claim<'a, K, V, S> {
        match self.step(None) {
            Some(claim) => claim,
            None => block_on(poll_fn(|cx| self.poll_claim(cx))),
        }
    }
}

impl<K, V, S, Y: Key<K>> Drop for Claimant<'_, K, V, S, Y> {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The begin of a load, as a change: in one hold of the shard's lock it confirms that the key is
/// absent or due, and joins the key's current load or lists one of its own.
struct Begin<'b, K, V, S, Y> {
    core: &'b Core<K, V, S>,
    key: &'b mut Y,
    hash: u64,
    ask: &'b Request,
    ticket: &'b mut Option<Ticket>,
    /// The load that the call was told to lead.
    offered: Option<&'b Arc<Load<K, V>>>,
    /// Cache time.
    now: u64,
    /// Whether the next attempt needs the owned key.
    wants_key: bool,
}

/// The end of a [`Begin`].
enum Begun<K, V> {
    Live(NodePtr<K, V>),
    /// The load that the call has joined, and the cache time.
    Joined(Arc<Load<K, V>>, u64),
    Busy,
    /// The key's last load has failed, which is remembered.
    Remembered(Outcome<V>),
    /// The load that the call was told to lead is no longer current.
    Withdrawn,
    Leads {
        load: Arc<Load<K, V>>,
        /// Whether its run was counted before.
        counted: bool,
        /// The live entry that it leads over.
        over: Option<NodePtr<K, V>>,
        /// An entry that was due has left.
        left: Option<WriteOutcome>,
    },
}

impl<K, V, S, Y> Begin<'_, K, V, S, Y> {
    fn heeds_failures(&self) -> bool {
        self.ask.heeds_failures && self.core.failure_backoff.is_some()
    }

    /// The failure of an earlier run that this call takes as its answer.
    fn failure(&self, load: &Load<K, V>) -> Option<Outcome<V>> {
        let heeds = self.heeds_failures();
        heeds.then(|| load.remembered(self.now, self.ask.want))?
    }
}

impl<K, V, S, Y> Change<K, V> for Begin<'_, K, V, S, Y>
where
    K: CacheKey,
    V: CacheValue,
    S: BuildHasher,
    Y: Key<K>,
{
    type Key = Y::Query;
    type Plan = ();
    type Done = Begun<K, V>;
    const KNOWS_LOADS: bool = true;

    #[inline]
    fn key(&self) -> &Y::Query {
        self.key.query()
    }

    #[inline]
    fn ask(&mut self, found: Option<NodePtr<K, V>>, _: Option<()>) -> Result<(), Begun<K, V>> {
        if self.ask.over == Over::Absent
            && let Some(node) = found
            && self.core.shared.is_live(node)
        {
            return Err(Begun::Live(node));
        }
        if self.wants_key {
            self.key.prepare();
        }
        self.now = if self.ask.reloads() || self.heeds_failures() {
            self.core.shared.clock.now()
        } else {
            self.core.loads().clock()
        };
        Ok(())
    }

    #[inline]
    fn apply<'s>(
        &mut self,
        (): (),
        place: Revalidated<'s, K, V>,
        hold: &mut Hold<'_, 's, K, V>,
    ) -> Result<Begun<K, V>, ()> {
        let loads = self.core.loads();
        // An idle load: also whether its run was counted before.
        let (mut idle, mut overdue) = (None, false);
        if let Some(offered) = self.offered {
            if !offered.is_current() {
                return Ok(Begun::Withdrawn);
            }
            if let Some(failure) = self.failure(offered) {
                return Ok(Begun::Remembered(failure));
            }
        } else if let Some(load) = hold.load() {
            let load = Arc::clone(load);
            if load.is_resting() {
                if let Some(failure) = self.failure(&load) {
                    return Ok(Begun::Remembered(failure));
                }
                idle = Some((load, false));
            } else if !self.ask.reloads() && load.is_queued() {
                // Neither a miss nor a compute waits for a reload that only waits for a thread: it
                // takes it over.
                idle = Some((load, true));
            } else if loads.is_overdue(&load, self.now) {
                overdue = true;
            } else {
                if !self.ask.may_wait {
                    return Ok(Begun::Busy);
                }
                let place = *self.ticket.get_or_insert_with(Ticket::draw);
                load.join(place, self.ask.want);
                return Ok(Begun::Joined(load, self.now));
            }
        }
        let led = self.offered.or(idle.as_ref().map(|(load, _)| load));
        if led.is_none() && self.key.owned().is_none() {
            self.wants_key = true;
            return Err(());
        }
        let shared = &self.core.shared;
        let (mut over, mut due) = (None, None);
        if let Revalidated::Occupied(spot) = place {
            let node = spot.node;
            let is_live = |now| node.deadline_if_live(now).is_some();
            if node.deadline() != NEVER && !is_live(shared.clock.now()) {
                due = Some(spot);
            } else if self.ask.over == Over::Absent {
                return Err(());
            } else {
                over = Some(node);
            }
        }
        let is_stale = |node: NodePtr<K, V>| node.refresh().is_some_and(|at| at.is_stale(self.now));
        if self.ask.over == Over::Stale && !over.is_some_and(is_stale) {
            return Ok(Begun::Busy);
        }
        if let Some((idle, _)) = &idle
            && !idle.take_idle()
        {
            return Err(());
        }
        // From here on the begin succeeds: an error would say that nothing was changed.
        if let (Some((taken, true)), Some(node)) = (&idle, over)
            && let (Some(until), Some(refresh)) = (taken.reload_until(), node.refresh())
        {
            // If the compute stores nothing, the next read reloads the entry.
            refresh.end(until, self.now, false);
        }
        let left = due.map(|spot| {
            let node = spot.node;
            hold.shard.remove(spot, RemovalCause::Expired);
            shared.note_removed(|| node.weight(), RemovalCause::Expired);
            WriteOutcome::of_removal(&hold.shard, None)
        });
        // For a task that is the calling thread, until its poll ends: what it calls meanwhile must
        // not wait for it.
        let leader = thread_number();
        let counted = idle.as_ref().is_some_and(|(_, counted)| *counted);
        let load = if let Some(led) = led {
            led.set_leader(leader);
            led.begin_anew(self.now);
            Arc::clone(led)
        } else {
            let Some(key) = self.key.owned().take() else {
                unreachable!("the key was there above");
            };
            let load = Arc::new(Load::new(self.hash, key, leader, self.now));
            if overdue {
                hold.revoke(RevokedBy::NewerLoad);
            }
            hold.shard.list_load(Arc::clone(&load));
            load
        };
        if let Some(node) = over.filter(|_| self.ask.reloads()) {
            loads.begin_refresh(&load, node, self.now);
        }
        Ok(Begun::Leads {
            load,
            counted,
            over,
            left,
        })
    }
}

impl<'a, K: CacheKey, V: CacheValue, S: BuildHasher> LoadView<'a, K, V, S> {
    /// The claim of a call on its key, or the load that it has joined. `offered` is the load that
    /// it was told to lead.
    #[inline(never)]
    pub(crate) fn begin<Y: Key<K>>(
        self,
        offered: Option<Arc<Load<K, V>>>,
        key: &mut Y,
        hash: u64,
        ask: &Request,
        ticket: &mut Option<Ticket>,
    ) -> Result<Claim<'a, K, V, S>, Arc<Load<K, V>>> {
        // Once for each call: before it waits, and before it leads.
        if offered.is_none() && ticket.is_none() {
            self.core.count_operation();
        }
        let shared = &self.core.shared;
        // Hands the lead on if this call does not need it, or panics.
        let mut offered = offered.map(|load| Guard::new(self.core, load));
        let waits_already = ticket.is_some();
        loop {
            let begin = Begin {
                core: self.core,
                key: &mut *key,
                hash,
                ask,
                ticket: &mut *ticket,
                offered: offered.as_ref().map(Guard::load),
                now: 0,
                wants_key: false,
            };
            // Before the pin: it is dropped afterwards if a clone panics, and calls wakers.
            let mut guard;
            // Holds the pin, and releases the waiters of an overdue load.
            let (begun, settled) = shared.transact(hash, begin).split();
            let (over, left) = match begun {
                Begun::Live(node) => return Ok(Claim::Value(Keyless::of_node(shared, node))),
                Begun::Busy => return Ok(Claim::Busy),
                Begun::Remembered(failure) => {
                    shared.count(Count::RememberedFailures);
                    return Ok(Claim::Failed(failure));
                }
                Begun::Withdrawn => {
                    settled.end();
                    offered = None;
                    continue;
                }
                Begun::Joined(load, now) => {
                    settled.end();
                    // After it has joined: a caller that reads the count may rely on it.
                    if !waits_already {
                        shared.count(Count::LoadWaits);
                    }
                    self.watch_quietly(&load, now);
                    return Err(load);
                }
                Begun::Leads {
                    load,
                    counted,
                    over,
                    left,
                } => {
                    guard = offered.unwrap_or_else(|| Guard::new(self.core, load));
                    guard.begins(counted);
                    if guard.load().reload_until().is_some() {
                        shared.count(Count::Reloads);
                    }
                    (over, left)
                }
            };
            let over = over.filter(|_| !ask.reloads());
            let seen = over.map(|node| Keyless::of_node(shared, node));
            settled.end();
            if let Some(outcome) = left {
                self.core.maintenance.after_write(shared, outcome);
            }
            return Ok(Claim::Guard(guard, seen));
        }
    }

    /// The guard of a reload, if the key has a stale entry, and no load, or one that is overdue or
    /// rests.
    pub(crate) fn begin_reload<Q>(self, hash: u64, key: &Q) -> Option<CallGuard<'a, K, V, S>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let pin = self.core.shared.pin();
        let hit = self.core.shared.find_live(hash, key, &pin)?;
        // The caller may have judged by a clock that is ahead.
        let now = self.core.shared.clock.now();
        (hit.node.refresh()).filter(|refresh| refresh.is_stale(now))?;
        let mut key = Owned(Some(hit.node.key().clone()));
        drop(pin);
        let ask = Request {
            over: Over::Stale,
            may_wait: false,
            ..Request::value(Want::Value)
        };
        match self.begin(None, &mut key, hash, &ask, &mut None) {
            Ok(Claim::Guard(guard, _)) => Some(guard),
            _ => None,
        }
    }

    /// The failure of the key's last load, while it is remembered, for a call that wants this.
    pub(crate) fn remembered<Q>(self, hash: u64, key: &Q, want: Want) -> Option<Outcome<V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let mut same_hash = SameHashLoads::new();
        loop {
            let shard = self.core.shared.map.lock(hash);
            if shard.loads().classify(hash, &mut same_hash) {
                drop(shard);
                let load = same_hash.mine()?;
                let resting = load.is_resting();
                let now = self.core.shared.clock.now();
                return resting.then(|| load.remembered(now, want))?;
            }
            drop(shard);
            same_hash.compare(|other| key.equivalent(other));
        }
    }

    /// The live value of a key, without counting as a read.
    pub(crate) fn peek<Q>(self, hash: u64, key: &Q) -> Option<Box<Keyless<V>>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let shared = &self.core.shared;
        let pin = shared.pin();
        let hit = shared.find_live(hash, key, &pin)?;
        Some(Keyless::of_node(shared, hit.node))
    }
}
