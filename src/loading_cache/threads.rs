//! The threads that reload for a [`Loader`](crate::Loader): up to a fixed number, started when they
//! are needed.
//!
//! # What waits for a thread
//!
//! A key, as a [`ReloadJob`]: no load of it has begun, and it holds nothing up. A read of a stale
//! entry lets its key wait, and so does a refresh that finds no load to join: its call waits in the
//! job. The thread that takes the job claims the key, as any call does, and runs the loader if it
//! leads. If the key has a load by then, a refresh waits for the outcome of that; if only reads
//! have asked, that load will do.
//!
//! A key has one job at a time, from the first call that wants it until its load has begun, or its
//! thread waits. All refreshes that come meanwhile share the job. The reads of a stale entry whose
//! key waits find that without a lock ([`hint`]). If many keys wait already, an entry stays stale,
//! for a later read.
//!
//! # Threads that wait
//!
//! A loader may wait for another load: for one that itself waits for a refresh in this queue, say.
//! So a thread that waits gives its place (`sync::place`) up, and another thread may start. A
//! loader that hangs in other code keeps its place; so do the policies, the listener and the
//! destructors that the end of a load calls.
//!
//! These are no threads of the crew (`scheduler/crew.rs`), which serves all caches: a loader that
//! hangs must hold up neither a listener nor the end of the last cache.
//!
//! The threads hold no cache. A thread ends when it has had nothing to do for a while, or when the
//! last handle of the loading cache is dropped. That drop waits for those that have no job.

use super::backend::Backend;
use super::call::{dropped, result_of};
use super::kinds::contained;
use super::loader::LoadError;
use super::turn::{Caller, OwnedClaimant, Progress, turn};
use crate::atomic64::AtomicU64;
use crate::contain::{contain, let_go};
use crate::engine::WeakHandle;
use crate::load::{Claim, Claimant, Guard, Loadable, May, OwnedGuard, Replaces, ToCache, settled};
use crate::node::NodePtr;
use crate::stripe::thread_number;
use crate::sync::block::{poll_once, wake_all};
use crate::sync::place::{Overseer, Stage, work_at};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::Hash;
use std::io;
use std::mem;
// The standard library's locks: models run no threads of the crate.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long a thread waits for another job before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// A stale key waits only while fewer keys than this wait. Refreshes are not bounded.
const MOST_STALE: usize = 256;

pub(super) struct ReloadThreads<K, V, E> {
    cache: WeakHandle<K, V>,
    name: String,
    state: Mutex<ReloadState<K, V, E>>,
    /// There is work, or the threads are to end.
    changed: Condvar,
    /// Whether one more key of a stale entry may wait. Written under the lock. Relaxed, as the
    /// hints: no other memory is read because of it.
    has_room: AtomicBool,
    /// The [hints](hint) at the entries whose keys wait, each at its own index, where another one
    /// may overwrite it; else 0. Written under the lock. An async loader needs none.
    hints: OnceLock<Box<[AtomicU64]>>,
}

/// What stands for a stale entry, by its key's hash and its node's address. Never 0. The entry of
/// another key has practically never the same hint.
#[inline]
pub(super) fn hint<K, V>(hash: u64, node: NodePtr<K, V>) -> u64 {
    (hash ^ node.as_raw().addr() as u64) | 1
}

fn index_of(hint: u64) -> usize {
    (hint >> 8) as usize % MOST_STALE
}

struct ReloadState<K, V, E> {
    /// `None` when the last handle of the loading cache is gone. A thread has it while it runs it.
    backend: Option<Arc<Backend<K, V, E>>>,
    /// Each job, until its load has begun or its thread waits: a thread that has taken it leaves it
    /// here, empty.
    jobs: BTreeMap<JobId, ReloadJob<K, V, E>>,
    /// How many have been taken out.
    ended: u64,
    /// The jobs that wait for a thread, in their order.
    waiting: VecDeque<JobId>,
    /// The next number of a job, or of a thread.
    next: u64,
    /// The threads, by their numbers.
    threads: BTreeMap<u64, JoinHandle<()>>,
    /// The numbers of the threads that have work.
    at_work: BTreeSet<u64>,
    /// How many threads have a place.
    taken: usize,
    /// How many of these have no work, and take what waits.
    free: usize,
    /// How many places there are; none when the last handle of the loading cache is gone.
    most: usize,
}

