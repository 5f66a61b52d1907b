//! From lifetimes to deadlines: the entry's own lifetime and the cache-wide limits, of which the
//! earliest holds.

use crate::time::{self, NEVER};
use std::time::Duration;

/// The cache-wide limits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) time_to_live: Option<Duration>,
    pub(crate) time_to_idle: Option<Duration>,
    /// How old a load may become before another one may replace it.
    pub(crate) load_timeout: Option<Duration>,
}

impl Limits {
    /// The wanted deadline of an entry whose own deadline is `own`, written at `written` and used
    /// at `now`.
    // When it was written stands in the node's side part, which a read should not touch for
    // nothing.
    #[inline]
    pub(crate) fn wanted(&self, own: u64, written: impl FnOnce() -> u64, now: u64) -> u64 {
        let mut wanted = own;
        if let Some(live) = self.time_to_live {
            let written = written();
            if written != NEVER {
                wanted = time::earlier(wanted, time::deadline_after(written, live), now);
            }
        }
        if let Some(idle) = self.time_to_idle {
            wanted = time::earlier(wanted, time::deadline_after(now, idle), now);
        }
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_earliest_holds() {
        let limits = Limits {
            time_to_live: Some(Duration::from_secs(10)),
            time_to_idle: Some(Duration::from_secs(3)),
            load_timeout: None,
        };
        assert_eq!(limits.wanted(NEVER, || 0, 0), 3 * SECOND);
        assert_eq!(limits.wanted(2 * SECOND, || 0, 0), 2 * SECOND);
        assert_eq!(limits.wanted(NEVER, || 0, 8 * SECOND), 10 * SECOND);
        assert_eq!(Limits::default().wanted(5, || 0, 0), 5);
        assert_eq!(Limits::default().wanted(NEVER, || 0, 0), NEVER);
    }
}
