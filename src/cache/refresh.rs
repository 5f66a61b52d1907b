//! From when on an entry is stale: asked of the refresh policy with no lock held, set in the hold
//! of the shard's lock that stores the value.

use super::core::{Core, Once};
use super::write::{Answer, Given};
use crate::node::{NodePtr, is_stale};
use crate::refresh::{Occasion, Refresh, Write};
use crate::time::{self, NEVER};
use equivalent::Equivalent;
use std::time::Duration;

/// What a loader said of its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FromLoad {
    /// Its life, if the loader knows it; `Some(None)` for ever.
    pub(crate) life: Option<Option<Duration>>,
    /// When it is to be reloaded, if the loader knows that.
    pub(crate) refresh: Option<Duration>,
    /// Whether it was a reload.
    pub(crate) reload: bool,
    /// How long the loader took.
    pub(crate) took: Duration,
}

/// Sets the moment of a node that has just come in. Under the shard's lock.
#[inline]
pub(crate) fn set_refresh<K, V>(node: NodePtr<K, V>, after: Option<Duration>, now: u64) {
    if let Some(after) = after
        && let Some(refresh) = node.refresh()
    {
        refresh.set(time::deadline_after(now, after));
    }
}

impl<K: 'static, V: 'static, S> Core<K, V, S> {
    /// The life that a new value gets by an answer; `None` for ever.
    #[cold]
    #[inline(never)]
    pub(super) fn life_of(&self, answer: Answer, found: Option<NodePtr<K, V>>) -> Option<Duration> {
        let own = match answer {
            Answer::Life(life) => life,
            Answer::Keep => found.and_then(|node| self.left_of(node)),
        };
        self.limited(own)
    }

    /// What is left of a node's own life.
    fn left_of(&self, node: NodePtr<K, V>) -> Option<Duration> {
        match node.own_deadline() {
            NEVER => None,
            own => time::time_left(self.shared.clock.now(), own),
        }
    }

    /// A life that begins now, within the limits of the cache.
    pub(crate) fn limited(&self, own: Option<Duration>) -> Option<Duration> {
        let limits = &self.lifetimes.limits;
        let all = [own, limits.time_to_live, limits.time_to_idle];
        all.into_iter().flatten().min()
    }

    /// Asks the refresh policy about a value that comes in. User code: no lock is held.
    #[cold]
    #[inline(never)]
    pub(crate) fn ask_refresh(
        &self,
        policy: &dyn Refresh<K, V>,
        (key, value): (&K, &V),
        found: Option<NodePtr<K, V>>,
        given: Given,
        life: Option<Duration>,
    ) -> Option<Duration> {
        let now = self.shared.clock.now();
        let load = match given {
            Given::Loaded(load) => Some(load),
            _ => None,
        };
        if let Some(FromLoad {
            refresh: Some(after),
            ..
        }) = load
        {
            return Some(after);
        }
        let lives = |node: NodePtr<K, V>| !time::is_due(now, node.deadline());
        let occasion = match load {
            Some(load) if load.reload => Occasion::Reload,
            _ if found.is_some_and(lives) => Occasion::Update,
            _ => Occasion::Create,
        };
        let write = Write {
            occasion,
            at: self.shared.clock.instant(now),
            life,
            took: load.map(|load| load.took),
        };
        policy.refresh_after(key, value, write)
    }
}

impl<K: 'static, V: 'static, S> Core<K, V, S> {
    /// The own deadline of a live entry that a reload has left unchanged: the one that an update
    /// gives it. User code: no lock is held.
    pub(crate) fn deadline_of_unchanged(
        &self,
        node: NodePtr<K, V>,
        now: u64,
        deadline: u64,
        life: Option<Option<Duration>>,
    ) -> u64 {
        if let Some(life) = life {
            self.lifetimes.note_own();
            return time::deadline_in(now, life);
        }
        let Some(policy) = &self.lifetimes.policy else {
            return NEVER;
        };
        if !self.lifetimes.policy_updates {
            return node.own_deadline();
        }
        let left = time::time_left(now, deadline);
        let updated_at = self.told(|| now);
        let asked = policy.expire_after_update(node.key(), node.value(), updated_at, left);
        if asked == left {
            node.own_deadline()
        } else {
            time::deadline_in(self.shared.clock.now(), asked)
        }
    }
}

impl<K: 'static, V: 'static, S> Core<K, V, S> {
    /// A `get` whose one look finds a live entry that is not stale; `None` says nothing. This is
    /// the short way of [`Cache::get`](crate::Cache::get), with one comparison more.
    #[inline]
    pub(crate) fn get_fresh<Q>(&self, hash: u64, key: &Q) -> Option<V>
    where
        Q: Equivalent<K> + ?Sized,
        V: Clone,
    {
        if !self.swift {
            return None;
        }
        let pin = self.shared.pin_alone()?;
        let Once::Alive(hit) = self.look_once(hash, key, &pin) else {
            return None;
        };
        if let Some(refresh) = hit.node.refresh() {
            let at = refresh.at();
            // A look-up that needed no clock knows no time.
            if at != NEVER && (hit.now == 0 || is_stale(at, hit.now)) {
                return None;
            }
        }
        let value = hit.node.value().clone();
        if self.maintenance.should_record(hit.node) {
            return self.get_news(hit.node, value, pin);
        }
        Some(value)
    }
}
