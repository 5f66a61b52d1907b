//! The keys whose values are large, and those of them whose requests end connections.
//!
//! A large value is a slow reply, behind which all others would wait. So a read asks the main
//! connection for no more than the first bytes of a value (`request.rs`). Once a key is known as
//! large, its value comes over a second connection (`link.rs`), with a bounded number of bytes
//! under way.
//!
//! A server closes a connection whose reply is above its limit (`client-output-buffer-limit`). The
//! near cache would ask for the same key on the next connection, and lose that one, too. So each
//! key whose whole value was awaited over a connection when that ended is a *suspect* until a reply
//! comes. A suspect is asked for while no other value of its node comes over the second connection;
//! if its requests have ended connections at least twice in a row, it is refused for a while. It
//! waits for a second connection, so that it ends no main one. There are two exceptions: there can
//! be no second one for this server or user at all; or, in a cluster, the slot of the key moves:
//! then the value comes over the main connection to its new node.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Above how many bytes a value is large.
pub(crate) const LARGE: usize = 16 << 10;
/// How many keys are remembered.
const MOST: usize = 4096;
const FIRST_REFUSAL: Duration = Duration::from_millis(100);
const LONGEST_REFUSAL: Duration = Duration::from_secs(60);

/// How a key is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Over the main connection, if the value has no more than so many bytes.
    Main(usize),
    /// Over the second connection, for so many bytes. If so many connections in a row have ended,
    /// it is a suspect.
    Second { bytes: usize, losses: u32 },
    /// Not now, since so many connections in a row have ended.
    Refused { losses: u32, left: Duration },
}

struct Suspect {
    /// For how many bytes it is asked for: for all that may be under way, once it is accused.
    bytes: usize,
    losses: u32,
    refused_until: Instant,
}

/// The keys with large values of one near cache.
#[derive(Default)]
pub(crate) struct Suspects(Mutex<HashMap<Vec<u8>, Suspect>>);

impl Suspects {
    fn keys(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Suspect>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How to ask for this key; if nothing is known of it, in the way `unknown`.
    pub(crate) fn way(&self, key: &[u8], unknown: Way) -> Way {
        let keys = self.keys();
        let Some(suspect) = keys.get(key) else {
            return unknown;
        };
        let Suspect { bytes, losses, .. } = *suspect;
        let until = suspect.refused_until;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Way::Second { bytes, losses }
        } else {
            Way::Refused { losses, left }
        }
    }

    /// A connection has ended while the whole value of this key was awaited over it.
    pub(crate) fn accuse(&self, key: &[u8]) {
        let mut keys = self.keys();
        // It may not have been known as large, or not be remembered.
        let losses = 1 + keys.remove(key).map_or(0, |suspect| suspect.losses);
        let refusal = if losses < 2 {
            Duration::ZERO
        } else {
            (FIRST_REFUSAL * (1 << (losses - 2).min(16))).min(LONGEST_REFUSAL)
        };
        let suspect = Suspect {
            bytes: usize::MAX,
            losses,
            refused_until: Instant::now() + refusal,
        };
        remember(&mut keys, key, suspect);
    }

    /// The server has said how long the value of this key is.
    pub(crate) fn measured(&self, key: &[u8], bytes: usize) {
        let mut keys = self.keys();
        keys.remove(key);
        if bytes > LARGE {
            let suspect = Suspect {
                bytes,
                losses: 0,
                refused_until: Instant::now(),
            };
            remember(&mut keys, key, suspect);
        }
    }
}

/// Adds a key, in the place of another one if there are too many.
fn remember(keys: &mut HashMap<Vec<u8>, Suspect>, key: &[u8], suspect: Suspect) {
    if keys.len() >= MOST {
        // What is known of lengths comes back by itself.
        let least = keys.iter().min_by_key(|(_, suspect)| suspect.losses);
        if let Some(forgotten) = least.map(|(key, _)| key.clone()) {
            keys.remove(&forgotten);
        }
    }
    keys.insert(key.to_vec(), suspect);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(suspects: &Suspects, key: &[u8]) -> Way {
        suspects.way(key, Way::Main(LARGE))
    }

    fn second(bytes: usize, losses: u32) -> Way {
        Way::Second { bytes, losses }
    }

    #[test]
    fn a_large_key_is_refused_after_two_losses() {
        let suspects = Suspects::default();
        suspects.measured(b"a", LARGE);
        assert_eq!(way(&suspects, b"a"), Way::Main(LARGE));
        for key in [b"a", b"b"] {
            suspects.measured(key, LARGE + 1);
            assert_eq!(way(&suspects, key), second(LARGE + 1, 0));
        }
        suspects.accuse(b"a");
        assert_eq!(way(&suspects, b"a"), second(usize::MAX, 1));
        assert_eq!(way(&suspects, b"b"), second(LARGE + 1, 0));
        suspects.accuse(b"a");
        assert!(matches!(
            way(&suspects, b"a"),
            Way::Refused { losses: 2, .. }
        ));
        suspects.measured(b"a", LARGE + 1);
        assert_eq!(way(&suspects, b"a"), second(LARGE + 1, 0));
        suspects.measured(b"a", 1);
        suspects.measured(b"b", 1);
        assert!(suspects.keys().is_empty());
        // One that was not known as large.
        suspects.accuse(b"b");
        assert_eq!(way(&suspects, b"b"), second(usize::MAX, 1));
        suspects.accuse(b"b");
        assert!(matches!(
            way(&suspects, b"b"),
            Way::Refused { losses: 2, .. }
        ));
    }

    #[test]
    fn the_time_grows_up_to_a_minute() {
        let suspects = Suspects::default();
        suspects.measured(b"a", LARGE + 1);
        let mut last = Duration::ZERO;
        for losses in 1..100 {
            suspects.accuse(b"a");
            let left = match way(&suspects, b"a") {
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
            suspects.measured(n.to_string().as_bytes(), LARGE + 1);
            suspects.accuse(n.to_string().as_bytes());
        }
        assert_eq!(suspects.keys().len(), MOST);
        // One that has ended no connection is forgotten before those.
        suspects.measured(b"new", LARGE + 1);
        suspects.measured(b"newest", LARGE + 1);
        assert_eq!(way(&suspects, b"new"), Way::Main(LARGE));
        assert_eq!(way(&suspects, b"newest"), second(LARGE + 1, 0));
        assert_eq!(suspects.keys().len(), MOST);
    }
}
