//! Look-ups that one look does not answer, and what a hit leaves behind: an extended deadline, a
//! read event.

use super::core::{Core, Hit, Miss};
use super::write::MAX_ASKS;
use crate::entry_ref::EntryRef;
use crate::maintenance::WriteOutcome;
use crate::node::NodePtr;
use crate::reclaim::{Pin, SolePin};
use crate::time::{self, NEVER};
use equivalent::Equivalent;

impl<K: 'static, V: 'static, S> Core<K, V, S> {
    /// Notes the use of an entry that was found and stands as found.
    #[inline]
    fn note_hit(&self, hit: &Hit<K, V>, pin: &Pin) {
        self.maintenance.note_read(hit.node, pin);
        self.count_hit();
    }

    /// `get` the long way: where a hit has consequences, since the policy is asked, the deadline
    /// may move, it is counted; where the thread holds a pin or has none at hand.
    // Out of line, whole: or a hit on the short way would pay for it.
    #[inline(never)]
    pub(super) fn get_one<Q>(&self, hash: u64, key: &Q) -> Option<V>
    where
        Q: Equivalent<K> + ?Sized,
        V: Clone,
    {
        self.get_pinned(hash, key, self.shared.pin())
    }

    /// A `get` that one look did not answer.
    #[inline(never)]
    pub(super) fn get_on<Q>(&self, hash: u64, key: &Q, pin: SolePin) -> Option<V>
    where
        Q: Equivalent<K> + ?Sized,
        V: Clone,
    {
        self.get_pinned(hash, key, pin.into_pin())
    }

    /// The rest of a `get` that has met the key's entry.
    #[inline(never)]
    pub(super) fn get_met<Q>(
        &self,
        hash: u64,
        key: &Q,
        node: NodePtr<K, V>,
        pin: SolePin,
    ) -> Option<V>
    where
        Q: Equivalent<K> + ?Sized,
        V: Clone,
    {
        let pin = pin.into_pin();
        match self.judge_hit(node) {
            Ok(hit) => self.follow_hit(hash, key, hit, pin),
            Err(due) => self.get_past(hash, key, Some(due), pin),
        }
    }

    /// The rest of a `get` whose hit is news.
    #[inline(never)]
    pub(super) fn get_news(&self, node: NodePtr<K, V>, value: V, pin: SolePin) -> Option<V> {
        self.maintenance.note_read(node, &pin);
        Some(value)
    }

    #[inline(always)]
    fn get_pinned<Q>(&self, hash: u64, key: &Q, pin: Pin) -> Option<V>
    where
        Q: Equivalent<K> + ?Sized,
        V: Clone,
    {
        match self.look_up(hash, key, &pin) {
            Ok(hit) => self.follow_hit(hash, key, hit, pin),
            Err(due) => self.get_past(hash, key, due, pin),
        }
    }

    /// The rest of a `get` that has found an entry.
    // Always inlined, as what it calls: the hit would go through the stack.
    #[inline(always)]
    fn follow_hit<Q>(&self, hash: u64, key: &Q, mut hit: Hit<K, V>, pin: Pin) -> Option<V>
    where
        Q: Equivalent<K> + ?Sized,
        V: Clone,
    {
        // Before the policy is asked: a panic in `clone` must leave the deadline as it is.
        let value = hit.node.value().clone();
        if self.extend(&mut hit) {
            self.note_hit(&hit, &pin);
            return Some(value);
        }
        self.get_again(hash, key, pin)
    }

    /// The rest of a `get` whose first glance met no living entry.
    #[inline(never)]
    pub(super) fn get_past<Q>(
        &self,
        hash: u64,
        key: &Q,
        due: Option<Hit<K, V>>,
        pin: Pin,
    ) -> Option<V>
    where
        Q: Equivalent<K> + ?Sized,
        V: Clone,
    {
        match self.look_past(hash, key, due, &pin) {
            Ok(hit) => self.follow_hit(hash, key, hit, pin),
            Err(miss) => self.follow_miss(hash, miss, pin),
        }
    }

    /// The rest of a `get` whose entry was changed under its hands.
    #[cold]
    #[inline(never)]
    fn get_again<Q>(&self, hash: u64, key: &Q, pin: Pin) -> Option<V>
    where
        Q: Equivalent<K> + ?Sized,
        V: Clone,
    {
        match self.read_again(hash, key, &pin, |node| node.value().clone()) {
            Ok((_, value)) => Some(value),
            Err(miss) => self.missed(hash, miss, pin),
        }
    }

