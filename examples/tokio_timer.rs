//! Maintenance from an event loop: the cache starts no thread; a tokio timer wakes the cache.
//!
//! The cache tells an `Alarm` when it wants to work next. This one passes the request on to a task
//! of the runtime that sleeps until then; a later request replaces an earlier one, and the task
//! ends with the cache, because the cache owns the sending half.
//!
//! Run: `cargo run --release --example tokio_timer`
//!
//! Expect: about two seconds without a call of the cache, in which every entry expires soon after
//! its deadline, on a runtime with one thread; then the number of wake-ups. The program panics if
//! an entry is early, missing or very late.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{sleep, sleep_until};
use wheelhouse::{Alarm, Cache, MaintenanceTask, RemovalCause, Scheduler};

/// When to run, and what.
type Request = (tokio::time::Instant, MaintenanceTask);

/// Called by whichever thread writes to the cache, so it only notes the request and never blocks.
struct TokioAlarm(UnboundedSender<Request>);

impl Alarm for TokioAlarm {
    fn set(&self, after: Duration, task: MaintenanceTask) {
        // An error means that the runtime is gone: then entries still expire for readers, and leave
        // with the next write.
        _ = self.0.send((tokio::time::Instant::now() + after, task));
    }
}

/// Sleeps until the latest request is due and runs it. Listeners run here too; slow ones belong
/// into `spawn_blocking`.
async fn run_requests(mut requests: UnboundedReceiver<Request>, wake_ups: Arc<AtomicU32>) {
    let mut next: Option<Request> = None;
    loop {
        let due = next.as_ref().map(|(due, _)| *due);
        tokio::select! {
            request = requests.recv() => match request {
                Some(request) => next = Some(request),
                None => return,
            },
            () = sleep_until(due.unwrap_or_else(tokio::time::Instant::now)), if due.is_some() => {
                let Some((_, task)) = next.take() else { continue };
                wake_ups.fetch_add(1, Relaxed);
                // A request that the run itself makes waits in the channel and replaces this one.
                next = task.run().map(|after| (tokio::time::Instant::now() + after, task));
            }
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    const ENTRIES: u64 = 1000;
    let wake_ups = Arc::new(AtomicU32::new(0));
    let (request, requests) = unbounded_channel();
    let timer = tokio::spawn(run_requests(requests, Arc::clone(&wake_ups)));

    let (heard, expired) = mpsc::channel();
    let cache: Cache<u64, Instant> = Cache::builder()
        .name("tokio")
        .expiry_resolution(Duration::from_millis(16))
        .removal_listener(move |_: &u64, &due: &Instant, cause: RemovalCause| {
            assert_eq!(cause, RemovalCause::Expired);
            // The receiver lives to the end of the program.
            _ = heard.send((due, Instant::now()));
        })
        .scheduler(Scheduler::custom(TokioAlarm(request)))
        .build();

    println!(
        "{ENTRIES} entries, each with a lifetime of its own of up to two seconds; no call of the cache from here on"
    );
    for number in 0..ENTRIES {
        // The long lives first, so that the alarm has to move forward again and again.
        let life = Duration::from_millis(2 * (ENTRIES - number));
        cache.insert_with_ttl(number, Instant::now() + life, life);
    }
    sleep(Duration::from_millis(2 * ENTRIES) + Duration::from_secs(1)).await;

    let lateness: Vec<Duration> = expired
        .try_iter()
        .map(|(due, at)| {
            // The two clocks are calibrated apart and may disagree a little.
            assert!(
                at + Duration::from_millis(2) >= due,
                "heard {:?} before its deadline",
                due - at
            );
            at.saturating_duration_since(due)
        })
        .collect();
    assert_eq!(
        lateness.len() as u64,
        ENTRIES,
        "each entry is heard of once, without any call"
    );
    let mean = lateness.iter().sum::<Duration>() / ENTRIES as u32;
    let max = lateness.iter().max().copied().unwrap_or_default();
    assert!(
        max < Duration::from_secs(1),
        "an entry left {max:?} after its deadline"
    );
    println!(
        "all expired: {mean:.1?} after the deadline on average, {max:.1?} at most, in {} wake-ups",
        wake_ups.load(Relaxed)
    );

    let before = wake_ups.load(Relaxed);
    sleep(Duration::from_millis(300)).await;
    assert_eq!(
        wake_ups.load(Relaxed),
        before,
        "an empty cache asks for no wake-up"
    );

    drop(cache);
    timer.await.expect("the timer's task ends without a panic");
    println!("empty: no wake-up in 300 ms; cache dropped: the timer's task has ended");
}
