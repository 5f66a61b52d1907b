//! Which policies inherit `expire_after_read`, so that a cache need not ask them about reads.
//!
//! # How it works
//!
//! The provided `expire_after_read` leaves a note for its thread: of which implementation it is the
//! method, that is for which policy, keys and values. The compiler makes that method only for an
//! implementation that does not have one of its own. So one call tells for good: if it leaves the
//! note of its own implementation, no call of this policy about a read moves a deadline; if it does
//! not, the policy has a method of its own. Another note says nothing: a policy that wraps another
//! one may call the method that the inner one inherits, and a policy for two types of values may
//! inherit the method for one of them.
//!
//! Keys and values need not be `'static`, so their types have no [`TypeId`]; their names are
//! compared instead.

use std::any::{TypeId, type_name};
use std::cell::Cell;

/// An implementation of `Expiry`: the policy, and the name of the types of key and value.
type Implementation = (TypeId, &'static str);

thread_local! {
    /// The implementation whose provided method has run last.
    static RAN: Cell<Option<Implementation>> = const { Cell::new(None) };
}

fn implementation<P: ?Sized + 'static, K, V>() -> Implementation {
    (TypeId::of::<P>(), type_name::<(K, V)>())
}

/// Leaves the note of `P` for these keys and values.
#[inline]
pub(super) fn note<P: ?Sized + 'static, K, V>() {
    RAN.set(Some(implementation::<P, K, V>()));
}

/// Calls `expire_after_read` of `P` for these keys and values, and says whether `P` inherits it.
pub(super) fn watch<P: 'static, K, V, R>(ask: impl FnOnce() -> R) -> (R, bool) {
    RAN.set(None);
    let answer = ask();
    (answer, RAN.take() == Some(implementation::<P, K, V>()))
}
