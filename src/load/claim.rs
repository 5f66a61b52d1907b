//! A call claims a key: it gets the key's value, or the guard of a load, or it waits for another
//! call's load until that has a verdict for it.
//!
//! Threads and tasks take the same steps; [`wait`](super::wait) says how a thread waits.

use super::cycle::thread_number;
use super::guard::{Guard, Home, Keyless, OwnedGuard};
use super::key::{CacheKey, CacheValue, Key, Owned};
use super::state::{Load, Outcome, RevokedBy, Ticket, Verdict, Want};
use super::table::SameHashLoads;
use super::wait::{block_on, has_to_wait};
use crate::listener::RemovalCause;
use crate::maintenance::WriteOutcome;
use crate::map::Revalidated;
use crate::node::NodePtr;
use crate::operations::{Change, Core, Hold, WeakHandle};
use crate::stats::Count;
use crate::time::NEVER;
use equivalent::Equivalent;
use std::future::poll_fn;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The answer to a claim.
pub(crate) enum Claim<K, V, H: Home<K, V>> {
    /// The key's live value, or that of another call's load. Boxed, as values may be large: each
    /// frame through which an answer goes would have to have room for one.
    Value(Box<Keyless<V>>),
    /// The call leads; this is the live entry that a call which takes turns leads over.
    Guard(Guard<K, V, H>, Option<Box<Keyless<V>>>),
    /// Another call's load fails or has failed, in a way that this call shares.
    Failed(Outcome<V>),
    /// The call would have to wait, and may not; or the cache is gone. The key's live entry, for a
    /// call that takes turns.
    Busy(Option<Box<Keyless<V>>>),
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
    #[inline]
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
    #[inline]
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
pub(crate) struct Claimant<K, V, H: Home<K, V>, Y: Key<K>> {
    home: H,
    pub(crate) key: Y,
    /// The key's hash, once it has been computed.
    hash: Option<u64>,
    pub(crate) ask: Request,
    /// The place in the order of waiters, drawn when the call first waits.
    ticket: Option<Ticket>,
    /// The load that it waits for.
    waits: Option<Arc<Load<K, V>>>,
}

impl<K, V, H: Home<K, V>, Y: Key<K>> Claimant<K, V, H, Y> {
    pub(crate) fn new(home: H, key: Y, ask: Request) -> Self {
        Self {
            home,
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

    /// The load that the call waits for.
    pub(crate) fn awaited(&self) -> Option<&Arc<Load<K, V>>> {
        self.waits.as_ref()
    }

    /// A call that had other work to do now waits like any other call.
    pub(crate) fn wait_now(&mut self, ask: Request) {
        self.ask = ask;
        if let (Some(load), Some(ticket)) = (&self.waits, self.ticket) {
            load.wait_now(ticket);
        }
    }

    /// The call waits for its own load from now on, as another call would that wants this. The load
    /// has yet to run.
    pub(crate) fn wait_for_own(&mut self, load: Arc<Load<K, V>>, want: Want) {
        // It does not stand in a queue yet.
        _ = load.join(*self.ticket.get_or_insert_with(Ticket::draw), want, true);
        self.waits = Some(load);
    }

    /// Ends the wait of this call. If it had been told to lead, the next waiter leads.
    fn stop(&mut self) {
        if let (Some(load), Some(ticket)) = (self.waits.take(), self.ticket)
            && load.is_of_this_process()
            && load.leave(ticket)
        {
            drop(Guard::new(self.home.clone(), load));
        }
    }
}

impl<K, V, H, Y> Claimant<K, V, H, Y>
where
    K: CacheKey,
    V: CacheValue,
    H: Home<K, V, Hasher: BuildHasher>,
    Y: Key<K>,
{
    /// The claim of a call that does not wait, or whose wait has ended with this verdict; `None` if
    /// the call has to wait now.
    #[inline]
    pub(crate) fn step(&mut self, told: Option<Verdict<V>>) -> Option<Claim<K, V, H>> {
        let former = self.waits.take();
        let offered = match told {
            Some(Verdict::Ended(Outcome::Value(shared))) => {
                let clock = self.home.visit();
                let clock = clock.as_ref().map(|core| &core.shared.clock);
                return Some(Claim::Value(Keyless::of_load(clock, &shared)));
            }
            Some(Verdict::Ended(failure)) => return Some(Claim::Failed(failure)),
            Some(Verdict::Leads) => former,
            Some(Verdict::Retry) | None => None,
        };
        // Hands the lead on if this call does not need it, or panics.
        let offered = offered.map(|load| Guard::new(self.home.clone(), load));
        if let Some(guard) = &offered {
            self.key.restore(guard.load().key());
        }
        self.begin(offered)
    }

    /// The verdict about a call that waits, by polls. `None` if it does not wait, or no longer:
    /// the load is overdue.
    pub(crate) fn poll_verdict(&mut self, cx: &Context<'_>) -> Poll<Option<Verdict<V>>> {
        self.home.check_process();
        let (Some(load), Some(ticket)) = (&self.waits, self.ticket) else {
            return Poll::Ready(None);
        };
        let told = load.poll(ticket, cx.waker());
        if told.is_none() {
            let core = self.home.visit();
            match has_to_wait(core.as_deref(), load, ticket, cx.waker()) {
                Ok(true) => return Poll::Pending,
                Ok(false) => self.stop(),
                Err(cycle) => {
                    self.stop();
                    panic!("{cycle}");
                }
            }
        }
        Poll::Ready(told)
    }

    /// The claim, by polls. The first may follow a [`step`](Self::step).
    pub(crate) fn poll_claim(&mut self, cx: &Context<'_>) -> Poll<Claim<K, V, H>> {
        loop {
            let told = ready!(self.poll_verdict(cx));
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
    #[inline]
    #[track_caller]
    pub(crate) fn claim(&mut self) -> Claim<K, V, H> {
        match self.step(None) {
            Some(claim) => claim,
            None => block_on(poll_fn(|cx| self.poll_claim(cx))),
        }
    }

    /// Claims the key. `offered` is the guard of the load that the call was told to lead.
    #[inline(never)]
    fn begin(&mut self, offered: Option<Guard<K, V, H>>) -> Option<Claim<K, V, H>> {
        let Some(core) = self.home.visit() else {
            self.home.check_process();
            return Some(Claim::Busy(None));
        };
        let hash = match self.hash {
            Some(hash) => hash,
            None => *self.hash.insert(core.hash(self.key.query())),
        };
        let waits_already = self.ticket.is_some();
        // Once for each call: before it waits, and before it leads.
        if !waits_already {
            core.count_operation();
        }
        let (shared, ask, mut left) = (&core.shared, self.ask, None);
        let begin = Begin {
            core: &*core,
            key: &mut self.key,
            hash,
            ask,
            ticket: &mut self.ticket,
            offered: offered.as_ref().map(Guard::load),
            left: &mut left,
            now: 0,
            wants_key: false,
        };
        // Before the pin: it is dropped afterwards if a clone panics, and calls wakers.
        let mut guard;
        // Holds the pin, and releases the waiters of an overdue load.
        let (begun, settled) = shared.transact(hash, begin).split();
        let over = match begun {
            Begun::Live(node) => return Some(Claim::Value(Keyless::of_node(shared, node))),
            Begun::Busy(over) => {
                let live = over.filter(|&node| shared.is_live(node));
                let seen = live.map(|node| Keyless::of_node(shared, node));
                return Some(Claim::Busy(seen));
            }
            Begun::Remembered(failure) => {
                shared.count(Count::RememberedFailures);
                return Some(Claim::Failed(failure));
            }
            Begun::Withdrawn => {
                settled.end();
                drop(offered);
                return self.begin(None);
            }
            Begun::Joined(load, now) => {
                settled.end();
                // After it has joined: a caller that reads the count may rely on it.
                if !waits_already {
                    shared.count(Count::LoadWaits);
                }
                core.watch_load(&load, now);
                self.waits = Some(load);
                return None;
            }
            Begun::Leads(load, over) => {
                guard = offered.unwrap_or_else(|| Guard::new(self.home.clone(), load));
                (guard.runs, guard.absent) = (true, over.is_none());
                over
            }
        };
        let over = over.filter(|_| !ask.reloads());
        let seen = over.map(|node| Keyless::of_node(shared, node));
        settled.end();
        if let Some(outcome) = left {
            core.maintenance.after_write(shared, outcome);
        }
        Some(Claim::Guard(guard, seen))
    }
}

impl<K, V, H: Home<K, V>, Y: Key<K>> Drop for Claimant<K, V, H, Y> {
    #[inline]
    fn drop(&mut self) {
        if self.waits.is_some() {
            self.stop();
        }
    }
}

/// The begin of a load, as a change: in one hold of the shard's lock it confirms that the key is
/// absent or due, and joins the key's current load or lists one of its own.
struct Begin<'b, K, V, S, Y> {
    core: &'b Core<K, V, S>,
    key: &'b mut Y,
    hash: u64,
    ask: Request,
    ticket: &'b mut Option<Ticket>,
    /// The load that the call was told to lead.
    offered: Option<&'b Arc<Load<K, V>>>,
    /// An entry that was due has left.
    left: &'b mut Option<WriteOutcome>,
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
    /// With the key's entry, for a call that takes turns.
    Busy(Option<NodePtr<K, V>>),
    /// The key's last load has failed, which is remembered.
    Remembered(Outcome<V>),
    /// The load that the call was told to lead is no longer current.
    Withdrawn,
    /// With the live entry that it leads over.
    Leads(Arc<Load<K, V>>, Option<NodePtr<K, V>>),
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
    fn expects_absent(&mut self) -> bool {
        // Most calls have just looked the key up.
        self.offered.is_none() && self.ask.over == Over::Absent
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
            self.core.load_clock()
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
            } else if self.core.is_overdue(&load, self.now) {
                overdue = true;
            } else {
                if !self.ask.may_wait {
                    return Ok(Begun::Busy(place.node().filter(|_| !self.ask.reloads())));
                }
                let place = *self.ticket.get_or_insert_with(Ticket::draw);
                if !load.join(place, self.ask.want, self.ask.reloads()) {
                    return Err(());
                }
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
            return Ok(Begun::Busy(None));
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
        if let Some(spot) = due {
            let node = spot.node;
            hold.shard.remove(spot, RemovalCause::Expired);
            shared.note_removed(|| node.weight(), RemovalCause::Expired);
            *self.left = Some(WriteOutcome::of_removal(&hold.shard, None));
        }
        // For a task that is the calling thread, until its poll ends: what it calls meanwhile must
        // not wait for it.
        let leader = thread_number();
        if !idle.as_ref().is_some_and(|(_, counted)| *counted) {
            shared.count(Count::Loads);
        }
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
            self.core.begin_refresh(&load, node, self.now);
            shared.count(Count::Reloads);
        }
        Ok(Begun::Leads(load, over))
    }
}

impl<K: CacheKey, V: CacheValue, S: BuildHasher> Core<K, V, S> {
    /// The guard of a reload, if the key has a stale entry, and no load, or one that is overdue or
    /// rests.
    pub(crate) fn begin_reload<Q>(
        &self,
        home: WeakHandle<K, V, S>,
        hash: u64,
        key: &Q,
    ) -> Option<OwnedGuard<K, V, S>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let pin = self.shared.pin();
        let hit = self.shared.find_live(hash, key, &pin)?;
        // The caller may have judged by a clock that is ahead.
        let now = self.shared.clock.now();
        (hit.node.refresh()).filter(|refresh| refresh.is_stale(now))?;
        let key = Owned(Some(hit.node.key().clone()));
        drop(pin);
        let ask = Request {
            over: Over::Stale,
            may_wait: false,
            ..Request::value(Want::Value)
        };
        match Claimant::new(home, key, ask).with_hash(hash).step(None)? {
            Claim::Guard(guard, _) => Some(guard),
            _ => None,
        }
    }

    /// The failure of the key's last load, while it is remembered, for a call that wants this.
    pub(crate) fn remembered<Q>(&self, hash: u64, key: &Q, want: Want) -> Option<Outcome<V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let mut same_hash = SameHashLoads::new();
        loop {
            let shard = self.shared.map.lock(hash);
            if shard.loads().classify(hash, &mut same_hash) {
                drop(shard);
                let load = same_hash.mine()?;
                let resting = load.is_resting();
                let now = self.shared.clock.now();
                return resting.then(|| load.remembered(now, want))?;
            }
            drop(shard);
            same_hash.compare(|other| key.equivalent(other));
        }
    }
}
