//! How values become bytes, and bytes values.
//!
//! The near cache keeps decoded values, so a hit never runs the codec.

use std::error::Error;

/// An error of a codec, before it is shared.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Turns values into the bytes that the server holds, and back.
///
/// A codec runs on the task that reads or writes, with no lock held. It may panic: the call
/// panics, and the key stays usable.
///
/// ```
/// use wheelhouse_redis::codec::{BoxError, Codec};
///
/// /// Numbers as decimal text, as `INCR` has them.
/// struct Decimal;
///
/// impl Codec<i64> for Decimal {
///     fn encode(&self, value: &i64) -> Result<Vec<u8>, BoxError> {
///         Ok(value.to_string().into_bytes())
///     }
///
///     fn decode(&self, bytes: &[u8]) -> Result<i64, BoxError> {
///         Ok(std::str::from_utf8(bytes)?.parse()?)
///     }
/// }
///
/// assert_eq!(Decimal.decode(&Decimal.encode(&-7).unwrap()).unwrap(), -7);
/// ```
pub trait Codec<V>: Send + Sync + 'static {
    /// The bytes of a value.
    ///
    /// # Errors
    ///
    /// What prevents it; the caller of `set` gets it as
    /// [`NearError::Encode`](crate::NearError::Encode).
    fn encode(&self, value: &V) -> Result<Vec<u8>, BoxError>;

    /// The value of these bytes.
    ///
    /// # Errors
    ///
    /// What prevents it; the caller of `get` gets it as
    /// [`NearError::Decode`](crate::NearError::Decode). Nothing is kept then.
    fn decode(&self, bytes: &[u8]) -> Result<V, BoxError>;
}

/// JSON text, by `serde_json`. The default codec.
///
/// ```
/// use wheelhouse_redis::codec::{Codec, Json};
///
/// let bytes = Json.encode(&vec![1, 2]).unwrap();
/// assert_eq!(bytes, b"[1,2]");
/// assert_eq!(Codec::<Vec<i32>>::decode(&Json, &bytes).unwrap(), [1, 2]);
/// ```
#[cfg(feature = "json")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Json;

#[cfg(feature = "json")]
impl<V: serde::Serialize + serde::de::DeserializeOwned> Codec<V> for Json {
    fn encode(&self, value: &V) -> Result<Vec<u8>, BoxError> {
        Ok(serde_json::to_vec(value)?)
    }

    fn decode(&self, bytes: &[u8]) -> Result<V, BoxError> {
        Ok(serde_json::from_slice(bytes)?)
    }
}

/// The compact binary format of the crate `postcard`.
///
/// ```
/// use wheelhouse_redis::codec::{Codec, Postcard};
///
/// let bytes = Postcard.encode(&(7u8, true)).unwrap();
/// assert_eq!(bytes, [7, 1]);
/// assert_eq!(Codec::<(u8, bool)>::decode(&Postcard, &bytes).unwrap(), (7, true));
/// ```
#[cfg(feature = "postcard")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Postcard;

#[cfg(feature = "postcard")]
impl<V: serde::Serialize + serde::de::DeserializeOwned> Codec<V> for Postcard {
    fn encode(&self, value: &V) -> Result<Vec<u8>, BoxError> {
        Ok(postcard::to_stdvec(value)?)
    }

    fn decode(&self, bytes: &[u8]) -> Result<V, BoxError> {
        Ok(postcard::from_bytes(bytes)?)
    }
}

/// The bytes as they are, for values that hold bytes: `Vec<u8>`, `Arc<[u8]>` and the like.
///
/// ```
/// use std::sync::Arc;
/// use wheelhouse_redis::codec::{Bytes, Codec};
///
/// let value: Arc<[u8]> = Bytes.decode(b"ada").unwrap();
/// assert_eq!(Bytes.encode(&value).unwrap(), b"ada");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Bytes;

impl<V: AsRef<[u8]> + for<'a> From<&'a [u8]>> Codec<V> for Bytes {
    fn encode(&self, value: &V) -> Result<Vec<u8>, BoxError> {
        Ok(value.as_ref().to_vec())
    }

    fn decode(&self, bytes: &[u8]) -> Result<V, BoxError> {
        Ok(V::from(bytes))
    }
}

/// The codec of a builder that was given none.
#[cfg(feature = "json")]
pub type DefaultCodec = Json;

/// The codec of a builder that was given none.
#[cfg(not(feature = "json"))]
pub type DefaultCodec = Bytes;
