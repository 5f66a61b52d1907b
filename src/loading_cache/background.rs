//! Loads that run apart from the calls that want them: on the threads of the cache, or in tasks of
//! the program's spawner. The calls wait for the outcome. The load goes on when they leave.

use super::call::{answer, panicked, run_in_task, run_many_in_task};
use super::kinds::{AnyLoader, BoxFuture, OwnedFutures};
use super::loader::LoadError;
use super::{Inner, LoadingCache};
use crate::contain::contain;
use crate::load::state::{Load, RevokedBy, Ticket, Verdict, Want};
use crate::load::wait::{has_to_wait, runs_loader};
use crate::load::{
    ByRef, CacheHasher, CacheKey, CacheValue, CallGuard, Claim, Guard, Keys, Over, OwnedGuard,
    Request, fallible, wrong_number_of_values,
};
use crate::operations::{Core, WeakHandle};
use equivalent::Equivalent;
use std::any::TypeId;
use std::borrow::ToOwned;
use std::future::poll_fn;
use std::hash::Hash;
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};

/// The answer to a call: `None` if the loader says that there is no value.
pub(super) type Answer<V, E> = Result<Option<V>, LoadError<E>>;

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher> Inner<K, V, E, S> {
    /// Makes a load run in the background.
    pub(super) fn launch(&self, guard: OwnedGuard<K, V, S>) {
        match &self.loader {
            AnyLoader::Blocking(loader) => self.threads.push(loader, guard),
            AnyLoader::Async(loader) => self.spawn(run_in_task(Arc::clone(loader), guard)),
        }
    }

    /// A spawner that panics drops the task, and the right to load with it: the caller goes on.
    fn spawn(&self, task: BoxFuture<()>) {
        contain(|| (self.spawner)(task));
    }
}

/// A call's place among the waiters of a load.
pub(super) struct Wait<K: CacheKey, V: CacheValue, S: CacheHasher> {
    core: WeakHandle<K, V, S>,
    load: Arc<Load<K, V>>,
    ticket: Ticket,
    /// Whether the call has timed out when the load is overdue: so does a call that has begun the
    /// load, and a refresh. Any other call goes on with the newer load.
    times_out: bool,
    ended: bool,
    is_overdue: bool,
}

impl<K: CacheKey, V: CacheValue, S: CacheHasher> Wait<K, V, S> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Verdict<V>> {
        self.core.check_process();
        if let Some(verdict) = self.load.poll(self.ticket, cx.waker()) {
            self.ended = true;
            return Poll::Ready(verdict);
        }
        let core = self.core.visit();
        match has_to_wait(core.as_deref(), &self.load, self.ticket, cx.waker()) {
            Ok(true) => Poll::Pending,
            Ok(false) => {
                self.is_overdue = self.load.is_current();
                self.stop();
                Poll::Ready(Verdict::Retry)
            }
            Err(cycle) => {
                self.stop();
                panic!("{cycle}");
            }
        }
    }

    fn stop(&mut self) {
        if !self.ended {
            self.ended = true;
            if self.load.is_of_this_process() && self.load.leave(self.ticket) {
                drop(Guard::new(self.core.clone(), Arc::clone(&self.load)));
            }
        }
    }

    pub(super) fn load(&self) -> &Arc<Load<K, V>> {
        &self.load
    }

    /// Whether a newer load has taken the place of an overdue one.
    fn is_replaced(&self) -> bool {
        self.load.revoked() == Some(RevokedBy::NewerLoad)
    }
}

