use super::*;
use std::sync::mpsc;
use std::sync::{OnceLock, Weak};

#[test]
fn a_member_is_scheduled_once_for_the_earliest_of_its_moments() {
    let caches = [(); 3].map(|()| CacheRef::idle());
    let crew = Crew::new();
    let mut state = crew.lock();
    let now = Instant::now();
    let mut schedule = |cache: usize, after: u64| {
        let noted = state.schedule(&caches[cache], now + Duration::from_secs(after));
        let (at, id) = state.first().expect("something is scheduled");
        let first = caches.iter().position(|cache| cache.address() == id);
        (noted, (at - now).as_secs(), first, state.schedule.len())
    };
    assert_eq!(schedule(1, 9), (true, 9, Some(1), 1));
    assert_eq!(schedule(2, 5), (true, 5, Some(2), 2));
    assert_eq!(schedule(1, 10), (false, 5, Some(2), 2), "later than known");
    assert_eq!(
        schedule(1, 3),
        (true, 3, Some(1), 2),
        "in place of the former"
    );
    assert_eq!(schedule(2, 5), (false, 3, Some(1), 2), "known");
    state.leave(caches[1].address());
    state.leave(caches[0].address());
    assert_eq!(state.schedule.len(), 1);
    assert_eq!(state.members.len(), 1);
}

/// A thread more only if none has taken a job for a while.
#[test]
fn threads_at_work_are_held_up_when_none_takes_a_job_for_a_while() {
    let crew = Crew::new();
    let mut state = crew.lock();
    let now = Instant::now();
    assert!(!state.is_held_up(now + PATIENCE), "no job waits");
    state.jobs.push_back(Job::Deliver(CacheRef::idle()));
    state.moved_at = Some(now);
    assert!(state.is_held_up(now), "there is no thread");
    state.busy = 1;
    assert!(
        !state.is_held_up(now + PATIENCE / 2),
        "the thread at work may end its job"
    );
    assert!(state.is_held_up(now + PATIENCE));
    state.free = 1;
    assert!(!state.is_held_up(now + PATIENCE), "a free thread takes it");
}

/// Asks for another run at once, each time, and never ends to deliver.
struct Busy {
    crew: &'static Crew,
    this: OnceLock<CacheRef>,
    /// Until it is dropped, a delivery lasts.
    gate: Mutex<mpsc::Receiver<()>>,
    delivered: mpsc::Sender<()>,
}

impl CacheWork for Busy {
    fn run_due(&self) -> Option<Duration> {
        let this = self.this.get().expect("it is set before the first run");
        self.crew.wake(this, Duration::ZERO);
        None
    }

    fn deliver(&self) -> bool {
        _ = self.gate.lock().unwrap().recv();
        _ = self.delivered.send(());
        false
    }

    fn tell_rest(&self) -> bool {
        true
    }
}

/// A cache with this crew, whose deliveries last until the sender is dropped.
fn busy(crew: &'static Crew, delivered: &mpsc::Sender<()>) -> (mpsc::Sender<()>, Arc<Busy>) {
    let (opens, gate) = mpsc::channel();
    let cache = Arc::new(Busy {
        crew,
        this: OnceLock::new(),
        gate: Mutex::new(gate),
        delivered: delivered.clone(),
    });
    let this = CacheRef::new(Arc::downgrade(&cache) as Weak<dyn CacheWork>);
    assert!(cache.this.set(this).is_ok());
    crew.cache_begins();
    (opens, cache)
}

#[test]
fn a_thread_that_always_has_a_run_to_do_watches_those_at_work_all_the_same() {
    static TEST_CREW: Crew = Crew::new();
    let (tell, told) = mpsc::channel();
    let (hangs, slow) = busy(&TEST_CREW, &tell);
    let (opens, quick) = busy(&TEST_CREW, &tell);
    drop(opens);
    let refs = [&slow, &quick].map(|cache| cache.this.get().unwrap().clone());
    let [slow_ref, quick_ref] = &refs;
    TEST_CREW.wake(quick_ref, Duration::ZERO);
    while !TEST_CREW.lock().has_keeper {
        thread::yield_now();
    }
    assert!(TEST_CREW.deliver_soon(slow_ref));
    while TEST_CREW.lock().busy == 0 {
        thread::yield_now();
    }
    assert!(TEST_CREW.deliver_soon(quick_ref));
    let heard = told.recv_timeout(Duration::from_secs(20));
    drop(hangs);
    assert_eq!(heard, Ok(()), "while the other listener hangs");
    assert_eq!(told.recv(), Ok(()));
    // The last run has asked for no other once it is over.
    for cache in [slow, quick] {
        let weak = Arc::downgrade(&cache);
        drop(cache);
        while weak.strong_count() > 0 {
            thread::yield_now();
        }
    }
    refs.iter().for_each(|cache| TEST_CREW.cache_ends(cache));
}

#[test]
fn a_start_that_is_not_tried_counts_as_failed() {
    static TEST_CREW: Crew = Crew::new();
    // When a thread was there, which has ended since.
    TEST_CREW.lock().failed_at = Some(Instant::now());
    TEST_CREW.wake(&CacheRef::idle(), Duration::ZERO);
    assert!(TEST_CREW.has_failed());
}
