//! Which core a worker runs on and how much CPU time went where.

use std::{sync::OnceLock, time::Duration};

static CORES: OnceLock<Vec<core_affinity::CoreId>> = OnceLock::new();

fn cores() -> &'static [core_affinity::CoreId] {
    CORES.get_or_init(|| core_affinity::get_core_ids().unwrap_or_default())
}

/// Cores that this process may use.
pub fn count() -> usize {
    match cores().len() {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        known => known,
    }
}

/// Pins the calling worker. Workers are dealt out from the last core downwards, since the first
/// takes most interrupts; past the number of cores they double up. Threads that a cache starts by
/// itself are never pinned: caches are built on a thread that is not.
pub fn pin(worker: usize) {
    let cores = cores();
    if !cores.is_empty() {
        core_affinity::set_for_current(cores[cores.len() - 1 - worker % cores.len()]);
    }
}

/// CPU time of the whole process so far.
pub fn process_time() -> Duration {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of the calling thread so far.
pub fn thread_time() -> Duration {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place to write to for the length of the call.
    let failed = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(failed, 0, "the system has no CPU time clock {clock}");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
