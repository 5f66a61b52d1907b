//! Shared futures of async loads: any waiter that is polled polls them.
//!
//! The future of a load is stored beside the load. A future that loads several keys is stored
//! beside each of their loads. Each waiter that can drive it is attached. A wake-up of the future
//! wakes all waiters of its loads, and the first that is polled polls the future. When the last
//! attached waiter goes away, the future is handed to the program's spawner, whose task is attached
//! in its turn. If that task is dropped, the future is dropped, and the right to load with it.
//!
//! # Invariant
//!
//! The number of attached waiters changes under the lock of `futures`. Each future listed there has
//! at least one.

use super::source::BoxFuture;
use crate::contain::contain;
use crate::load::{Load, thread_number, wake_all};
use crate::loading::{CacheHasher, CacheKey, CacheValue};
use crate::sync::{AtomicBool, AtomicUsize, Mutex, MutexGuard, Ordering};
use std::collections::HashMap;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

/// The program's function that runs a task of the cache.
pub(super) type Spawner = Arc<dyn Fn(BoxFuture<()>) + Send + Sync>;

/// The shared futures of one cache.
pub(super) struct Drives<K, V, S> {
    spawner: Spawner,
    /// By the address of the load, which the future keeps alive.
    futures: Mutex<HashMap<usize, Arc<Drive<K, V>>>>,
    _hasher: PhantomData<fn() -> S>,
}

/// The future of one load, or of several.
struct Drive<K, V> {
    load: Arc<Load<K, V>>,
    others: Vec<Arc<Load<K, V>>>,
    future: Mutex<Option<BoxFuture<()>>>,
    ended: AtomicBool,
    /// Whether a waiter was polled while another one polled the future.
    missed: AtomicBool,
    attached: AtomicUsize,
    /// The waker of the spawner's task.
    task: Mutex<Option<Waker>>,
}

/// Wakes all waiters of its loads, and its task.
struct WakeWaiters<K, V>(Weak<Drive<K, V>>);

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Wake for WakeWaiters<K, V> {
    fn wake(self: Arc<Self>) {
        let Some(drive) = self.0.upgrade() else {
            return;
        };
        drive.wake_all();
    }
}

/// A waiter that drives a future.
pub(super) struct Attached<K: CacheKey, V: CacheValue, S: CacheHasher> {
    drives: Arc<Drives<K, V, S>>,
    drive: Arc<Drive<K, V>>,
    /// Whether it is a task of the program's spawner.
    spawned: bool,
}

fn address<K, V>(load: &Arc<Load<K, V>>) -> usize {
    Arc::as_ptr(load).addr()
}

impl<K: CacheKey, V: CacheValue, S: CacheHasher> Drives<K, V, S> {
    pub(super) fn new(spawner: Spawner) -> Self {
        Self {
            spawner,
            futures: Mutex::new(HashMap::new()),
            _hasher: PhantomData,
        }
    }

    /// Lists the future of some loads, with a first waiter.
    pub(super) fn start(
        self: &Arc<Self>,
        loads: &[Arc<Load<K, V>>],
        future: BoxFuture<()>,
    ) -> Attached<K, V, S> {
        let Some((load, others)) = loads.split_first() else {
            unreachable!("a future loads something");
        };
        let drive = Arc::new(Drive {
            load: Arc::clone(load),
            others: others.to_vec(),
            future: Mutex::new(Some(future)),
            ended: AtomicBool::new(false),
            missed: AtomicBool::new(false),
            attached: AtomicUsize::new(1),
            task: Mutex::new(None),
        });
        let mut futures = self.futures.lock();
        let listed = |load| futures.insert(address(load), Arc::clone(&drive));
        let former: Vec<_> = loads.iter().filter_map(listed).collect();
        drop(futures);
        drop(former);
        // Calls that have joined the loads meanwhile attach themselves.
        loads.iter().for_each(|load| load.wake_waiters());
        Attached::new(self, drive)
    }

    /// Attaches a waiter, if the load has a future.
    pub(super) fn attach(drives: &Arc<Self>, load: &Arc<Load<K, V>>) -> Option<Attached<K, V, S>> {
        let futures = drives.futures.lock();
        let drive = Arc::clone(futures.get(&address(load))?);
        drive.attached.fetch_add(1, Ordering::Relaxed);
        drop(futures);
        Some(Attached::new(drives, drive))
    }

    /// Hands a load to the spawner, whose task drives it.
    pub(super) fn spawn(&self, mut attached: Attached<K, V, S>) {
        attached.spawned = true;
        let task: BoxFuture<()> = Box::pin(poll_fn(move |cx| attached.poll_as_task(cx)));
        // A spawner that panics drops the task: the reader that started the reload continues.
        contain(|| (self.spawner)(task));
    }
}

