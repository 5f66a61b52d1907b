//! A call claims a key: it gets the key's value, or the guard of a load, or it waits for another
//! call's load until that has a verdict for it.
//!
//! A call may have its own load run elsewhere: on a reload thread, or in a task. Then it waits for
//! that as any other call would, and gives up when loads are late.

use super::Loadable;
use super::guard::{Guard, ToCache, hand_on};
use crate::compute::Keyless;
use crate::contain::let_go;
use crate::engine::{Engine, WriteOutcome};
use crate::flight::{Load, MOST_SPIN, Outcome, RevokedBy, Verdict, Want};
use crate::listener::RemovalCause;
use crate::map::{Confirmed, Occupied, Shard};
use crate::node::NodePtr;
use crate::operations::{Change, Decision, FoundLoads, Tried};
use crate::stats::Count;
use crate::stripe::thread_number;
use crate::sync::IS_MODEL;
use crate::sync::block::polled_by_block;
use crate::sync::cycle::Ticket;
use crate::sync::place;
use crate::time::NEVER;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// The answer to a claim.
pub(crate) enum Claim<K, V, C: ToCache<K, V>> {
    /// The key's live value, or that of another call's load. A call that takes turns gets it only
    /// if it may not wait. Boxed, as values may be large: each frame through which an answer goes
    /// would have to have room for one.
    Value(Box<Keyless<V>>),
    /// The call leads. A call that takes turns gets the live entry, if there is one.
    Guard(Guard<K, V, C>, Option<Box<Keyless<V>>>),
    /// Another call's load has failed, in a way that this call shares; or the key has no entry,
    /// and the call replaces a stale one only.
    Failed(Outcome<V>),
    /// The call would have to wait, or to lead, and may not.
    Busy,
    /// The call has waited for late loads long enough; see [`Claimant::elsewhere`].
    TimedOut,
    /// The cache is gone. Not for a call that borrows it.
    Gone,
}

/// Which live entry of the key a call may replace: its code does not run if there is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replaces {
    /// None.
    Nothing,
    /// One that is stale; and there has to be one. Else a call that waits gets what the key has.
    Stale,
    /// Any; there may be none.
    Any,
}

/// What a call may do about a load of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum May {
    /// Lead one, or join that of another call.
    Lead,
    /// Join that of another call: a refresh leads at its turn only.
    OnlyJoin,
}

/// The load that a call has joined.
pub(super) struct JoinedLoad<K, V> {
    pub(super) load: Arc<Load<K, V>>,
    pub(super) ticket: Ticket,
    /// The cache's `load_timeout`.
    most: Option<Duration>,
    /// Until when the call waits with the cache gone; set when it first looks.
    until: Option<Instant>,
}

impl<K, V> JoinedLoad<K, V> {
    /// How long the call waits still, with the cache gone.
    pub(super) fn left_without_cache(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let end = now.checked_add(self.most?)?;
        Some(self.until.get_or_insert(end).saturating_duration_since(now))
    }
}

/// A call that has yet to get its claim.
///
/// | the call | from | until |
/// |---|---|---|
/// | waits for no load | `new`; `stop_waiting` | `try_claim` answers with a claim, or has joined a load |
/// | waits for a load | `wait_for`; `wait_for_own`, if its own load runs elsewhere | `poll_claim` takes its verdict |
/// | was offered the lead there | that verdict | `try_claim` takes it or gives it up; else `leave` hands it on |
pub(crate) struct Claimant<K, V, C: ToCache<K, V>> {
    pub(super) cache: C,
    pub(crate) hash: u64,
    /// `None` once a load of this call has taken it, or a job that waits for a reload thread.
    key: Option<K>,
    /// Which outcomes of another call's load the call accepts.
    pub(crate) want: Want,
    pub(crate) replaces: Replaces,
    /// Whether the call may wait for another call's load.
    pub(crate) may_wait: bool,
    /// If a task or a reload thread runs the code of the call's load, which outcomes of that the
    /// call accepts. It waits for it as for the load of another call, from before the code runs,
    /// but not for ever. It times out if its own load is late, or the second load of other calls.
    pub(crate) elsewhere: Option<Want>,
    /// The place in the order of waiters, drawn when the call first waits.
    ticket: Option<Ticket>,
    /// The load for which the call waits.
    pub(super) waits: Option<JoinedLoad<K, V>>,
    /// Whether that is the call's own load, which runs elsewhere.
    waits_for_own: bool,
    /// Whether the call has waited for a load that was late.
    was_late: bool,
    /// Whether a thread makes the call, and wants its turn: then it spins before it joins a load
    /// (`flight::turns`, 1).
    spins: bool,
}

