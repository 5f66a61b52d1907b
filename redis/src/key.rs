//! Keys as the server has them.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

/// A key that can be written as the bytes of a server's key, and read back from them.
///
/// The server names changed keys by their bytes, so the near cache must find the key again.
/// Implementations must be inverse: `from_bytes` of what `write_bytes` wrote is an equal key, and
/// different keys have different bytes. The near cache checks the first part on each load and
/// reports [`NearError::Key`](crate::NearError::Key), since a key that does not come back would
/// never be invalidated.
///
/// Implemented for strings, byte vectors, integers (as decimal text, as `INCR` has them), and
/// tuples of two to four keys: `("user".to_string(), 7)` is `user:7`. In all parts but the last,
/// `%` is written as `%25` and `:` as `%3A`.
///
/// ```
/// use wheelhouse_redis::NearKey;
///
/// #[derive(Clone, PartialEq, Eq, Hash, Debug)]
/// struct Product {
///     shop: u32,
///     id: u64,
/// }
///
/// impl NearKey for Product {
///     fn write_bytes(&self, out: &mut Vec<u8>) {
///         out.extend_from_slice(format!("{}:{}", self.shop, self.id).as_bytes());
///     }
///
///     fn from_bytes(bytes: &[u8]) -> Option<Self> {
///         let (shop, id) = std::str::from_utf8(bytes).ok()?.split_once(':')?;
///         Some(Product { shop: shop.parse().ok()?, id: id.parse().ok()? })
///     }
/// }
///
/// let mut bytes = Vec::new();
/// Product { shop: 7, id: 12 }.write_bytes(&mut bytes);
/// assert_eq!(bytes, b"7:12");
/// assert_eq!(Product::from_bytes(&bytes), Some(Product { shop: 7, id: 12 }));
/// ```
pub trait NearKey: Sized {
    /// Appends the bytes of the key.
    fn write_bytes(&self, out: &mut Vec<u8>);

    /// Reads the key back; `None` if these bytes are no key of this type.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

/// Keys that own what `$borrowed` borrows. `$read` makes that of the bytes.
macro_rules! owned_keys {
    ($borrowed:ty, $read:expr, $($key:ty),*) => {$(
        impl NearKey for $key {
            fn write_bytes(&self, out: &mut Vec<u8>) {
                let borrowed: &$borrowed = self;
                out.extend_from_slice(borrowed.as_ref());
            }

            fn from_bytes(bytes: &[u8]) -> Option<Self> {
                $read(bytes).map(Into::into)
            }
        }

        impl ToKey<$key> for &$borrowed {
            fn to_key(self) -> $key {
                self.into()
            }
        }
    )*};
}

macro_rules! integer_keys {
    ($($key:ty),*) => {$(
        impl NearKey for $key {
            fn write_bytes(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(self.to_string().as_bytes());
            }

            fn from_bytes(bytes: &[u8]) -> Option<Self> {
                let text = text(bytes)?;
                let key: Self = text.parse().ok()?;
                // "+7" and "007" are other keys of the server.
                (key.to_string() == text).then_some(key)
            }
        }
    )*};
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

owned_keys!(str, text, String, Box<str>, Arc<str>);
owned_keys!([u8], Some, Vec<u8>, Box<[u8]>, Arc<[u8]>);
integer_keys!(
    u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize
);

/// Appends `bytes` so that they contain no colon.
fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        match byte {
            b'%' => out.extend_from_slice(b"%25"),
            b':' => out.extend_from_slice(b"%3A"),
            other => out.push(*other),
        }
    }
}

/// The inverse of `escape`; `None` for what it never writes.
fn unescape(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len());
    while let Some((first, rest)) = bytes.split_first() {
        (bytes, _) = match first {
            b'%' if rest.starts_with(b"25") => (&rest[2..], out.push(b'%')),
            b'%' if rest.starts_with(b"3A") => (&rest[2..], out.push(b':')),
            b'%' => return None,
            other => (rest, out.push(*other)),
        };
    }
    Some(out)
}

