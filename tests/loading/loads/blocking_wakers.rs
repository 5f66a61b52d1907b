//! Wakers of tasks that block: what they wait for is a thread that waits for the cache, too.

use crate::support::{OneHash, millis, secs, until};
use std::future::{Future, poll_fn, ready};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use wheelhouse::{Cache, Leased, LoadingCache, ManualTicker, loader_fn, refresh};

/// A waker that waits until a thread has returned, and tells whether that was in time.
struct Blocks {
    returned: Mutex<Receiver<()>>,
    tells: Sender<bool>,
}

impl Wake for Blocks {
    fn wake(self: Arc<Self>) {
        let returned = self.returned.lock().unwrap().recv_timeout(secs(5));
        self.tells.send(returned.is_ok()).ok();
    }
}

/// A task that waits, by such a waker.
struct Blocked {
    returns: Sender<()>,
    told: Receiver<bool>,
}

impl Blocked {
    /// Polls the task once.
    fn new<T>(task: Pin<&mut impl Future<Output = T>>) -> Self {
        let (returns, returned) = mpsc::channel();
        let (tells, told) = mpsc::channel();
        let waker = Waker::from(Arc::new(Blocks {
            returned: Mutex::new(returned),
            tells,
        }));
        assert!(task.poll(&mut Context::from_waker(&waker)).is_pending());
        Self { returns, told }
    }

    /// A thread waits, too, by `call`. `end` ends both waits: the thread's does not wait for the
    /// waker, which waits for the thread.
    fn does_not_block(self, call: impl FnOnce() + Send + 'static, end: impl FnOnce()) {
        let thread = thread::spawn(move || {
            call();
            self.returns.send(()).ok();
        });
        // Until it waits.
        thread::sleep(millis(50));
        end();
        assert_eq!(self.told.recv_timeout(secs(20)), Ok(true), "it sleeps");
        thread.join().unwrap();
    }
}

#[test]
fn behind_the_end_of_a_load() {
    let cache: Cache<u64, u64> = Cache::new(10);
    let Leased::Lease(lease) = cache.lease(1) else {
        unreachable!("it is absent")
    };
    let waits = cache.clone();
    Blocked::new(pin!(cache.get_with_async(1, ready(0)))).does_not_block(
        move || assert_eq!(waits.get_with(1, || 0), 11),
        || _ = lease.fill(11),
    );
}

/// Of one shard: the loads are revoked together. Key 2 comes first.
#[test]
fn behind_the_turn_at_another_load_that_is_revoked() {
    let cache: Cache<u64, u64, OneHash> = Cache::builder().hasher(OneHash).build();
    let _leases = [cache.lease(1), cache.lease(2)];
    let waits = cache.clone();
    Blocked::new(pin!(cache.entry(2).and_upsert_with_async(|_| ready(0)))).does_not_block(
        move || _ = waits.entry(1).and_upsert_with(|_| 11),
        || cache.invalidate_all(),
    );
}

/// The task's turn comes when a newer load ends, for whose value the thread waits.
#[test]
fn behind_the_turn_at_a_former_load() {
    let cache: Cache<u64, u64> = Cache::new(10);
    let _lease = cache.lease(1);
    let may_end = AtomicBool::new(false);
    let newer = cache.entry(1).and_upsert_with_async(|_| {
        poll_fn(|_| match may_end.load(Ordering::SeqCst) {
            true => Poll::Ready(11),
            false => Poll::Pending,
        })
    });
    let mut newer = pin!(newer);
    let mut idle = Context::from_waker(Waker::noop());
    assert!(newer.as_mut().poll(&mut idle).is_pending());
    let waits = cache.clone();
    let mut behind = pin!(cache.entry(1).and_upsert_with_async(|_| ready(12)));
    let task = Blocked::new(behind.as_mut());
    cache.invalidate(&1);
    assert!(newer.as_mut().poll(&mut idle).is_pending());
    task.does_not_block(
        move || assert_eq!(waits.get_with(1, || 0), 11),
        || {
            may_end.store(true, Ordering::SeqCst);
            assert!(newer.as_mut().poll(&mut idle).is_ready());
        },
    );
}

/// Of one job: their turn comes together.
#[test]
fn behind_the_turn_of_another_refresh() {
    let (clock, hangs) = (ManualTicker::new(), Arc::new(AtomicBool::new(false)));
    let hung = Arc::clone(&hangs);
    let users: LoadingCache<u64, u64, ()> = Cache::builder()
        .ticker(clock.clone())
        .loading(loader_fn(move |key: &u64| {
            until("it is let go", || !hung.load(Ordering::SeqCst));
            Ok(*key)
        }))
        .refresh_after(refresh::after(secs(1)))
        .reload_threads(1)
        .build();
    assert_eq!(users.get(&1), Ok(1));
    hangs.store(true, Ordering::SeqCst);
    let other = users.refresh(2);
    clock.advance(secs(2));
    let [mut first, second] = [(); 2].map(|()| users.refresh_if_stale(1).expect("it is stale"));
    users.cache().invalidate(&1);
    Blocked::new(Pin::new(&mut first)).does_not_block(
        move || assert_eq!(second.wait(), Ok(None)),
        || hangs.store(false, Ordering::SeqCst),
    );
    assert_eq!(other.wait(), Ok(Some(2)));
}