impl<K, V> Engine<K, V> {
    /// Whether a load of a key with this hash is current.
    pub(crate) fn has_load(&self, hash: u64) -> bool {
        let shard = self.map.lock(hash);
        shard.has_loads() && shard.loads().has(hash)
    }
}

impl<K, V, C: ToCache<K, V>> Drop for Claimant<K, V, C> {
    #[inline]
    fn drop(&mut self) {
        self.stop_waiting();
        let_go(self.key.take());
    }
}

impl<K, V, C: ToCache<K, V>> Claimant<K, V, C> {
    /// A call that waits, and runs its own code. If it wants its own turn, it takes that whether
    /// the key has an entry or not.
    #[inline]
    pub(crate) fn new(cache: C, hash: u64, key: K, want: Want) -> Self {
        Self {
            cache,
            hash,
            key: Some(key),
            want,
            replaces: match want {
                Want::OwnTurn => Replaces::Any,
                _ => Replaces::Nothing,
            },
            may_wait: true,
            elsewhere: None,
            ticket: None,
            waits: None,
            waits_for_own: false,
            was_late: false,
            spins: false,
        }
    }

    /// Whether the load is a reload if the key has a live entry.
    #[inline]
    fn reloads(&self) -> bool {
        self.replaces != Replaces::Nothing && self.want != Want::OwnTurn
    }

    /// A thread makes the call, and waits for it: if it wants its turn, it may spin.
    pub(super) fn may_spin(&mut self) {
        self.spins = !IS_MODEL && self.want == Want::OwnTurn;
    }

    /// The call waits for this load from now on, and no longer for what it has waited for.
    fn wait_for(&mut self, load: Arc<Load<K, V>>, ticket: Ticket, most: Option<Duration>) {
        match &self.waits {
            // It was passed, and waits again.
            Some(wait) if Arc::ptr_eq(&wait.load, &load) => {}
            _ => {
                let former = self.waits.replace(JoinedLoad {
                    load,
                    ticket,
                    most,
                    until: None,
                });
                self.leave(former);
            }
        }
    }

    /// The call waits no longer.
    #[inline]
    fn stop_waiting(&mut self) {
        // Mostly it has not waited.
        if self.waits.is_some() {
            let former = self.waits.take();
            self.leave(former);
        }
    }

    /// The call has waited for this. If it was offered the lead there, and has not begun to, the
    /// next waiter leads.
    #[cold]
    #[inline(never)]
    fn leave(&self, former: Option<JoinedLoad<K, V>>) {
        if let Some(JoinedLoad { load, ticket, .. }) = former {
            if load.leave(ticket) {
                hand_on(&self.cache, &load);
            }
        }
    }

    /// The key of a call that has not begun a load.
    pub(crate) fn key(&self) -> &K {
        self.key.as_ref().expect("no load has taken the key yet")
    }

    /// Takes the key of such a call.
    pub(crate) fn take_key(&mut self) -> K {
        self.key.take().expect("no load has taken the key yet")
    }

    /// Such a call has its key again.
    pub(crate) fn give_key(&mut self, key: &K)
    where
        K: Clone,
    {
        self.key.get_or_insert_with(|| key.clone());
    }

    /// A call that had other work to do now waits like any other call.
    pub(crate) fn wait_now(&mut self) {
        self.want = Want::Optional;
        if let Some(wait) = &self.waits {
            wait.load.wait_now(wait.ticket);
        }
    }

