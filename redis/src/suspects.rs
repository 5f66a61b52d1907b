//! Keys whose requests end connections.
//!
//! A server closes a connection whose reply is above its limit (`client-output-buffer-limit`). The
//! near cache would ask for the same key on the next connection, and lose that one, too. So each
//! key whose reply was awaited when a connection ended is a *suspect* until a reply comes. Suspects
//! are asked for a few at a time, and in one request at a time. A key that was alone in its
//! request, and whose request has ended a connection at least twice in a row, is refused for a
//! while.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many keys that were suspect once are asked for together.
pub(crate) const TOGETHER: usize = 16;
/// How many suspects are remembered.
const MOST: usize = 4096;
const FIRST_REFUSAL: Duration = Duration::from_millis(100);
const LONGEST_REFUSAL: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Suspect {
    losses: u32,
    refused_until: Option<Instant>,
}

/// The suspects of one near cache.
#[derive(Default)]
pub(crate) struct Suspects {
    keys: Mutex<HashMap<Vec<u8>, Suspect>>,
    /// The number of keys. Relaxed: a call that misses a key in it asks for the key as for any
    /// other.
    count: AtomicUsize,
    /// Held by the call that asks for suspects.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

impl Suspects {
    fn keys(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Suspect>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn are_none(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// How many connections have ended in a row while this key was asked for.
    pub(crate) fn losses(&self, key: &[u8]) -> u32 {
        self.keys().get(key).map_or(0, |suspect| suspect.losses)
    }

    /// How many losses are the reason why this key is refused now, and for how long.
    pub(crate) fn refused(&self, key: &[u8]) -> Option<(u32, Duration)> {
        if self.are_none() {
            return None;
        }
        let keys = self.keys();
        let suspect = keys.get(key)?;
        let left = suspect
            .refused_until?
            .checked_duration_since(Instant::now())?;
        Some((suspect.losses, left))
    }

    /// The connection has ended while these keys were asked for in one request.
    pub(crate) fn accuse<'a>(&self, asked: impl ExactSizeIterator<Item = &'a [u8]>) {
        let alone = asked.len() == 1;
        let mut keys = self.keys();
        if keys.len() + asked.len() > MOST {
            keys.clear();
        }
        for key in asked {
            let suspect = keys.entry(key.to_vec()).or_default();
            suspect.losses += 1;
            if alone && suspect.losses >= 2 {
                let doubled = 1 << (suspect.losses - 2).min(16);
                let refusal = (FIRST_REFUSAL * doubled).min(LONGEST_REFUSAL);
                suspect.refused_until = Some(Instant::now() + refusal);
            }
        }
        self.count.store(keys.len(), Ordering::Relaxed);
    }

    /// The server has answered a request for this key.
    pub(crate) fn clear(&self, key: &[u8]) {
        if !self.are_none() {
            let mut keys = self.keys();
            keys.remove(key);
            self.count.store(keys.len(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accuse(suspects: &Suspects, keys: &[&[u8]]) {
        suspects.accuse(keys.iter().copied());
    }

    #[test]
    fn a_key_is_refused_after_two_losses_and_only_if_it_was_alone() {
        let suspects = Suspects::default();
        let refused = |key: &[u8]| suspects.refused(key).map(|(losses, _)| losses);
        accuse(&suspects, &[b"a", b"b"]);
        accuse(&suspects, &[b"a", b"b"]);
        assert_eq!((refused(b"a"), refused(b"b")), (None, None));
        accuse(&suspects, &[b"a"]);
        assert_eq!((refused(b"a"), refused(b"b")), (Some(3), None));
        suspects.clear(b"a");
        assert_eq!((refused(b"a"), suspects.losses(b"b")), (None, 2));
        suspects.clear(b"b");
        assert!(suspects.are_none());
    }

    #[test]
    fn the_time_grows_up_to_a_minute() {
        let suspects = Suspects::default();
        let mut last = Duration::ZERO;
        for losses in 1..100 {
            accuse(&suspects, &[b"a"]);
            let left = suspects
                .refused(b"a")
                .map_or(Duration::ZERO, |(_, left)| left);
            assert!(left <= LONGEST_REFUSAL, "{left:?} after {losses}");
            assert!(
                left >= last || left > LONGEST_REFUSAL / 2,
                "{left:?} after {losses}"
            );
            last = left;
        }
        assert!(last > LONGEST_REFUSAL / 2);
    }

    #[test]
    fn the_number_of_suspects_is_bounded() {
        let suspects = Suspects::default();
        for n in 0..3 * MOST {
            accuse(&suspects, &[n.to_string().as_bytes()]);
        }
        assert!(suspects.keys().len() <= MOST);
    }
}
