//! No cache: what the machine itself does to a caller.

use std::hint::{black_box, spin_loop};

use crate::workloads::prelude::*;

/// How long each call of [`Busy`] takes, in nanoseconds: about what an insert takes.
const BUSY: u64 = 400;

/// Answers every read with the resident value.
pub(super) type Nothing = Spending<0>;
/// The same, and spends some time: the longer a call takes, the more often an interruption of the
/// machine's own falls into one.
pub(super) type Busy = Spending<BUSY>;

/// Spends so many nanoseconds in each call.
pub(super) struct Spending<const NANOS: u64>;

impl<const NANOS: u64> Spending<NANOS> {
    fn spend<T>(&self, on: T) {
        black_box(on);
        let end = clock::nanos() + NANOS;
        while NANOS > 0 && clock::nanos() < end {
            spin_loop();
        }
    }
}

impl<const NANOS: u64> Peer for Spending<NANOS> {
    const CARD: Card = Card {
        name: match NANOS {
            0 => "no cache",
            BUSY => "no cache, 400 ns a call",
            _ => panic!("has no name"),
        },
        role: Role::Floor,
    };

    fn build(plan: &Plan) -> Result<Self, Problem> {
        plan.without_listener("nothing is ever removed")?;
        Ok(Self)
    }

    fn get(&self, key: &u64) -> Option<u64> {
        self.spend(key);
        Some(super::round::RESIDENT)
    }

    fn insert(&self, key: u64, value: u64) {
        self.spend((key, value));
    }

    fn remove(&self, key: &u64) {
        self.spend(key);
    }
}
