//! Spans and events for the crate `tracing`, behind the feature of that name. Without it, each of
//! these functions does nothing.
//!
//! The target is that of this module. No key is written unless `trace_keys` asks for it.
#![cfg_attr(
    not(feature = "tracing"),
    expect(unused_variables, reason = "only traced")
)]

use crate::config::Settings;
use crate::error::NearError;
#[cfg(feature = "tracing")]
use tracing::{Instrument, debug, debug_span, info, warn};

/// From which time on a request is slow.
#[cfg(feature = "tracing")]
const SLOW: std::time::Duration = std::time::Duration::from_millis(100);

/// An attempt to connect, in a span of its own.
pub(crate) async fn connecting<T>(
    generation: u64,
    attempt: impl Future<Output = Result<T, NearError>>,
) -> Result<T, NearError> {
    #[cfg(feature = "tracing")]
    let attempt = attempt.instrument(debug_span!("connect", generation));
    let outcome = attempt.await;
    #[cfg(feature = "tracing")]
    match &outcome {
        Ok(_) => info!(generation, "connected"),
        Err(error) => warn!(generation, %error, "could not connect"),
    }
    outcome
}

/// A connection has ended.
pub(crate) fn lost(generation: u64, error: &NearError) {
    #[cfg(feature = "tracing")]
    warn!(generation, %error, "connection lost");
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
    asked: &[u8],
    request: impl Future<Output = T>,
) -> T {
    #[cfg(not(feature = "tracing"))]
    return request.await;
    #[cfg(feature = "tracing")]
    {
        let begun = std::time::Instant::now();
        let key = Some(asked).filter(|_| settings.trace_keys);
        let key = key.map(crate::error::display_key);
        let span = debug_span!("request", command, key);
        let outcome = request.instrument(span).await;
        if begun.elapsed() >= SLOW {
            warn!(command, key, took = ?begun.elapsed(), "slow request");
        }
        outcome
    }
}