type Locked<'a, K, V, E> = MutexGuard<'a, ReloadState<K, V, E>>;

/// The hash of a job's key, and the number of the job.
type JobId = (u64, u64);

/// A refresh whose turn has yet to come: its call, and the way to the future that waits.
type QueuedRefresh<K, V, E> = (OwnedClaimant<K, V>, Caller<K, V, E>);

/// A key that is to be reloaded.
struct ReloadJob<K, V, E> {
    /// That of the key.
    hash: u64,
    /// Of the last read; 0 without one.
    hint: u64,
    /// Shared, so that keys can be compared with the lock released.
    key: Arc<K>,
    /// Those that wait for it; none if only reads of a stale entry have asked.
    refreshes: Vec<QueuedRefresh<K, V, E>>,
}

impl<K, V, E> ReloadState<K, V, E> {
    fn draw(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Whether one more key of a stale entry may wait.
    fn has_room(&self) -> bool {
        self.waiting.len() < MOST_STALE
    }
}

impl<K, V, E> ReloadThreads<K, V, E> {
    /// No user code runs under this lock, and a panic under it leaves the state whole.
    fn lock(&self) -> Locked<'_, K, V, E> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one more key of a stale entry may wait, as a read sees it without the lock.
    pub(super) fn has_room(&self) -> bool {
        self.has_room.load(Ordering::Relaxed)
    }

    /// Whether the key of the entry with this hint waits.
    pub(super) fn is_hinted(&self, hint: u64) -> bool {
        match self.hints.get() {
            Some(hints) => hints[index_of(hint)].load(Ordering::Relaxed) == hint,
            None => false,
        }
    }

    fn store_hint(&self, hint: u64, now: u64) {
        let hints = self
            .hints
            .get_or_init(|| (0..MOST_STALE).map(|_| AtomicU64::new(0)).collect());
        hints[index_of(hint)].store(now, Ordering::Relaxed);
    }

    fn clear_hint(&self, hint: u64) {
        if self.is_hinted(hint) {
            self.store_hint(hint, 0);
        }
    }

    fn add(&self, state: &mut ReloadState<K, V, E>, job: ReloadJob<K, V, E>) {
        let id = (job.hash, state.draw());
        if job.hint != 0 {
            self.store_hint(job.hint, job.hint);
        }
        state.jobs.insert(id, job);
        state.waiting.push_back(id);
        self.has_room.store(state.has_room(), Ordering::Relaxed);
    }

    /// Takes the first job that waits. Calls for its key still find it.
    fn take_first(&self, state: &mut ReloadState<K, V, E>) -> Option<(JobId, ReloadJob<K, V, E>)> {
        let id = state.waiting.pop_front()?;
        self.has_room.store(state.has_room(), Ordering::Relaxed);
        let job = state.jobs.get_mut(&id)?;
        Some((id, self.take(job)))
    }

    /// Takes what has come for a key. Calls for it still find the job.
    fn take(&self, job: &mut ReloadJob<K, V, E>) -> ReloadJob<K, V, E> {
        self.clear_hint(job.hint);
        let rest = ReloadJob::new(job.hash, Arc::clone(&job.key), 0);
        mem::replace(job, rest)
    }

    /// No call finds the job any more. Returns what came since a thread has taken it.
    fn end(&self, state: &mut ReloadState<K, V, E>, id: JobId) -> Option<ReloadJob<K, V, E>> {
        let rest = state.jobs.remove(&id)?;
        state.ended += 1;
        self.clear_hint(rest.hint);
        Some(rest)
    }

    /// All that waits.
    fn take_all(&self, state: &mut ReloadState<K, V, E>) -> Vec<ReloadJob<K, V, E>> {
        let mut all = Vec::new();
        while let Some((id, job)) = self.take_first(state) {
            self.end(state, id);
            all.push(job);
        }
        all
    }

