//! Reloads, and loads that no call has to run: how they start.

use super::error::LoadError;
use super::run::drive;
use super::source::{Source, panicked};
use super::wait::Wait;
use super::{Inner, LoadingCache};
use crate::load::{Load, Ticket, Want};
use crate::loading::{CacheHasher, CacheKey, CacheValue, Dropped, Keys, Lead, Right};
use crate::node::is_stale;
use crate::operations::{Core, Timed, WeakHandle};
use crate::time::NEVER;
use equivalent::Equivalent;
use std::any::TypeId;
use std::hash::Hash;
use std::sync::Arc;

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher> Inner<K, V, E, S> {
    /// Runs a reload or a load in the background, and waits for it.
    pub(super) fn launch_and_wait(
        &self,
        core: &Core<K, V, S>,
        weak: &WeakHandle<K, V, S>,
        right: Right<K, V, S>,
    ) -> Wait<K, V, S> {
        let load = Arc::clone(right.load());
        let ticket = join_own(core, &load, None, Want::Any(TypeId::of::<LoadError<E>>()));
        self.launch(core, right);
        Wait::new(weak.clone(), Arc::clone(&self.drives), load, ticket)
    }

    /// Runs a reload or a load in the background.
    pub(super) fn launch(&self, core: &Core<K, V, S>, right: Right<K, V, S>) {
        match &self.source {
            Source::Blocking(loader) => {
                let now = core.loads().clock();
                let overdue = |load: &Load<K, V>| core.loads().is_overdue(load, now);
                self.workers.push(loader, right, overdue);
            }
            Source::Async(loader) => {
                let load = Arc::clone(right.load());
                let future = drive(Arc::clone(loader), right);
                let attached = self.drives.start(std::slice::from_ref(&load), future);
                self.drives.spawn(attached);
            }
        }
    }
}

/// A call joins its own load, as any other call does.
pub(super) fn join_own<K, V, S>(
    core: &Core<K, V, S>,
    load: &Load<K, V>,
    ticket: Option<Ticket>,
    want: Want,
) -> Ticket {
    let ticket = ticket.unwrap_or_else(Ticket::draw);
    load.join(ticket, want, 0);
    core.loads().watch_quietly(load, core.loads().clock());
    ticket
}

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>
    LoadingCache<K, V, E, S>
{
    /// The wait of a call that has joined a load.
    pub(super) fn wait_for(&self, load: Arc<Load<K, V>>, ticket: Option<Ticket>) -> Wait<K, V, S> {
        let Some(ticket) = ticket else {
            unreachable!("a call that waits has a ticket");
        };
        let core = self.cache.core.downgrade();
        Wait::new(core, Arc::clone(&self.inner.drives), load, ticket)
    }

    /// The right of a call that leads.
    pub(super) fn right_of(
        &self,
        lead: Lead<'_, K, V, S>,
        until: Option<u64>,
        dropped: Dropped,
    ) -> Right<K, V, S> {
        let core = self.cache.core.downgrade();
        Right::of(lead, core, until, panicked::<E>, dropped)
    }

    /// Whether an entry is stale, which was judged at `now`: the moment may be after now, and is 0
    /// if the look-up needed none.
    #[inline]
    pub(super) fn is_stale(&self, at: u64, now: u64) -> bool {
        let is_fresh = at == NEVER || now != 0 && !is_stale(at, now);
        !is_fresh && is_stale(at, self.cache.core.shared.clock.now_to_judge(at))
    }

    #[cold]
    #[inline(never)]
    pub(super) fn reload<Q>(&self, key: &Q)
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        let core = &self.cache.core;
        if let Some((lead, until)) = core.loads().begin_reload(core.hash(key), key) {
            let right = self.right_of(lead, Some(until), Dropped::Fails);
            self.inner.launch(core, right);
        }
    }

    /// Looks several keys up; also returns those whose value is stale.
    pub(super) fn look_up_all(&self, keys: impl IntoIterator<Item = K>) -> (Keys<K, V>, Vec<K>) {
        let mut stale = Vec::new();
        let keys = Keys::look_up(keys, |keys| {
            let found = self.cache.core.get_many::<Timed, _, K>(keys);
            let value = |(key, found): (&K, Option<(V, u64, u64)>)| {
                let (value, at, now) = found?;
                if self.is_stale(at, now) {
                    stale.push(key.clone());
                }
                Some(value)
            };
            keys.iter().zip(found).map(value).collect()
        });
        (keys, stale)
    }
}
