//! Spans and events for the crate `tracing`, behind the feature of that name. Without it, each of
//! these functions does nothing.
//!
//! The target is `wheelhouse_redis`. No key is written unless `trace_keys` asks for it.

use crate::config::Settings;
use crate::error::NearError;
#[cfg(feature = "tracing")]
use crate::error::display_key;
#[cfg(feature = "tracing")]
use std::time::{Duration, Instant};
#[cfg(feature = "tracing")]
use tracing::{Instrument, debug, debug_span, field::Empty, info, warn};

/// What is traced.
#[cfg(feature = "tracing")]
#[derive(Clone, Debug)]
pub(crate) struct Traced {
    pub(crate) slow: Duration,
    pub(crate) keys: bool,
}

#[cfg(feature = "tracing")]
impl Default for Traced {
    fn default() -> Self {
        Self {
            slow: Duration::from_millis(100),
            keys: false,
        }
    }
}

/// An attempt to connect, in a span of its own.
pub(crate) async fn connecting<T>(
    generation: u64,
    attempt: impl Future<Output = Result<T, NearError>>,
) -> Result<T, NearError> {
    #[cfg(feature = "tracing")]
    {
        let outcome = attempt.instrument(debug_span!("connect", generation)).await;
        match &outcome {
            Ok(_) => info!(generation, "connected"),
            Err(error) => warn!(generation, %error, "could not connect"),
        }
        outcome
    }
    #[cfg(not(feature = "tracing"))]
    {
        let _ = generation;
        attempt.await
    }
}

/// A connection has ended.
pub(crate) fn lost(generation: u64, reason: &NearError) {
    #[cfg(feature = "tracing")]
    warn!(generation, error = %reason, "connection lost");
    #[cfg(not(feature = "tracing"))]
    let _ = (generation, reason);
}

/// The outdated entries have been removed.
pub(crate) fn flushed() {
    #[cfg(feature = "tracing")]
    debug!("flushed");
}

/// A request, in a span of its own; an event if it is slow.
pub(crate) async fn request<T>(
    settings: &Settings,
    command: &'static str,
    keys: &[&[u8]],
    request: impl Future<Output = T>,
) -> T {
    #[cfg(feature = "tracing")]
    {
        let span = debug_span!("request", command, keys = keys.len(), key = Empty);
        let first = keys.first().filter(|_| settings.traced.keys);
        if let Some(key) = first {
            span.record("key", display_key(key));
        }
        let begun = Instant::now();
        let outcome = request.instrument(span.clone()).await;
        let took = begun.elapsed();
        if took >= settings.traced.slow {
            let key = first.map(|key| display_key(key));
            span.in_scope(|| warn!(command, keys = keys.len(), ?took, key, "slow request"));
        }
        outcome
    }
    #[cfg(not(feature = "tracing"))]
    {
        let _ = (settings, command, keys);
        request.await
    }
}