    /// The call waits for its own load from now on, as another call would that accepts these
    /// outcomes. The load has yet to run.
    fn wait_for_own(&mut self, guard: &Guard<K, V, C>, accepts: Want) {
        let ticket = *self.ticket.get_or_insert_with(Ticket::draw);
        guard.load().join(ticket, accepts);
        let engine = guard.engine();
        let most = match &engine {
            Some(engine) => engine.load_timeout(),
            None => None,
        };
        self.wait_for(Arc::clone(guard.load()), ticket, most);
        self.waits_for_own = true;
        if let Some(engine) = engine {
            engine.watch_load(guard.load());
        }
    }

    /// Whether the call gives up, when it has to look the key up again. A call that does not run
    /// its own load gives up if that is late. If the load of another call is late, it goes on once,
    /// with the newer load.
    fn gives_up(&mut self, is_overdue: bool) -> bool {
        if self.elsewhere.is_none() {
            return false;
        }
        let revoked = match &self.waits {
            Some(wait) => wait.load.revoked(),
            None => None,
        };
        let is_late = match revoked {
            // It takes the place of an overdue one.
            Some(by) => by == RevokedBy::NewerLoad,
            None => is_overdue,
        };
        if !is_late {
            if revoked.is_some() && self.replaces == Replaces::Any {
                // A refresh takes what a write has stored meanwhile.
                self.replaces = Replaces::Nothing;
            }
            return false;
        }
        // A refresh has timed out also if it did not begin the load.
        let is_own = self.waits_for_own || self.replaces != Replaces::Nothing;
        let was_late = mem::replace(&mut self.was_late, true);
        was_late || (is_own && revoked.is_none())
    }
}

impl<K: Loadable + Eq, V: Loadable, C: ToCache<K, V>> Claimant<K, V, C> {
    /// The claim, by polls. The first may follow a [`try_claim`](Self::try_claim).
    pub(crate) fn poll_claim(&mut self, cx: &Context<'_>) -> Poll<Claim<K, V, C>> {
        loop {
            let told = ready!(self.poll_verdict(cx));
            if self.waits.is_some() && polled_by_block(cx) {
                // Before it may run its own code. Another executor may have more to wait for.
                place::take_again();
            }
            match told {
                Verdict::Ended(Outcome::Value(shared, deadline)) => {
                    let seen = self.copy_shared(&shared, deadline);
                    let_go(shared);
                    return Poll::Ready(Claim::Value(seen));
                }
                Verdict::Ended(Outcome::Absent) if matches!(self.want, Want::Fallible(_)) => {
                    // It was moved there from its own load: that of another call may end so.
                    self.take_key_again();
                    self.stop_waiting();
                }
                Verdict::Ended(failure) => return Poll::Ready(Claim::Failed(failure)),
                Verdict::ReplacedBy(newer) => {
                    self.move_to(newer);
                    if mem::replace(&mut self.was_late, true) {
                        return Poll::Ready(Claim::TimedOut);
                    }
                    continue;
                }
                // It waits until it has its claim: if it does not need that, or panics, it leaves.
                Verdict::Offered => self.take_key_again(),
                Verdict::Retry | Verdict::Overdue => {
                    if self.gives_up(matches!(told, Verdict::Overdue)) {
                        return Poll::Ready(Claim::TimedOut);
                    }
                    self.take_key_again();
                    // A compute whose turn it is to look again keeps that, too.
                    if self.want != Want::OwnTurn {
                        self.stop_waiting();
                    }
                }
            }
            // A refresh that has to look the key up again needs another turn.
            let may = if matches!(self.want, Want::Settled(_)) {
                May::OnlyJoin
            } else {
                May::Lead
            };
            if let Some(claim) = self.try_claim(may) {
                return Poll::Ready(claim);
            }
        }
    }

    /// A copy of a value that the call shares, with the time that it has left.
    fn copy_shared(&self, shared: &Keyless<V>, deadline: u64) -> Box<Keyless<V>> {
        let mut seen = shared.copy();
        if let Some(engine) = self.cache.reach() {
            seen.left = engine.clock.time_until(deadline);
        }
        seen
    }

    /// The call was moved to the load that has replaced the one for which it waits.
    fn move_to(&mut self, newer: Arc<Load<K, V>>) {
        if let Some(wait) = &self.waits {
            self.wait_for(newer, wait.ticket, wait.most);
            self.waits_for_own = false;
        }
    }

