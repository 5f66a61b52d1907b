//! The identity of a type that need not be `'static`; and whether a method of a trait is the one
//! that the trait provides.
#![allow(unsafe_code)]

use std::any::TypeId;
use std::cell::Cell;
use std::marker::PhantomData;

/// Identifies a type. Types that differ in lifetimes alone count as one: they cannot have different
/// implementations of a trait.
#[inline]
pub(crate) fn id_of<T>() -> TypeId {
    trait Identified {
        fn id(&self) -> TypeId
        where
            Self: 'static;
    }

    impl<T> Identified for PhantomData<T> {
        #[inline]
        fn id(&self) -> TypeId
        where
            Self: 'static,
        {
            TypeId::of::<T>()
        }
    }

    let marker = PhantomData::<T>;
    let of_some_lifetime: &dyn Identified = &marker;
    // SAFETY: only the lifetime in the type of the object changes. `id` is the one method that is
    // called. It reads nothing of the object, and returns a number that holds for every lifetime: a
    // program that runs has none.
    let of_every_lifetime = unsafe {
        std::mem::transmute::<&dyn Identified, &(dyn Identified + 'static)>(of_some_lifetime)
    };
    of_every_lifetime.id()
}

thread_local! {
    /// The implementation whose provided method has run last: its type, and one that tells the
    /// trait, the keys and the values apart.
    static PROVIDED: Cell<Option<(TypeId, TypeId)>> = const { Cell::new(None) };
}

/// Notes that a method that a trait provides has run for `P`. `T` tells the trait and its
/// parameters apart: a type that implements the trait for two types of values may override the
/// method for one of them only.
#[inline]
pub(crate) fn note_provided<P: ?Sized + 'static, T>() {
    PROVIDED.set(Some((TypeId::of::<P>(), id_of::<T>())));
}

/// Whether `P` has the provided method, after this thread has called that method of a `P`. (One
/// that overrides it may have called that of a value that it wraps.) A note of an earlier call says
/// so too, since it names an implementation, which no call changes.
#[inline]
pub(crate) fn is_provided<P: ?Sized + 'static, T>() -> bool {
    PROVIDED.get() == Some((TypeId::of::<P>(), id_of::<T>()))
}

#[cfg(test)]
mod tests;