impl<K: CacheKey, V: CacheValue, S: CacheHasher> Attached<K, V, S> {
    /// A waiter that was counted among the attached.
    fn new(drives: &Arc<Drives<K, V, S>>, drive: Arc<Drive<K, V>>) -> Self {
        Self {
            drives: Arc::clone(drives),
            drive,
            spawned: false,
        }
    }

    /// Polls the future, unless another waiter does so just now: then that one polls it once more.
    /// True if the future has ended.
    pub(super) fn poll(&self) -> bool {
        let drive = &self.drive;
        if drive.ended.load(Ordering::Acquire) {
            return true;
        }
        while let Some(held) = drive.try_hold() {
            // SeqCst, partner: the store in `take`.
            drive.missed.store(false, Ordering::SeqCst);
            if self.poll_held(held) {
                return true;
            }
            // The wake-up of the waiter that was turned away may have been the future's only one,
            // and this waiter may never be polled again.
            if !drive.missed.load(Ordering::SeqCst) {
                return false;
            }
        }
        false
    }

    fn poll_held(&self, mut held: Held<'_>) -> bool {
        let drive = &self.drive;
        let Some(future) = held.as_mut() else {
            return true;
        };
        let waker = Waker::from(Arc::new(WakeWaiters(Arc::downgrade(drive))));
        let me = thread_number();
        drive.loads().for_each(|load| load.set_leader(me));
        let polled = contain(|| future.as_mut().poll(&mut Context::from_waker(&waker)));
        for load in drive.loads().filter(|load| load.leader() == me) {
            load.set_leader(0);
        }
        if matches!(polled, Some(Poll::Pending)) {
            return false;
        }
        let future = held.take();
        // Release, partner: the load in `poll`.
        drive.ended.store(true, Ordering::Release);
        drop(held);
        contain(|| drop(future));
        drive.unlist(&mut self.drives.futures.lock());
        drive.wake_task();
        true
    }

    fn poll_as_task(&self, cx: &mut Context<'_>) -> Poll<()> {
        let former = self.drive.task.lock().replace(cx.waker().clone());
        drop(former);
        if self.poll() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

/// The future of a load, which one waiter polls.
type Held<'a> = MutexGuard<'a, Option<BoxFuture<()>>>;

impl<K, V> Drive<K, V> {
    /// The future. If another waiter polls it just now, leaves a note for that waiter instead.
    fn try_hold(&self) -> Option<Held<'_>> {
        self.future.try_lock().or_else(|| {
            // SeqCst, partner: the load and the store in `poll`. Either the other waiter sees the
            // note after it has unlocked, or this one finds the lock free.
            self.missed.store(true, Ordering::SeqCst);
            self.future.try_lock()
        })
    }

    fn loads(&self) -> impl Iterator<Item = &Arc<Load<K, V>>> {
        std::iter::once(&self.load).chain(&self.others)
    }

    /// Takes it out of the list of futures.
    fn unlist(self: &Arc<Self>, futures: &mut HashMap<usize, Arc<Self>>) {
        for at in self.loads().map(address) {
            // The load may have its next leader by now, with a future of its own.
            if (futures.get(&at)).is_some_and(|listed| Arc::ptr_eq(listed, self)) {
                futures.remove(&at);
            }
        }
    }

    /// Wakes all waiters of its loads, and its task.
    fn wake_all(&self) {
        self.loads().for_each(|load| load.wake_waiters());
        self.wake_task();
    }

    fn wake_task(&self) {
        let task = self.task.lock().clone();
        wake_all(task);
    }
}

impl<K: CacheKey, V: CacheValue, S: CacheHasher> Drop for Attached<K, V, S> {
    fn drop(&mut self) {
        let drive = &self.drive;
        let mut futures = self.drives.futures.lock();
        let last = drive.attached.fetch_sub(1, Ordering::Relaxed) == 1;
        if drive.ended.load(Ordering::Acquire) {
            return;
        }
        if !last {
            drop(futures);
            // This waiter may have been woken to poll: another one does.
            drive.wake_all();
            return;
        }
        if !self.spawned {
            drive.attached.store(1, Ordering::Relaxed);
            drop(futures);
            let task = Self::new(&self.drives, Arc::clone(drive));
            self.drives.spawn(task);
            return;
        }
        drive.unlist(&mut futures);
        drop(futures);
        let future = drive.future.lock().take();
        contain(|| drop(future));
    }
}
