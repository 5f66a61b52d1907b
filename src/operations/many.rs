//! Several look-ups at once.
//!
//! # How it works
//!
//! Keys are looked up in batches. First all keys of a batch are hashed, and their groups are
//! prefetched. Then, under one pin, the nodes that the groups name are prefetched. Then keys are
//! compared. So the batch waits for memory once, not once for each key. The clock is read once for
//! the batch, after the last node was found: an entry that is live then was live when it was
//! found. What a hit and a miss note is the code of all look-ups (`find`).
//!
//! A key whose entry may have expired is looked up again by itself, as by `get`, after the pin was
//! dropped: this may run destructors. If reads move deadlines, every key is looked up by itself,
//! since the policy is asked about one read after the other.

use crate::engine::Engine;
use crate::node::{self, NodePtr};
use crate::time::{self, NEVER};
use equivalent::Equivalent;

/// Look-ups under one pin: about as many as a processor can fetch from memory in parallel.
const BATCH: usize = 16;

impl<K: Eq + 'static, V: 'static> Engine<K, V> {
    /// Looks up several keys with their hashes; `serve` makes the answer for a hit. See
    /// [`Cache::get_many`](crate::Cache::get_many).
    #[inline]
    pub(crate) fn find_many<'a, A, Q>(
        &self,
        keys: impl IntoIterator<Item = &'a Q>,
        hash: impl Fn(&Q) -> u64,
        serve: impl Fn(NodePtr<K, V>) -> A,
    ) -> Vec<Option<A>>
    where
        Q: Equivalent<K> + ?Sized + 'a,
    {
        let mut keys = keys.into_iter().fuse();
        let mut answers = Vec::with_capacity(keys.size_hint().0);
        let mut asked = Vec::with_capacity(BATCH);
        loop {
            // Without a pin: the iterator is the caller's code.
            for key in keys.by_ref().take(BATCH) {
                let hash = hash(key);
                self.map.cell(hash).prefetch(hash);
                asked.push((hash, key));
            }
            if asked.is_empty() {
                return answers;
            }
            self.find_batch(&asked, &serve, &mut answers);
            asked.clear();
        }
    }

    /// Looks up one batch of keys.
    fn find_batch<A, Q>(
        &self,
        asked: &[(u64, &Q)],
        serve: &impl Fn(NodePtr<K, V>) -> A,
        answers: &mut Vec<Option<A>>,
    ) where
        Q: Equivalent<K> + ?Sized,
    {
        if self.lifetimes.reads_ask() || self.lifetimes.time_to_idle.is_some() {
            for &(hash, key) in asked {
                answers.push(self.find_alone(hash, key, serve));
            }
            return;
        }
        let first = answers.len();
        let map = &self.map;
        let pin = self.pin();
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
            self.clock.upper_bound().unwrap_or_else(|| self.clock.now())
        } else {
            0
        };
        let mut due = 0u32;
        for (at, &(met, deadline)) in met[..asked.len()].iter().enumerate() {
            let mut answer = None;
            match met {
                None => self.note_miss::<true>(),
                Some(_) if time::is_due(now, deadline) => due |= 1 << at,
                Some(node) => {
                    self.note_hit::<true>(node, &pin);
                    answer = Some(serve(node));
                }
            }
            answers.push(answer);
        }
        drop(pin);
        if due != 0 {
            for (at, &(hash, key)) in asked.iter().enumerate() {
                if due >> at & 1 == 1 {
                    answers[first + at] = self.find_alone(hash, key, serve);
                }
            }
        }
    }

    /// Looks up one key of a batch by itself.
    fn find_alone<A, Q>(&self, hash: u64, key: &Q, serve: &impl Fn(NodePtr<K, V>) -> A) -> Option<A>
    where
        Q: Equivalent<K> + ?Sized,
    {
        self.look_up_fully::<true, Q, A>(hash, key, |entry, _| serve(entry.node))
    }
}
