//! The threads that reload for a [`Loader`](crate::Loader): up to a fixed number, started when they
//! are needed.
//!
//! # What waits for a thread
//!
//! A key, as a [`ReloadJob`]: no load of it has begun, and it holds nothing up. The thread whose
//! turn it is claims the key, as any call does, and runs the loader if it leads. A key stands in
//! the queue once. Refreshes of it that come meanwhile share the job.
//!
//! | asked by | if a thread is free | if none is | if the key has a load at its turn |
//! |---|---|---|---|
//! | a read of a stale entry | the read claims the key, and hands the load to that thread | the key waits; if many wait already, the entry stays stale, for a later read | nothing: that load will do |
//! | a `refresh` | as for a read | the key waits | the refresh waits for the outcome of that load |
//!
//! A free thread takes a load before any job. So no load waits for a thread that runs a loader.
//!
//! # Threads that wait
//!
//! A loader may wait for another load: for one that itself waits for a refresh in this queue, say.
//! So a thread that waits gives its place (`sync::place`) up, and another thread may start.
//! When it waits no longer it takes a place again: if there is none, a thread that has nothing to
//! do ends. A loader that hangs in other code keeps its place.
//!
//! A thread counts as free when its load has ended, just before any call hears of that: a caller
//! that hears of the new value, and then reads another stale entry, begins a reload. Until then the
//! thread is busy: the loader may hang, and so may the policies, the weigher, and a clone of the
//! value. What follows may take long, too. If the thread waits there, it gives its place up; if a
//! waker, a listener or a destructor hangs, what counts on the thread waits for that.
//!
//! These are no threads of the crew (`scheduler/crew.rs`), which serves all caches: they bear the
//! name of their cache, it limits their number, and a loader that hangs on one of them must hold up
//! neither a listener nor the end of the last cache.
//!
//! The threads hold no cache. A thread ends when it has had nothing to do for a while, or when the
//! last handle of the loading cache is dropped. That drop waits for those that run no loader.

use super::backend::Backend;
use super::call::{dropped, settled};
use super::kinds::contained;
use super::turn::{Caller, SharedTurn, turn};
use crate::contain::contain;
use crate::engine::WeakHandle;
use crate::load::{CacheKey, CacheValue, Claim, Claimant, OwnedGuard, Replaces, Request};
use crate::sync::block::poll_once;
use crate::sync::place::{self, Overseer, Stage, work_at};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::mem;
// The standard library's locks: models run no threads of the crate.
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long a thread waits for another job before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// How many keys of stale entries wait at most. Refreshes are not bounded.
const MOST_STALE: usize = 256;

/// What a read of a stale entry may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ReloadRoom {
    /// Claim the key: a thread is free.
    Thread,
    /// Let the key wait for a thread.
    Queue,
    /// Nothing.
    None,
}

/// A call that has yet to get its claim, and keeps no cache alive.
pub(super) type OwnedClaimant<K, V> = Claimant<K, V, WeakHandle<K, V>>;

/// The answer to such a claim.
pub(super) type OwnedClaim<K, V> = Claim<K, V, WeakHandle<K, V>>;

pub(super) struct ReloadThreads<K, V, E> {
    cache: WeakHandle<K, V>,
    name: String,
    state: Mutex<ReloadState<K, V, E>>,
    /// There is work, or the threads are to end.
    changed: Condvar,
    /// A [`ReloadRoom`]. Written under the lock. Relaxed: for a read it is a hint, and no other
    /// memory is read because of it.
    room: AtomicU8,
}