    /// [`get_one`](Self::get_one) for `get_ref`.
    #[inline(never)]
    pub(super) fn ref_one<'a, Q>(&'a self, hash: u64, key: &Q) -> Option<EntryRef<'a, K, V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        self.ref_pinned(hash, key, self.shared.pin())
    }

    /// [`get_on`](Self::get_on) for `get_ref`.
    #[inline(never)]
    pub(super) fn ref_on<'a, Q>(
        &'a self,
        hash: u64,
        key: &Q,
        pin: SolePin,
    ) -> Option<EntryRef<'a, K, V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        self.ref_pinned(hash, key, pin.into_pin())
    }

    /// [`get_met`](Self::get_met) for `get_ref`.
    #[inline(never)]
    pub(super) fn ref_met<'a, Q>(
        &'a self,
        hash: u64,
        key: &Q,
        node: NodePtr<K, V>,
        pin: SolePin,
    ) -> Option<EntryRef<'a, K, V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let pin = pin.into_pin();
        match self.judge_hit(node) {
            Ok(hit) => self.follow_ref(hash, key, hit, pin),
            Err(due) => self.ref_past(hash, key, Some(due), pin),
        }
    }

    /// [`get_news`](Self::get_news) for `get_ref`.
    #[inline(never)]
    pub(super) fn ref_news(&self, hit: Hit<K, V>, pin: SolePin) -> Option<EntryRef<'_, K, V>> {
        self.maintenance.note_read(hit.node, &pin);
        Some(EntryRef::new(hit, self, pin.into_pin()))
    }

    #[inline(always)]
    fn ref_pinned<'a, Q>(&'a self, hash: u64, key: &Q, pin: Pin) -> Option<EntryRef<'a, K, V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        match self.look_up(hash, key, &pin) {
            Ok(hit) => self.follow_ref(hash, key, hit, pin),
            Err(due) => self.ref_past(hash, key, due, pin),
        }
    }

    /// [`follow_hit`](Self::follow_hit) for `get_ref`.
    #[inline(always)]
    fn follow_ref<'a, Q>(
        &'a self,
        hash: u64,
        key: &Q,
        mut hit: Hit<K, V>,
        pin: Pin,
    ) -> Option<EntryRef<'a, K, V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        if self.extend(&mut hit) {
            self.note_hit(&hit, &pin);
            return Some(EntryRef::new(hit, self, pin));
        }
        self.ref_again(hash, key, pin)
    }

    /// [`get_past`](Self::get_past) for `get_ref`.
    #[inline(never)]
    pub(super) fn ref_past<'a, Q>(
        &'a self,
        hash: u64,
        key: &Q,
        due: Option<Hit<K, V>>,
        pin: Pin,
    ) -> Option<EntryRef<'a, K, V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        match self.look_past(hash, key, due, &pin) {
            Ok(hit) => self.follow_ref(hash, key, hit, pin),
            Err(miss) => self.follow_miss(hash, miss, pin),
        }
    }

    /// [`get_again`](Self::get_again) for `get_ref`.
    #[cold]
    #[inline(never)]
    fn ref_again<'a, Q>(&'a self, hash: u64, key: &Q, pin: Pin) -> Option<EntryRef<'a, K, V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        match self.read_again(hash, key, &pin, |_| ()) {
            Ok((hit, ())) => Some(EntryRef::new(hit, self, pin)),
            Err(miss) => self.missed(hash, miss, pin),
        }
    }

    /// A look-up that leaves no trace.
    #[inline(never)]
    pub(super) fn peek_one<'a, Q>(&'a self, hash: u64, key: &Q) -> Option<EntryRef<'a, K, V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        self.peek_pinned(hash, key, self.shared.pin())
    }

    /// A look-up that leaves no trace and that one look did not answer.
    #[inline(never)]
    pub(super) fn peek_on<'a, Q>(
        &'a self,
        hash: u64,
        key: &Q,
        pin: SolePin,
    ) -> Option<EntryRef<'a, K, V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        self.peek_pinned(hash, key, pin.into_pin())
    }

    /// The rest of a look-up that leaves no trace and has met the key's entry.
    #[inline(never)]
    pub(super) fn peek_met<'a, Q>(
        &'a self,
        hash: u64,
        key: &Q,
        node: NodePtr<K, V>,
        pin: SolePin,
    ) -> Option<EntryRef<'a, K, V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let found = self.judge_met(hash, key, node, &pin);
        self.peeked(hash, found, pin.into_pin())
    }

    #[inline(always)]
    fn peek_pinned<'a, Q>(&'a self, hash: u64, key: &Q, pin: Pin) -> Option<EntryRef<'a, K, V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        self.peeked(hash, self.find_live(hash, key, &pin), pin)
    }

    fn peeked(
        &self,
        hash: u64,
        found: Result<Hit<K, V>, Miss>,
        pin: Pin,
    ) -> Option<EntryRef<'_, K, V>> {
        match found {
            Ok(hit) => Some(EntryRef::new(hit, self, pin)),
            Err(miss) => self.missed(hash, miss, pin),
        }
    }

    /// [`peek_one`](Self::peek_one) for `contains_key`.
    #[inline(never)]
    pub(super) fn has_one<Q>(&self, hash: u64, key: &Q) -> bool
    where
        Q: Equivalent<K> + ?Sized,
    {
        let pin = self.shared.pin();
        self.has(hash, self.find_live(hash, key, &pin), pin)
    }

    /// [`peek_on`](Self::peek_on) for `contains_key`.
    #[inline(never)]
    pub(super) fn has_on<Q>(&self, hash: u64, key: &Q, pin: SolePin) -> bool
    where
        Q: Equivalent<K> + ?Sized,
    {
        self.has(hash, self.find_live(hash, key, &pin), pin.into_pin())
    }

    /// [`peek_met`](Self::peek_met) for `contains_key`.
    #[inline(never)]
    pub(super) fn has_met<Q>(&self, hash: u64, key: &Q, node: NodePtr<K, V>, pin: SolePin) -> bool
    where
        Q: Equivalent<K> + ?Sized,
    {
        let found = self.judge_met(hash, key, node, &pin);
        self.has(hash, found, pin.into_pin())
    }

    fn has(&self, hash: u64, found: Result<Hit<K, V>, Miss>, pin: Pin) -> bool {
        match found {
            Ok(_) => true,
            Err(miss) => self.missed::<()>(hash, miss, pin).is_some(),
        }
    }

    /// A look-up that goes on from the key's entry, which one look has met.
    fn judge_met<Q>(
        &self,
        hash: u64,
        key: &Q,
        node: NodePtr<K, V>,
        pin: &Pin,
    ) -> Result<Hit<K, V>, Miss>
    where
        Q: Equivalent<K> + ?Sized,
    {
        self.judge_hit(node)
            .or_else(|due| self.look_past(hash, key, Some(due), pin))
    }

    fn follow_miss<T>(&self, hash: u64, miss: Miss, pin: Pin) -> Option<T> {
        self.count_miss();
        self.missed(hash, miss, pin)
    }

    /// A read whose entry was changed under its hands, from the start; `look` sees each hit before
    /// the policy is asked.
    // Apart from the first attempt, which is straight code: a loop around it would cost every hit.
    #[cold]
    #[inline(never)]
    fn read_again<Q, R>(
        &self,
        hash: u64,
        key: &Q,
        pin: &Pin,
        mut look: impl FnMut(NodePtr<K, V>) -> R,
    ) -> Result<(Hit<K, V>, R), Miss>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let mut asks = 1;
        loop {
            let mut hit = self
                .find_live(hash, key, pin)
                .inspect_err(|_| self.count_miss())?;
            let seen = look(hit.node);
            // A deadline that is moved each time, perhaps by the policy that is asked, stays where
            // it was moved to.
            if asks >= MAX_ASKS || self.extend(&mut hit) {
                self.note_hit(&hit, pin);
                return Ok((hit, seen));
            }
            asks += 1;
        }
    }

    /// Asks the policy about a read, and notes the deadline that the hit has now. False if the
    /// entry expired meanwhile, or another thread moved its deadline, so that the look-up has to
    /// start over; then this read has extended nothing.
    ///
    /// If its value was replaced meanwhile, the read stands as one from before that, and extends
    /// nothing: it says nothing about the new value.
    #[inline(always)]
    fn extend(&self, hit: &mut Hit<K, V>) -> bool {
        let lifetimes = &self.lifetimes;
        if !lifetimes.reads_extend {
            return true;
        }
        let own = match &lifetimes.policy {
            Some(policy) if lifetimes.policy_asks.reads => {
                policy.deadline_after_read(hit.node, &self.shared.clock, hit.now, hit.deadline)
            }
            _ => hit.deadline,
        };
        if own == hit.deadline && lifetimes.limits.time_to_idle.is_none() {
            return true;
        }
        self.move_from(hit, own)
    }

    /// Moves the deadline of a hit to where an answer of `own` wants it; see
    /// [`extend`](Self::extend).
    ///
    /// The hit was alive at the reading by which it was judged, and the new deadline counts from
    /// there. If the entry has been found due since, its deadline was claimed, and the exchange
    /// fails (node 4).
    #[inline(always)]
    fn move_from(&self, hit: &mut Hit<K, V>, own: u64) -> bool {
        let Hit {
            node,
            deadline,
            now,
        } = *hit;
        let answer = (own != deadline).then_some(own);
        let (own, wanted) = self.moved(node, deadline, answer, now);
        let apart = self.lifetimes.kept_apart && answer.is_some();
        if wanted == deadline && !apart {
            return true;
        }
        // The pass finds out about a later deadline when it comes to the entry's bucket. It has to
        // be told of an earlier one; and of none at all, or a timer would stay armed for nothing.
        if apart || wanted == NEVER || time::is_before(wanted, deadline, now) {
            let moved = self.move_deadline(node, deadline, answer, now);
            return Self::goes_on(hit, moved);
        }
        if !node.extend(deadline, wanted) {
            return node.is_frozen(now);
        }
        hit.deadline = wanted;
        if !self.lifetimes.may_keep_own() || node.own_deadline() == own {
            return true;
        }
        // Another thread has meanwhile set the own deadline, and moved the wanted one to the very
        // value that it had before: the exchange went well, but to a deadline that ignores the new
        // own one. Readers see the later of the two until it is moved again here.
        let moved = self.move_deadline(node, wanted, None, now);
        Self::goes_on(hit, moved)
    }

    /// Whether a hit stands whose deadline was `moved` under the lock, or was not.
    #[inline(always)]
    fn goes_on(hit: &mut Hit<K, V>, moved: Option<u64>) -> bool {
        match moved {
            Some(deadline) => {
                hit.deadline = deadline;
                true
            }
            None => hit.node.is_frozen(hit.now),
        }
    }

    /// The own and the wanted deadline that an answer means, given at `now` about a node with
    /// `deadline`; `None` leaves the own deadline.
    #[inline]
    fn moved(
        &self,
        node: NodePtr<K, V>,
        deadline: u64,
        answer: Option<u64>,
        now: u64,
    ) -> (u64, u64) {
        let own = match answer {
            Some(own) => own,
            None if self.lifetimes.kept_apart => self.lifetimes.own_deadline(node),
            None => deadline,
        };
        let written = || node.written();
        let wanted = (self.lifetimes).wanted(own, written, now, &self.shared.clock);
        (own, wanted)
    }

    /// Moves a deadline under the shard's lock and with an event for the pass: earlier, or with the
    /// own deadline kept apart. Returns where it is now; `None` if the entry turns out to be due,
    /// or another thread moved the deadline.
    #[cold]
    #[inline(never)]
    fn move_deadline(
        &self,
        node: NodePtr<K, V>,
        judged: u64,
        answer: Option<u64>,
        now: u64,
    ) -> Option<u64> {
        let hash = node.hash();
        let mut shard = self.shared.map.lock(hash);
        // Again: another thread may have set the own deadline before the lock was taken.
        let (own, wanted) = self.moved(node, judged, answer, now);
        if shard.find_node(hash, node).is_none() || !shard.move_deadline(node, judged, own, wanted)
        {
            return None;
        }
        let outcome = WriteOutcome {
            shard: shard.number(),
            pending: shard.pending(),
            deadline: wanted,
            now: Some(now),
            left: false,
        };
        drop(shard);
        self.maintenance.after_read(&self.shared, outcome);
        // The own deadline may have passed since the hit was found, if it was set meanwhile. One
        // that the policy gives for this read ends only what comes after.
        let ended = answer.is_none() && time::is_due(now, own);
        (!ended).then_some(wanted)
    }
}
