//! Where time may come from: a source of the program's own, or one that a test moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A source of time, for caches that should not use the machine's clock.
///
/// Give one to the builder with `ticker`. Every lifetime of that cache is then measured by it, and
/// the cache no longer starts a background thread by default: the machine cannot know when a
/// foreign clock reaches a deadline.
///
/// Only differences between readings matter, and only differences below 2^63 ns (292 years) mean
/// anything. So the origin is free, and readings may wrap past [`u64::MAX`] to 0. A reading lower
/// than an earlier one is taken as time that ran backwards: nothing is removed early because of it,
/// and nothing panics. To stop time, return the same reading.
///
/// # Without a ticker
///
/// A cache that is given none reads the processor's time stamp counter where it runs at a constant
/// rate, and the monotonic clock of the operating system elsewhere. What to know about the former:
///
/// - The first cache of a process measures the rate of the counter. That keeps the building thread
///   busy, usually for less than a millisecond, at worst for 200 ms.
/// - The rate is good to some ten parts per million: against a wall clock a deadline one day away
///   may be about a second off.
/// - Whether time passes while the machine is suspended depends on its hardware.
///
/// # Examples
///
/// A clock in whole milliseconds that an event loop updates once a turn:
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use std::time::Duration;
/// use wheelhouse::{Cache, Ticker};
///
/// struct LoopTime(AtomicU64);
///
/// impl Ticker for LoopTime {
///     fn nanos(&self) -> u64 {
///         self.0.load(Relaxed) * 1_000_000
///     }
/// }
///
/// let time = Arc::new(LoopTime(AtomicU64::new(0)));
/// let cache: Cache<&str, u32> = Cache::builder()
///     .ticker(Arc::clone(&time))
///     .time_to_live(Duration::from_millis(20))
///     .build();
///
/// cache.insert("a", 1);
/// time.0.store(19, Relaxed);
/// assert_eq!(cache.get("a"), Some(1));
/// time.0.store(20, Relaxed);
/// assert_eq!(cache.get("a"), None);
/// ```
pub trait Ticker: Send + Sync + 'static {
    /// Returns the time in nanoseconds since an arbitrary fixed origin.
    ///
    /// Called on whichever thread uses the cache, often and concurrently. It must not call the
    /// cache it belongs to, since some readings are taken while the cache holds a lock.
    ///
    /// # Panics
    ///
    /// An implementation should not panic. If it does, the panic reaches whoever called the cache,
    /// or ends a background run, which is tried again after a second. Nothing is lost by it.
    ///
    /// # Cost
    ///
    /// Each operation on a cache with deadlines waits for this call, so it should take nanoseconds
    /// and never block.
    fn nanos(&self) -> u64;
}

impl<T: Ticker + ?Sized> Ticker for Arc<T> {
    #[inline]
    fn nanos(&self) -> u64 {
        (**self).nanos()
    }
}

impl<T: Ticker + ?Sized> Ticker for Box<T> {
    #[inline]
    fn nanos(&self) -> u64 {
        (**self).nanos()
    }
}

/// A clock that stands still until it is told to advance, for tests and simulations.
///
/// A clone shows and moves the same time, so keep one and give the other to the builder.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::{Cache, ManualTicker};
///
/// let time = ManualTicker::new();
/// let cache: Cache<&str, u32> = Cache::builder()
///     .ticker(time.clone())
///     .time_to_live(Duration::from_secs(60))
///     .build();
///
/// cache.insert("a", 1);
/// time.advance(Duration::from_secs(59));
/// assert_eq!(cache.get("a"), Some(1));
/// time.advance(Duration::from_secs(1));
/// assert_eq!(cache.get("a"), None);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualTicker {
    // A plain std atomic also under loom: the time of a model is its script, not one of the races
    // it explores.
    nanos: Arc<AtomicU64>,
}

impl ManualTicker {
    /// Creates a clock that stands at 0.
    ///
    /// # Examples
    ///
    /// ```
    /// use wheelhouse::{ManualTicker, Ticker};
    ///
    /// assert_eq!(ManualTicker::new().nanos(), 0);
    /// ```
    ///
    /// # Cost
    ///
    /// One allocation.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a clock that stands at `nanos` nanoseconds.
    ///
    /// A cache behaves the same from every origin; this is for tests which show that, above all
    /// just before the wrap.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{ManualTicker, Ticker};
    ///
    /// let time = ManualTicker::starting_at(u64::MAX);
    /// time.advance(Duration::from_nanos(3));
    /// assert_eq!(time.nanos(), 2);
    /// ```
    ///
    /// # Cost
    ///
    /// One allocation.
    #[must_use]
    pub fn starting_at(nanos: u64) -> Self {
        Self {
            nanos: Arc::new(AtomicU64::new(nanos)),
        }
    }

    /// Moves the time forward by `by`.
    ///
    /// Time wraps past [`u64::MAX`] nanoseconds to 0. A `by` of 2^64 ns (584 years) or more counts
    /// modulo 2^64 ns, and one of 2^63 ns or more looks to a cache like a step backwards.
    ///
    /// The cache itself does nothing yet: entries that are now due stay stored, unseen, until an
    /// operation or `run_pending_tasks` removes them.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{ManualTicker, Ticker};
    ///
    /// let time = ManualTicker::new();
    /// let shared = time.clone();
    /// time.advance(Duration::from_micros(7));
    /// assert_eq!(shared.nanos(), 7_000);
    /// ```
    ///
    /// # Cost
    ///
    /// One atomic addition.
    pub fn advance(&self, by: Duration) {
        // Truncation is the documented modulo. Release pairs with the load in `nanos`: whoever sees
        // the new time also sees what the advancing thread did before.
        self.nanos
            .fetch_add(by.as_nanos() as u64, Ordering::Release);
    }
}

impl Ticker for ManualTicker {
    #[inline]
    fn nanos(&self) -> u64 {
        // Pairs with `advance`.
        self.nanos.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_ticker_wraps_and_is_shared_by_its_clones() {
        let ticker = ManualTicker::starting_at(u64::MAX);
        let shared: Box<dyn Ticker> = Box::new(Arc::new(ticker.clone()));
        ticker.advance(Duration::from_nanos(1));
        assert_eq!(shared.nanos(), 0);
        ticker.advance(Duration::from_nanos(u64::MAX) + Duration::from_nanos(4));
        assert_eq!(shared.nanos(), 3);
    }
}
