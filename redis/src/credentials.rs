//! Credentials that change.

use crate::codec::BoxError;
use crate::connection::caught;
use crate::error::NearError;
use redis::ConnectionInfo;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A user and a password, as a provider of
/// [`NearCacheBuilder::credentials`](crate::NearCacheBuilder::credentials) returns them.
///
/// ```
/// use wheelhouse_redis::Credentials;
///
/// let token = Credentials::new("near", "a token");
/// assert_eq!(format!("{token:?}"), "Credentials { user: \"near\", .. }");
/// ```
#[derive(Clone)]
pub struct Credentials {
    user: String,
    password: String,
}

impl Credentials {
    /// Makes credentials; `"default"` is the user of a server that knows a password alone.
    ///
    /// ```
    /// use wheelhouse_redis::Credentials;
    ///
    /// let password = Credentials::new("default", "secret");
    /// # drop(password);
    /// ```
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            user: user.into(),
            password: password.into(),
        }
    }
}

impl fmt::Debug for Credentials {
    /// The user, never the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<Credentials, BoxError>> + Send>>;

/// Asked for credentials at each connection.
#[derive(Clone)]
pub(crate) struct Provider(Arc<dyn Fn() -> Answer + Send + Sync>);

impl Provider {
    pub(crate) fn new<F>(provider: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, BoxError>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(provider())))
    }

    /// The connection with the credentials of now. The provider has `limit` to answer.
    pub(crate) async fn renew(
        &self,
        info: ConnectionInfo,
        address: &str,
        limit: Duration,
    ) -> Result<ConnectionInfo, NearError> {
        let asked = match timeout(limit, caught(async { (self.0)().await })).await {
            Ok(Some(asked)) => asked,
            Ok(None) => Err("it has panicked".into()),
            Err(_) => Err(format!("no answer within {limit:?}").into()),
        };
        let credentials = asked.map_err(|source| NearError::Credentials {
            server: address.to_string(),
            source: Arc::from(source),
        })?;
        let settings = info.redis_settings().clone();
        let settings = settings.set_username(credentials.user);
        Ok(info.set_redis_settings(settings.set_password(credentials.password)))
    }
}
