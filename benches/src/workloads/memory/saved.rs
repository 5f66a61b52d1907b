//! What a snapshot holds, and what the taking of one holds beside it.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use super::{Figures, MIB, figures};
use crate::workloads::prelude::*;
use crate::{
    alloc::{start_counting, tally},
    peers::Wheelhouse,
};

pub(super) fn measure(count: usize) -> Result<Figures, Problem> {
    start_counting();
    let before = tally();
    let cache = <Wheelhouse as Peer>::build(&plan(Expiring::Create, 1024, Some(count as u64 * 4)))?;
    fill(&cache, entries(count))?;
    cache.settle();
    let (full, over) = (tally(), AtomicBool::new(false));
    let watch = || {
        let mut most = 0;
        while !over.load(Relaxed) {
            most = most.max((tally() - full).usable);
            thread::yield_now();
        }
        most
    };
    let (snapshot, most) = thread::scope(|scope| {
        let watcher = scope.spawn(watch);
        let snapshot = cache.0.snapshot();
        over.store(true, Relaxed);
        (snapshot, watcher.join().expect("it only counts"))
    });
    expect("entries saved", snapshot.len() as u64, count as u64)?;
    let held = (tally() - full).usable;
    figures([
        ("cache MiB", (full - before).usable as f64 / MIB),
        ("snapshot MiB", held as f64 / MIB),
        ("most MiB while it is taken", most as f64 / MIB),
    ])
}
