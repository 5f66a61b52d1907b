//! wheelhouse with its default settings and an ordinary policy, as a user writes it; then with
//! other policies and settings, each as a peer of its own.

use std::{
    marker::PhantomData,
    time::{Duration, Instant},
};

use wheelhouse::{Cache, CacheBuilder, Expiry, RemovalCause, compute::Entry, expiry};

use crate::{
    figure::Problem,
    peer::{Card, Expiring, Key, Lifetime, Loads, LoadsByFuture, Peer, Plan, Value},
};

type Life = Option<Duration>;

/// Policies as a user writes them: each overrides the methods that are named, and no other.
macro_rules! policies {
    ($($(#[$doc:meta])* $name:ident: $($method:ident)*;)+) => {$(
        $(#[$doc])*
        pub struct $name<K, V>(pub Lifetime<K, V>);

        impl<K: Key, V: Value> Expiry<K, V> for $name<K, V> {
            fn expire_after_create(&self, key: &K, value: &V, _: Instant) -> Life {
                Some((self.0)(key, value))
            }

            $(policies!($method);)*
        }
    )+};
    (update) => {
        fn expire_after_update(&self, key: &K, value: &V, _: Instant, _: Life) -> Life {
            Some((self.0)(key, value))
        }
    };
    (read) => {
        fn expire_after_read(&self, key: &K, value: &V, _: Instant, _: Life, _: Instant) -> Life {
            Some((self.0)(key, value))
        }
    };
    (as_told) => {
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
    /// A policy by which every write and every read sets a deadline.
    OnAccess: update read;
}

type Built<K, V> = Result<CacheBuilder<K, V>, Problem>;

/// How a cache is set up beside what the plan asks for.
pub trait Style: Send + Sync + 'static {
    /// As the tables call it.
    const NAME: &'static str;
    /// Whether many look-ups are one call of `get_many` for each sixteen.
    const BATCHED: bool = false;

    /// Sets it up.
    fn set<K: Key, V: Value>(builder: CacheBuilder<K, V>, plan: &Plan<K, V>) -> Built<K, V> {
        let lifetime = plan.lifetime;
        Ok(match plan.expiring {
            Expiring::Never => builder,
            Expiring::Create => builder.expire_after(OnCreate(lifetime)),
            Expiring::Write => builder.expire_after(OnWrite(lifetime)),
            Expiring::Access => builder.expire_after(OnAccess(lifetime)),
        })
    }
}

/// Styles that may set the builder up by an expression.
macro_rules! styles {
    ($(
        $(#[$doc:meta])* $style:ident, $name:literal
        $(, batched: $batched:literal)? $(, |$builder:ident, $plan:ident| $set:expr)?;
    )+) => {$(
        $(#[$doc])*
        pub struct $style;

        impl Style for $style {
            const NAME: &'static str = $name;
            $(const BATCHED: bool = $batched;)?

            $(fn set<K: Key, V: Value>(
                $builder: CacheBuilder<K, V>,
                $plan: &Plan<K, V>,
            ) -> Built<K, V> {
                Ok($set)
            })?
        }
    )+};
}

styles! {
    /// Default settings and an ordinary policy.
    Ordinary, "wheelhouse";
    /// Sixteen keys to a call, where many are looked up.
    Batches, "wheelhouse, 16 at once", batched: true;
    /// An ordinary policy that overrides the method for reads and changes nothing there.
    ReadsAsTold, "wheelhouse, reads as told",
        |builder, plan| builder.expire_after(AsTold(plan.lifetime));
    /// The same under `writes_only`.
    WritesOnly, "wheelhouse, writes_only",
        |builder, plan| builder.expire_after(expiry::writes_only(AsTold(plan.lifetime)));
    /// The ready policy `expiry::creating`.
    Ready, "wheelhouse, creating", |builder, plan| {
        let lifetime = plan.lifetime;
        builder.expire_after(expiry::creating(move |key: &K, value: &V| Some(lifetime(key, value))))
    };
    /// One idle limit for all entries in place of a policy.
    IdleLimit, "wheelhouse, idle limit", |builder, plan| {
        let idle = plan.uniform.filter(|_| plan.expiring == Expiring::Access);
        builder.time_to_idle(idle.ok_or(Problem::Unsupported("not the same work"))?)
    };
}

/// The cache that this package is about.
pub struct Wheelhouse<K = u64, V = u64, S = Ordinary>(pub(crate) Cache<K, V>, PhantomData<S>);

impl<K: Key, V: Value, S: Style> Wheelhouse<K, V, S> {
    /// Builds what `plan` asks for, with settings that a plan does not know.
    pub fn with(
        plan: &Plan<K, V>,
        set: impl FnOnce(CacheBuilder<K, V>) -> CacheBuilder<K, V>,
    ) -> Result<Self, Problem> {
        let mut builder = Cache::<K, V>::builder();
        if let Some(capacity) = plan.capacity {
            builder = builder.max_capacity(capacity);
        }
        if let Some(listener) = plan.listener.clone() {
            builder = builder.removal_listener(move |key: &K, value: &V, cause| {
                listener(key, value, cause == RemovalCause::Expired);
            });
        }
        Ok(Self(set(S::set(builder, plan)?).build(), PhantomData))
    }
}

/// As many as `get_many` looks up together.
const BATCH: usize = 16;

impl<K: Key, V: Value, S: Style> Peer<K, V> for Wheelhouse<K, V, S> {
    const CARD: Card = Card::subject(S::NAME);

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        Self::with(plan, |builder| builder)
    }

    calls!(insert, invalidate, get: get, len: entry_count, settle: run_pending_tasks);

    #[inline]
    fn look<R>(&self, key: &K, read: impl FnOnce(&V) -> R) -> Option<R> {
        self.0.get_ref(key).map(|entry| read(&entry))
    }

    #[inline]
    fn count_right(&self, keys: &[K], right: impl Fn(&K, &V) -> bool) -> u64 {
        let is_right = |key, value: Option<V>| value.is_some_and(|value| right(key, &value));
        let mut count = 0;
        if !S::BATCHED {
            for key in keys {
                count += u64::from(is_right(key, self.0.get(key)));
            }
            return count;
        }
        for keys in keys.chunks(BATCH) {
            for (key, value) in keys.iter().zip(self.0.get_many(keys)) {
                count += u64::from(is_right(key, value));
            }
        }
        count
    }
}

impl<S: Style> Loads for Wheelhouse<u64, u64, S> {
    loads_as_moka!(Entry<u64, u64>, |entry| (*entry.key(), *entry.value()));
}

impl<S: Style> LoadsByFuture for Wheelhouse<u64, u64, S> {
    async fn get_with_future(&self, key: u64, load: impl Future<Output = u64> + Send) -> u64 {
        self.0.get_with_async(key, load).await
    }
}
