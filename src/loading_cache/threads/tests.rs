use crate::{Cache, LoadingCache, ManualTicker, loader_fn, refresh};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

/// Key 0 hangs on the only thread; key 1 waits, and then as many as may.
#[test]
fn reads_of_a_key_that_waits_or_may_not_wait_take_no_lock() {
    let (hangs, is_hanging) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let time = ManualTicker::new();
    let cache: LoadingCache<u32, u32, ()> = Cache::builder()
        .ticker(time.clone())
        .loading(loader_fn(move |key: &u32| {
            if *key == 0 {
                hangs.send(()).unwrap();
                released.lock().unwrap().recv().unwrap();
            }
            Ok(*key)
        }))
        .refresh_after(refresh::after(Duration::from_secs(1)))
        .build();
    (0..=1_000).for_each(|key| cache.cache().insert(key, key));
    time.advance(Duration::from_secs(1));
    assert_eq!(cache.get(&0), Ok(0));
    is_hanging.recv().unwrap();
    assert_eq!(cache.get(&1), Ok(1));
    for last in [1, 1_000] {
        (1..=last).for_each(|key| assert_eq!(cache.get(&key), Ok(key)));
        let threads = &cache.inner.threads;
        assert_eq!(threads.lock().jobs.len(), if last == 1 { 1 } else { 256 });
        let held = threads.lock();
        let (tell, told) = mpsc::channel();
        let reader = cache.clone();
        thread::spawn(move || tell.send(reader.get(&last)).unwrap());
        let read = told.recv_timeout(Duration::from_secs(20));
        drop(held);
        assert_eq!(read, Ok(Ok(last)), "it waits for the lock");
    }
    release.send(()).unwrap();
}
