//! The keys whose values are large, and those of them whose requests end connections.
//!
//! A large value is a slow reply, behind which all others would wait. So a read asks the main
//! connection for no more than the first bytes of a value (`request.rs`). Once a key is known as
//! large, its value comes over a second connection (`link.rs`), with a bounded number of bytes
//! under way.
//!
//! A server closes a connection whose reply is above its limit (`client-output-buffer-limit`). The
//! near cache would ask for the same key on the next connection, and lose that one, too. So each
//! key whose value was awaited when a second connection ended is a *suspect* until a reply comes.
//! A suspect is asked for while no other large value is; if its requests have ended connections at
//! least twice in a row, it is refused for a while.

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
    /// Over the second connection, for so many bytes.
    Second(usize),
    /// Not now, since so many connections in a row have ended.
    Refused { losses: u32, left: Duration },
}

struct Suspect {
    /// For how many bytes it is asked for: for all that may be under way, once it is accused.
    bytes: usize,
    losses: u32,
    refused_until: Option<Instant>,
}

/// The keys with large values of one near cache.
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
            return Way::Main(LARGE);
        };
        let losses = suspect.losses;
        if let Some(until) = suspect.refused_until {
            let left = until.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                return Way::Refused { losses, left };
            }
        }
        Way::Second(suspect.bytes)
    }

    /// The second connection has ended while this key was asked for over it.
    pub(crate) fn suspect(&self, key: &[u8]) {
        let mut keys = self.keys();
        if !keys.contains_key(key) {
            remember(&mut keys, key, usize::MAX);
        }
        drop(keys);
        self.accuse(key);
    }

    /// A connection has ended while this key was asked for. It is accused if its value is large.
    pub(crate) fn accuse(&self, key: &[u8]) {
        let mut keys = self.keys();
        let Some(suspect) = keys.get_mut(key) else {
            return;
        };
        suspect.losses += 1;
        suspect.bytes = usize::MAX;
        if suspect.losses >= 2 {
            let doubled = 1 << (suspect.losses - 2).min(16);
            let refusal = (FIRST_REFUSAL * doubled).min(LONGEST_REFUSAL);
            suspect.refused_until = Some(Instant::now() + refusal);
        }
    }

    /// The server has said how long the value of this key is.
    pub(crate) fn measured(&self, key: &[u8], bytes: usize) {
        let mut keys = self.keys();
        keys.remove(key);
        if bytes > LARGE {
            remember(&mut keys, key, bytes);
        }
    }
}

/// Adds a key that is not there.
fn remember(keys: &mut HashMap<Vec<u8>, Suspect>, key: &[u8], bytes: usize) {
    if keys.len() >= MOST {
        // What is known of lengths comes back by itself.
        let least = keys.iter().min_by_key(|(_, suspect)| suspect.losses);
        if let Some(forgotten) = least.map(|(key, _)| key.clone()) {
            keys.remove(&forgotten);
        }
    }
    let suspect = Suspect {
        bytes,
        losses: 0,
        refused_until: None,
    };
    keys.insert(key.to_vec(), suspect);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_key_is_refused_after_two_losses() {
        let suspects = Suspects::default();
        suspects.measured(b"a", LARGE);
        assert_eq!(suspects.way(b"a"), Way::Main(LARGE));
        for key in [b"a", b"b"] {
            suspects.measured(key, LARGE + 1);
            assert_eq!(suspects.way(key), Way::Second(LARGE + 1));
        }
        suspects.accuse(b"a");
        assert_eq!(suspects.way(b"a"), Way::Second(usize::MAX));
        assert_eq!(suspects.way(b"b"), Way::Second(LARGE + 1));
        suspects.accuse(b"a");
        assert!(matches!(suspects.way(b"a"), Way::Refused { losses: 2, .. }));
        suspects.measured(b"a", LARGE + 1);
        assert_eq!(suspects.way(b"a"), Way::Second(LARGE + 1));
        suspects.measured(b"a", 1);
        suspects.measured(b"b", 1);
        suspects.accuse(b"b");
        assert!(suspects.keys().is_empty());
        // A smaller one that was asked for over the second connection.
        suspects.suspect(b"b");
        assert_eq!(suspects.way(b"b"), Way::Second(usize::MAX));
        suspects.suspect(b"b");
        assert!(matches!(suspects.way(b"b"), Way::Refused { losses: 2, .. }));
    }

    #[test]
    fn the_time_grows_up_to_a_minute() {
        let suspects = Suspects::default();
        suspects.measured(b"a", LARGE + 1);
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
            suspects.measured(n.to_string().as_bytes(), LARGE + 1);
            suspects.accuse(n.to_string().as_bytes());
        }
        assert_eq!(suspects.keys().len(), MOST);
        // One that has ended no connection is forgotten before those.
        suspects.measured(b"new", LARGE + 1);
        suspects.measured(b"newest", LARGE + 1);
        assert_eq!(suspects.way(b"new"), Way::Main(LARGE));
        assert_eq!(suspects.way(b"newest"), Way::Second(LARGE + 1));
        assert_eq!(suspects.keys().len(), MOST);
    }
}
