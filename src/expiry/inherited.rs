//! Which policies inherit `expire_after_read`, so that a cache need not ask them about reads.
//!
//! # How it works
//!
//! The trait's default `expire_after_read` writes a thread-local note with the type of the policy
//! and the names of the types of key and value. A policy that overrides the method does not run the
//! default. So one call tells the two apart. If the note names this policy with these types, the
//! policy uses the default, and no read moves a deadline. If not, the policy overrides the method.
//! The note has to name all types: a policy may call the default method of a policy that it wraps,
//! and a policy for two types of values may override the method for one of them only.
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
