//! Threads of listeners that have nothing to do: how many there are, and that they end. The wait
//! for that takes five seconds, and a cache of another test would keep them busy. So each test is a
//! process of its own, and all wait at the same time.
#![cfg_attr(
    not(target_os = "linux"),
    allow(
        unused_imports,
        reason = "two tests read the list of threads that Linux has"
    )
)]

use std::cell::RefCell;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use crate::support::record::Record;
use crate::support::{Gate, HOUR, millis, must_end, until};
use crate::{SOON, cache_threads, thread_names};
use wheelhouse::Cache;

thread_local! {
    static GOODBYE: RefCell<Option<Goodbye>> = const { RefCell::new(None) };
}

/// Reports when the thread that holds it ends.
struct Goodbye(Sender<()>);

impl Drop for Goodbye {
    fn drop(&mut self) {
        self.0.send(()).ok();
    }
}

/// The tests below.
const PARTS: &[&str] = &[
    "the_thread_of_a_listener_has_a_name_and_ends",
    "the_last_handle_may_be_dropped_inside_the_listener",
    "the_last_handle_may_be_dropped_while_the_listener_runs",
    "the_last_drop_inside_a_listener_waits_for_no_thread",
    #[cfg(target_os = "linux")]
    "threads_are_shared_and_end",
    #[cfg(target_os = "linux")]
    "one_thread_serves_all_caches_and_another_calls_their_listeners",
];

