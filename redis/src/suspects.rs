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
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// From how many bytes on a value is large.
pub(crate) const LARGE: usize = 64 << 10;
/// How many keys are remembered.
const MOST: usize = 4096;
const FIRST_REFUSAL: Duration = Duration::from_millis(100);
const LONGEST_REFUSAL: Duration = Duration::from_secs(60);

/// How a key is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// With others in one request.
    Together,
    /// Its size is asked for first.
    Measured,
    /// In a request of its own, for so many bytes.
    Alone(usize),
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
pub(crate) struct Suspects {
    keys: Mutex<HashMap<Vec<u8>, Suspect>>,
    /// The number of keys. Relaxed: a call that misses a key in it asks for the key as for any
    /// other.
    count: AtomicUsize,
}

impl Suspects {
    fn keys(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Suspect>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn are_none(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// How to ask for this key.
    pub(crate) fn way(&self, key: &[u8]) -> Way {
        if self.are_none() {
            return Way::Together;
        }
        match self.keys().get(key) {
            None => Way::Together,
            Some(Suspect {
                large: Some(bytes),
                losses: 0,
                ..
            }) => Way::Alone(*bytes),
            Some(Suspect { large: Some(_), .. }) => Way::Alone(usize::MAX),
            Some(_) => Way::Measured,
        }
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

    /// The connection has ended while this key was asked for.
    pub(crate) fn accuse(&self, key: &[u8]) {
        self.change(1, |keys| {
            let suspect = keys.entry(key.to_vec()).or_default();
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
        if bytes >= LARGE {
            self.change(1, |keys| {
                keys.entry(key.to_vec()).or_default().large = Some(bytes);
            });
        } else {
            self.forget(key);
        }
    }

    /// The server has answered a request for this key with a value of this length.
    pub(crate) fn answered(&self, key: &[u8], bytes: usize) {
        self.forget(key);
        self.measured(key, bytes);
    }

    fn forget(&self, key: &[u8]) {
        if !self.are_none() {
            self.change(0, |keys| {
                keys.remove(key);
            });
        }
    }

    fn change(&self, more: usize, change: impl FnOnce(&mut HashMap<Vec<u8>, Suspect>)) {
        let mut keys = self.keys();
        if keys.len() + more > MOST {
            keys.clear();
        }
        change(&mut keys);
        self.count.store(keys.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accuse(suspects: &Suspects, keys: &[&[u8]]) {
        keys.iter().for_each(|key| suspects.accuse(key));
    }

    #[test]
    fn a_large_key_is_refused_after_two_losses() {
        let suspects = Suspects::default();
        let refused = |key: &[u8]| suspects.refused(key).map(|(losses, _)| losses);
        accuse(&suspects, &[b"a", b"b"]);
        accuse(&suspects, &[b"a", b"b"]);
        assert_eq!(suspects.way(b"a"), Way::Measured);
        suspects.measured(b"a", LARGE);
        assert_eq!(suspects.way(b"a"), Way::Alone(usize::MAX));
        assert_eq!((refused(b"a"), refused(b"b")), (None, None));
        accuse(&suspects, &[b"a"]);
        assert_eq!((refused(b"a"), refused(b"b")), (Some(3), None));
        suspects.answered(b"a", LARGE);
        assert_eq!(
            (refused(b"a"), suspects.way(b"a")),
            (None, Way::Alone(LARGE))
        );
        suspects.answered(b"a", 1);
        suspects.measured(b"b", 1);
        assert!(suspects.are_none());
    }

    #[test]
    fn the_time_grows_up_to_a_minute() {
        let suspects = Suspects::default();
        suspects.measured(b"a", LARGE);
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
