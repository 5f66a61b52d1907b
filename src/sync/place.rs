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
    /// The thread has given it up, and waits.
    Waits,
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
        None => Stage::Waits,
    }
}

/// The place of the calling thread and its stage, if it has one at one of these stages. It is at
/// the stage `next` from now on.
fn change(from: &[Stage], next: Stage) -> Option<(Arc<dyn Places>, Stage)> {
    // The destructors of other thread-locals may wait, too.
    let changed = PLACE.try_with(|place| {
        let mut place = place.borrow_mut();
        let (places, stage) = place.as_mut()?;
        let before = *stage;
        if !from.contains(&before) {
            return None;
        }
        *stage = next;
        Some((Arc::clone(places), before))
    });
    changed.unwrap_or_default()
}

/// The calling thread is about to wait for a load, or for a thread. If it works at a place, it
/// gives that up.
pub(crate) fn give_up() {
    if let Some((places, before)) = change(&[Stage::Works, Stage::Ends], Stage::Waits) {
        places.give_up(before);
    }
}

/// The calling thread waits no longer. If it has given up its place, it takes one again.
pub(crate) fn take_again() {
    if let Some((places, _)) = change(&[Stage::Waits], Stage::Works) {
        places.take_again();
    }
}

/// The work of the calling thread is done but for what follows the end. If it works at a place,
/// that is free soon.
pub(crate) fn free_soon() {
    if let Some((places, _)) = change(&[Stage::Works], Stage::Ends) {
        places.free_soon();
    }
}
