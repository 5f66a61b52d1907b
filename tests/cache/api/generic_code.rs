//! What code around a cache may look like: generic code with only the bounds that the documentation
//! names; statics, tasks, fields; settings given as closures, functions and boxes. The compiler
//! checks most of it.

use std::collections::HashSet;
use std::fmt::{self, Debug};
use std::hash::{BuildHasher, DefaultHasher, Hash};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::support::secs;
use wheelhouse::{
    BuildError, Cache, CacheBuilder, EntryRef, Equivalent, EvictionPolicy, Expiry, Iter,
    ManualTicker, Policy, RandomState, RemovalCause, Scheduler, Stats, Ticker, expiry,
};

/// These are all the bounds on a key, …
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Key(pub(super) u32);

/// … and neither a value nor a hasher needs even these.
pub(super) struct Value(pub(super) u32);

struct Hasher;

impl BuildHasher for Hasher {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        DefaultHasher::new()
    }
}

type Bare = Cache<Key, Value, Hasher>;

fn bare() -> Bare {
    let builder = Cache::builder().hasher(Hasher).max_capacity(100);
    builder.ticker(ManualTicker::new()).build()
}

#[test]
fn handles_are_shared_cloned_and_shown_whatever_the_types() {
    fn handle<T: Clone + Debug + Send + Sync + 'static>(_: &T) {}
    let cache = bare();
    handle(&cache);
    cache.clone().insert(Key(1), Value(10));
    assert_eq!(cache.get_ref(&Key(1)).map(|entry| entry.0), Some(10));
    assert!(format!("{cache:?} {:?} {:?}", cache.policy(), cache.iter()).contains("entry_count"));

    // A handle may be used in `catch_unwind`, and after it, without `AssertUnwindSafe`.
    fn outlives_a_panic<T: UnwindSafe + RefUnwindSafe>(_: &T) {}
    outlives_a_panic(&cache);

    // A type that holds a handle needs no further bounds on its own parameters, either.
    struct Service<K, V>(Cache<K, V>);
    impl<K, V> Clone for Service<K, V> {
        fn clone(&self) -> Self {
            Service(self.0.clone())
        }
    }
    impl<K, V> Debug for Service<K, V> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }
    #[expect(dead_code, reason = "that it may be written is what is checked")]
    struct Fields<'a, K, V, S>(Iter<'a, K, V, S>, EntryRef<'a, K, V>, Policy<'a, K, V, S>);
    let service = Service(Cache::<Key, Value>::new(1));
    assert_eq!(format!("{:?}", service.clone()), format!("{service:?}"));
}

/// Every method that clones nothing.
fn everything<K, V, S>(cache: &Cache<K, V, S>, [one, two]: [K; 2], [first, second]: [V; 2]) -> u64
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    let mut sought = Vec::new();
    cache.insert(one, first);
    cache.insert_with_ttl(two, second, secs(10));
    let shown = cache.iter().count() + cache.into_iter().count();
    cache.retain(|_, _| true);
    for entry in cache {
        // Looked up by the key of the entry itself, while it is held.
        let key = entry.key();
        assert!(cache.contains_key(key) && cache.peek_ref(key).is_some());
        assert!(cache.get_ref(key).is_some() && cache.set_expiry(key, Some(secs(20))));
        sought.push(cache.policy().weight_of(key));
    }
    assert_eq!((shown, sought), (4, vec![Some(1); 2]));
    let first = cache.iter().next().expect("two are there");
    cache.invalidate(first.key());
    cache.run_pending_tasks();
    let count = cache.entry_count();
    cache.invalidate_all();
    _ = (cache.weighted_size(), cache.next_maintenance_in());
    _ = (cache.stats(), cache.name());
    count
}

/// The methods that return a value.
fn cloning<K, V, S>(cache: &Cache<K, V, S>, key: &K) -> [Option<V>; 3]
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    let many = cache.get_many([key]).pop().flatten();
    [cache.get(key), many, cache.remove(key)]
}

/// The result borrows the cache, but not the key that was looked up.
fn found<'a, K, V, S, Q>(cache: &'a Cache<K, V, S>, key: &Q) -> Option<EntryRef<'a, K, V>>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    Q: Equivalent<K> + Hash + ?Sized,
{
    cache.get_ref(key).or_else(|| cache.peek_ref(key))
}

#[test]
fn generic_code_needs_the_documented_bounds_and_no_more() {
    let values = [Value(1), Value(2)];
    assert_eq!(everything(&bare(), [Key(1), Key(2)], values), 1);

    let cache: Cache<String, u32> = Cache::new(5);
    cache.insert("a".into(), 2);
    let entry = {
        let key = String::from("a");
        found(&cache, key.as_str())
    };
    assert_eq!(entry.as_deref(), Some(&2));
    assert_eq!(cloning(&cache, &"a".to_string()), [Some(2); 3]);
}

