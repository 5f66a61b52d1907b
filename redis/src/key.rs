//! Keys as the server has them.

use std::sync::Arc;

/// A key that can be written as the bytes of a server's key, and read back from them.
///
/// The server names changed keys by their bytes, so the near cache must find the key again.
/// Implementations must be inverse: `from_bytes` of what `write_bytes` wrote is an equal key, and
/// different keys have different bytes. The near cache checks the first part on each load and
/// reports [`NearError::Key`](crate::NearError::Key), since a key that does not come back would
/// never be invalidated.
///
/// Implemented for strings, byte vectors and integers (as decimal text, as `INCR` has them).
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

macro_rules! text_keys {
    ($($key:ty),*) => {$(
        impl NearKey for $key {
            fn write_bytes(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(self.as_bytes());
            }

            fn from_bytes(bytes: &[u8]) -> Option<Self> {
                std::str::from_utf8(bytes).ok().map(Into::into)
            }
        }
    )*};
}

macro_rules! byte_keys {
    ($($key:ty),*) => {$(
        impl NearKey for $key {
            fn write_bytes(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(self);
            }

            fn from_bytes(bytes: &[u8]) -> Option<Self> {
                Some(bytes.into())
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
                let text = std::str::from_utf8(bytes).ok()?;
                let key: Self = text.parse().ok()?;
                // "+7" and "007" are other keys of the server.
                (key.to_string() == text).then_some(key)
            }
        }
    )*};
}

text_keys!(String, Box<str>, Arc<str>);
byte_keys!(Vec<u8>, Box<[u8]>, Arc<[u8]>);
integer_keys!(
    u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize
);

/// The keys of one near cache: a prefix, then the key's own bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeySpace {
    prefix: Vec<u8>,
}

impl KeySpace {
    pub(crate) fn new(prefix: Vec<u8>) -> Self {
        Self { prefix }
    }

    /// The bytes of a key as the server has them.
    pub(crate) fn bytes<K: NearKey>(&self, key: &K) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.prefix.len() + 24);
        bytes.extend_from_slice(&self.prefix);
        key.write_bytes(&mut bytes);
        bytes
    }

    /// The key of these bytes, if they are a key of this near cache.
    pub(crate) fn key<K: NearKey>(&self, bytes: &[u8]) -> Option<K> {
        K::from_bytes(bytes.strip_prefix(self.prefix.as_slice())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back<K: NearKey + PartialEq + std::fmt::Debug>(key: K, bytes: &[u8]) {
        let space = KeySpace::new(b"app:".to_vec());
        let written = space.bytes(&key);
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
    fn bytes_of_other_keys_are_no_keys() {
        let space = KeySpace::new(b"app:".to_vec());
        assert_eq!(space.key::<String>(b"other:ada"), None);
        assert_eq!(space.key::<String>(b"ap"), None);
        assert_eq!(space.key::<String>(b"app:\xff"), None);
        for other in ["app:", "app:+7", "app:007", "app:-0", "app:7 ", "app:300"] {
            assert_eq!(space.key::<u8>(other.as_bytes()), None, "{other}");
        }
    }
}
