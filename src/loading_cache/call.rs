//! One load of a loader: how it runs and ends, and what the calls that want its value get.

use super::backend::Backend;
use super::kinds::{caught, spawn, why_dropped};
use super::loader::{LoadError, Reply};
use super::{Inner, LoadingCache, Spawner};
use crate::compute::Keyless;
use crate::contain::{AtEnd, LetGoEach, contain, let_go};
use crate::engine::{Engine, FromLoad, LifetimeSource};
use crate::flight::{Load, Outcome};
use crate::load::{
    CallGuards, Claim, Claimant, Guard, Loadable, May, Replaces, ToCache, error_of, fallible, lead,
    load_together,
};
use crate::stripe::thread_number;
use crate::time;
use equivalent::Equivalent;
use std::hash::{BuildHasher, Hash};
use std::iter;
use std::mem;
use std::ops::Deref;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What a call comes to: `None` if the loader says that there is no value. The value is in a box,
/// as it may be large, and passes through several futures.
pub(super) type CallResult<V, E> = Result<Option<Box<Keyless<V>>>, LoadError<E>>;

/// What a call comes to that does not lead.
pub(super) fn result_of<K, V, E: Send + Sync + 'static, C: ToCache<K, V>>(
    claim: Claim<K, V, C>,
) -> CallResult<V, E> {
    match claim {
        Claim::Value(seen) => Ok(Some(seen)),
        Claim::Failed(Outcome::Error(error)) => Err((*error_of::<LoadError<E>>(error)).clone()),
        Claim::Failed(_) => Ok(None),
        Claim::TimedOut => Err(LoadError::TimedOut),
        Claim::Gone => Err(LoadError::Abandoned),
        Claim::Busy | Claim::Guard(..) => unreachable!("it waits, and does not lead"),
    }
}

impl<K: Loadable + Hash + Eq, V: Loadable, C: ToCache<K, V>> Guard<K, V, C> {
    /// Runs a load or a reload in the background, on a reload thread or in a task.
    pub(super) async fn run_in_background<E: Send + Sync + 'static>(
        self,
        backend: impl Deref<Target = Backend<K, V, E>>,
    ) {
        if self.begin_run() {
            _ = self.run_loader(backend).await;
        }
    }

    /// Runs a load or a reload here, and ends it by what the loader answers.
    pub(super) async fn run_loader<E: Send + Sync + 'static>(
        self,
        backend: impl Deref<Target = Backend<K, V, E>>,
    ) -> CallResult<V, E> {
        let mut old = None;
        if self.load().is_reload() {
            old = self.old();
        }
        let reply = {
            let value = old.as_ref().map(|old| &old.value);
            let code = pin!(caught(backend.loader.load(self.load().key(), value)));
            lead(iter::once(&self), code).await
        };
        self.end_by_reply(reply, old, backend)
    }

    /// Ends a load or a reload by what the loader has made. If other user code panics, the guard is
    /// dropped.
    pub(super) fn end_by_reply<E: Send + Sync + 'static>(
        self,
        reply: Result<Reply<V>, LoadError<E>>,
        old: Option<Box<Keyless<V>>>,
        backend: impl Deref<Target = Backend<K, V, E>>,
    ) -> CallResult<V, E> {
        // User code runs from now on: what it calls must not wait for this load.
        self.load().set_leader_thread(thread_number());
        if let Err(error) = &reply {
            self.note_failure(error, &backend);
        }
        // Before the outcome is published: the cache may be dropped then, and the loader with it.
        let_go(backend);
        match reply {
            Ok(Some(loaded)) => {
                let began = self.load().began();
                let ended = match self.engine() {
                    Some(engine) => engine.clock.now(),
                    None => began,
                };
                let mut from = FromLoad {
                    lifetime: loaded.lifetime,
                    refresh: loaded.refresh,
                    reload: self.load().is_reload(),
                    took: Duration::from_nanos(time::elapsed(ended, began)),
                };
                if let Some(mut value) = loaded.value {
                    let_go(old);
                    let filled = self.fill(&mut value, LifetimeSource::Loaded(from));
                    return Ok(Some(filled.returned(value)));
                }
                let mut old = old.expect("only a reload leaves a value unchanged");
                from.lifetime = from.lifetime.or(old.left.take().map(Some));
                self.unchanged(old, from);
            }
            Ok(None) if old.is_some() => {
                let_go(old);
                let_go(self.remove(Outcome::Absent));
            }
            Ok(None) => self.fail(&Outcome::Absent),
            Err(error) => {
                let_go(old);
                self.fail(&Outcome::Error(Arc::new(error.clone())));
                return Err(error);
            }
        }
        Ok(None)
    }

    /// The loader has failed: says when a reload is tried again, or how long the error of a load is
    /// remembered. Before the failure is published: a caller that hears of it sees what follows.
    fn note_failure<E: Send + Sync + 'static>(
        &self,
        error: &LoadError<E>,
        backend: &Backend<K, V, E>,
    ) {
        let Some(engine) = self.engine() else { return };
        let failed = match error {
            LoadError::Failed(error) => Some(error),
            _ => None,
        };
        if self.load().is_reload() {
            engine.back_off(self.load(), |failures| {
                backend.loader.retry_after(failed?, failures)
            });
        } else if let Some(error) = failed {
            backend.note_failure(self.load(), error, || engine.clock.now());
        }
    }
}

