//! No cache: shows what the machine itself does to a caller.

use std::hint::black_box;

use crate::peer::{Card, Peer, Plan, Problem, Role};

/// Answers every read with the resident value.
pub(super) struct Nothing;

impl Peer<u64, u64> for Nothing {
    const CARD: Card = Card {
        name: "no cache",
        role: Role::Floor,
    };

    fn build(plan: &Plan<u64, u64>) -> Result<Self, Problem> {
        if plan.listener.is_some() {
            return Err(Problem::Unsupported("nothing is ever removed"));
        }
        Ok(Nothing)
    }

    fn get(&self, key: &u64) -> Option<u64> {
        black_box(key);
        Some(super::round::RESIDENT)
    }

    fn insert(&self, key: u64, value: u64) {
        black_box((key, value));
    }

    fn remove(&self, key: &u64) {
        black_box(key);
    }

    fn entries(&self) -> Option<u64> {
        None
    }
}
