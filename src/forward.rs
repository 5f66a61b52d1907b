//! A macro for methods that call the same method of another value.

/// Writes methods of `self` that call the same methods of another value. `then` converts each
/// answer.
macro_rules! forward {
    ($self:ident => $to:expr, $then:expr; $(
        fn $method:ident($($name:ident: $type:ty),*) -> $answer:ty;
    )*) => {$(
        fn $method(&$self, $($name: $type),*) -> $answer {
            $then($to.$method($($name),*))
        }
    )*};
}

pub(crate) use forward;
