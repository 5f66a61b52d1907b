//! Settings and operations decoded from plain bytes, and durations decoded from one.

use std::time::Duration;

use super::{Answer, Op, Settings, Value};

/// The bytes of a fuzzer.
pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    pub fn settings(&mut self) -> Option<Settings> {
        let origins = [
            0,
            1 << 40,
            u64::MAX - 9_000_000_001,
            i64::MAX as u64 - 9_000_000_001,
        ];
        let (origin, resolution, limits) = (self.next()?, self.next()?, self.next()?);
        Some(Settings {
            origin: origins[usize::from(origin % 4)].wrapping_sub(u64::from(origin) << 8),
            resolution: [30, 16, 20, 33][usize::from(resolution % 4)],
            policy: limits & 3 != 0,
            time_to_live: (limits & 12 == 12).then_some(even(limits >> 4)),
            time_to_idle: (limits & 48 == 48).then_some(even(limits >> 2)),
        })
    }

    pub fn op(&mut self) -> Option<Op> {
        let (kind, key) = (self.next()?, self.next()? % 16);
        Some(match kind % 24 {
            0..=5 => Op::Insert(key, self.value()?),
            6 | 7 => Op::InsertWithTtl(key, self.value()?, odd(self.next()?)),
            8 | 9 => Op::Get(key),
            10 => Op::GetMany(key, 18),
            11 => Op::GetRef(key),
            12 => Op::Peek(key),
            13 => Op::Contains(key),
            14 => Op::SetExpiry(key, self.next().map(|life| (life > 20).then(|| odd(life)))?),
            15 => Op::Invalidate(key),
            16 => Op::Remove(key),
            17 if key == 0 => Op::InvalidateAll,
            17 | 18 => Op::Retain(u32::from(key) + 1),
            19 => Op::Iterate,
            20..=22 => Op::Advance(even(self.next()?)),
            _ => Op::RunPendingTasks,
        })
    }

    fn value(&mut self) -> Option<Value> {
        let [id, create, update, read] = [self.next()?, self.next()?, self.next()?, self.next()?];
        let [on_create, on_update, on_read] = [create, update, read].map(|byte| match byte {
            0..=40 => Answer::Keep,
            41..=60 => Answer::Never,
            _ => Answer::After(odd(byte)),
        });
        Some(Value {
            id: u32::from(id),
            on_create,
            on_update,
            on_read,
        })
    }
}

/// Steps of the clock and limits for the whole cache: mostly near the widths of the wheel's
/// buckets. They are even and the lifetimes that a policy gives are odd, so that an answer never
/// equals the time left of a limit by accident, which would make it mean "unchanged".
pub fn even(choice: u8) -> Duration {
    let bits = [
        0, 8, 16, 17, 20, 24, 28, 30, 31, 32, 33, 36, 37, 42, 47, 49, 50, 56, 60, 61,
    ];
    let width = 1u64 << bits[usize::from(choice) % bits.len()];
    let near = [0, 2, 4, 1_000_000].map(|off| [width.saturating_sub(off), width + off]);
    let [below, above] = near[usize::from(choice / 64)];
    Duration::from_nanos(if choice % 2 == 0 {
        below & !1
    } else {
        above & !1
    })
}

/// Lifetimes: zero, near the widths of the wheel's buckets, or more than the longest.
pub fn odd(choice: u8) -> Duration {
    match choice {
        250.. => Duration::MAX,
        240..=249 => Duration::ZERO,
        _ => even(choice) + Duration::from_nanos(1),
    }
}
