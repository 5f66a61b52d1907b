//! What the compiler derives for each public type: whether it may be sent to another thread, shared
//! by threads, moved while it is pinned, and used after a panic. A private field can take a trait
//! away; a program that relied on it would no longer compile.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};

use wheelhouse::compute::{CompResult, Entry, Op};
use wheelhouse::expiry::{
    Accessing, ByClosure, Creating, Jittered, Never, Until, WritesOnly, Writing,
};
use wheelhouse::refresh::Ready;
use wheelhouse::{
    BuildError, Cache, CacheBuilder, DefaultHasher, Delivery, Downtime, Ended, EntryRef,
    EntrySelector, EvictionPolicy, Filled, Iter, Lease, Leased, LoadError, Loaded, LoadingBuilder,
    LoadingCache, MaintenanceTask, ManualTicker, Policy, RandomState, RefEntrySelector, Refreshing,
    Reloaded, RemovalCause, Restore, Restored, SavedEntry, Scheduler, Snapshot, Stat, StatValue,
    Stats,
};

struct Of<T>(PhantomData<T>);

/// Each answer is `false`, unless the type has the trait: then its own constant hides this one.
#[allow(
    dead_code,
    reason = "every type is Unpin, so this answer is always hidden"
)]
trait Unless {
    const SEND: bool = false;
    const SYNC: bool = false;
    const UNPIN: bool = false;
    const UNWIND_SAFE: bool = false;
    const REF_UNWIND_SAFE: bool = false;
}

impl<T> Unless for Of<T> {}

impl<T: Send> Of<T> {
    const SEND: bool = true;
}
impl<T: Sync> Of<T> {
    const SYNC: bool = true;
}
impl<T: Unpin> Of<T> {
    const UNPIN: bool = true;
}
impl<T: UnwindSafe> Of<T> {
    const UNWIND_SAFE: bool = true;
}
impl<T: RefUnwindSafe> Of<T> {
    const REF_UNWIND_SAFE: bool = true;
}

/// A row for each type: its name, then `+` or `-` for each trait in the order above.
macro_rules! rows {
    ($($name:literal: $type:ty,)*) => {
        vec![$(($name, [
            Of::<$type>::SEND,
            Of::<$type>::SYNC,
            Of::<$type>::UNPIN,
            Of::<$type>::UNWIND_SAFE,
            Of::<$type>::REF_UNWIND_SAFE,
        ].map(|has| if has { '+' } else { '-' }).iter().collect::<String>())),*]
    };
}

type K = String;
type V = u32;
type E = std::io::Error;
/// A closure that holds nothing.
type F = fn(&K, &V);

fn rows() -> Vec<(&'static str, String)> {
    rows! {
        "Accessing": Accessing<F>,
        "BuildError": BuildError,
        "ByClosure": ByClosure<F, true, false>,
        "Cache": Cache<K, V>,
        "CacheBuilder": CacheBuilder<K, V>,
        "CompResult": CompResult<K, V>,
        "Creating": Creating<F>,
        "DefaultHasher": DefaultHasher,
        "Delivery": Delivery,
        "Downtime": Downtime,
        "Ended": Ended,
        "Entry": Entry<K, V>,
        "EntryRef": EntryRef<'static, K, V>,
        "EntrySelector": EntrySelector<'static, K, V>,
        "EvictionPolicy": EvictionPolicy,
        "Filled": Filled<V>,
        "Iter": Iter<'static, K, V>,
        "Jittered": Jittered<Never>,
        "Lease": Lease<K, V>,
        "Leased": Leased<K, V>,
        "LoadError": LoadError<E>,
        "Loaded": Loaded<V>,
        "LoadingBuilder": LoadingBuilder<K, V, E>,
        "LoadingCache": LoadingCache<K, V, E>,
        "MaintenanceTask": MaintenanceTask,
        "ManualTicker": ManualTicker,
        "Never": Never,
        "Op": Op<V>,
        "Policy": Policy<'static, K, V>,
        "RandomState": RandomState,
        "Ready": Ready,
        "RefEntrySelector": RefEntrySelector<'static, K, str, V>,
        "Refreshing": Refreshing<V, E>,
        "Reloaded": Reloaded<V>,
        "RemovalCause": RemovalCause,
        "Restore": Restore,
        "Restored": Restored,
        "SavedEntry": SavedEntry<K, V>,
        "Scheduler": Scheduler,
        "Snapshot": Snapshot<K, V>,
        "Stat": Stat,
        "StatValue": StatValue,
        "Stats": Stats,
        "Until": Until<F>,
        "WritesOnly": WritesOnly<Never>,
        "Writing": Writing<F>,
    }
}

#[test]
fn each_public_type_has_the_auto_traits_that_programs_rely_on() {
    let exceptions = [
        // They hold a pin of their thread, or refer to an entry under one.
        ("EntryRef", "--+--"),
        ("Iter", "--+--"),
        // They hold user code (policies, listeners, loaders, alarms, errors) behind `dyn`, which
        // promises nothing about panics.
        ("CacheBuilder", "+++--"),
        ("Lease", "+++--"),
        ("Leased", "+++--"),
        ("LoadError", "+++--"),
        ("LoadingBuilder", "+++--"),
        ("MaintenanceTask", "+++--"),
        ("Refreshing", "+++--"),
        ("Scheduler", "+++--"),
    ];
    let mut found = rows();
    found.retain(|(_, traits)| traits != "+++++");
    let found: Vec<_> = found
        .iter()
        .map(|(name, traits)| (*name, traits.as_str()))
        .collect();
    let mut exceptions = exceptions.to_vec();
    exceptions.sort_unstable();
    assert_eq!(found, exceptions);
}

/// Names that begin like a type, without traits: those that `pub use` lists in the files with the
/// exports, and those that `compute` declares.
#[test]
fn each_public_type_has_a_row() {
    let exports = concat!(
        include_str!("../../../src/lib.rs"),
        include_str!("../../../src/expiry/mod.rs"),
        include_str!("../../../src/refresh/mod.rs"),
    );
    let compute = include_str!("../../../src/compute.rs");
    let traits = [
        "Alarm",
        "AsyncLoader",
        "Equivalent",
        "Expiry",
        "IntoLoading",
        "Loader",
        "Refresh",
        "Ticker",
        "ToKey",
        // Only with the feature `quanta`.
        "QuantaRecent",
    ];
    let rows: BTreeSet<_> = rows().into_iter().map(|(name, _)| name).collect();
    let lists = exports.split("pub use ").skip(1);
    let lists = lists.map(|rest| rest.split(';').next().unwrap_or_default());
    let words = lists.flat_map(|list| list.split(|c: char| !c.is_alphanumeric()));
    let enums = compute.split("\npub enum ").skip(1);
    let declared = enums.chain(compute.split("\npub struct ").skip(1));
    let declared = declared.map(|rest| rest.split('<').next().unwrap_or_default());
    let named: BTreeSet<_> = (words.filter(|word| word.starts_with(char::is_uppercase)))
        .chain(declared)
        .filter(|word| !traits.contains(word))
        .collect();
    assert!(named.len() > 45, "the public types: {named:?}");
    let without: Vec<_> = named.difference(&rows).collect();
    assert!(without.is_empty(), "no row for {without:?}");
}
