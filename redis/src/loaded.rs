//! What a load returns.

use std::time::Duration;

/// A value that a load has made, and the life that it has chosen for the value, if it has.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse_redis::Loaded;
///
/// let token = Loaded::new("a token").expires_in(Duration::from_secs(300));
/// assert_ne!(token, "a token".into());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded<V> {
    pub(crate) value: V,
    /// `None`: the life that the call names.
    pub(crate) life: Option<Option<Duration>>,
}

impl<V> Loaded<V> {
    /// Makes a result whose life is the one that the call names.
    ///
    /// ```
    /// use wheelhouse_redis::Loaded;
    ///
    /// assert_eq!(Loaded::new(7), 7.into());
    /// ```
    pub fn new(value: V) -> Self {
        Self { value, life: None }
    }

    /// Sets the life of the value. Zero: the calls that wait get the value, and it is kept nowhere.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_redis::Loaded;
    ///
    /// let token = Loaded::new("a token").expires_in(Duration::from_secs(300));
    /// # drop(token);
    /// ```
    #[must_use]
    pub fn expires_in(mut self, life: Duration) -> Self {
        self.life = Some(Some(life));
        self
    }

    /// Gives the value no deadline.
    ///
    /// ```
    /// let constant = wheelhouse_redis::Loaded::new(7).never_expires();
    /// # _ = constant;
    /// ```
    #[must_use]
    pub fn never_expires(mut self) -> Self {
        self.life = Some(None);
        self
    }
}

impl<V> From<V> for Loaded<V> {
    fn from(value: V) -> Self {
        Self::new(value)
    }
}