struct ReloadState<K, V, E> {
    /// `None` when the last handle of the loading cache is gone. A thread has it while it runs it.
    backend: Option<Arc<Backend<K, V, E>>>,
    /// Loads that calls have begun. There are no more of them than free threads.
    loads: VecDeque<OwnedGuard<K, V>>,
    /// The jobs that wait, by the numbers of their turns.
    jobs: BTreeMap<u64, ReloadJob<K, V>>,
    /// The hashes of their keys, each with the number of the turn.
    by_hash: BTreeSet<(u64, u64)>,
    /// The next number of a turn, or of a thread.
    next: u64,
    /// The threads, by their numbers.
    threads: BTreeMap<u64, JoinHandle<()>>,
    /// The numbers of the threads that have work.
    at_work: BTreeSet<u64>,
    /// How many threads have a place.
    taken: usize,
    /// How many of these take what waits, at once or soon: they have no work, or have ended their
    /// load.
    free: usize,
    /// How many places there are; none when the last handle of the loading cache is gone.
    most: usize,
}

type Locked<'a, K, V, E> = MutexGuard<'a, ReloadState<K, V, E>>;

/// What a thread does next.
enum ReloadWork<K, V> {
    Load(OwnedGuard<K, V>),
    Job(ReloadJob<K, V>),
}

/// A key that is to be reloaded.
struct ReloadJob<K, V> {
    hash: u64,
    /// Shared, so that keys can be compared with the lock released.
    key: Arc<K>,
    /// A stale entry, if only reads have asked.
    replaces: Replaces,
    /// The refreshes that wait for it.
    refreshes: Vec<Caller<OwnedClaimant<K, V>>>,
}

impl<K, V, E> ReloadState<K, V, E> {
    fn draw(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// How many pieces of work wait.
    fn waiting(&self) -> usize {
        self.loads.len() + self.jobs.len()
    }

    fn room(&self) -> ReloadRoom {
        if self.waiting() < self.free + self.most.saturating_sub(self.taken) {
            ReloadRoom::Thread
        } else if self.most > 0 && self.jobs.len() < MOST_STALE {
            ReloadRoom::Queue
        } else {
            ReloadRoom::None
        }
    }

    fn add(&mut self, job: ReloadJob<K, V>) {
        let turn = self.draw();
        self.by_hash.insert((job.hash, turn));
        self.jobs.insert(turn, job);
    }

    fn take_first(&mut self) -> Option<ReloadWork<K, V>> {
        if let Some(guard) = self.loads.pop_front() {
            return Some(ReloadWork::Load(guard));
        }
        let (turn, job) = self.jobs.pop_first()?;
        self.by_hash.remove(&(job.hash, turn));
        Some(ReloadWork::Job(job))
    }

    /// All that waits.
    fn take_all(&mut self) -> Vec<ReloadWork<K, V>> {
        let mut all = Vec::new();
        while let Some(work) = self.take_first() {
            all.push(work);
        }
        all
    }
}

impl<K, V, E> ReloadThreads<K, V, E> {
    /// No user code runs under this lock, and a panic under it leaves the state whole.
    fn lock(&self) -> Locked<'_, K, V, E> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a change of the state.
    fn unlock(&self, state: Locked<'_, K, V, E>) {
        self.note_room(&state);
        drop(state);
    }

    fn note_room(&self, state: &ReloadState<K, V, E>) {
        self.room.store(state.room() as u8, Ordering::Relaxed);
    }

    /// What a read of a stale entry may do.
    pub(super) fn room(&self) -> ReloadRoom {
        let room = self.room.load(Ordering::Relaxed);
        let all = [ReloadRoom::Thread, ReloadRoom::Queue, ReloadRoom::None];
        all[usize::from(room)]
    }

