//! Several look-ups at once.
//!
//! # How it works
//!
//! Keys are looked up in batches. First all keys of a batch are hashed, and their groups are
//! prefetched. Then, under one pin, the nodes that the groups name are prefetched. Then keys are
//! compared. So the batch waits for memory once, not once for each key. The clock is read once for
//! the batch, after the last node was found: an entry that is live then was live when it was
//! found. What a hit and a miss do is the code of all look-ups (`lookup`).
//!
//! A key whose entry may have expired is looked up again by itself, as by `get`, after the pin was
//! dropped: this may run destructors. If reads move deadlines, every key is looked up by itself,
//! since the policy is asked about one read after the other.

use super::core::Core;
use super::lookup::Lookup;
use crate::node;
use crate::time::{self, NEVER};
use equivalent::Equivalent;
use std::hash::{BuildHasher, Hash};

/// Look-ups under one pin: about as many as a processor can fetch from memory in parallel.
const BATCH: usize = 16;

impl<K: Eq + 'static, V: 'static, S> Core<K, V, S> {
    /// Looks up several keys; see [`Cache::get_many`](crate::Cache::get_many).
    #[inline]
    pub(crate) fn look_up_many<'a, T, A, Q>(
        &self,
        keys: impl IntoIterator<Item = &'a Q>,
    ) -> Vec<Option<A>>
    where
        T: for<'b> Lookup<K, V, Answer<'b> = A>,
        Q: Equivalent<K> + Hash + ?Sized + 'a,
        S: BuildHasher,
    {
        let mut keys = keys.into_iter().fuse();
        let mut answers = Vec::with_capacity(keys.size_hint().0);
        let mut asked = Vec::with_capacity(BATCH);
        loop {
            // Without a pin: the iterator is the caller's code.
            for key in keys.by_ref().take(BATCH) {
                let hash = self.hash(key);
                self.shared.map.cell(hash).prefetch(hash);
                asked.push((hash, key));
            }
            if asked.is_empty() {
                return answers;
            }
            self.look_up_batch::<T, A, Q>(&asked, &mut answers);
            asked.clear();
        }
    }

    /// Looks up one batch of keys.
    fn look_up_batch<T, A, Q>(&self, asked: &[(u64, &Q)], answers: &mut Vec<Option<A>>)
    where
        T: for<'b> Lookup<K, V, Answer<'b> = A>,
        Q: Equivalent<K> + ?Sized,
    {
        if self.lifetimes.reads_ask() || self.lifetimes.limits.time_to_idle.is_some() {
            let look_up = |&(hash, key): &_| T::look_up_fully(self, hash, key);
            answers.extend(asked.iter().map(look_up));
            return;
        }
        let first = answers.len();
        let map = &self.shared.map;
        let pin = self.shared.pin();
        let mut met = [(None, NEVER); BATCH];
        for (&(hash, _), (met, _)) in asked.iter().zip(&mut met) {
            // The first node of the same tag. It is seldom another key's.
            *met = map.find(hash, &pin, |node| {
                node::prefetch(node.key());
                true
            });
        }
        let mut timed = false;
        for (&(hash, key), (met, deadline)) in asked.iter().zip(&mut met) {
            let Some(mut node) = *met else { continue };
            if !key.equivalent(node.key()) {
                *met = map.find(hash, &pin, |node| key.equivalent(node.key()));
                let Some(other) = *met else { continue };
                node = other;
            }
            *deadline = node.deadline();
            timed |= *deadline != NEVER;
        }
        // One moment for all of them. What is due at it is judged again.
        let now = if timed {
            let clock = &self.shared.clock;
            clock.latest().unwrap_or_else(|| clock.now())
        } else {
            0
        };
        let mut due = 0u32;
        let met = met[..asked.len()].iter().enumerate();
        answers.extend(met.map(|(at, &(met, deadline))| {
            let Some(node) = met else {
                T::note_miss(self);
                return None;
            };
            if time::is_due(now, deadline) {
                due |= 1 << at;
                return None;
            }
            let answer = T::take(self, node, T::stale_from(node));
            T::note_hit(self, node, &pin);
            Some(answer(deadline, || self.shared.pin()))
        }));
        drop(pin);
        if due != 0 {
            for (at, &(hash, key)) in asked.iter().enumerate() {
                if due >> at & 1 == 1 {
                    answers[first + at] = T::look_up_fully(self, hash, key);
                }
            }
        }
    }
}