macro_rules! tuple_keys {
    ($first:ident $(, $rest:ident)+) => {
        #[expect(non_snake_case, reason = "a part has the name of its type")]
        impl<$first: NearKey $(, $rest: NearKey)+> NearKey for ($first $(, $rest)+) {
            fn write_bytes(&self, out: &mut Vec<u8>) {
                let ($first $(, $rest)+) = self;
                let mut last = Vec::new();
                $first.write_bytes(&mut last);
                $(
                    escape(&last, out);
                    out.push(b':');
                    last.clear();
                    $rest.write_bytes(&mut last);
                )+
                out.extend_from_slice(&last);
            }

            fn from_bytes(bytes: &[u8]) -> Option<Self> {
                let parts = [stringify!($first) $(, stringify!($rest))+].len();
                let mut parts = bytes.splitn(parts, |byte| *byte == b':').peekable();
                let mut next = || {
                    let part = parts.next()?;
                    match parts.peek() {
                        Some(_) => unescape(part),
                        None => Some(part.to_vec()),
                    }
                };
                Some(($first::from_bytes(&next()?)? $(, $rest::from_bytes(&next()?)?)+))
            }
        }
    };
}

tuple_keys!(A, B);
tuple_keys!(A, B, C);
tuple_keys!(A, B, C, D);

/// What [`NearCache::set`](crate::NearCache::set) takes as the key: a key, a reference to one, or
/// text or bytes where the key is one of their owned forms.
///
/// ```
/// use std::sync::Arc;
/// use wheelhouse_redis::ToKey;
///
/// let keys: [String; 3] = ["a".to_key(), (&"a".to_string()).to_key(), "a".to_string().to_key()];
/// assert_eq!(keys, ["a", "a", "a"]);
/// let _: Arc<str> = "a".to_key();
/// let _: u64 = 7.to_key();
/// ```
pub trait ToKey<K> {
    /// The key.
    fn to_key(self) -> K;
}

impl<K: NearKey> ToKey<K> for K {
    fn to_key(self) -> K {
        self
    }
}

impl<K: NearKey + Clone> ToKey<K> for &K {
    fn to_key(self) -> K {
        self.clone()
    }
}

/// What a near cache needs its keys to do.
pub(crate) trait Key: NearKey + Hash + Eq + Clone + Send + Sync + 'static {}
impl<T: NearKey + Hash + Eq + Clone + Send + Sync + 'static> Key for T {}

/// What a near cache needs its values to do.
pub(crate) trait Val: Clone + Send + Sync + 'static {}
impl<T: Clone + Send + Sync + 'static> Val for T {}

/// What a near cache needs its hasher to do.
pub(crate) trait Hasher: BuildHasher + Send + Sync + 'static {}
impl<T: BuildHasher + Send + Sync + 'static> Hasher for T {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    fn back<K: NearKey + PartialEq + std::fmt::Debug>(key: K, bytes: &[u8]) {
        let space = Settings {
            key_prefix: b"app:".to_vec(),
            ..Settings::default()
        };
        let written = space.bytes_of(&key);
        assert_eq!(written, [b"app:", bytes].concat());
        assert_eq!(space.key::<K>(&written), Some(key));
    }

    #[test]
    fn keys_come_back_from_their_bytes() {
        back(String::from("ada"), b"ada");
        back(Arc::<str>::from(""), b"");
        back(vec![0u8, 255, 13, 10], &[0, 255, 13, 10]);
        back(u64::MAX, b"18446744073709551615");
        back(i32::MIN, b"-2147483648");
    }

    #[test]
    fn tuples_are_keys() {
        back((String::from("user"), 7u64), b"user:7");
        back((1u8, String::from("a:b%")), b"1:a:b%");
        back(
            (String::from("a:b"), String::from("%c"), -1i8),
            b"a%3Ab:%25c:-1",
        );
        let inner = (String::from("a"), 1u8);
        back((inner, 2u8, vec![b':'], 4u8), b"a%3A1:2:%3A:4");
        let space = Settings::default();
        for other in ["", "a", "a%:1", "a%3a:1", "a:1:2", "a:x"] {
            let key = space.key::<(String, u8)>(other.as_bytes());
            assert_eq!(key, None, "{other}");
        }
    }

    #[test]
    fn bytes_of_other_keys_are_no_keys() {
        let space = Settings {
            key_prefix: b"app:".to_vec(),
            ..Settings::default()
        };
        assert_eq!(space.key::<String>(b"other:ada"), None);
        assert_eq!(space.key::<String>(b"ap"), None);
        assert_eq!(space.key::<String>(b"app:\xff"), None);
        for other in ["app:", "app:+7", "app:007", "app:-0", "app:7 ", "app:300"] {
            assert_eq!(space.key::<u8>(other.as_bytes()), None, "{other}");
        }
    }
}
