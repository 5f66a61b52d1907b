//! The settings of a near cache.

use crate::credentials::Provider;
use crate::key::NearKey;
use std::time::{Duration, Instant};
use wheelhouse::{Expiry, expiry};

/// Which keys the server tracks for this near cache.
///
/// ```
/// use wheelhouse_redis::Tracking;
///
/// let tracking = Tracking::Broadcast { prefixes: vec!["user:".into(), "order:".into()] };
/// assert_ne!(tracking, Tracking::Default);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tracking {
    /// The server remembers each key that this near cache read, and reports a change once.
    ///
    /// It costs the server memory for each key, and in it for each connection that has read the key
    /// since it changed, ended ones included; `tracking-table-max-keys` bounds the number of keys.
    /// The near cache gets reports only of keys that it has read.
    #[default]
    Default,
    /// As `Default`, but each read announces itself with `CLIENT CACHING YES`.
    ///
    /// It serves servers or proxies that demand it; each load is one command longer.
    OptIn,
    /// The server remembers nothing and reports every change of a key that begins with one of the
    /// prefixes. No prefix means every key; with a `key_prefix` on the builder, that one.
    ///
    /// It costs the server no memory, and the near cache a message for every write of these keys.
    /// Keys outside the prefixes can be read, but are not kept. Prefixes must not overlap.
    Broadcast {
        /// The prefixes, as the server has the keys (a `key_prefix` of the builder included).
        prefixes: Vec<String>,
    },
}

/// What a near cache serves while it has no connection.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse_redis::OnDisconnect;
///
/// assert_eq!(OnDisconnect::default(), OnDisconnect::Flush);
/// let grace = OnDisconnect::ServeFor(Duration::from_secs(10));
/// assert_ne!(grace, OnDisconnect::Flush);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDisconnect {
    /// Nothing: every read needs the server.
    #[default]
    Flush,
    /// What it has, for at most this time after the loss was noticed, though it learns of no change
    /// meanwhile. Deadlines still hold.
    ServeFor(Duration),
}

/// How a load of `get_with` holds its key at the server, so that one of all processes loads.
///
/// The load leaves a *placeholder* in the key itself: the mark, then 32 hexadecimal digits, with a
/// life that its process renews while the load runs. A `DEL` or `SET` of any client ends the
/// placeholder, and the load then writes nothing. Near caches read a placeholder as the old value
/// behind it, or as an absence if there is none. Other readers of these keys must do that, too:
/// each value that begins with the mark is a placeholder. Choose a mark with which no value of
/// yours begins; `set` refuses such a value.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse_redis::LoadLock;
///
/// let lock = LoadLock::new(Duration::from_secs(2))
///     .mark("!loading!")
///     .longest_wait(Duration::from_secs(10));
/// assert_ne!(lock, LoadLock::default());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadLock {
    life: Option<Duration>,
    pub(crate) mark: Vec<u8>,
    pub(crate) longest_wait: Duration,
}

/// What a placeholder begins with. It is no text, so it is no JSON.
const MARK: &[u8] = b"\0wheelhouse:loading:";
/// The shortest life of a placeholder. It is renewed twice in its life, and each renewal wakes the
/// calls that wait.
const SHORTEST_LIFE: Duration = Duration::from_millis(1200);
/// What is longer counts as this: neither a timer nor the server counts up to `Duration::MAX`.
pub(crate) const LONGEST_TIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl Default for LoadLock {
    /// A life of 1.7 s, the mark `"\0wheelhouse:loading:"`, a longest wait of 30 s.
    fn default() -> Self {
        Self::new(Duration::from_millis(1700))
    }
}

impl From<Duration> for LoadLock {
    fn from(life: Duration) -> Self {
        Self::new(life)
    }
}

impl LoadLock {
    /// Makes a lock whose placeholder lives for this time if its process ends. The process renews
    /// it, so the life may be shorter than a load takes. A life below 1.2 s counts as 1.2 s, one
    /// above a year as a year. Let all processes have the same life: a call that finds a longer one
    /// shortens it to its own.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_redis::LoadLock;
    ///
    /// assert_eq!(LoadLock::new(Duration::from_millis(1700)), LoadLock::default());
    /// ```
    pub fn new(life: Duration) -> Self {
        Self {
            life: Some(life),
            mark: MARK.to_vec(),
            longest_wait: Duration::from_secs(30),
        }
    }

    /// Makes the lock that writes no placeholder. A load then writes nothing to the server at all:
    /// its value goes to the calls that wait for it, and is kept nowhere.
    ///
    /// ```
    /// use wheelhouse_redis::LoadLock;
    ///
    /// assert_ne!(LoadLock::off(), LoadLock::default());
    /// ```
    pub fn off() -> Self {
        Self {
            life: None,
            ..Self::default()
        }
    }

    /// Sets what a placeholder begins with.
    ///
    /// ```
    /// use wheelhouse_redis::LoadLock;
    ///
    /// let lock = LoadLock::default().mark("!loading!");
    /// # drop(lock);
    /// ```
    #[must_use]
    pub fn mark(mut self, mark: impl AsRef<[u8]>) -> Self {
        self.mark = mark.as_ref().to_vec();
        self
    }

    /// Sets how long a call waits for the load of another process, before it fails with
    /// [`LoadTimedOut`](crate::NearError::LoadTimedOut).
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_redis::LoadLock;
    ///
    /// let lock = LoadLock::default().longest_wait(Duration::from_secs(10));
    /// # drop(lock);
    /// ```
    #[must_use]
    pub fn longest_wait(mut self, limit: Duration) -> Self {
        self.longest_wait = limit;
        self
    }