    /// No thread takes a job any more. Those that have none have ended when this returns.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.most = 0;
        // The loading cache has it still: nothing is dropped under the lock.
        state.backend = None;
        let waiting = self.take_all(&mut state);
        self.has_room.store(false, Ordering::Relaxed);
        let mut ending = Vec::new();
        for (number, thread) in mem::take(&mut state.threads) {
            if !state.at_work.contains(&number) {
                ending.push(thread);
            }
        }
        drop(state);
        self.changed.notify_all();
        for thread in ending {
            // A thread that has no work runs no user code.
            _ = thread.join();
        }
        abandon(waiting);
    }
}

impl<K: Loadable + Hash + Eq, V: Loadable, E: Send + Sync + 'static> ReloadThreads<K, V, E> {
    pub(super) fn new(
        backend: Arc<Backend<K, V, E>>,
        cache: WeakHandle<K, V>,
        name: Option<&str>,
        most: usize,
    ) -> Self {
        Self {
            cache,
            name: format!("wheelhouse-{}-reload", name.unwrap_or("cache")),
            state: Mutex::new(ReloadState {
                backend: Some(backend),
                jobs: BTreeMap::new(),
                ended: 0,
                waiting: VecDeque::new(),
                next: 0,
                threads: BTreeMap::new(),
                at_work: BTreeSet::new(),
                taken: 0,
                free: 0,
                most,
            }),
            changed: Condvar::new(),
            has_room: AtomicBool::new(true),
            hints: OnceLock::new(),
        }
    }

    /// A read has found the key's entry stale, and no such hint.
    pub(super) fn reload_soon(self: &Arc<Self>, hash: u64, key: K, hint: u64) {
        let (mut state, found) = self.find(hash, &key);
        if let Some(job) = found.and_then(|id| state.jobs.get_mut(&id)) {
            self.clear_hint(mem::replace(&mut job.hint, hint));
            self.store_hint(hint, hint);
        } else if state.has_room() {
            self.add(&mut state, ReloadJob::new(hash, Arc::new(key), hint));
            return self.serve(state);
        }
        drop(state);
        let_go(key);
    }

    /// A refresh begins, or has to look its key up again: it joins a load, or waits in a job.
    pub(super) fn refresh(self: &Arc<Self>, mut call: OwnedClaimant<K, V>) -> Progress<K, V, E> {
        let hash = call.hash;
        // Declared before the lock is taken: so it is dropped later.
        let engine = self.cache.reach();
        let mut ended = None;
        let (mut state, found) = loop {
            let (state, found) = self.find(hash, call.key());
            // Under the lock: if a job of the key has ended before, its load has mostly begun.
            let may_join = match &engine {
                Some(engine) => engine.has_load(hash),
                None => false,
            };
            if !may_join || ended == Some(state.ended) {
                break (state, found);
            }
            ended = Some(state.ended);
            drop(state);
            match call.try_claim(May::OnlyJoin) {
                None => return Progress::Waits(call),
                // That of another key, or it has ended.
                Some(Claim::Busy) => {}
                Some(claim) => return Progress::Ended(result_of(claim)),
            }
        };
        let name = engine.as_ref().and_then(|engine| engine.name.clone());
        let (caller, turn) = turn();
        let mut gone = Vec::new();
        if let Some(job) = found.and_then(|id| state.jobs.get_mut(&id)) {
            if job.refreshes.len() == job.refreshes.capacity() {
                // Those that were dropped make room: this call loads for them.
                let refreshes = mem::take(&mut job.refreshes);
                (job.refreshes, gone) = refreshes.into_iter().partition(|(other, caller)| {
                    other.replaces != call.replaces || caller.is_awaited()
                });
            }
            job.refreshes.push((call, caller));
            drop(state);
        } else {
            let mut job = ReloadJob::new(hash, Arc::new(call.take_key()), 0);
            job.refreshes.push((call, caller));
            self.add(&mut state, job);
            self.serve(state);
        }
        drop(gone);
        Progress::Queued { turn, hash, name }
    }

    /// Locks the state, and finds the job of this key. Keys are compared with the lock released.
    fn find(&self, hash: u64, key: &K) -> (Locked<'_, K, V, E>, Option<JobId>) {
        // Numbers ascend: of each key that came before this one it is known whether it is equal.
        let mut compared = 0;
        loop {
            let state = self.lock();
            let mut others = Vec::new();
            for (&id, job) in state.jobs.range((hash, compared)..=(hash, u64::MAX)) {
                others.push((id, Arc::clone(&job.key)));
            }
            let Some(&((_, last), _)) = others.last() else {
                return (state, None);
            };
            drop(state);
            compared = last + 1;
            let equal = others.iter().find(|(_, other)| **other == *key);
            let equal = equal.map(|&(id, _)| id);
            // With the lock released. Their jobs may have ended meanwhile.
            others.into_iter().for_each(let_go);
            if let Some(id) = equal {
                let state = self.lock();
                if state.jobs.contains_key(&id) {
                    return (state, Some(id));
                }
            }
        }
    }

    /// Sees to it that a thread takes what waits.
    fn serve(self: &Arc<Self>, mut state: Locked<'_, K, V, E>) {
        if state.free >= state.waiting.len() || state.taken >= state.most {
            self.changed.notify_one();
            return;
        }
        if self.start(&mut state).is_err() && state.taken == 0 {
            let waiting = self.take_all(&mut state);
            drop(state);
            self.fail(waiting);
        }
    }

    /// Without a thread these would wait for ever. So the loads fail; a later read tries again.
    fn fail(&self, jobs: Vec<ReloadJob<K, V, E>>) {
        jobs.iter().for_each(ReloadJob::note_taken);
        for job in jobs {
            contain(|| drop(self.claim(job)));
        }
    }

    fn start(self: &Arc<Self>, state: &mut ReloadState<K, V, E>) -> io::Result<()> {
        let number = state.draw();
        let threads = Arc::clone(self);
        let thread = thread::Builder::new().name(self.name.clone());
        let thread = thread.spawn(move || threads.work(number))?;
        state.taken += 1;
        state.free += 1;
        state.threads.insert(number, thread);
        Ok(())
    }

    /// What the thread of this number does.
    fn work(self: Arc<Self>, number: u64) {
        let mut state = self.lock();
        loop {
            // More places are taken than there are if threads that have waited work on.
            let may_stay = |state: &mut ReloadState<_, _, _>| {
                state.most > 0 && state.taken <= state.most && state.waiting.is_empty()
            };
            let woken = self.changed.wait_timeout_while(state, IDLE, may_stay);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
            state.free -= 1;
            // If the others have all the places, this thread ends: one that is free is told of what
            // waits, and one at work looks for it when it ends.
            let mut first = None;
            if state.taken <= state.most {
                first = self.take_first(&mut state);
            }
            let Some((id, job)) = first else {
                state.taken -= 1;
                self.changed.notify_one();
                break;
            };
            let backend = state.backend.clone();
            state.at_work.insert(number);
            drop(state);
            let threads = Arc::clone(&self);
            let overseer: Overseer = Arc::new(move |stage| threads.note_stage(id, stage));
            // Also the destructors of what the run has made.
            let stage = work_at(overseer, || _ = contain(|| self.run(id, job, backend)));
            state = self.lock();
            state.at_work.remove(&number);
            state.free += 1;
            if stage == Stage::Waits {
                state.taken += 1;
            }
        }
        // Not joined, unless the last drop has taken it.
        state.threads.remove(&number);
    }

    /// A thread at work on this job has come to another stage.
    fn note_stage(self: &Arc<Self>, id: JobId, stage: Stage) {
        let mut state = self.lock();
        match stage {
            Stage::Works => {
                // One place more than there are, if need be.
                state.taken += 1;
                self.changed.notify_one();
            }
            Stage::Waits => {
                state.taken -= 1;
                // It may wait for what came since it has taken the job: another thread takes that.
                let mut rest = self.end(&mut state, id);
                if state.most > 0 {
                    if let Some(job) = rest.take_if(|job| !job.refreshes.is_empty()) {
                        self.add(&mut state, job);
                    }
                }
                self.serve(state);
                abandon(rest.into_iter().collect());
            }
        }
    }

    fn run(&self, id: JobId, job: ReloadJob<K, V, E>, mut backend: Option<Arc<Backend<K, V, E>>>) {
        let mut guards = self.claim(job);
        let rest = loop {
            let mut state = self.lock();
            let job = match state.jobs.get_mut(&id) {
                // They may begin a load still: those that come while they do find the job.
                Some(job) if guards.is_empty() && !job.refreshes.is_empty() => self.take(job),
                // What came meanwhile. The calls that come from now on find the load.
                _ => break self.end(&mut state, id),
            };
            drop(state);
            guards = self.claim(job);
        };
        if let Some(job) = rest {
            guards.extend(self.claim(job));
        }
        while let Some(guard) = guards.pop() {
            let backend = if guards.is_empty() {
                // It takes this along: a run lets go of it before its outcome is published.
                backend.take()
            } else {
                backend.clone()
            };
            if let Some(backend) = backend {
                let run = guard.run_in_background(backend);
                contain(|| poll_once(contained(run)));
            }
        }
    }

    /// The guard of a load that runs on a reload thread, or in a task.
    pub(super) fn in_background<C: ToCache<K, V>>(&self, led: Guard<K, V, C>) -> OwnedGuard<K, V> {
        led.in_background(self.cache.clone(), Some(dropped::<K, V, E>))
    }

    /// Claims the key of a job, for the refreshes that wait for it. They wait for the load from now
    /// on. Returns the guards of the loads that this call leads: mostly one; more only if a write
    /// revokes the first meanwhile.
    fn claim(&self, mut job: ReloadJob<K, V, E>) -> Vec<OwnedGuard<K, V>> {
        job.note_taken();
        // Those that replace a stale entry only come first: what they hear does not depend on the
        // load that another one begins.
        job.refreshes
            .sort_by_key(|(call, _)| call.replaces != Replaces::Stale);
        let mut guards = Vec::new();
        let mut lead = |led| {
            let guard = self.in_background(led);
            // It runs the load next: user code that it calls before must not wait for that.
            guard.load().set_leader_thread(thread_number());
            guards.push(guard);
        };
        // A `Clone` that panics for one of them ends no other.
        if job.hint != 0 {
            contain(|| {
                let key = K::clone(&job.key);
                let mut call =
                    Claimant::new(self.cache.clone(), job.hash, key, settled::<LoadError<E>>());
                call.replaces = Replaces::Stale;
                call.may_wait = false;
                if let Some(Claim::Guard(led, _)) = call.try_claim(May::Lead) {
                    lead(led);
                }
            });
        }
        // Threads are woken at once: the code that the next turn calls may wait for one of them.
        let mut tasks = Vec::new();
        for (mut call, caller) in job.refreshes {
            contain(|| {
                call.give_key(&job.key);
                match caller.call(Progress::at_turn(call, &mut lead)) {
                    Some(waiting) if waiting.wakes_thread => wake_all([waiting]),
                    waiting => tasks.extend(waiting),
                }
            });
        }
        wake_all(tasks);
        // Here: if it panicked at the end of the scope, the guards would be leaked.
        let_go(job.key);
        guards
    }
}

impl<K, V, E> ReloadJob<K, V, E> {
    fn new(hash: u64, key: Arc<K>, hint: u64) -> Self {
        Self {
            hash,
            hint,
            key,
            refreshes: Vec::new(),
        }
    }

    /// The calling thread has taken it.
    fn note_taken(&self) {
        for (_, caller) in &self.refreshes {
            caller.take();
        }
    }
}

/// No thread takes these any more. Their wakers and keys are user code, which may wait for another
/// of them: so all end first.
fn abandon<K, V, E>(jobs: Vec<ReloadJob<K, V, E>>) {
    let refreshes = jobs.iter().flat_map(|job| &job.refreshes);
    let wakers: Vec<_> = refreshes
        .filter_map(|(_, caller)| caller.abandon())
        .collect();
    wake_all(wakers);
    jobs.into_iter().for_each(let_go);
}

#[cfg(all(test, not(wheelhouse_loom), not(wheelhouse_shuttle)))]
mod tests;
