//! What most workloads use.

pub(super) use std::{
    sync::{
        Arc, Barrier,
        atomic::{
            AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread,
    time::Duration,
};

pub(super) use hdrhistogram::Histogram;

pub(super) use super::race::*;
pub(super) use crate::{
    clock,
    contest::{Bench, Contest},
    cpu,
    figure::{HIT_PERCENT, Metric, Outcome, Problem, Reading, ensure},
    keys,
    measure::{joined, on_a_core, timed, timed_here, watched},
    peer::*,
    peers::*,
    setup::Setup,
    tail,
};
