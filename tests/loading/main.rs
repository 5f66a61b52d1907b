//! What loads do, by subject: those of `Cache`, and those of `LoadingCache` with its reloads.

#[path = "../support/mod.rs"]
mod support;

/// Loads and computes by the methods of `Cache`: one closure at a time for each key.
mod loads {
    mod blocking_wakers;
    mod bulk;
    mod caches_that_end;
    mod compute;
    mod deadlock;
    mod destructors;
    mod every_method;
    mod failure;
    mod hand_over;
    mod large_values;
    mod many_calls;
    mod one_at_a_time;
    mod random_calls;
    mod revocation;
    mod same_key;
    mod standing_clock;
    mod tasks;
    mod turns;
}

/// `LoadingCache`: loaders, reloads, and the policies that decide when to reload.
mod refresh {
    mod async_loaders;
    mod bulk;
    mod failure;
    mod loaders;
    mod moments;
    mod places;
    mod ready_policies;
    mod remembered;
    mod runtimes;
    mod threads;
}