#[test]
fn listener_threads_with_nothing_to_do_end() {
    let program = std::env::current_exe().expect("this program");
    let start = |part: &&'static str| {
        let process = Command::new(&program)
            .args(["--exact", &format!("idle_threads::{part}")])
            .args(["--ignored", "--nocapture"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        (*part, process.expect("this program runs"))
    };
    let processes: Vec<_> = PARTS.iter().map(start).collect();
    for (part, process) in processes {
        let output = process.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{part}: {said}");
        assert!(said.contains("1 passed"), "{part}: {said}");
    }
}

#[test]
#[ignore = "a part of listener_threads_with_nothing_to_do_end"]
fn the_thread_of_a_listener_has_a_name_and_ends() {
    let (heard, hears) = mpsc::channel();
    let (ended, ends) = mpsc::channel();
    let cache = Cache::builder()
        .expiry_resolution(millis(1))
        .removal_listener(move |_: &u32, _: &u32, _| {
            GOODBYE.set(Some(Goodbye(ended.clone())));
            let name = std::thread::current().name().map(str::to_string);
            heard.send(name).unwrap();
        })
        .build();
    cache.insert_with_ttl(1, 1, millis(10));
    let name = hears.recv_timeout(SOON).expect("heard");
    assert!(
        name.as_ref()
            .is_some_and(|name| name.starts_with("wheelhouse-")),
        "{name:?}"
    );
    // An entry that is far from due does not keep the thread alive.
    cache.insert_with_ttl(2, 2, HOUR);
    assert_eq!(ends.recv_timeout(SOON), Ok(()), "the thread ends");
    drop(cache);
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "a part of listener_threads_with_nothing_to_do_end"]
fn threads_are_shared_and_end() {
    const CACHES: u32 = 10_000;
    // Fast listeners. The machine may be busy: a thread that waits for a processor is not held up.
    let heard = Arc::new(AtomicU32::new(0));
    let caches: Vec<Cache<u32, u32>> = (0..CACHES)
        .map(|_| {
            let heard = Arc::clone(&heard);
            Cache::builder()
                .removal_listener(move |_: &u32, _: &u32, _| {
                    let began = Instant::now();
                    while began.elapsed() < Duration::from_micros(1) {}
                    heard.fetch_add(1, Ordering::SeqCst);
                })
                .build()
        })
        .collect();
    let mut most = 0;
    for round in 0..3 {
        for cache in &caches {
            (0..4).for_each(|key| cache.insert(key, round));
            cache.invalidate_all();
        }
        most = most.max(cache_threads());
    }
    let told = || heard.load(Ordering::SeqCst) == 3 * 4 * CACHES;
    let began = Instant::now();
    while !told() {
        assert!(began.elapsed() < SOON, "not told");
        most = most.max(cache_threads());
        std::thread::sleep(millis(1));
    }
    println!("{CACHES} caches with fast listeners: at most {most} threads");
    assert!(most <= 4, "{most} threads");

    // Listeners that meet: each needs a thread at the same time as all others.
    const SLOW: usize = 20;
    let meet = Arc::new(Barrier::new(SLOW));
    let slow: Vec<Cache<u32, u32>> = (0..SLOW)
        .map(|_| {
            let meet = Arc::clone(&meet);
            Cache::builder()
                .removal_listener(move |_: &u32, _: &u32, _| _ = meet.wait())
                .build()
        })
        .collect();
    let began = Instant::now();
    for cache in &slow {
        cache.insert(0, 0);
        cache.invalidate(&0);
    }
    slow.iter().for_each(Cache::run_pending_tasks);
    println!("{SLOW} listeners met after {:?}", began.elapsed());
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert!(cache_threads() >= SLOW);

    // Without work they end, though the caches live.
    until("the listener threads end", || cache_threads() <= 1);
    caches[0].insert(1, 1);
    caches[0].invalidate(&1);
    until("a new thread", || {
        heard.load(Ordering::SeqCst) == 3 * 4 * CACHES + 1
    });
}

/// The names are as the system shows them, truncated.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "a part of listener_threads_with_nothing_to_do_end"]
fn one_thread_serves_all_caches_and_another_calls_their_listeners() {
    let heard = Record::new();
    let caches: Vec<Cache<u32, u32>> = (0..50)
        .map(|n| {
            let builder = Cache::builder().expiry_resolution(millis(1));
            match n {
                0..20 => builder.removal_listener(heard.listener()),
                _ => builder,
            }
            .build()
        })
        .collect();
    assert_eq!(thread_names(), [""; 0], "nothing is scheduled");
    for cache in &caches {
        cache.insert_with_ttl(1, 1, HOUR);
        cache.insert_with_ttl(2, 2, HOUR);
    }
    until("the thread names itself", || cache_threads() == 1);
    assert_eq!(thread_names(), ["wheelhouse"]);
    // Caches without a listener deliver nothing.
    caches[20..].iter().for_each(|cache| cache.invalidate(&1));
    for told in [0, 10, 11] {
        caches[told].insert_with_ttl(3, 3, millis(2));
    }
    until("all three are delivered", || heard.count() == 3);
    // The thread sets its name itself, so it is visible a moment after the thread.
    let expected = ["wheelhouse", "wheelhouse-list"];
    until("threads and their names", || {
        let mut names = thread_names();
        names.dedup();
        names == expected
    });
    assert!(cache_threads() <= 3, "{:?}", thread_names());
    // The listener threads end when nothing is told for a while, the scheduler thread with the last
    // cache.
    until("the listener threads end", || {
        thread_names() == ["wheelhouse"]
    });
    drop(caches);
    until("the common thread ends", || cache_threads() == 0);
}

#[test]
#[ignore = "a part of listener_threads_with_nothing_to_do_end"]
fn the_last_handle_may_be_dropped_inside_the_listener() {
    let (ended, wait_ended) = mpsc::channel();
    let slot: Arc<Mutex<Option<Cache<u32, u32>>>> = Arc::default();
    let last = Arc::clone(&slot);
    let cache = Cache::builder()
        .expiry_resolution(millis(1))
        .removal_listener(move |_: &u32, _: &u32, _| {
            GOODBYE.set(Some(Goodbye(ended.clone())));
            drop(last.lock().unwrap().take());
        })
        .build();
    let mut held = slot.lock().unwrap();
    cache.insert_with_ttl(1, 1, millis(5));
    *held = Some(cache);
    drop(held);
    assert_eq!(wait_ended.recv_timeout(SOON), Ok(()), "the thread ends");
    assert!(slot.lock().unwrap().is_none());
}

#[test]
#[ignore = "a part of listener_threads_with_nothing_to_do_end"]
fn the_last_handle_may_be_dropped_while_the_listener_runs() {
    let gate = Gate::new();
    let (entered, wait_entered) = mpsc::channel();
    let (ended, wait_ended) = mpsc::channel();
    let held = Arc::clone(&gate);
    let cache = Cache::builder()
        .expiry_resolution(millis(1))
        .removal_listener(move |_: &u32, _: &u32, _| {
            GOODBYE.set(Some(Goodbye(ended.clone())));
            entered.send(()).unwrap();
            held.wait();
        })
        .build();
    cache.insert_with_ttl(1, 1, millis(5));
    wait_entered.recv_timeout(SOON).unwrap();
    // Either the drop waits for the listener or it does not; it must not wait for ever.
    let dropping = std::thread::spawn(move || drop(cache));
    gate.open();
    assert_eq!(wait_ended.recv_timeout(SOON), Ok(()), "the thread ends");
    dropping.join().unwrap();
}

/// In a listener, and on the crate's threads, the last drop waits for no thread.
#[test]
#[ignore = "a part of listener_threads_with_nothing_to_do_end"]
fn the_last_drop_inside_a_listener_waits_for_no_thread() {
    must_end(|| {
        for _ in 0..20 {
            let slot: Arc<Mutex<Option<Cache<u32, u32>>>> = Arc::default();
            let last = Arc::clone(&slot);
            let cache = Cache::builder()
                .removal_listener(move |_: &u32, _: &u32, _| {
                    drop(last.lock().unwrap().take());
                })
                .build();
            cache.insert(1, 1);
            let mut held = slot.lock().unwrap();
            cache.invalidate(&1);
            *held = Some(cache);
            drop(held);
            until("the cache is gone", || Arc::strong_count(&slot) == 1);
        }
    });
    until("the threads end", || cache_threads() == 0);
}
