//! Sources of time that a program or a test supplies.

use crate::atomic64::AtomicU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A source of time, for caches that should not use the machine's clock.
///
/// Give one to the builder with `ticker`. The cache then measures every lifetime by it. Such a
/// cache starts no background thread by default, since the cache cannot know when the ticker's time
/// reaches a deadline.
///
/// [`ManualTicker`] is a clock that a test moves. [`ticker_fn`] makes a ticker from a closure, such
/// as one that reads tokio's paused clock. With the cargo feature `quanta`, `quanta::Clock` is a
/// ticker, its mock included, and `QuantaRecent` reads quanta's recent time.
///
/// Only differences between readings matter, and only differences below 292 years have a meaning.
/// So the origin is free, and readings may wrap past [`u64::MAX`] to 0. A cache takes a reading
/// lower than an earlier one as time that ran backwards: it removes nothing early because of that,
/// and it does not panic. To stop time, return the same reading.
///
/// The instants of a cache begin at the moment of the machine's clock at which the cache was built,
/// and then move as the ticker does. So each cache has instants of its own, also on a shared
/// ticker. Where a value moves from one cache to another, pass on the time that it has left, and
/// not the instant of its end.
///
/// # Without a ticker
///
/// A cache without a ticker measures time by the program's monotonic clock, the one behind
/// [`Instant`](std::time::Instant).
///
/// - **Agreement with `Instant::now()`.** The instants that an [`Expiry`](crate::Expiry) is told
///   are at most 50 µs earlier than `Instant::now()` and never later, and in each thread they never
///   go back. A deadline is a point of the same clock. So an entry is gone within 50 µs of its
///   deadline, however far away that was, and from the first moment of the process on.
/// - **Look-ups.** A look-up that finds an entry with a deadline first asks a coarse clock of the
///   operating system, which shows the time of the last timer interrupt (Linux, Android). If the
///   deadline is more than 0.1 s after that, the entry is live. Else the look-up reads the exact
///   clock. Calls that read the exact clock compare the two now and then. If the coarse clock lags
///   by more than 50 ms, or its reading is not cheap, the process uses the exact clock alone.
/// - **A suspended machine.** While a machine is suspended, `Instant::now()` stands still on some
///   systems (Linux, macOS) and continues on others (Windows). Deadlines do the same: on Linux and
///   macOS, the time of a suspension does not count. If a hypervisor stops a virtual machine and
///   its clock runs on, a look-up may return an entry that fell due meanwhile, until the first
///   timer interrupt after the stop.
/// - **A clock that is slewed.** The operating system may run its monotonic clock a little faster
///   or slower for a while, to correct it. Deadlines and instants follow it together.
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
    /// Every thread that uses the cache calls this, often and concurrently. It must not call its
    /// own cache, since the cache takes some readings while it holds a lock.
    ///
    /// # Panics
    ///
    /// An implementation should not panic. If it does, the panic reaches the caller of the cache,
    /// or ends a background run, which the cache tries again after a second. No event is lost.
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

/// Makes a [`Ticker`] from a closure that returns the time in nanoseconds since a fixed origin.
///
/// # Panics
///
/// None of its own. A panic in the closure is one in [`Ticker::nanos`].
///
/// # Cost
///
/// A call of the closure for each reading.
///
/// # Examples
///
/// Tests on tokio's paused clock: the cache follows the runtime's time, and no test sleeps. A
/// [recipe](https://github.com/wheelhouse-rs/wheelhouse/blob/main/docs/recipes.md) also removes
/// what is due, by an [`Alarm`](crate::Alarm) on a timer of the runtime.
///
/// ```
/// use std::time::Duration;
/// use tokio::runtime::Handle;
/// use tokio::time::{Instant, sleep};
/// use wheelhouse::{Cache, ticker_fn};
///
/// #[tokio::main(flavor = "current_thread", start_paused = true)]
/// async fn main() {
///     let runtime = Handle::current();
///     let start = Instant::now();
///     let time = ticker_fn(move || {
///         // A thread outside of the runtime would read the real time.
///         let _inside = runtime.enter();
///         start.elapsed().as_nanos() as u64
///     });
///     let cache: Cache<&str, u32> = Cache::builder().ticker(time).build();
///
///     cache.insert_with_ttl("ada", 1815, Duration::from_secs(60));
///     sleep(Duration::from_secs(59)).await;
///     assert_eq!(cache.get("ada"), Some(1815));
///     sleep(Duration::from_secs(1)).await;
///     assert_eq!(cache.get("ada"), None);
/// }
/// ```
pub fn ticker_fn(nanos: impl Fn() -> u64 + Send + Sync + 'static) -> impl Ticker {
    TickerFn(nanos)
}

/// The ticker that [`ticker_fn`] makes.
struct TickerFn<F>(F);

impl<F: Fn() -> u64 + Send + Sync + 'static> Ticker for TickerFn<F> {
    #[inline]
    fn nanos(&self) -> u64 {
        (self.0)()
    }
}

/// A clock that a test or a simulation moves by hand.
///
/// A clone shows and moves the same time. Keep one and give the other to the builder.
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
    // An atomic of the standard library also under loom: a model's script sets the time, so it is
    // not one of the races that loom explores.
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
    /// A cache behaves the same from every origin. Use this to test that, above all just before the
    /// wrap.
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
    /// Time wraps past [`u64::MAX`] nanoseconds to 0. A `by` of 584 years or more wraps in the same
    /// way, and one of 292 years or more looks to a cache like a step backwards.
    ///
    /// This removes nothing by itself. Entries that are now due are no longer visible; an operation
    /// or `run_pending_tasks` removes them.
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
        // Truncation is the documented modulo. Release pairs with the load in `nanos`: a thread
        // that reads the new time also sees what the advancing thread did before.
        self.nanos
            .fetch_add(by.as_nanos() as u64, Ordering::Release);
    }

    /// Sets the time to `nanos` nanoseconds, which may be earlier than the present time.
    ///
    /// A step back removes nothing early, and a cache whose clock steps back does not panic: its
    /// entries have as much more time left as the clock went back. An entry that a call has already
    /// found expired stays expired. A target 292 years or more ahead looks to a cache like a step
    /// backwards.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, ManualTicker};
    ///
    /// let time = ManualTicker::starting_at(5_000_000_000);
    /// let cache = Cache::builder().ticker(time.clone()).build();
    /// cache.insert_with_ttl("a", 1, Duration::from_secs(60));
    ///
    /// time.set_nanos(2_000_000_000); // three seconds back
    /// let left = cache.peek_ref("a").unwrap().time_left();
    /// assert_eq!(left, Some(Duration::from_secs(63)));
    /// time.set_nanos(65_000_000_000);
    /// assert_eq!(cache.get("a"), None);
    /// ```
    ///
    /// # Cost
    ///
    /// One atomic store.
    pub fn set_nanos(&self, nanos: u64) {
        // Release: as in `advance`.
        self.nanos.store(nanos, Ordering::Release);
    }
}

impl Ticker for ManualTicker {
    #[inline]
    fn nanos(&self) -> u64 {
        // Pairs with `advance` and `set_nanos`.
        self.nanos.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests;
