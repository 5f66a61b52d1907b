//! A cache near its bound, compared with the ledger of the integration tests.

use crate::ledger::{KEYS, Op, compare};
use std::time::Duration;
use wheelhouse::EvictionPolicy;

const MAX: u64 = u32::MAX as u64;
const BOUNDS: [u64; 8] = [0, 1, 10, 40, 300, 2_000, 3 * MAX, u64::MAX];

/// Runs a program. Its first byte chooses policy and bound; each operation then takes up to four.
pub fn run(data: &[u8]) {
    let [setting, program @ ..] = data else {
        return;
    };
    let policy = if setting & 0x80 == 0 {
        EvictionPolicy::Adaptive
    } else {
        EvictionPolicy::Lru
    };
    let mut bytes = program.iter().copied();
    let ops: Vec<Op> = std::iter::from_fn(|| op(&mut bytes)).collect();
    if let Err(wrong) = compare(policy, bound(*setting), &ops) {
        panic!("{wrong}");
    }
}

fn op(bytes: &mut impl Iterator<Item = u8>) -> Option<Op> {
    let (kind, key) = (bytes.next()?, bytes.next()?);
    let of_key = key % KEYS;
    Some(match kind % 16 {
        0..=3 => Op::Insert(of_key, weight(bytes.next()?)),
        4..=6 => Op::InsertWithTtl(of_key, weight(bytes.next()?), span(bytes.next()?)),
        7..=9 => Op::Get(of_key),
        10 => Op::Remove(of_key),
        11 | 12 => Op::Advance(span(key)),
        13 => Op::SetMax(bound(key)),
        14 if key == 0 => Op::Clear,
        _ => Op::Settle,
    })
}

fn bound(byte: u8) -> u64 {
    BOUNDS[usize::from(byte % 8)]
}

fn weight(byte: u8) -> u32 {
    match byte {
        250.. => u32::MAX - u32::from(255 - byte),
        200..=249 => u32::from(byte) << 2,
        _ => u32::from(byte % 8),
    }
}

/// From zero to some minutes.
fn span(byte: u8) -> Duration {
    Duration::from_millis(1 << (byte % 19)) - Duration::from_millis(u64::from(byte & 1))
}
