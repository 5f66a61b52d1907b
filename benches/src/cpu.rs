//! Which core a worker runs on and how much CPU time went where.

use std::{sync::LazyLock, time::Duration};

use core_affinity::CoreId;
use rustix::time::{ClockId, clock_gettime};

/// Cores that this process may use.
static CORES: LazyLock<Vec<CoreId>> =
    LazyLock::new(|| core_affinity::get_core_ids().unwrap_or_default());

pub fn count() -> usize {
    CORES.len().max(1)
}

/// Pins the calling worker. Workers are dealt out from the last core downwards, since the first
/// takes most interrupts; past the number of cores they double up. Threads that a cache starts by
/// itself are never bound: caches are built on a thread that is not.
pub fn bind(worker: usize) {
    if let Some(core) = CORES.iter().rev().cycle().nth(worker) {
        core_affinity::set_for_current(*core);
    }
}

/// CPU time of the whole process so far.
pub fn process_time() -> Duration {
    read(ClockId::ProcessCPUTime)
}

/// CPU time of the calling thread so far.
pub fn thread_time() -> Duration {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    time.try_into().expect("CPU time is not negative")
}
