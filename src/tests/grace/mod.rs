//! Pins against grace periods: what is freed after one is in nobody's hands.
//!
//! The other models step over the epochs that caches pin (`sync/mod.rs`, `of_epochs`). So the
//! protocol is compiled here once more, from the same file, on loom's atomics: as it is in `right`,
//! and in two modules on doors that each lack one of its fences. What comes after a fence can then
//! be done before what comes before it, and the object is used after it was freed.

mod grace_without_fence;
mod pin_without_fence;
mod right;

use super::explore;

/// A model on the doors of the module that names it.
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
#[should_panic(expected = "Concurrent read and write accesses")]
fn a_reader_against_a_retirement_must_fail_without_a_fence_in_the_pin() {
    explore_on!(pin_without_fence, a_reader);
}

#[test]
#[should_panic(expected = "Concurrent read and write accesses")]
fn a_reader_against_a_retirement_must_fail_without_a_fence_before_the_look() {
    explore_on!(grace_without_fence, a_reader);
}
