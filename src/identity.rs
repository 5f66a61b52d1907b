//! The identity of a type that need not be `'static`.
#![allow(unsafe_code)]

use std::any::TypeId;
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
    // called: it reads nothing of the object, and returns a number that holds for every lifetime,
    // since lifetimes do not exist when the program runs.
    let of_every_lifetime = unsafe {
        std::mem::transmute::<&dyn Identified, &(dyn Identified + 'static)>(of_some_lifetime)
    };
    of_every_lifetime.id()
}

#[cfg(test)]
mod tests;