impl<K: CacheKey, V: CacheValue, S: CacheHasher> Drop for Wait<K, V, S> {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A call for the value of a key, whose loads run in the background. It keeps no cache alive.
pub(super) struct Call<K: CacheKey, V: CacheValue, E, S: CacheHasher> {
    core: WeakHandle<K, V, S>,
    inner: Weak<Inner<K, V, E, S>>,
    /// What it takes from another call's load.
    ask: Request,
    /// What it takes from a load that it has begun.
    own: Want,
    /// For a call for several keys: the numbers of keys and of values of the loader's last call, if
    /// they differ.
    wrong: Option<Arc<OnceLock<(usize, usize)>>>,
}

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher> Call<K, V, E, S> {
    /// A call that wants a value.
    pub(super) fn get(cache: &LoadingCache<K, V, E, S>) -> Self {
        let want = fallible::<LoadError<E>>();
        Self::new(cache, Request::value(want).heeding_failures(), want)
    }

    /// A call that runs the loader also if the key has a live entry, unless a load is under way.
    pub(super) fn refresh(cache: &LoadingCache<K, V, E, S>) -> Self {
        let want = Want::Any(TypeId::of::<LoadError<E>>());
        let ask = Request {
            over: Over::Any,
            ..Request::value(want)
        };
        Self::new(cache, ask, want)
    }

    fn new(cache: &LoadingCache<K, V, E, S>, ask: Request, own: Want) -> Self {
        Self {
            core: cache.cache.downgrade(),
            inner: Arc::downgrade(&cache.inner),
            ask,
            own,
            wrong: None,
        }
    }

    /// The call's part in the load of a key: its answer, or its wait.
    pub(super) fn begin<Q>(
        &self,
        key: &Q,
        former: Option<(&Wait<K, V, S>, bool)>,
    ) -> ControlFlow<Answer<V, E>, Wait<K, V, S>>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let offered = former.and_then(|(wait, leads)| leads.then(|| Arc::clone(&wait.load)));
        let (Some(core), Some(inner)) = (self.core.visit(), self.inner.upgrade()) else {
            if let Some(load) = offered {
                drop(Guard::new(self.core.clone(), load));
            }
            return Break(Err(LoadError::Panicked));
        };
        let mut ticket = former.map(|(wait, _)| wait.ticket);
        // Not computed again for a load that is offered: a panic would lose it.
        let hash = former.map_or_else(|| core.hash(key), |(wait, _)| wait.load.hash());
        let begun =
            (core.loads()).begin(offered, &mut ByRef::new(key), hash, &self.ask, &mut ticket);
        match begun {
            Err(load) => Continue(self.wait(load, ticket, self.ask.over == Over::Any)),
            Ok(Claim::Guard(guard, _)) => {
                let (guard, wait) = self.join_own(&core, guard, ticket);
                match (&self.wrong, &inner.loader) {
                    (Some(wrong), AnyLoader::Async(loader)) => inner.spawn(run_many_in_task(
                        Arc::clone(loader),
                        vec![guard],
                        Arc::clone(wrong),
                    )),
                    _ => inner.launch(guard),
                }
                Continue(wait)
            }
            Ok(Claim::Value(seen)) => Break(Ok(Some(seen.value))),
            Ok(Claim::Failed(failure)) => Break(answer(&failure)),
            Ok(_) => unreachable!("a call that joins waits"),
        }
    }

    fn wait(
        &self,
        load: Arc<Load<K, V>>,
        ticket: Option<Ticket>,
        times_out: bool,
    ) -> Wait<K, V, S> {
        Wait {
            core: self.core.clone(),
            load,
            ticket: ticket.unwrap_or_else(|| unreachable!("a call that waits has a ticket")),
            times_out,
            ended: false,
            is_overdue: false,
        }
    }

    /// Waits for the call's own load, as any other call would, from before it runs.
    fn join_own(
        &self,
        core: &Core<K, V, S>,
        guard: CallGuard<'_, K, V, S>,
        ticket: Option<Ticket>,
    ) -> (OwnedGuard<K, V, S>, Wait<K, V, S>) {
        let guard = OwnedGuard::in_background(guard, self.core.clone(), panicked::<E, V>);
        let (load, ticket) = (guard.load(), ticket.unwrap_or_else(Ticket::draw));
        load.join(ticket, self.own);
        core.loads().watch_quietly(load, core.loads().clock());
        let wait = self.wait(Arc::clone(load), Some(ticket), true);
        (guard, wait)
    }

