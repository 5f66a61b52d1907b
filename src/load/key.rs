//! The forms of a key from which the key can be made.

use std::ffi::{CStr, OsStr};
use std::path::Path;

/// A form of a key by which an entry is looked up, and from which the key can be made after a miss.
///
/// The look-ups of a [`LoadingCache`](crate::LoadingCache) take such a form, and so does
/// [`lease_by_ref`](crate::Cache::lease_by_ref). The other `…_by_ref` methods of a cache make the
/// key by [`ToOwned`].
///
/// | form | keys |
/// |---|---|
/// | a type that can be cloned | itself |
/// | `str`, `[T]`, [`Path`], [`OsStr`], [`CStr`] | each type that is `From` a reference to it: `String`, `Arc<str>`, `Box<str>`, and those of other crates |
/// | a type of your own | implement this trait, beside [`Equivalent`](crate::Equivalent) |
///
/// ```
/// use std::sync::Arc;
/// use wheelhouse::{Cache, Equivalent, ToKey, loader_fn};
///
/// let lengths = Cache::builder()
///     .loading(loader_fn(|key: &Arc<str>| Ok::<usize, ()>(key.len())))
///     .build();
/// assert_eq!(lengths.get("ada"), Ok(3));
///
/// /// A key of two parts, looked up by two references.
/// #[derive(Clone, PartialEq, Eq, Hash)]
/// struct Place(String, String);
/// #[derive(PartialEq, Eq, Hash)]
/// struct PlaceRef<'a>(&'a str, &'a str);
///
/// impl Equivalent<Place> for PlaceRef<'_> {
///     fn equivalent(&self, key: &Place) -> bool {
///         self.0 == key.0 && self.1 == key.1
///     }
/// }
/// impl ToKey<Place> for PlaceRef<'_> {
///     fn to_key(&self) -> Place {
///         Place(self.0.to_string(), self.1.to_string())
///     }
/// }
///
/// let places = Cache::builder()
///     .loading(loader_fn(|place: &Place| Ok::<usize, ()>(place.1.len())))
///     .build();
/// assert_eq!(places.get(&PlaceRef("France", "Paris")), Ok(5));
/// ```
#[diagnostic::on_unimplemented(
    message = "a key of the type `{K}` cannot be made from `{Self}`",
    note = "look up by a reference to the key, or by a form that implements `ToKey<{K}>`"
)]
pub trait ToKey<K> {
    /// Makes the key.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use wheelhouse::ToKey;
    ///
    /// let key: Arc<str> = "ada".to_key();
    /// assert_eq!(&*key, "ada");
    /// ```
    fn to_key(&self) -> K;
}

impl<Q: ToOwned> ToKey<Q::Owned> for Q {
    #[inline]
    fn to_key(&self) -> Q::Owned {
        self.to_owned()
    }
}

/// The keys that can be made from a reference to a type without a size.
macro_rules! make_from {
    ($([$($param:ident)?] $form:ty;)*) => {$(
        impl<$($param,)? K: for<'a> From<&'a $form>> ToKey<K> for $form {
            #[inline]
            fn to_key(&self) -> K {
                self.into()
            }
        }
    )*};
}

make_from! {
    [] str;
    [T] [T];
    [] Path;
    [] OsStr;
    [] CStr;
}