/// The failure that waiters get after a task was dropped, or after user code has panicked.
pub(super) fn dropped<K: Loadable + Hash + Eq, V: Loadable, E: Send + Sync + 'static>(
    load: &Load<K, V>,
    engine: Option<&Engine<K, V>>,
) -> Outcome<V> {
    if let Some(engine) = engine {
        if load.is_reload() {
            contain(|| engine.back_off(load, |_| None));
        }
    }
    Outcome::Error(Arc::new(why_dropped::<E>()))
}

/// The message that a loader has returned another number of values than it was given keys, if it
/// has.
pub(super) type WrongNumber = Arc<OnceLock<String>>;

impl<K: Loadable + Hash + Eq, V: Loadable, E: Send + Sync + 'static> Inner<K, V, E> {
    /// Makes a load or a reload of an async loader run in a task.
    pub(super) fn launch<C: ToCache<K, V>>(&self, spawner: &Spawner, guard: Guard<K, V, C>) {
        let guard = self.threads.in_background(guard);
        let backend = Arc::clone(&self.backend);
        spawn(spawner, guard.run_in_background(backend));
    }

    /// Makes loads of absent keys run in one task.
    pub(super) fn launch_many(
        &self,
        spawner: &Spawner,
        keys: Vec<K>,
        guards: CallGuards<'_, K, V>,
        wrong: &WrongNumber,
    ) {
        let backend = Arc::clone(&self.backend);
        let wrong = Arc::clone(wrong);
        let mut keys = LetGoEach(keys);
        let guards = guards
            .into_iter()
            .map(|(place, guard)| (place, self.threads.in_background(guard)));
        // The thread that drops them leads all of their loads until the last has ended.
        let mut all = AtEnd(guards.collect::<Vec<_>>(), |guards| {
            for (_, guard) in guards {
                guard.load().set_leader_thread(thread_number());
            }
        });
        spawn(spawner, async move {
            if !all.0.iter().all(|(_, guard)| guard.begin_run()) {
                return;
            }
            let loader = Arc::clone(&backend.loader);
            // The last load takes this along: it lets go of it before its outcome is published.
            let mut backends = iter::repeat_n(backend, all.0.len());
            let loaded = load_together(
                mem::take(&mut keys.0),
                mem::take(&mut all.0),
                |keys| async move {
                    let keys = LetGoEach(keys);
                    caught(loader.load_many(&keys.0)).await
                },
                |message| {
                    // Before the calls hear that the loads have ended.
                    _ = wrong.set(message);
                    LoadError::Panicked
                },
                |_, guard, reply| {
                    let backend = backends.next().expect("one for each load");
                    _ = guard.end_by_reply(reply, None, backend);
                },
            );
            _ = loaded.await;
        });
    }
}

impl<K, V, E, S> LoadingCache<K, V, E, S>
where
    K: Loadable + Hash + Eq,
    V: Loadable,
    E: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// A read has found the key's entry stale, which has this hint: a reload begins, or the key
    /// waits for a thread. If neither may be, a later read asks again.
    #[cold]
    #[inline(never)]
    pub(super) fn reload<Q>(&self, hash: u64, key: &Q, hint: u64)
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        let Inner {
            spawner, threads, ..
        } = &**self.inner;
        if threads.has_room() && (spawner.is_some() || !threads.is_hinted(hint)) {
            self.begin_reload(hash, key, hint);
        }
    }

    // Out of line: most stale hits need no room on the stack for it.
    #[inline(never)]
    fn begin_reload<Q>(&self, hash: u64, key: &Q, hint: u64)
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        let engine = self.cache.engine();
        let pin = engine.pin();
        let Some(hit) = engine.find_live(hash, key, &pin) else {
            return;
        };
        let key = hit.node.key().clone();
        drop(pin);
        let Some(spawner) = &self.inner.spawner else {
            return self.inner.threads.reload_soon(hash, key, hint);
        };
        let mut call = Claimant::new(engine, hash, key, fallible::<LoadError<E>>());
        call.replaces = Replaces::Stale;
        call.may_wait = false;
        if let Some(Claim::Guard(guard, _)) = call.try_claim(May::Lead) {
            self.inner.launch(spawner, guard);
        }
    }
}