    /// No reload begins any more. The threads end; those without a job have ended when this
    /// returns.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.most = 0;
        let backend = state.backend.take();
        let waiting = state.take_all();
        let mut ending = Vec::new();
        for (number, thread) in mem::take(&mut state.threads) {
            if !state.at_work.contains(&number) {
                ending.push(thread);
            }
        }
        self.unlock(state);
        self.changed.notify_all();
        for thread in ending {
            // A thread that has no work runs no user code.
            _ = thread.join();
        }
        // Keys, the wakers of refreshes, and perhaps the loader: user code.
        for work in waiting {
            contain(|| drop(work));
        }
        contain(|| drop(backend));
    }
}

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static> ReloadThreads<K, V, E> {
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
                loads: VecDeque::new(),
                jobs: BTreeMap::new(),
                by_hash: BTreeSet::new(),
                next: 0,
                threads: BTreeMap::new(),
                at_work: BTreeSet::new(),
                taken: 0,
                free: 0,
                most,
            }),
            changed: Condvar::new(),
            room: AtomicU8::new(ReloadRoom::Thread as u8),
        }
    }

    /// Makes a thread run a load that a call has begun. If none is free any more, the call has its
    /// guard back.
    pub(super) fn run_reload(
        self: &Arc<Self>,
        guard: OwnedGuard<K, V>,
    ) -> Result<(), OwnedGuard<K, V>> {
        let mut state = self.lock();
        if state.room() != ReloadRoom::Thread {
            return Err(guard);
        }
        let guard = guard.in_background(dropped::<K, V, E>);
        state.loads.push_back(guard);
        self.serve(state);
        Ok(())
    }

    /// A read has found the key's entry stale, and all threads busy.
    pub(super) fn reload_later(self: &Arc<Self>, hash: u64, key: K) {
        let (mut state, waiting) = self.find(hash, &key);
        if waiting.is_none() && state.room() != ReloadRoom::None {
            state.add(ReloadJob::new(hash, key, Replaces::Stale));
            self.serve(state);
        }
    }

    /// A refresh wants the key reloaded: its turn.
    pub(super) fn refresh(self: &Arc<Self>, hash: u64, key: K) -> SharedTurn<OwnedClaimant<K, V>> {
        let (caller, turn) = turn();
        let mut gone = Vec::new();
        let (mut state, waiting) = self.find(hash, &key);
        let job = match waiting {
            Some(turn) => state.jobs.get_mut(&turn),
            None => None,
        };
        if let Some(job) = job {
            job.replaces = Replaces::Any;
            if job.refreshes.len() == job.refreshes.capacity() {
                // It has doubled since the last time. Those that were dropped need no turn.
                let refreshes = mem::take(&mut job.refreshes);
                (job.refreshes, gone) = refreshes.into_iter().partition(Caller::is_awaited);
            }
            job.refreshes.push(caller);
            drop(state);
        } else if state.most > 0 {
            let mut job = ReloadJob::new(hash, key, Replaces::Any);
            job.refreshes.push(caller);
            state.add(job);
            self.serve(state);
        } else {
            drop(state);
            drop(caller);
        }
        drop(gone);
        turn
    }

    /// Locks the state, and finds the turn of the job of this key. Keys are compared with the lock
    /// released.
    fn find(&self, hash: u64, key: &K) -> (Locked<'_, K, V, E>, Option<u64>) {
        // Turns ascend: of each key that came before this one it is known whether it is equal.
        let mut compared = 0;
        loop {
            let state = self.lock();
            let same_hash = state.by_hash.range((hash, compared)..=(hash, u64::MAX));
            let others: Vec<(u64, Arc<K>)> = same_hash
                .map(|&(_, turn)| (turn, Arc::clone(&state.jobs[&turn].key)))
                .collect();
            let Some(&(last, _)) = others.last() else {
                return (state, None);
            };
            drop(state);
            compared = last + 1;
            let same = others.iter().find(|(_, other)| **other == *key);
            let same = same.map(|&(turn, _)| turn);
            // With the lock released: it may drop a key.
            drop(others);
            if let Some(turn) = same {
                let state = self.lock();
                if state.jobs.contains_key(&turn) {
                    return (state, Some(turn));
                }
            }
        }
    }

    /// Sees to it that a thread takes what waits.
    fn serve(self: &Arc<Self>, mut state: Locked<'_, K, V, E>) {
        let mut failed = Vec::new();
        if state.free < state.waiting() && state.taken < state.most {
            if self.start(&mut state).is_err() && state.taken == 0 {
                // Without a thread they would wait for ever. So the loads fail; a later read tries
                // again.
                failed = state.take_all();
            }
        } else {
            self.changed.notify_one();
        }
        self.unlock(state);
        for work in failed {
            contain(|| drop(self.begin(work)));
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
            self.note_room(&state);
            // More places are taken than there are if threads that have waited work on.
            let may_stay = |state: &mut ReloadState<_, _, _>| {
                state.most > 0 && state.taken <= state.most && state.waiting() == 0
            };
            let woken = self.changed.wait_timeout_while(state, IDLE, may_stay);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
            state.free -= 1;
            let Some(work) = state.take_first() else {
                state.taken -= 1;
                break;
            };
            let backend = state.backend.clone();
            state.at_work.insert(number);
            self.unlock(state);
            let threads = Arc::clone(&self);
            let overseer: Overseer = Arc::new(move |from, to| threads.note_stage(from, to));
            // Also the destructors of what the run has made.
            let stage = work_at(overseer, || _ = contain(|| self.run(work, backend)));
            state = self.lock();
            state.at_work.remove(&number);
            if stage == Stage::Waits {
                state.taken += 1;
            }
            if stage != Stage::Ends {
                state.free += 1;
            }
        }
        // Not joined, unless the last drop has taken it.
        state.threads.remove(&number);
        self.unlock(state);
    }

    /// A thread at work has come from one stage to another.
    fn note_stage(self: &Arc<Self>, from: Stage, to: Stage) {
        let mut state = self.lock();
        match to {
            Stage::Works => {
                // One place more than there are, if need be.
                state.taken += 1;
                self.changed.notify_one();
                self.unlock(state);
            }
            Stage::Ends => {
                state.free += 1;
                self.unlock(state);
            }
            Stage::Waits => {
                state.taken -= 1;
                if from == Stage::Ends {
                    state.free -= 1;
                }
                self.serve(state);
            }
        }
    }

    fn run(&self, work: ReloadWork<K, V>, mut backend: Option<Arc<Backend<K, V, E>>>) {
        let mut guards = self.begin(work);
        while let Some(mut guard) = guards.pop() {
            let backend = if guards.is_empty() {
                guard.on_end = Some(place::free_soon);
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

    /// The guards of the loads that this thread leads for its work.
    fn begin(&self, work: ReloadWork<K, V>) -> Vec<OwnedGuard<K, V>> {
        match work {
            ReloadWork::Load(guard) => vec![guard],
            ReloadWork::Job(job) => self.claim(job),
        }
    }

    /// Claims the key of a job, for the refreshes that wait for it. They wait for the load from now
    /// on. Returns the guards of the loads that this call leads: mostly one; more only if a write
    /// revokes the first meanwhile.
    fn claim(&self, job: ReloadJob<K, V>) -> Vec<OwnedGuard<K, V>> {
        let claimant =
            |request| Claimant::new(self.cache.clone(), job.hash, K::clone(&job.key), request);
        let mut guards = Vec::new();
        if job.refreshes.is_empty() {
            let mut call = claimant(Request {
                replaces: job.replaces,
                may_wait: false,
                ..Request::of(settled::<E>())
            });
            if let Some(Claim::Guard(led, _)) = call.begin() {
                guards.push(led.in_background(dropped::<K, V, E>));
            }
        }
        for refresh in job.refreshes {
            let mut call = claimant(Request {
                replaces: Replaces::Any,
                own: Some(settled::<E>()),
                ..Request::of(settled::<E>())
            });
            match call.begin() {
                Some(Claim::Guard(led, _)) => {
                    guards.push(led.in_background(dropped::<K, V, E>));
                }
                // It waits for another call's load.
                None => {}
                // The cache is gone.
                Some(_) => continue,
            }
            // If it has to ask again, it waits for another turn.
            call.request.may_lead = false;
            refresh.call(call);
        }
        guards
    }
}

impl<K, V> ReloadJob<K, V> {
    fn new(hash: u64, key: K, replaces: Replaces) -> Self {
        Self {
            hash,
            key: Arc::new(key),
            replaces,
            refreshes: Vec::new(),
        }
    }
}
