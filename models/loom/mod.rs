//! Models of the private races, run under every interleaving up to a bound on preemptions by
//! [loom](https://docs.rs/loom).
//!
//! Each model has two or three threads with a few operations each and tests one claim. The models
//! run the crate's own structures, on real nodes. Some show that a model can fail: [`weakened`] is
//! a wrong copy, and two modules of [`grace`] lack a fence. Run them with `ci/loom.sh`, which also
//! names the bound.
//!
//! loom remembers one last reader of an atomic. If a thread loads a value before it stores, it
//! hides an earlier reader, and loom skips interleavings of the two. So the thread that stores is
//! the model's main one, which loom runs first, and the thread that only reads is spawned.
//!
//! | model | claim |
//! |-------|-------|
//! | `ring::two_offers_against_a_drain…` | no event taken is lost or returned twice |
//! | `ring::two_offers_for_the_last_slot…` | exactly one gets the slot |
//! | `ring::an_offer_to_a_full_ring…` | it is refused, or finds a slot that was emptied |
//! | `ring::a_complete_drain_against_an_offer…` | the drain takes every event offered before it |
//! | `swap_batch::two_writers_against_a_swap…` | no event is lost, each writer's order is kept |
//! | `swap_batch::a_removal_takes_the_place…` | its event stands once, in order |
//! | `replacement::a_replacement_without_an_event…` | the entry names a whole node, in the end the map's |
//! | `replacement::a_writer_that_names_a_node…` | the event of an earlier node does not undo it |
//! | `wakes::a_request_for_soon_against_a_run…` | a run is arranged for an event that it missed |
//! | `wakes::two_requests_for_soon_against_a_run…` | the same for a second event |
//! | `wakes::a_request_by_a_deadline_against_a_run…` | the alarm is set for the earliest deadline |
//! | `wakes::requests_of_two_writers…` | the alarm is set for the earlier deadline |
//! | `node_life::extend_against_claim…` | exactly one of the two succeeds |
//! | `node_life::a_read_against_expiry…` | an entry is not expired after a successful extension |
//! | `node_life::two_reads…` | one of their deadlines stays, and its reader knows |
//! | `node_life::two_claims…` | the deadline is due afterwards |
//! | `node_life::extend_against_freeze_carries…` | each successful extension is carried over |
//! | `node_life::extend_against_freeze_of_a_node…` | the same for a node without a deadline |
//! | `node_life::claim_against_freeze…` | the deadline is due afterwards |
//! | `node_life::a_removal_against_a_read…` | a reader that sees Removed finds the slot empty |
//! | `node_life::a_move_of_both_deadlines…` | a read of the new one sees the new own one |
//! | `node_life::a_move_without_an_event…` | the pass sees the deadline, or an event comes |
//! | `node_life::publication_against_a_look_up…` | a reader finds the whole node or none |
//! | `moves::a_look_up_against_a_split_finds_what_moves` | an entry that moves is found |
//! | `moves::a_visit_against_a_split…` | an entry that moves is yielded once |
//! | `moves::a_look_up_amid_a_split…` | an entry is found between two steps of a move |
//! | `moves::a_visit_amid_a_split…` | an entry is yielded once between two steps of a move |
//! | `moves::a_removed_entry…` | it is not found in the abandoned array |
//! | `moves::a_look_up_against_a_merge…` | an entry that moves is found |
//! | `moves::a_visit_against_a_merge…` | an entry that moves is yielded once |
//! | `moves::a_replacement_against_a_split…` | its key is there once, with its value |
//! | `moves::an_insert_against_a_merge…` | its key is there once, in its group |
//! | `moves::a_look_up_against_an_overflow…` | the entry whose word becomes a link is found |
//! | `moves::a_look_up_against_a_removal…` | an entry that leaves the chain is found |
//! | `moves::a_visit_against_a_removal…` | an entry that leaves the chain is yielded once |
//! | `moves::a_look_up_against_a_split_finds_what_leaves…` | the same |
//! | `whole::a_get_against_a_replacing_insert…` | a key that is there is never missed |
//! | `whole::a_get_against_a_removal…` | the value or nothing |
//! | `whole::a_removal_against_a_look_up…` | an expired value is not returned |
//! | `whole::a_new_deadline_against_the_end…` | a key seen expired does not come back |
//! | `whole::two_inserts…` | one value stays, and one entry is counted |
//! | `delivery::two_posts…` | each is delivered once, by one thread at a time |
//! | `delivery::posts_in_order_against_a_delivery…` | they are delivered once, in order |
//! | `gate::a_thread_that_enters…` | after the close, no thread works and none enters |
//! | `gate::two_threads_that_enter…` | the same for two |
//! | `grace::a_reader_against_a_retirement…` | no reader uses a freed object |
//! | `grace::a_reader_that_comes_again…` | no reader uses a freed object |
//! | `grace::two_readers…` | the same |
//! | `grace::a_reader_with_two_pins…` | the same |
//! | `grace::a_new_thread…` | the same for a record registered meanwhile |
//! | `grace::a_reader_against_two_retirements…` | the same for both objects |
//! | `grace::a_check_on_a_third_thread…` | the same; fails without the fence before the check |
//! | `load::a_waiter_against_a_commit…` | it gets the value, or looks again |
//! | `load::a_waiter_against_a_failure…` | it leads, or looks again |
//! | `load::a_revocation_against_a_commit…` | the value is stored or the load revoked |
//! | `load::a_turn_against_a_revocation…` | the waiter wakes, even if the leader is stuck |
//! | `load::a_hand_over_against_a_revocation…` | the waiter leads, or looks again |
//! | `load::a_hand_over_against_a_look_for_a_cycle…` | a call never waits for itself |
//! | `load::a_waiter_that_leaves…` | the lead is passed on |
//! | `load::a_load_against_a_change_of_its_source…` | the load is found, or reads the new value |
//! | `latch::two_threads…` | there is one holder, and it sees what those before it wrote |
//! | `latch::three_threads…` | the same for three |
//! | `anchor::a_reading_against_a_renewal…` | it does not pass the clock, lags little, and never goes back |
//! | `anchor::two_renewals…` | the same for two threads that renew at a time |
//! | `freed::a_thread_that_waits…` | it sees what as many destructors did |
//! | `weakened::two_posts…` | must fail: a delivery without a second look |
//!
//! `ci/loom.sh` prints how many executions each takes.
#![allow(unsafe_code)]

