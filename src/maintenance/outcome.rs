//! The outcome of a write, as maintenance needs it.

use crate::map::Shard;
use crate::time::NEVER;

/// The facts about a write that maintenance needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteOutcome {
    /// Which shard was written to.
    pub(crate) shard: usize,
    /// How many events wait in that shard's batch.
    pub(crate) buffered: usize,
    /// The deadline that came in, or `NEVER`.
    pub(crate) deadline: u64,
    /// Cache time of the write, if it was read.
    pub(crate) now: Option<u64>,
    /// How many nodes left the map.
    // As wide as the others: a copy of the padding behind a `bool` takes four more instructions.
    pub(crate) left: usize,
}

impl WriteOutcome {
    /// The outcome of a change of one entry: `deadline` came in at `now`, if the clock was read.
    #[inline]
    pub(crate) fn of_change<K, V>(
        shard: &Shard<'_, K, V>,
        deadline: u64,
        now: Option<u64>,
    ) -> Self {
        Self {
            shard: shard.number(),
            buffered: shard.buffered(),
            deadline,
            now,
            left: 0,
        }
    }

    /// The outcome of removals, the last one at `now` if the clock was read for it.
    #[inline]
    pub(crate) fn of_removal<K, V>(shard: &Shard<'_, K, V>, now: Option<u64>) -> Self {
        Self {
            left: 1,
            ..Self::of_change(shard, NEVER, now)
        }
    }
}
