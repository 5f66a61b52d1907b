//! The moment from which an entry is stale. A write asks the refresh policy for it with no lock
//! held, and sets it in the hold of the shard's lock that stores the value.

use super::core::Core;
use super::lifetimes::{FromLoad, LifetimeSource, Lifetimes, TimedAnswer};
use crate::node::{NodePtr, RefreshMoment};
use crate::refresh::{Occasion, Refresh, Write};
use crate::time::{self, NEVER};
use std::time::Duration;

/// When a new value becomes stale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextRefresh {
    /// The moment from which it is stale; `NEVER` for none.
    pub(super) at: u64,
    /// The lifetime that its loader gave it, or that it keeps.
    pub(super) lifetime: Option<Duration>,
}

/// Sets the refresh of a node that has just come in. Under the shard's lock.
#[inline]
pub(crate) fn set_refresh<K, V>(node: NodePtr<K, V>, next: Option<NextRefresh>) {
    if let Some(NextRefresh { at, lifetime }) = next
        && let Some(refresh) = node.refresh()
    {
        refresh.set(at, lifetime);
    }
}

impl<K: 'static, V: 'static, S> Core<K, V, S> {
    /// Asks the policies about the value of an entry that is written at `now`: how long it lives,
    /// and when it becomes stale. User code: no lock is held.
    #[inline(always)]
    pub(super) fn ask_policies<'e>(
        &self,
        entry: impl Fn() -> (&'e K, &'e V),
        found: Option<NodePtr<K, V>>,
        given: &LifetimeSource,
        now: u64,
    ) -> (TimedAnswer, Option<NextRefresh>) {
        let asked = (self.lifetimes).ask(&entry, found, given, &self.shared.clock, now);
        let refresh = self.refresh.as_ref().map(|policy| {
            let own = asked.own_or(|| found.map_or(NEVER, |old| old.own_deadline()));
            self.ask_refresh(&**policy, entry(), found, *given, (now, own))
        });
        (asked, refresh)
    }

    /// The same about a live entry whose value a reload has left unchanged: they answer as about an
    /// update. Its own deadline, the wanted one, and when it becomes stale.
    pub(crate) fn ask_of_unchanged(
        &self,
        node: NodePtr<K, V>,
        from: FromLoad,
        now: u64,
    ) -> (u64, u64, Option<NextRefresh>) {
        let (entry, given) = (|| (node.key(), node.value()), LifetimeSource::Loaded(from));
        let (asked, refresh) = self.ask_policies(entry, Some(node), &given, now);
        let own = asked.own_or(|| node.own_deadline());
        (own, self.lifetimes.wanted(own, || now, now), refresh)
    }

    /// Asks the refresh policy when a value becomes stale. The value comes in at `now` with the own
    /// deadline `own`. User code: no lock is held.
    #[cold]
    #[inline(never)]
    fn ask_refresh(
        &self,
        policy: &dyn Refresh<K, V>,
        (key, value): (&K, &V),
        found: Option<NodePtr<K, V>>,
        given: LifetimeSource,
        (now, own): (u64, u64),
    ) -> NextRefresh {
        let load = match given {
            LifetimeSource::Loaded(load) => Some(load),
            _ => None,
        };
        let ask = || {
            let lives = |node: NodePtr<K, V>| !time::is_due(now, node.deadline());
            let occasion = match load {
                Some(load) if load.reload => Occasion::Reload,
                _ if found.is_some_and(lives) => Occasion::Update,
                _ => Occasion::Create,
            };
            let deadline = self.lifetimes.wanted(own, || now, now);
            let write = Write {
                occasion,
                at: self.shared.clock.instant(now),
                lifetime: time::time_left(now, deadline),
                took: load.map(|load| load.took),
            };
            policy.refresh_after(key, value, write)
        };
        let after = load.and_then(|load| load.refresh).or_else(ask);
        let lifetime = match (given, found) {
            (LifetimeSource::Loaded(load), _) => load.lifetime.flatten(),
            // The value keeps its deadline, and so the lifetime from which that deadline came.
            (LifetimeSource::Update, Some(node))
                if self.lifetimes.limits.time_to_live.is_none()
                    && !time::is_due(now, node.deadline()) =>
            {
                self.lifetimes.lifetime_of_unchanged(node)
            }
            _ => None,
        };
        NextRefresh {
            at: time::deadline_in(now, after),
            lifetime,
        }
    }
}

impl<K, V> Lifetimes<K, V> {
    /// The lifetime that a reload gives a node's value again if it leaves it unchanged: that of its
    /// last load, or of the write that gave it one. `None` if a policy or a limit decides.
    pub(crate) fn lifetime_of_unchanged(&self, node: NodePtr<K, V>) -> Option<Duration> {
        if self.policy.is_some() {
            return None;
        }
        let given = node.refresh().and_then(RefreshMoment::lifetime);
        let (own, written) = (node.own_deadline(), node.written());
        let lasts = self.limits.time_to_live.is_none() && own != NEVER && written != NEVER;
        given.or_else(|| lasts.then(|| time::time_left(written, own))?)
    }
}
