//! Pins against grace periods: no reader uses an object that was freed after one.
//!
//! The other models skip the epochs that caches pin (`sync/mod.rs`, `epoch_atomics`). So the
//! protocol is compiled here once more, from the same file, on loom's atomics: unchanged in
//! `right`, and in two more modules where it lacks one of its two fences. Without a fence, an
//! access after it may happen before an access in front of it, and a reader uses a freed object.

mod grace_without_fence;
mod pin_without_fence;
mod right;

use super::explore;

/// Explores a model with the fences of a module.
macro_rules! explore_on {
    ($doors:ident, $model:ident) => {
        explore(|| $doors::models::$model())
    };
}

#[test]
fn a_reader_against_a_retirement_uses_nothing_freed() {
    explore_on!(right, a_reader);
}

#[test]
fn a_reader_that_comes_again_against_a_retirement_uses_nothing_freed() {
    explore_on!(right, a_reader_twice);
}

#[test]
fn two_readers_against_a_retirement_use_nothing_freed() {
    explore_on!(right, two_readers);
}

#[test]
fn a_reader_with_two_pins_against_a_retirement_uses_nothing_freed() {
    explore_on!(right, a_reader_with_two_pins);
}

#[test]
fn a_new_thread_against_a_retirement_uses_nothing_freed() {
    explore_on!(right, a_new_thread);
}

#[test]
fn a_reader_against_two_retirements_uses_nothing_freed() {
    explore_on!(right, two_retirements);
}

#[test]
fn retirements_on_two_threads_free_nothing_in_use() {
    explore_on!(right, retirements_on_two_threads);
}

#[test]
#[should_panic(expected = "Concurrent read and write accesses")]
fn retirements_on_two_threads_must_fail_without_a_fence_before_the_check() {
    explore_on!(grace_without_fence, retirements_on_two_threads);
}

#[test]
fn a_check_on_a_third_thread_uses_nothing_freed() {
    explore_on!(right, a_check_on_a_third_thread);
}

#[test]
#[should_panic(expected = "Concurrent read and write accesses")]
fn a_check_on_a_third_thread_must_fail_without_a_fence_before_the_check() {
    explore_on!(grace_without_fence, a_check_on_a_third_thread);
}

#[test]
#[should_panic(expected = "Concurrent read and write accesses")]
fn a_reader_against_a_retirement_must_fail_without_a_fence_in_the_pin() {
    explore_on!(pin_without_fence, a_reader);
}

#[test]
#[should_panic(expected = "Concurrent read and write accesses")]
fn a_reader_against_a_retirement_must_fail_without_a_fence_before_the_check() {
    explore_on!(grace_without_fence, a_reader);
}