#[test]
fn keys_are_found_by_their_unsized_forms() {
    fn by<K, Q>(owned: fn(&Q) -> K, one: &Q, other: &Q)
    where
        K: Hash + Eq + Send + Sync + 'static,
        Q: Equivalent<K> + Hash + ?Sized,
    {
        let cache: Cache<K, u32> = Cache::builder().ticker(ManualTicker::new()).build();
        cache.insert(owned(one), 1);
        assert_eq!((cache.get(one), cache.get(other)), (Some(1), None));
        assert_eq!(cache.get_many([other, one]), [None, Some(1)]);
        assert_eq!(cache.policy().weight_of(one), Some(1));
        assert!(cache.set_expiry(one, Some(secs(1))) && !cache.set_expiry(other, None));
        assert!(cache.contains_key(one) && cache.peek_ref(other).is_none());
        cache.invalidate(other);
        assert_eq!((cache.remove(other), cache.remove(one)), (None, Some(1)));
    }
    by::<String, str>(str::to_string, "a", "b");
    by::<Box<str>, str>(|key| key.into(), "a", "b");
    by::<Arc<str>, str>(|key| key.into(), "a", "");
    by::<Vec<u8>, [u8]>(<[u8]>::to_vec, &[1, 2], &[1, 2, 0]);
    by::<PathBuf, Path>(Path::to_path_buf, Path::new("a/b"), Path::new("a/c"));
}

#[test]
fn a_cache_may_be_a_static_and_live_across_an_await() {
    static CACHE: LazyLock<Cache<u32, u32>> = LazyLock::new(|| Cache::new(10));
    fn spawn(task: impl Future<Output = Option<u32>> + Send + 'static) -> impl Send {
        task
    }
    CACHE.insert(1, 10);
    let handle = CACHE.clone();
    let thread = std::thread::spawn(move || handle.get(&1));
    assert_eq!(thread.join().expect("the thread ends well"), Some(10));
    drop(spawn(async {
        let before = CACHE.get(&1);
        std::future::ready(()).await;
        before.or(CACHE.get(&1))
    }));
}

#[test]
fn settings_are_closures_functions_or_boxes() {
    type Builder = CacheBuilder<u32, u32>;
    type Heard = Box<dyn Fn(&u32, &u32, RemovalCause) + Send + Sync>;
    fn weigh(_: &u32, _: &u32) -> u32 {
        7
    }
    fn hear(_: &u32, _: &u32, _: RemovalCause) {}
    fn live(_: &u32, seconds: &u32) -> Option<Duration> {
        Some(secs(u64::from(*seconds)))
    }
    let boxed: Heard = Box::new(hear);
    let builder = || {
        Cache::<u32, u32>::builder()
            .max_capacity(1_000)
            .ticker(ManualTicker::new())
    };
    // The parameter types of a closure can be left out: the builder determines them.
    let closures = builder()
        .weigher(|_, value| value.count_ones())
        .removal_listener(|key, value, cause| _ = (key + 1, value + 1, cause.was_evicted()));
    let writing = expiry::writing(|_: &_, seconds: &u32| Some(secs(u64::from(*seconds))));
    let jittered = expiry::jittered(expiry::accessing(|_: &u32, _: &u32| Some(secs(5))), 0.0);
    let settings: [(Builder, u32, Option<u64>); 5] = [
        (builder().removal_listener(boxed).weigher(weigh), 7, None),
        (closures, 2, None),
        (builder().expire_after(expiry::creating(live)), 1, Some(3)),
        (builder().expire_after(writing), 1, Some(3)),
        (builder().expire_after(jittered), 1, Some(5)),
    ];
    for (builder, weight, life) in settings {
        let cache = builder.build();
        cache.insert(1, 3);
        assert_eq!(cache.policy().weight_of(&1), Some(weight));
        let left = cache.peek_ref(&1).expect("just inserted").time_left();
        assert_eq!(left, life.map(secs));
    }
}

#[test]
fn small_types_have_the_traits_of_small_types() {
    fn thread_safe<T: Send + Sync + Debug + 'static>() {}
    fn value<T: Clone + Eq>() {}
    fn word<T: Copy + Eq + Hash>() {}
    fn error<T: std::error::Error>() {}
    thread_safe::<Scheduler>();
    thread_safe::<ManualTicker>();
    thread_safe::<Stats>();
    thread_safe::<BuildError>();
    value::<Stats>();
    value::<BuildError>();
    word::<EvictionPolicy>();
    word::<RemovalCause>();
    error::<BuildError>();
    fn tells_time<T: Ticker>() {}
    tells_time::<Box<dyn Ticker>>();
    tells_time::<Arc<dyn Ticker>>();
    fn answers<T: Expiry<Key, Value>>() {}
    answers::<Box<dyn Expiry<Key, Value>>>();
    answers::<Arc<dyn Expiry<Key, Value>>>();
    fn sendable<T: Send + Debug>() {}
    sendable::<CacheBuilder<Key, Value, RandomState>>();

    use RemovalCause::{Expired, Explicit, Replaced, Size};
    let causes = HashSet::from([Expired, Explicit, Replaced, Size]);
    assert_eq!(causes.len(), 4);
    assert_eq!(EvictionPolicy::default(), EvictionPolicy::Adaptive);
    assert_eq!(Stats::default() - Stats::default(), Stats::default());
    assert_eq!(ManualTicker::default().nanos(), ManualTicker::new().nanos());
}
