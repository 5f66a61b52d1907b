//! What a snapshot holds, and what the taking of one holds beside it.

use super::mib;
use crate::workloads::prelude::*;
use crate::{
    alloc::{start_counting, tally},
    peers::Wheelhouse,
};

pub(super) fn measure(count: usize) -> Outcome {
    start_counting();
    let cache = <Wheelhouse as Peer>::build(&plan(Expiring::Create, 1024, Some(count as u64 * 4)))?;
    fill(&cache, keys::entries(count))?;
    cache.settle();
    let full = tally().usable;
    let more = || tally().usable - full;
    let watch = |most: &mut i64| {
        *most = more().max(*most);
        thread::yield_now();
    };
    let (snapshot, most) = watched(0, watch, || cache.0.snapshot());
    expect("entries saved", snapshot.len() as u64, count as u64)?;
    Ok(vec![
        Metric::median("cache MiB").of(mib(full as f64)),
        Metric::median("snapshot MiB").of(mib(more() as f64)),
        Metric::worst("most MiB while it is taken").of(mib(most as f64)),
    ])
}
