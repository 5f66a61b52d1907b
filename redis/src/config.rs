//! The settings of a near cache.

use crate::credentials::Provider;
use crate::error::NearError;
use std::time::Duration;

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

/// All settings but the local cache, the key prefix and the codec.
#[derive(Clone, Debug)]
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
    pub(crate) load_lock: Option<Duration>,
    #[cfg(feature = "tracing")]
    pub(crate) traced: crate::trace::Traced,
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
            load_lock: None,
            #[cfg(feature = "tracing")]
            traced: crate::trace::Traced {
                slow: Duration::from_millis(100),
                keys: false,
            },
        }
    }
}

impl Settings {
    pub(crate) fn validate(&self, key_prefix: &[u8]) -> Result<(), NearError> {
        let above_zero = [
            ("local_ttl", self.local_ttl),
            ("connect_timeout", self.connect_timeout),
            ("request_timeout", self.request_timeout),
            ("heartbeat", self.heartbeat),
        ];
        for (name, value) in above_zero {
            if value.is_zero() {
                return Err(NearError::Config(format!(
                    "{name} is 0ns, but must be above zero"
                )));
            }
        }
        if self.load_lock.is_some_and(|life| life.is_zero()) {
            let fault = "load_lock is 0ns, but must be above zero";
            return Err(NearError::Config(fault.into()));
        }
        let Tracking::Broadcast { prefixes } = &self.tracking else {
            return Ok(());
        };
        // The keys of one of the two must be a part of the other's.
        let shares = |prefix: &String| {
            prefix.as_bytes().starts_with(key_prefix) || key_prefix.starts_with(prefix.as_bytes())
        };
        if !prefixes.is_empty() && !prefixes.iter().any(shares) {
            return Err(NearError::Config(format!(
                "key_prefix is {:?}, but must share its begin with one of tracking's prefixes \
                 {prefixes:?}: else no key would be kept",
                String::from_utf8_lossy(key_prefix)
            )));
        }
        for (index, one) in prefixes.iter().enumerate() {
            for other in &prefixes[index + 1..] {
                if one.starts_with(other.as_str()) || other.starts_with(one.as_str()) {
                    return Err(NearError::Config(format!(
                        "tracking has the prefixes {one:?} and {other:?}, but no prefix may begin \
                         with another"
                    )));
                }
            }
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(change: impl FnOnce(&mut Settings)) -> String {
        let mut settings = Settings::default();
        change(&mut settings);
        settings.validate(b"").unwrap_err().to_string()
    }

    fn broadcast(prefixes: &[&str]) -> Tracking {
        Tracking::Broadcast {
            prefixes: prefixes.iter().map(|p| (*p).to_string()).collect(),
        }
    }

    #[test]
    fn faults_name_the_setting_and_what_is_allowed() {
        assert!(Settings::default().validate(b"").is_ok());
        assert_eq!(
            fault(|s| s.heartbeat = Duration::ZERO),
            "heartbeat is 0ns, but must be above zero"
        );
        assert_eq!(
            fault(|s| s.tracking = broadcast(&["b:", "a:", "a:b:"])),
            "tracking has the prefixes \"a:\" and \"a:b:\", but no prefix may begin with another"
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