    /// If a load of this call has taken the key, the call needs it again for the next one.
    fn take_key_again(&mut self) {
        if let Some(wait) = &self.waits {
            self.key.get_or_insert_with(|| wait.load.key().clone());
        }
    }

    /// The claim of a call that waits for no load, or was offered the lead; `None` if it has to
    /// wait.
    #[inline(never)]
    pub(crate) fn try_claim(&mut self, may: May) -> Option<Claim<K, V, C>> {
        let Some(engine) = self.cache.reach() else {
            return Some(Claim::Gone);
        };
        let claim = self.claim_or_join(&engine, may)?;
        // It may call wakers.
        self.stop_waiting();
        if let (Claim::Guard(guard, _), Some(accepts)) = (&claim, self.elsewhere) {
            self.wait_for_own(guard, accepts);
        }
        Some(claim)
    }

    /// The claim; `None` if the call has joined another call's load. One transaction, but for two
    /// steps on the way: a due entry leaves, and the call spins.
    #[inline(always)]
    fn claim_or_join(&mut self, engine: &Engine<K, V>, may: May) -> Option<Claim<K, V, C>> {
        let waits_already = self.ticket.is_some();
        let hash = self.hash;
        // Once only: the listener may store another entry that is due.
        let mut expires_first = true;
        let mut spins = self.spins;
        let mut spins_until = None;
        // Declared before what a transaction holds: if a clone panics, the pin has ended when the
        // drop of the guard calls wakers.
        let guard;
        loop {
            let begin = Begin {
                engine,
                call: &mut *self,
                may,
                expires_first,
                spins,
            };
            // What is held has the pin, and releases the waiters of an overdue load.
            let (begun, held) = engine.transact(hash, begin);
            match begun {
                Begun::Expired(outcome) => {
                    drop(held);
                    engine.after_write(outcome);
                    expires_first = false;
                }
                Begun::Near(load) => {
                    drop(held);
                    let until = *spins_until.get_or_insert_with(|| Instant::now() + MOST_SPIN);
                    spins = load.spin(until);
                }
                Begun::Live(node, deadline) => {
                    return Some(Claim::Value(engine.copy_of(node, deadline)));
                }
                Begun::Absent => return Some(Claim::Failed(Outcome::Absent)),
                Begun::Busy => return Some(Claim::Busy),
                Begun::Joined(load, ticket) => {
                    drop(held);
                    // After it has joined: a caller that reads the count may rely on it.
                    if !waits_already {
                        engine.count(Count::LoadWaits);
                    }
                    self.wait_for_other(engine, load, ticket);
                    return None;
                }
                Begun::Leads {
                    load,
                    live,
                    expired,
                } => {
                    guard = Guard::running(self.cache.clone(), load, live.is_none());
                    let mut seen = None;
                    if let Some((node, deadline)) = live {
                        if !self.reloads() {
                            // User code: `Clone`.
                            seen = Some(engine.copy_of(node, deadline));
                        }
                    }
                    drop(held);
                    self.follow(guard.load());
                    engine.watch_load(guard.load());
                    if let Some(outcome) = expired {
                        engine.after_write(outcome);
                    }
                    return Some(Claim::Guard(guard, seen));
                }
            }
        }
    }

    /// The call has joined this load of another call, and waits for it from now on.
    fn wait_for_other(&mut self, engine: &Engine<K, V>, load: Arc<Load<K, V>>, ticket: Ticket) {
        engine.watch_load(&load);
        self.follow(&load);
        self.wait_for(load, ticket, engine.load_timeout());
        self.waits_for_own = false;
    }

    /// The call, whose turn it was at a load that is no longer current, has a place at this one:
    /// the others wait behind it.
    #[inline]
    fn follow(&self, newer: &Arc<Load<K, V>>) {
        if let Some(wait) = &self.waits {
            wait.load.wait_behind(wait.ticket, newer);
        }
    }
}