mod anchor;
mod delivery;
mod freed;
mod gate;
mod grace;
mod latch;
mod load;
mod moves;
mod node_life;
mod replacement;
mod ring;
mod swap_batch;
mod wakes;
mod weakened;
mod whole;

use crate::node::{Columns, NewNode, NodePtr, Slab, Times};
use loom::model::Builder;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Preemptions per execution if the environment variable is not set.
const PREEMPTIONS: usize = 3;
/// Switching points of one execution; a model that reaches this many spins.
const BRANCHES: usize = 20_000;

/// Runs a model under every interleaving and prints how many there were.
fn explore<F: Fn() + Send + Sync + 'static>(model: F) {
    let mut builder = Builder::new();
    builder.preemption_bound.get_or_insert(PREEMPTIONS);
    builder.max_branches = BRANCHES;
    // A std atomic, not loom's: it counts across executions.
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let began = Instant::now();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let name = std::any::type_name::<F>();
    println!(
        "{}: {} executions in {:.1} s",
        name.trim_start_matches("wheelhouse::loom_models::")
            .trim_end_matches("::{{closure}}"),
        count.load(Ordering::Relaxed),
        began.elapsed().as_secs_f64()
    );
}

/// Atomics of loom that a constant can hold. The thread that uses one first makes it loom's, so a
/// model uses each before it starts its threads.
mod late {
    use std::ops::Deref;
    use std::sync::OnceLock;

    macro_rules! late {
        ($name:ident, $value:ty) => {
            #[derive(Debug)]
            pub(super) struct $name($value, OnceLock<loom::sync::atomic::$name>);

            impl $name {
                pub(super) const fn new(value: $value) -> Self {
                    Self(value, OnceLock::new())
                }
            }

            impl Deref for $name {
                type Target = loom::sync::atomic::$name;

                fn deref(&self) -> &Self::Target {
                    self.1
                        .get_or_init(|| loom::sync::atomic::$name::new(self.0))
                }
            }
        };
    }

    late!(AtomicBool, bool);
    late!(AtomicI64, i64);
    late!(AtomicU64, u64);
}

/// The nodes of the models.
type Node = NodePtr<u64, u64>;

/// A node whose key is its hash and its value, not yet published.
fn new_node(key: u64) -> NewNode<u64, u64> {
    NewNode::new(key, key, key, 1)
}

/// Owns a published node as long as the model runs: the node is dropped when every thread of the
/// model has been joined.
struct Owned(
    Node,
    #[expect(dead_code, reason = "keeps the node's memory")] Slab<u64, u64>,
);

impl Owned {
    fn new(key: u64, deadline: u64) -> Self {
        let mut slab = Slab::new(Columns::default());
        let times = Times {
            written: 0,
            deadline,
            own: deadline,
        };
        Self(
            slab.create(Columns::default(), &mut new_node(key), times),
            slab,
        )
    }
}
