//! Which policies inherit `expire_after_read`, so that a cache need not ask them about reads.
//!
//! # How it works
//!
//! The provided `expire_after_read` leaves a note for its thread: whose method it is. The compiler
//! makes that method for a type, its keys and its values only if the type does not have one of its
//! own for them. So one call tells for good: if it leaves its own note, no call of this policy
//! about a read moves a deadline; if it does not, the policy has a method of its own. Another note
//! says nothing: a policy may call the method that another one inherits, or that it inherits itself
//! for other keys or values.

use std::any::{TypeId, type_name};
use std::cell::Cell;

/// A type, and the names of its keys and values: these may be borrowed, and have no `TypeId` then.
type Method = (TypeId, &'static str);

fn method<P: ?Sized + 'static, K, V>() -> Method {
    (TypeId::of::<P>(), type_name::<(K, V)>())
}

thread_local! {
    /// The provided method that has run last.
    static RAN: Cell<Option<Method>> = const { Cell::new(None) };
}

/// Leaves the note of `P` for these keys and values.
#[inline]
pub(super) fn note<P: ?Sized + 'static, K, V>() {
    RAN.set(Some(method::<P, K, V>()));
}

/// Calls `expire_after_read` of `P`, and says whether `P` inherits it.
pub(super) fn watch<P: 'static, K, V, R>(ask: impl FnOnce() -> R) -> (R, bool) {
    RAN.set(None);
    let answer = ask();
    (answer, RAN.take() == Some(method::<P, K, V>()))
}
