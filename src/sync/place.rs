//! One of a limited number of places at which threads work.
//!
//! A thread that waits for a load does not work, and what it waits for may need a thread that has a
//! place. So it gives its place up before it waits: another thread may take it. When it waits no
//! longer, it takes a place again, if need be one more than there are: until threads end, none
//! starts.

use super::thread_local;
use std::cell::RefCell;
use std::sync::Arc;

/// The place of a thread, as the thread knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The thread works there.
    Works,
    /// Its work is done but for what follows the end: it is free soon.
    Ends,
    /// The thread has given it up while it worked, and waits.
    Waits,
    /// The thread has given it up.
    Left,
}

/// Those who share the places out.
pub(crate) trait Places {
    /// A thread at work is free soon.
    fn free_soon(&self);

    /// A thread that has waited works on: it takes a place, if need be one more than there are.
    fn take_again(&self);

    /// A thread that was at this stage waits: another one may work at its place.
    fn give_up(self: Arc<Self>, stage: Stage);
}

thread_local! {
    static PLACE: RefCell<Option<(Arc<dyn Places>, Stage)>> = const { RefCell::new(None) };
}

/// Works at a place; says at which stage that has ended.
pub(crate) fn work_at(places: Arc<dyn Places>, work: impl FnOnce()) -> Stage {
    PLACE.with(|place| place.replace(Some((places, Stage::Works))));
    work();
    match PLACE.with(|place| place.take()) {
        Some((_, stage)) => stage,
        None => Stage::Left,
    }
}

/// Moves the calling thread from the stage at which it is to the one that follows, if it works at a
/// place. Returns the stage before.
fn change(follows: impl FnOnce(Stage) -> Stage) -> Option<(Arc<dyn Places>, Stage)> {
    // The destructors of other thread-locals may wait, too.
    let changed = PLACE.try_with(|place| {
        let mut place = place.borrow_mut();
        let (places, stage) = place.as_mut()?;
        let before = *stage;
        *stage = follows(before);
        Some((Arc::clone(places), before))
    });
    changed.unwrap_or_default()
}

/// The calling thread is about to wait for a load, or for a thread. If it works at a place, it
/// gives that up.
pub(crate) fn give_up() {
    let changed = change(|stage| match stage {
        Stage::Works | Stage::Waits => Stage::Waits,
        Stage::Ends | Stage::Left => Stage::Left,
    });
    if let Some((places, before @ (Stage::Works | Stage::Ends))) = changed {
        places.give_up(before);
    }
}

/// The calling thread waits no longer. If it has given up the place at which it worked, it takes
/// one again.
pub(crate) fn take_again() {
    let changed = change(|stage| match stage {
        Stage::Waits => Stage::Works,
        stage => stage,
    });
    if let Some((places, Stage::Waits)) = changed {
        places.take_again();
    }
}

/// The work of the calling thread is done but for what follows the end. If it works at a place,
/// that is free soon.
pub(crate) fn free_soon() {
    let changed = change(|stage| match stage {
        Stage::Works | Stage::Ends => Stage::Ends,
        Stage::Waits | Stage::Left => Stage::Left,
    });
    if let Some((places, Stage::Works)) = changed {
        places.free_soon();
    }
}
