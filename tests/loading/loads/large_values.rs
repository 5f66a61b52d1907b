//! Loads and computes of values that are large for the stack: 128 KiB on a thread with 2 MiB. An
//! overflow of the stack aborts the process, and so fails the test.

use futures_lite::future::block_on;
use std::thread;
use wheelhouse::{Cache, Loaded, Loader, Reloaded, loader_fn};

const STACK: usize = 2 << 20;
const SIZE: usize = 128 << 10;

#[derive(Clone)]
struct Large([u8; SIZE]);

impl Large {
    #[inline(never)]
    fn new(byte: u8) -> Self {
        Self([byte; SIZE])
    }
}

#[inline(never)]
fn assert_is(value: &Large, byte: u8) {
    assert_eq!((value.0[0], value.0[SIZE - 1]), (byte, byte));
}

/// Out of line: what it takes of the stack is free again when it returns.
#[inline(never)]
fn insert(cache: &Cache<u32, Large>, key: u32, byte: u8) {
    cache.insert(key, Large::new(byte));
}

/// Runs a call on a thread with 2 MiB, on a cache in which only the key 2 is present.
fn on_small_stack(call: fn(&Cache<u32, Large>)) {
    let run = move || {
        let cache = Cache::new(100);
        insert(&cache, 2, 2);
        call(&cache);
    };
    let thread = thread::Builder::new().stack_size(STACK).spawn(run);
    thread.unwrap().join().unwrap();
}

#[test]
fn get_with_loads() {
    on_small_stack(|cache| assert_is(&cache.get_with(1, || Large::new(1)), 1));
}

#[test]
fn try_get_with_loads() {
    on_small_stack(|cache| {
        let loaded = cache.try_get_with(1, || Ok::<_, ()>(Large::new(1)));
        assert_is(&loaded.unwrap(), 1);
    });
}

#[test]
fn or_insert_with_loads() {
    on_small_stack(|cache| {
        let entry = cache.entry(1).or_insert_with(|| Large::new(1));
        assert_is(entry.value(), 1);
    });
}

#[test]
fn a_closure_may_hold_the_value_that_it_returns() {
    on_small_stack(|cache| {
        let value = Large::new(1);
        let entry = cache.entry(1).or_insert_with(move || value);
        assert_is(entry.value(), 1);
    });
}

#[test]
fn or_insert_stores_the_value_that_it_is_given() {
    on_small_stack(|cache| {
        let entry = cache.entry(1).or_insert(Large::new(1));
        assert_is(entry.value(), 1);
    });
}

#[test]
fn get_with_async_loads() {
    on_small_stack(|cache| {
        let value = block_on(cache.get_with_async(1, async { Large::new(1) }));
        assert_is(&value, 1);
    });
}

#[test]
fn and_upsert_with_inserts() {
    on_small_stack(|cache| {
        let entry = cache.entry(1).and_upsert_with(|_| Large::new(1));
        assert_is(entry.value(), 1);
    });
}

#[test]
fn and_upsert_with_replaces() {
    on_small_stack(|cache| {
        let entry = cache.entry(2).and_upsert_with(|old| {
            assert_is(old.unwrap().value(), 2);
            Large::new(3)
        });
        assert_is(entry.value(), 3);
    });
}

/// The value passes through the loader's answer as well: a build without optimization needs more.
#[test]
fn a_loading_cache_loads() {
    let run = || {
        let load = loader_fn(|_: &u32| Ok::<_, ()>(Large::new(1)));
        let cache = Cache::builder().loading(load).build();
        assert_is(&cache.get(&1).unwrap(), 1);
    };
    let thread = thread::Builder::new().stack_size(STACK * 3 / 2).spawn(run);
    thread.unwrap().join().unwrap();
}

/// Loads a large value, and never finds it changed.
struct Keeper;

impl Loader<u32, Large> for Keeper {
    type Error = ();

    fn load(&self, _: &u32) -> Result<Loaded<Large>, ()> {
        unreachable!("the key is present")
    }

    fn reload(&self, _: &u32, old: &Large) -> Result<Reloaded<Large>, ()> {
        assert_is(old, 2);
        Ok(Reloaded::Unchanged)
    }
}

/// On a thread of the cache, whose stack has 2 MiB.
#[test]
fn a_reload_finds_its_value_unchanged() {
    let cache = Cache::builder().loading(Keeper).build();
    insert(cache.cache(), 2, 2);
    let refreshed = cache.refresh(2).wait();
    assert_is(&refreshed.unwrap().unwrap(), 2);
}
