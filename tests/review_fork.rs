//! A cache with coarse reads in a child process made by `fork`: the thread that renews the time of
//! look-ups is not there.
#![cfg(unix)]

mod support;

use support::millis;
use wheelhouse::{Cache, Scheduler};

/// Runs `body` in a child and returns its result; false if it panics or hangs.
#[allow(unsafe_code)]
fn in_a_child(body: impl FnOnce() -> bool) -> bool {
    // The threads of the crate are asleep by then.
    std::thread::sleep(millis(50));
    // SAFETY: the child runs `body` on its only thread and ends without returning into the test
    // program, so it takes no lock of that program. The allocator can be used after a `fork`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no process could be made");
    if child == 0 {
        // SAFETY: a call without a precondition.
        unsafe { libc::alarm(60) };
        let body = std::panic::AssertUnwindSafe(body);
        let passed = std::panic::catch_unwind(body).unwrap_or(false);
        // SAFETY: it ends the process, whatever state the process is in.
        unsafe { libc::_exit(i32::from(!passed)) }
    }
    let mut status = 0;
    // SAFETY: the child is this process's own, and `status` can be written to.
    let ended = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(ended, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

fn cache() -> Cache<u32, u32> {
    // No thread removes: only the look-up itself decides.
    Cache::builder()
        .coarse_reads(millis(100))
        .scheduler(Scheduler::disabled())
        .build()
}

#[test]
fn coarse_reads_expire_in_a_child() {
    let cache = cache();
    cache.insert_with_ttl(0, 0, millis(1));
    let expired = in_a_child(|| {
        cache.insert_with_ttl(1, 1, millis(200));
        assert_eq!(cache.get(&1), Some(1));
        std::thread::sleep(millis(2_000));
        (cache.get(&1), cache.get(&0)) == (None, None)
    });
    assert!(expired, "the child sees what has been dead for two seconds");
}

#[test]
fn coarse_reads_expire_in_a_cache_that_a_child_builds() {
    let parents = cache();
    let expired = in_a_child(|| {
        let cache = cache();
        cache.insert_with_ttl(1, 1, millis(200));
        std::thread::sleep(millis(2_000));
        cache.get(&1).is_none()
    });
    assert!(expired, "the child sees what has been dead for two seconds");
    drop(parents);
}
