//! Look-ups that one look does not answer, and what a hit leaves behind: an extended deadline, a
//! read event.

use super::core::{Core, Hit, Miss};
use super::write::{ASKS, Answer};
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

    /// Whether a hit is still alive after user code that may have taken its time; where reads
    /// extend, its new life begins now.
    // Not asked of a policy that answers reads, since the clock is read once more after that; nor
    // of values whose clone is a copy.
    #[inline]
    fn outlived(&self, hit: &mut Hit<K, V>) -> bool {
        let lifetimes = &self.lifetimes;
        if !lifetimes.reads_extend || lifetimes.policy_reads || !std::mem::needs_drop::<V>() {
            return true;
        }
        hit.now = self.shared.clock.now();
        !time::is_due(hit.now, hit.deadline)
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
        if self.outlived(&mut hit) && self.extend(&mut hit) {
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
            if asks >= ASKS || (self.outlived(&mut hit) && self.extend(&mut hit)) {
                self.note_hit(&hit, pin);
                return Ok((hit, seen));
            }
            asks += 1;
        }
    }

    /// Asks the policy about a read, and notes the deadline that the hit has now. False if the
    /// entry expired meanwhile, or somebody else moved its deadline, so that the look-up has to
    /// start over; then this read has extended nothing.
    ///
    /// If its value was replaced meanwhile, the read stands as one from before that, and extends
    /// nothing: the new value's life is none of its business.
    #[inline(always)]
    fn extend(&self, hit: &mut Hit<K, V>) -> bool {
        if !self.lifetimes.reads_extend {
            return true;
        }
        let Hit {
            node,
            deadline,
            now,
        } = *hit;
        let mut now = now;
        let mut answer = Answer::Keep;
        if self.lifetimes.policy_reads
            && let Some(policy) = &self.lifetimes.policy
        {
            let plain = self.lifetimes.policy_plain;
            let left = if plain {
                None
            } else {
                time::time_left(now, deadline)
            };
            let read_at = self.told(|| now);
            let asked = policy.expire_after_read(
                node.key(),
                node.value(),
                read_at,
                left,
                self.told_before(read_at, || now.wrapping_sub(written(node, now))),
            );
            // To live for ever is no news to an entry that does.
            let news = asked != left || (plain && deadline != NEVER);
            if news {
                answer = Answer::Life(asked);
            }
            if news || self.lifetimes.limits.time_to_idle.is_some() {
                // The user's code may have taken its time: the whole of the entry's, perhaps.
                now = self.shared.clock.now();
                if time::is_due(now, deadline) {
                    return false;
                }
            }
        }
        let (own, wanted) = self.moved(node, deadline, answer, now);
        let apart = self.lifetimes.kept_apart && answer != Answer::Keep;
        if wanted == deadline && !apart {
            return true;
        }
        // A later deadline is found out when the bucket ripens. An earlier one has to be told, and
        // so has its end: or a timer would stay armed for nothing.
        if apart || wanted == NEVER || time::is_before(wanted, deadline, now) {
            let moved = self.move_deadline(node, deadline, answer);
            return Self::goes_on(hit, moved, now);
        }
        if !node.extend(deadline, wanted) {
            return node.is_frozen(now);
        }
        hit.deadline = wanted;
        if !self.lifetimes.may_keep_own() || node.own_deadline() == own {
            return true;
        }
        // Meanwhile it was given a deadline of its own, and with it the very one that was wanted
        // before: so the exchange went well, but to a deadline that knows nothing of that. Until it
        // is moved again, those see the later one who look just then.
        let moved = self.move_deadline(node, wanted, Answer::Keep);
        Self::goes_on(hit, moved, now)
    }

    /// Whether a hit stands whose deadline was `moved` under the lock, or was not.
    #[inline(always)]
    fn goes_on(hit: &mut Hit<K, V>, moved: Option<u64>, now: u64) -> bool {
        match moved {
            Some(deadline) => {
                hit.deadline = deadline;
                true
            }
            None => hit.node.is_frozen(now),
        }
    }

    /// The own and the wanted deadline that an answer given about a node with `deadline` means at
    /// `now`.
    #[inline]
    fn moved(&self, node: NodePtr<K, V>, deadline: u64, answer: Answer, now: u64) -> (u64, u64) {
        let own = match answer {
            Answer::Life(life) => time::deadline_in(now, life),
            Answer::Keep if self.lifetimes.kept_apart => self.lifetimes.own_deadline(node),
            Answer::Keep => deadline,
        };
        let written = || node.written();
        (own, self.lifetimes.limits.wanted(own, written, now))
    }

    /// Moves a deadline on the way that loses nothing: earlier, or with the entry's own kept apart.
    /// Says where it is now, unless the entry turns out to be due, or the deadline was moved by
    /// somebody else.
    #[cold]
    #[inline(never)]
    fn move_deadline(&self, node: NodePtr<K, V>, judged: u64, answer: Answer) -> Option<u64> {
        let map = &self.shared.map;
        let hash = node.hash();
        let mut shard = map.lock(hash);
        // Read under the lock: a life begins when it is given, however long the wait was.
        let now = self.shared.clock.now();
        let (own, wanted) = self.moved(node, judged, answer, now);
        if shard.find_node(hash, node).is_none() || time::is_due(now, judged) {
            return None;
        }
        if !shard.move_deadline(node, judged, own, wanted) {
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
        // The deadline of its own may have passed since it was found, if that was set meanwhile.
        // One that the policy gives for this read ends only what comes after.
        let ended = answer == Answer::Keep && time::is_due(now, own);
        (!ended).then_some(wanted)
    }
}

/// When the node was written, or `now` where that was not noted. Never after `now`: another core's
/// clock may be ahead by a little.
pub(super) fn written<K, V>(node: NodePtr<K, V>, now: u64) -> u64 {
    let written = node.written();
    if written == NEVER || now.wrapping_sub(written) as i64 <= 0 {
        now
    } else {
        written
    }
}
