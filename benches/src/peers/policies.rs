//! Policies as a user writes them, for wheelhouse and for moka, whose methods have the same names.

use std::time::{Duration, Instant};

use crate::peer::{Key, Lifetime, Value};

type Life = Option<Duration>;

/// Policies that override the methods that are named, and no other.
macro_rules! policies {
    ($($(#[$doc:meta])* $name:ident: $($method:ident)*;)+) => {$(
        $(#[$doc])*
        pub struct $name<K, V>(pub Lifetime<K, V>);

        impl<K: Key, V: Value> wheelhouse::Expiry<K, V> for $name<K, V> {
            policies!(create $($method)*);
        }

        impl<K: Key, V: Value> moka::Expiry<K, V> for $name<K, V> {
            policies!(create $($method)*);
        }
    )+};
    ($($method:ident)+) => { $(policies!(@ $method);)+ };
    (@ create) => {
        fn expire_after_create(&self, key: &K, value: &V, _: Instant) -> Life {
            Some((self.0)(key, value))
        }
    };
    (@ update) => {
        fn expire_after_update(&self, key: &K, value: &V, _: Instant, _: Life) -> Life {
            Some((self.0)(key, value))
        }
    };
    (@ read) => {
        fn expire_after_read(&self, key: &K, value: &V, _: Instant, _: Life, _: Instant) -> Life {
            Some((self.0)(key, value))
        }
    };
    (@ as_told) => {
        fn expire_after_read(&self, _: &K, _: &V, _: Instant, left: Life, _: Instant) -> Life {
            left
        }
    };
}

policies! {
    /// A policy that sets a deadline when an entry is created, and overrides nothing else.
    OnCreate:;
    /// A policy that sets a deadline with every write.
    OnWrite: update;
    /// A policy that sets a deadline on create, and overrides the method for reads without changing
    /// anything there.
    AsTold: as_told;
    /// A policy that sets a deadline on create and with every read.
    OnRead: read;
    /// A policy by which every write and every read sets a deadline.
    OnAccess: update read;
}
