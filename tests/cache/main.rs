//! What a cache does, by subject. Most tests run on a manual clock, and none needs a process of its
//! own, or makes one itself.

#[path = "../support/mod.rs"]
mod support;

/// The public methods: names and bounds, settings, what each operation does, statistics.
mod api {
    mod auto_traits;
    mod builder;
    mod equal_keys;
    mod extreme_values;
    mod generic_code;
    mod get_many;
    mod iteration;
    mod names_of_caches;
    mod operations;
    mod random_calls;
    mod signatures;
    mod stats;
    mod wheel_snapshot;
}

/// Deadlines, policies and clocks: when an entry expires, and that it then leaves.
mod time {
    mod alarm;
    mod clock_readings;
    mod clocks_that_jump;
    mod clocks_that_step_back;
    mod deadlines;
    mod ends_at_an_instant;
    mod event_loop;
    mod limits_of_the_cache;
    mod prompt_removal;
    mod ready_policies;
    mod slow_user_code;
    mod tickers_that_misbehave;
    mod true_time;
    mod when_policies_are_asked;
}

/// Bounds in entries and in weight: that they hold, and which entries leave.
mod size {
    mod entries;
    mod expired_entries_leave_first;
    mod lru_order;
    mod new_keys_are_admitted;
    mod random_calls;
    mod read_most;
    mod seeds;
    mod weights;
}

/// User code that the cache calls: listeners, panics, calls back into the cache.
mod callbacks {
    mod delivery;
    mod listener;
    mod misbehaviour;
    mod panics;
    mod panics_by_state;
    mod reentry;
    mod writes_to_the_same_key;
}

/// The ends of values, references, threads and caches: each is dropped once, and nothing leaks.
mod lifecycle {
    mod ends_of_threads;
    mod last_drop;
    mod memory;
    mod references;
}

/// Failures that this crate, other caches and other timer wheels have had.
mod regressions {
    mod other_caches;
    mod other_wheels;
    mod requests_to_timers;
    mod this_crate;
}