    /// Waits until a load of the key has ended: that of `wait`, or the one that the key has then.
    /// From an overdue load of another call it goes on once, with the newer load.
    pub(super) async fn answer<Q>(&mut self, key: &Q, wait: Wait<K, V, S>) -> Answer<V, E>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let (mut wait, mut switched) = (wait, false);
        loop {
            let verdict = poll_fn(|cx| {
                self.run_if_queued(&wait.load);
                wait.poll(cx)
            });
            let verdict = verdict.await;
            let leads = matches!(verdict, Verdict::Leads);
            if let Some(&(asked, got)) = self.wrong.as_ref().and_then(|wrong| wrong.get()) {
                if leads {
                    drop(Guard::new(self.core.clone(), Arc::clone(&wait.load)));
                }
                panic!("{}", wrong_number_of_values(asked, got));
            }
            match verdict {
                Verdict::Ended(outcome) => return answer(&outcome),
                Verdict::Leads => (),
                Verdict::Retry => {
                    let late = wait.is_overdue || wait.is_replaced();
                    if late && (switched || (wait.is_overdue && wait.times_out)) {
                        return Err(LoadError::TimedOut);
                    }
                    switched |= late;
                    // A refresh takes what a write has stored meanwhile.
                    if !late {
                        self.ask.over = Over::Absent;
                    }
                }
            }
            match self.begin(key, Some((&wait, leads))) {
                Continue(next) => wait = next,
                Break(answer) => return answer,
            }
        }
    }

    /// On a thread that leads a load: runs a load that is queued for the threads of the reloads,
    /// which may all have to wait for this very thread.
    fn run_if_queued(&self, load: &Arc<Load<K, V>>) {
        if runs_loader()
            && let Some(inner) = self.inner.upgrade()
            && let AnyLoader::Blocking(loader) = &inner.loader
            && let Some(right) = inner.threads.take(load)
        {
            contain(|| super::call::run_blocking(&**loader, right));
        }
    }
}

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>
    LoadingCache<K, V, E, S>
{
    /// Loads an absent key.
    pub(super) async fn load_in_task<Q>(&self, key: &Q) -> Result<V, LoadError<E>>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let mut call = Call::get(self);
        let answer = match call.begin(key, None) {
            Continue(wait) => call.answer(key, wait).await,
            Break(answer) => answer,
        };
        Ok(answer?.unwrap_or_else(|| unreachable!("it accepts values and errors only")))
    }

    /// Loads the keys that are absent: one task loads all of them that no other call loads. The
    /// call waits for the other loads when its own have ended.
    pub(super) async fn load_all_in_task(
        &self,
        loader: &Arc<dyn OwnedFutures<K, V, E>>,
        mut keys: Keys<K, V>,
    ) -> Result<Vec<Option<V>>, LoadError<E>> {
        let own = Want::Any(TypeId::of::<LoadError<E>>());
        let mut call = Call::new(self, Request::value(Want::Optional), own);
        let wrong = call.wrong.insert(Arc::default());
        let wrong = Arc::clone(wrong);
        let later = Request::value(Want::LookUpAgain);
        let core = self.cache.core();
        let (mut guards, mut own, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for &place in &keys.missing {
            let (key, mut ticket) = (&keys.unique[place], None);
            let mut by_ref = ByRef::new(key);
            match (core.loads()).begin(None, &mut by_ref, core.hash(key), &later, &mut ticket) {
                Ok(Claim::Value(seen)) => keys.answers[place] = Some(seen.value),
                Ok(Claim::Guard(guard, _)) => {
                    let (guard, wait) = call.join_own(core, guard, None);
                    guards.push(guard);
                    own.push((place, wait));
                }
                Err(load) => others.push((place, call.wait(load, ticket, false))),
                Ok(_) => unreachable!("a call that joins waits"),
            }
        }
        if !guards.is_empty() {
            let task = run_many_in_task(Arc::clone(loader), guards, wrong);
            self.inner.spawn(task);
        }
        for (place, wait) in own.into_iter().chain(others) {
            if !wait.times_out {
                wait.load.wait_now(wait.ticket);
            }
            keys.answers[place] = call.answer(&keys.unique[place], wait).await?;
        }
        Ok(keys.in_order())
    }

    #[cold]
    #[inline(never)]
    pub(super) fn reload<Q>(&self, key: &Q)
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        let core = self.cache.core();
        if let Some(guard) = core.loads().begin_reload(core.hash(key), key) {
            let weak = self.cache.downgrade();
            let guard = OwnedGuard::in_background(guard, weak, panicked::<E, V>);
            self.inner.launch(guard);
        }
    }
}
