//! What is done over and over: reads, replacements, and mixes of both, of several types.

use crate::peers::{Batches, IdleLimit, ReadsAsTold, Ready, Visit, Wheelhouse, WritesOnly};
use crate::workloads::prelude::*;

/// What sets a deadline, in most workloads of reads.
const READS: &[Expiring] = &[Expiring::Never, Expiring::Create];

/// What is done with each rank of a stream.
pub(super) trait Operation<K: Key = u64, V: Value = u64>: Sync {
    const VARIANTS: &'static [Expiring] = READS;
    /// Longer than any run.
    const LIFETIME: Lifetime<K, V>;
    /// How often a stream is run through in a turn.
    const PASSES: usize = 4;

    fn entry(&self, rank: u32) -> (K, V);

    /// What a stream has in place of a rank.
    fn item(rank: u32) -> u64 {
        keys::key(rank.into())
    }

    /// The measured loop; counts right answers.
    fn pass<P: Peer<K, V>>(&self, cache: &P, stream: &[u64]) -> u64;

    /// Shows further peers, as [`Race::also`].
    fn also(_expiring: Expiring, _visit: &mut impl Visit<K, V>) {}
}

/// `get` of `u64` keys.
pub(super) struct Get;

impl Operation for Get {
    const VARIANTS: &'static [Expiring] = &[Expiring::Never, Expiring::Create, Expiring::Access];
    const LIFETIME: Lifetime<u64, u64> = hours;

    fn entry(&self, rank: u32) -> (u64, u64) {
        keys::entry(rank.into())
    }

    #[inline(never)]
    fn pass<P: Peer>(&self, cache: &P, stream: &[u64]) -> u64 {
        cache.count_right(stream, |key, value| *value == keys::value(*key))
    }

    fn also(expiring: Expiring, visit: &mut impl Visit) {
        match expiring {
            Expiring::Create => {
                visit.meet::<Wheelhouse<u64, u64, ReadsAsTold>>();
                visit.meet::<Wheelhouse<u64, u64, WritesOnly>>();
                visit.meet::<Wheelhouse<u64, u64, Ready>>();
                visit.meet::<Wheelhouse<u64, u64, Batches>>();
            }
            Expiring::Access => visit.meet::<Wheelhouse<u64, u64, IdleLimit>>(),
            Expiring::Never | Expiring::Write => (),
        }
    }
}

/// Writes, and three reads before each if `reads`.
pub(super) struct Writes {
    pub(super) reads: bool,
}

impl Operation for Writes {
    const VARIANTS: &'static [Expiring] = &[Expiring::Never, Expiring::Write];
    const LIFETIME: Lifetime<u64, u64> = hours;
    const PASSES: usize = 2;

    fn entry(&self, rank: u32) -> (u64, u64) {
        keys::entry(rank.into())
    }

    /// A write counts as right.
    #[inline(never)]
    fn pass<P: Peer>(&self, cache: &P, stream: &[u64]) -> u64 {
        let mut right = stream.len() as u64;
        if self.reads {
            for four in stream.chunks_exact(4) {
                for key in &four[..3] {
                    right -= u64::from(cache.get(key) != Some(keys::value(*key)));
                }
                cache.insert(four[3], keys::value(four[3]));
            }
        } else {
            for &key in stream {
                cache.insert(key, keys::value(key));
            }
        }
        right
    }
}

/// `get` of string keys.
pub(super) struct GetString(pub(super) Vec<String>);

impl Operation<String> for GetString {
    const LIFETIME: Lifetime<String, u64> = |_, value| Duration::from_secs(3600 + value);

    fn entry(&self, rank: u32) -> (String, u64) {
        (self.0[rank as usize].clone(), rank.into())
    }

    /// The rank, not a clone of the name: each read touches the name itself.
    fn item(rank: u32) -> u64 {
        rank.into()
    }

    #[inline(never)]
    fn pass<P: Peer<String>>(&self, cache: &P, stream: &[u64]) -> u64 {
        let is_right = |rank: u64| cache.get(&self.0[rank as usize]) == Some(rank);
        stream.iter().map(|&rank| u64::from(is_right(rank))).sum()
    }
}

/// A value that one would not copy.
type Shared = Arc<[u64; 32]>;

/// Reads of shared values: cloned, which writes to the value's count, or in place.
pub(super) struct GetShared {
    pub(super) in_place: bool,
}

impl Operation<u64, Shared> for GetShared {
    const LIFETIME: Lifetime<u64, Shared> = |key, _| hours(key, &0);

    fn entry(&self, rank: u32) -> (u64, Shared) {
        let (key, value) = keys::entry(rank.into());
        (key, Arc::new([value; 32]))
    }

    #[inline(never)]
    fn pass<P: Peer<u64, Shared>>(&self, cache: &P, stream: &[u64]) -> u64 {
        let mut right = 0;
        for key in stream {
            let is_right = |value: &Shared| value[7] == keys::value(*key);
            let answer = if self.in_place {
                cache.look(key, is_right)
            } else {
                cache.get(key).map(|value| is_right(&value))
            };
            right += u64::from(answer == Some(true));
        }
        right
    }
}