/// The begin of a load, as a change. The key has no entry, or one that the call may replace: the
/// call joins the key's load, or lists its own. A due entry mostly leaves by a change before.
struct Begin<'b, K, V, C: ToCache<K, V>> {
    engine: &'b Engine<K, V>,
    call: &'b mut Claimant<K, V, C>,
    may: May,
    /// Whether a due entry only leaves, before the call leads or waits: the listener, and
    /// destructors that run now, may load the key themselves. A call that was offered the lead
    /// gives it up.
    expires_first: bool,
    /// Whether the call spins before it joins a load that another thread runs.
    spins: bool,
}

/// The end of a [`Begin`].
enum Begun<K, V> {
    /// An entry that was due has left, and the call has to begin again.
    Expired(WriteOutcome),
    /// The key's live entry, for a call that does not lead, and the deadline by which it lives.
    Live(NodePtr<K, V>, u64),
    /// The key has no entry, for a call that leads only over a stale one.
    Absent,
    /// The call would have to wait, or to lead, and may not.
    Busy,
    /// Another thread runs this load, and may end it soon: the call spins until then.
    Near(Arc<Load<K, V>>),
    /// The call has joined this load, with this ticket.
    Joined(Arc<Load<K, V>>, Ticket),
    /// The call leads this load.
    Leads {
        load: Arc<Load<K, V>>,
        /// The live entry, and its deadline.
        live: Option<(NodePtr<K, V>, u64)>,
        /// The removal of an entry that was due.
        expired: Option<WriteOutcome>,
    },
}

impl<K, V, C> Change<K, V> for Begin<'_, K, V, C>
where
    K: Loadable + Eq,
    V: Loadable,
    C: ToCache<K, V>,
{
    type Key = K;
    /// The cache time at which the load begins; 0 where no setting needs it.
    type Answers = u64;
    type Done = Begun<K, V>;

    #[inline]
    fn key(&self) -> &K {
        self.call.key()
    }

    #[inline]
    fn expects_absent(&self) -> bool {
        // Most calls have just looked the key up.
        self.call.replaces == Replaces::Nothing
    }

    #[inline]
    fn is_apart(&self) -> bool {
        true
    }

    #[inline]
    fn ask(&mut self, found: Option<NodePtr<K, V>>, _: Option<u64>) -> Decision<u64, Begun<K, V>> {
        if self.call.replaces == Replaces::Nothing {
            if let Some(node) = found {
                if let Some(deadline) = self.engine.live_deadline(node) {
                    return Decision::End(Begun::Live(node, deadline));
                }
            }
        }
        Decision::Apply(self.engine.load_clock())
    }

    // Always inlined, as all changes of which instructions are counted.
    #[inline(always)]
    fn apply<'s>(
        &mut self,
        now: u64,
        place: Confirmed<'s, K, V>,
        shard: &mut Shard<'s, K, V>,
        loads: &mut FoundLoads<K, V>,
    ) -> Tried<u64, Begun<K, V>> {
        let mut live = None;
        let mut due = None;
        if let Confirmed::Occupied(spot) = place {
            if self.claim_if_due(spot.node) {
                if self.expires_first && self.may == May::Lead && !self.is_hit() {
                    self.step_aside(shard, loads);
                    return Tried::Done(Begun::Expired(self.expire(spot, shard)));
                }
                due = Some(spot);
            } else if self.call.replaces == Replaces::Nothing {
                return Tried::Again(now);
            } else {
                live = Some(spot.node);
            }
        }
        // If the key's load has no leader at work, the call takes its lead. If it has one, the call
        // joins it, unless it is overdue: then the call leads one in its place.
        let mut idle = None;
        if let Some(load) = loads.load().cloned() {
            if load.is_free_for(self.call.ticket, self.call.want) {
                idle = Some(load);
            } else if self.engine.time_to_overdue(&load, now) != Some(Duration::ZERO) {
                return Tried::Done(self.leave_it_to(load, live));
            }
        }
        if self.call.replaces == Replaces::Stale && !is_stale(live, now) {
            return Tried::Done(match live {
                _ if self.is_hit() => Begun::Busy,
                Some(node) => Begun::Live(node, node.deadline()),
                None => Begun::Absent,
            });
        }
        if self.may == May::OnlyJoin {
            return Tried::Done(Begun::Busy);
        }
        if let Some(load) = &idle {
            if !load.take_lead(self.call.ticket, now) {
                return Tried::Again(now);
            }
        }
        // From here on the begin succeeds: an error would say that nothing was changed. So the
        // ticker, which may panic, is not read any more.
        let mut expired = None;
        if let Some(spot) = due {
            expired = Some(self.expire(spot, shard));
        }
        let load = self.lead(now, idle, shard, loads);
        if let Some(node) = live {
            if self.call.reloads() {
                self.engine.begin_reload(&load, node, now);
            }
        }
        // Under the lock, where no deadline is frozen.
        let live = live.map(|node| (node, node.deadline()));
        Tried::Done(Begun::Leads {
            load,
            live,
            expired,
        })
    }
}

