//! No cache: shows what the machine itself does to a caller.

use std::hint::{black_box, spin_loop};

use crate::{
    clock,
    peer::{Card, Peer, Plan, Problem, Role},
};

/// How long each call of [`Busy`] takes, ns: about what an insert takes here.
const BUSY: u64 = 400;

/// Answers every read with the resident value.
pub(super) type Nothing = Spending<0>;
/// Likewise, and spends some time: the longer a call, the more often the machine's own interruptions fall into one.
pub(super) type Busy = Spending<BUSY>;

/// Spends so many nanoseconds in each call.
pub(super) struct Spending<const NANOS: u64>;

impl<const NANOS: u64> Spending<NANOS> {
    fn spend(&self) {
        if NANOS > 0 {
            let end = clock::nanos() + NANOS;
            while clock::nanos() < end {
                spin_loop();
            }
        }
    }
}

impl<const NANOS: u64> Peer<u64, u64> for Spending<NANOS> {
    const CARD: Card = Card {
        name: match NANOS {
            0 => "no cache",
            BUSY => "no cache, 400 ns a call",
            _ => panic!("has no name"),
        },
        role: Role::Floor,
    };

    fn build(plan: &Plan<u64, u64>) -> Result<Self, Problem> {
        if plan.listener.is_some() {
            return Err(Problem::Unsupported("nothing is ever removed"));
        }
        Ok(Self)
    }

    fn get(&self, key: &u64) -> Option<u64> {
        black_box(key);
        self.spend();
        Some(super::round::RESIDENT)
    }

    fn insert(&self, key: u64, value: u64) {
        black_box((key, value));
        self.spend();
    }

    fn remove(&self, key: &u64) {
        black_box(key);
        self.spend();
    }

    fn entries(&self) -> Option<u64> {
        None
    }
}
