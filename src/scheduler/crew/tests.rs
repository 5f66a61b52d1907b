use super::*;

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