/// Whether the live entry of a key is stale.
fn is_stale<K, V>(live: Option<NodePtr<K, V>>, now: u64) -> bool {
    match live.as_ref().and_then(NodePtr::refresh) {
        Some(moment) => moment.is_stale(now),
        None => false,
    }
}

/// The steps of the change, under the shard's lock.
impl<K, V, C> Begin<'_, K, V, C>
where
    K: Loadable + Eq,
    V: Loadable,
    C: ToCache<K, V>,
{
    /// Whether the call is a read that has a value already. It leads over no entry that is due.
    #[inline]
    fn is_hit(&self) -> bool {
        self.call.replaces == Replaces::Stale && !self.call.may_wait
    }

    /// Whether a node is due. If it is, no read extends it from now on.
    #[inline]
    fn claim_if_due(&self, node: NodePtr<K, V>) -> bool {
        node.deadline() != NEVER && node.claim_if_due(self.engine.clock.now())
    }

    /// The call is not the next to lead. If it was offered the lead, all that wait look again.
    fn step_aside(&self, shard: &mut Shard<'_, K, V>, loads: &mut FoundLoads<K, V>) {
        if let (Some(load), Some(ticket)) = (loads.load(), self.call.ticket) {
            if load.step_aside(ticket) {
                loads.revoke(shard, RevokedBy::Overwrite);
            }
        }
    }

    /// Another call leads this load: the call joins it, if it may wait.
    fn leave_it_to(&mut self, load: Arc<Load<K, V>>, live: Option<NodePtr<K, V>>) -> Begun<K, V> {
        if !self.call.may_wait {
            return match live {
                Some(node) if !self.call.reloads() => Begun::Live(node, node.deadline()),
                _ => Begun::Busy,
            };
        }
        if self.spins && load.is_led_elsewhere() {
            return Begun::Near(load);
        }
        let ticket = *self.call.ticket.get_or_insert_with(Ticket::draw);
        load.join(ticket, self.call.want);
        Begun::Joined(load, ticket)
    }

    /// Takes an entry out that is due.
    #[inline]
    fn expire<'s>(&self, due: Occupied<'s, K, V>, shard: &mut Shard<'s, K, V>) -> WriteOutcome {
        let node = due.node;
        shard.remove(due, RemovalCause::Expired);
        (self.engine).count_removal(|| node.weight(), RemovalCause::Expired);
        WriteOutcome::of_removal(shard, NEVER)
    }

    /// The call leads from now on: this load, of which it has taken the lead, or a new one.
    #[inline]
    fn lead(
        &mut self,
        now: u64,
        idle: Option<Arc<Load<K, V>>>,
        shard: &mut Shard<'_, K, V>,
        loads: &mut FoundLoads<K, V>,
    ) -> Arc<Load<K, V>> {
        self.engine.count(Count::Loads);
        // For a task that is the calling thread, until its poll ends: what it calls meanwhile must
        // not wait for it.
        let leader = thread_number();
        if let Some(load) = idle {
            load.set_leader_thread(leader);
            load.set_reload(NEVER);
            return load;
        }
        let key = self.call.take_key();
        let load = Arc::new(Load::new(self.call.hash, key, leader, now));
        // If the key has a load, that is overdue.
        if let Some(overdue) = loads.load() {
            overdue.replace_by(&load);
        }
        loads.revoke(shard, RevokedBy::NewerLoad);
        shard.change_loads(|loads| loads.add(Arc::clone(&load)));
        load
    }
}
