//! One of a limited number of places at which threads work.
//!
//! What a thread waits for may need a thread that has a place. So it gives its place up before it
//! waits. When it waits no longer, it takes one again, if need be one more than there are: until
//! threads end, none starts.

use super::thread_local;
use std::cell::RefCell;
use std::sync::Arc;

/// Whether a thread has its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The thread works there.
    Works,
    /// The thread has given it up, and waits.
    Waits,
}

/// Hears that a thread which works for it has come to another stage.
pub(crate) type Overseer = Arc<dyn Fn(Stage)>;

thread_local! {
    static PLACE: RefCell<Option<(Overseer, Stage)>> = const { RefCell::new(None) };
}

/// Works at a place; says at which stage that has ended.
pub(crate) fn work_at(overseer: Overseer, work: impl FnOnce()) -> Stage {
    PLACE.with(|place| place.replace(Some((overseer, Stage::Works))));
    work();
    match PLACE.with(|place| place.take()) {
        Some((_, stage)) => stage,
        None => Stage::Waits,
    }
}

/// If the calling thread works at places, it is at this stage from now on.
fn change(to: Stage) {
    // The destructors of other thread-locals may wait, too.
    let changed = PLACE.try_with(|place| {
        let mut place = place.borrow_mut();
        let (overseer, stage) = place.as_mut()?;
        if *stage == to {
            return None;
        }
        *stage = to;
        Some(Arc::clone(overseer))
    });
    if let Ok(Some(overseer)) = changed {
        overseer(to);
    }
}

/// The calling thread is about to wait for a load, or for a thread. If it works at a place, it
/// gives that up.
pub(crate) fn give_up() {
    change(Stage::Waits);
}

/// The calling thread waits no longer. If it has given up its place, it takes one again.
pub(crate) fn take_again() {
    change(Stage::Works);
}

/// The stage of the calling thread, if it works at places. A wait that ends [returns](return_to) to
/// the stage at which it has begun: it may be in a poll of an executor that waits for something
/// else, too.
pub(crate) fn stage() -> Option<Stage> {
    let stage = PLACE.try_with(|place| place.borrow().as_ref().map(|(_, stage)| *stage));
    stage.unwrap_or_default()
}

/// The calling thread is at this stage again.
pub(crate) fn return_to(stage: Option<Stage>) {
    if let Some(stage) = stage {
        change(stage);
    }
}