    /// How long a placeholder lives if nothing renews it; `None`: no placeholder is written.
    pub(crate) fn life(&self) -> Option<Duration> {
        let life = self.life?;
        Some(life.clamp(SHORTEST_LIFE, LONGEST_TIME))
    }
}

/// All settings but the local cache and the codec.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) local_ttl: Duration,
    pub(crate) absent_ttl: Duration,
    pub(crate) tracking: Tracking,
    pub(crate) on_disconnect: OnDisconnect,
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) heartbeat: Duration,
    pub(crate) fail_fast_after: u32,
    pub(crate) credentials: Option<Provider>,
    /// What the server's keys begin with.
    pub(crate) key_prefix: Vec<u8>,
    pub(crate) load_lock: LoadLock,
    /// Whether the user has asked for the lock: then `connect` fails where it cannot work.
    pub(crate) load_lock_is_wanted: bool,
    /// How long a value is kept that was loaded while the server was away. `None`: no load then.
    pub(crate) load_when_away: Option<Duration>,
    /// By which share of it a life may be shortened.
    pub(crate) jitter: f64,
    /// Whether what is traced names keys.
    #[cfg(feature = "tracing")]
    pub(crate) trace_keys: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            local_ttl: Duration::from_secs(300),
            absent_ttl: Duration::ZERO,
            tracking: Tracking::default(),
            on_disconnect: OnDisconnect::default(),
            connect_timeout: Duration::from_secs(2),
            request_timeout: Duration::from_secs(1),
            heartbeat: Duration::from_secs(1),
            fail_fast_after: 5,
            credentials: None,
            key_prefix: Vec::new(),
            load_lock: LoadLock::default(),
            load_lock_is_wanted: false,
            load_when_away: None,
            jitter: 0.0,
            #[cfg(feature = "tracing")]
            trace_keys: false,
        }
    }
}

impl Settings {
    /// What is wrong with them, if anything is.
    pub(crate) fn check(&self) -> Result<(), String> {
        let above_zero = [
            ("local_ttl", self.local_ttl),
            ("connect_timeout", self.connect_timeout),
            ("request_timeout", self.request_timeout),
            ("heartbeat", self.heartbeat),
        ];
        for (name, value) in above_zero {
            if value.is_zero() {
                return Err(format!("{name} is 0ns, but must be above zero"));
            }
        }
        if self.load_lock.mark.is_empty() {
            return Err("load_lock has an empty mark, but each value begins with that".into());
        }
        let jitter = self.jitter;
        if !(0.0..=1.0).contains(&jitter) {
            return Err(format!(
                "jitter is {jitter}, but must be within 0.0 and 1.0"
            ));
        }
        let key_prefix = self.key_prefix.as_slice();
        let Tracking::Broadcast { prefixes } = &self.tracking else {
            return Ok(());
        };
        // The keys of one of the two must be a part of the other's.
        let shares = |prefix: &String| {
            prefix.as_bytes().starts_with(key_prefix) || key_prefix.starts_with(prefix.as_bytes())
        };
        if !prefixes.is_empty() && !prefixes.iter().any(shares) {
            return Err(format!(
                "key_prefix is {:?}, but must share its begin with one of tracking's prefixes \
                 {prefixes:?}: else no key would be kept",
                String::from_utf8_lossy(key_prefix)
            ));
        }
        Ok(())
    }

    /// The bytes of a key as the server has them.
    pub(crate) fn bytes_of<K: NearKey>(&self, key: &K) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.key_prefix.len() + 24);
        bytes.extend_from_slice(&self.key_prefix);
        key.write_bytes(&mut bytes);
        bytes
    }

    /// The key of these bytes, if they are a key of this near cache.
    pub(crate) fn key<K: NearKey>(&self, bytes: &[u8]) -> Option<K> {
        K::from_bytes(bytes.strip_prefix(self.key_prefix.as_slice())?)
    }

    /// Whether the server reports changes of this key.
    pub(crate) fn is_tracked(&self, key: &[u8]) -> bool {
        match &self.tracking {
            Tracking::Default | Tracking::OptIn => true,
            Tracking::Broadcast { prefixes } => {
                prefixes.is_empty() || prefixes.iter().any(|p| key.starts_with(p.as_bytes()))
            }
        }
    }
}

/// A time that is shortened at random, by this share at most.
pub(crate) fn shortened(time: Duration, share: f64) -> Duration {
    let policy = expiry::jittered(expiry::creating(move |_: &(), _: &()| Some(time)), share);
    let shortened = policy.expire_after_create(&(), &(), Instant::now());
    shortened.map_or(time, |shortened| shortened.max(Duration::from_millis(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(change: impl FnOnce(&mut Settings)) -> String {
        let mut settings = Settings::default();
        change(&mut settings);
        settings.check().unwrap_err()
    }

    fn broadcast(prefixes: &[&str]) -> Tracking {
        Tracking::Broadcast {
            prefixes: prefixes.iter().map(|p| (*p).to_string()).collect(),
        }
    }

    #[test]
    fn faults_name_the_setting_and_what_is_allowed() {
        assert!(Settings::default().check().is_ok());
        assert_eq!(
            fault(|s| s.heartbeat = Duration::ZERO),
            "heartbeat is 0ns, but must be above zero"
        );
    }

    #[test]
    fn only_keys_under_the_prefixes_are_tracked() {
        let tracks = |tracking: Tracking, key: &[u8]| {
            let settings = Settings {
                tracking,
                ..Settings::default()
            };
            settings.is_tracked(key)
        };
        assert!(tracks(Tracking::Default, b"x"));
        assert!(tracks(broadcast(&[]), b"x"));
        assert!(tracks(broadcast(&["a:", "b:"]), b"b:1"));
        assert!(!tracks(broadcast(&["a:", "b:"]), b"c:1"));
    }
}
