//! Which policies inherit `expire_after_read`, so that a cache need not ask them about reads.
//!
//! # How it works
//!
//! The provided `expire_after_read` leaves a note for its thread: of which type it is the method.
//! The compiler makes that method for a type only if the type does not have one of its own. So one
//! call tells for good: if it leaves the note of its own type, no call of this policy about a read
//! moves a deadline; if it does not, the policy has a method of its own. A note of another type
//! says nothing: a policy that wraps another one may call the method that the inner one inherits.

use std::any::TypeId;
use std::cell::Cell;

thread_local! {
    /// The type whose provided method has run last.
    static RAN: Cell<Option<TypeId>> = const { Cell::new(None) };
}

/// Leaves the note of `P`.
#[inline]
pub(super) fn note<P: ?Sized + 'static>() {
    RAN.set(Some(TypeId::of::<P>()));
}

/// Calls `expire_after_read` of `P`, and says whether `P` inherits it.
pub(super) fn watch<P: 'static, R>(ask: impl FnOnce() -> R) -> (R, bool) {
    RAN.set(None);
    let answer = ask();
    (answer, RAN.take() == Some(TypeId::of::<P>()))
}
