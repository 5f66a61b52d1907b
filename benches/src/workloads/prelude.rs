//! What most workloads use.

pub(super) use super::race::{self, *};
pub(super) use crate::{
    clock,
    contest::{Contest, contests},
    cpu,
    figure::{HIT_PERCENT, Heading, Metric, NS_PER_OP, Outcome, Reading},
    keys,
    measure::{on_a_core, timed_here},
    peer::*,
    report::Report,
    setup::Setup,
    tail,
};
