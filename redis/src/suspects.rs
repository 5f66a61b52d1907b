//! What is known of single keys: whose values are large, and whose requests end connections.
//!
//! A large value is a slow reply, and all replies behind it wait. So once a key is known as large,
//! it is asked for over a second connection (`link.rs`), with a bounded number of bytes under way.
//!
//! A server closes a connection whose reply is above its limit (`client-output-buffer-limit`). The
//! near cache would ask for the same key on the next connection, and lose that one, too. So each
//! key whose reply was awaited when a connection ended is a *suspect* until its value is known to
//! be small, or a reply comes. A suspect with a large value is asked for while no other large value
//! is; if its requests have ended connections at least twice in a row, it is refused for a while.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// From how many bytes on a value is large.
pub(crate) const LARGE: usize = 64 << 10;
/// From how many bytes on a value is large if its reply was late: many of them hold up a slow line.
pub(crate) const LONG: usize = 16 << 10;
/// How many keys are remembered.
const MOST: usize = 4096;
const FIRST_REFUSAL: Duration = Duration::from_millis(100);
const LONGEST_REFUSAL: Duration = Duration::from_secs(60);

/// How a key is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Over the main connection, or over the second one while a large value holds the main one up.
    Main,
    /// As `Main`, but over the second one while long values hold the main one up, too.
    Quickest,
    /// Its size is asked for first.
    Measured,
    /// Over the second connection, for so many bytes.
    Second(usize),
    /// Not now, since so many connections in a row have ended.
    Refused { losses: u32, left: Duration },
}

#[derive(Default)]
struct Suspect {
    losses: u32,
    refused_until: Option<Instant>,
    /// `None`: small, or not known.
    large: Option<usize>,
}

/// The suspects of one near cache.
#[derive(Default)]
pub(crate) struct Suspects(Mutex<HashMap<Vec<u8>, Suspect>>);

impl Suspects {
    fn keys(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Suspect>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How to ask for this key.
    pub(crate) fn way(&self, key: &[u8]) -> Way {
        let keys = self.keys();
        let Some(suspect) = keys.get(key) else {
            return Way::Quickest;
        };
        let losses = suspect.losses;
        if let Some(until) = suspect.refused_until {
            let left = until.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                return Way::Refused { losses, left };
            }
        }
        match suspect.large {
            None => Way::Measured,
            Some(bytes) if losses == 0 => Way::Second(bytes),
            Some(_) => Way::Second(usize::MAX),
        }
    }

    /// The connection has ended while this key was asked for.
    pub(crate) fn accuse(&self, key: &[u8]) {
        self.change(key, |suspect| {
            suspect.losses += 1;
            if suspect.losses >= 2 && suspect.large.is_some() {
                let doubled = 1 << (suspect.losses - 2).min(16);
                let refusal = (FIRST_REFUSAL * doubled).min(LONGEST_REFUSAL);
                suspect.refused_until = Some(Instant::now() + refusal);
            }
        });
    }

    /// The server has said how long the value of this key is.
    pub(crate) fn measured(&self, key: &[u8], bytes: usize) {
        if bytes < LARGE {
            self.keys().remove(key);
        } else {
            self.change(key, |suspect| suspect.large = Some(bytes));
        }
    }

    /// The server has answered a request for this key with a value of this length.
    pub(crate) fn answered(&self, key: &[u8], bytes: usize, was_late: bool) {
        let least = if was_late { LONG } else { LARGE };
        self.keys().remove(key);
        if bytes >= least {
            self.change(key, |suspect| suspect.large = Some(bytes));
        }
    }

    fn change(&self, key: &[u8], change: impl FnOnce(&mut Suspect)) {
        let mut keys = self.keys();
        if keys.len() >= MOST {
            // What is known of lengths comes back by itself.
            keys.retain(|_, suspect| suspect.losses > 0);
        }
        if keys.len() >= MOST {
            keys.clear();
        }
        change(keys.entry(key.to_vec()).or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_key_is_refused_after_two_losses() {
        let suspects = Suspects::default();
        let losses = |key: &[u8]| match suspects.way(key) {
            Way::Refused { losses, .. } => losses,
            _ => 0,
        };
        for _ in 0..2 {
            suspects.accuse(b"a");
            suspects.accuse(b"b");
        }
        assert_eq!(suspects.way(b"a"), Way::Measured);
        suspects.measured(b"a", LARGE);
        assert_eq!(suspects.way(b"a"), Way::Second(usize::MAX));
        suspects.accuse(b"a");
        assert_eq!((losses(b"a"), losses(b"b")), (3, 0));
        suspects.answered(b"a", LARGE, false);
        assert_eq!(suspects.way(b"a"), Way::Second(LARGE));
        suspects.answered(b"a", LONG, true);
        assert_eq!(suspects.way(b"a"), Way::Second(LONG));
        suspects.answered(b"a", LONG, false);
        suspects.measured(b"b", 1);
        assert!(suspects.keys().is_empty());
    }

    #[test]
    fn the_time_grows_up_to_a_minute() {
        let suspects = Suspects::default();
        suspects.measured(b"a", LARGE);
        let mut last = Duration::ZERO;
        for losses in 1..100 {
            suspects.accuse(b"a");
            let left = match suspects.way(b"a") {
                Way::Refused { left, .. } => left,
                _ => Duration::ZERO,
            };
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
            suspects.accuse(n.to_string().as_bytes());
        }
        assert!(suspects.keys().len() <= MOST);
    }
}
