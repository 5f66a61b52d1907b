//! One of a limited number of places at which threads work.
//!
//! A thread that waits for a load does not work, and what it waits for may need a thread that has a
//! place. So it gives its place up before it waits: another thread may take it. When it waits no
//! longer, it takes a place again, if need be one more than there are: until threads end, none
//! starts.

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

/// If the calling thread works at places, it is at this stage from now on. Returns whether it has
/// been at the other one.
fn change(to: Stage) -> bool {
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
    let Ok(Some(overseer)) = changed else {
        return false;
    };
    overseer(to);
    true
}

/// The calling thread is about to wait for a load, or for a thread. If it works at a place, it
/// gives that up.
pub(crate) fn give_up() {
    change(Stage::Waits);
}

/// The calling thread waits no longer. If it has given up its place, it takes one again, and this
/// returns true.
pub(crate) fn take_again() -> bool {
    change(Stage::Works)
}
