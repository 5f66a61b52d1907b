//! The state that the handles, the supervisor and the push handler of one near cache share.

use crate::cached::Cached;
use crate::codec::Codec;
use crate::config::Settings;
use crate::error::NearError;
use crate::key::{Hasher, Key, Val};
use crate::line::Line;
use crate::link::Link;
use crate::reports::Reports;
use crate::stats::Counters;
use crate::suspects::Suspects;
use crate::trace;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use wheelhouse::{Cache, Refresh};

/// How many large writes are under way at a time, each over a connection of its own.
const LARGE_WRITES: usize = 8;

/// Futures of many keys: each is made when its turn comes, since all together would take much
/// memory.
pub(crate) type Lazily<'a, F> = Box<dyn Iterator<Item = F> + Send + 'a>;

/// The state of one near cache.
pub(crate) struct Shared<K, V, S> {
    pub(crate) local: Cache<K, Cached<V>, S>,
    pub(crate) line: Line,
    pub(crate) codec: Box<dyn Codec<V>>,
    pub(crate) settings: Arc<Settings>,
    /// When `get_with` loads a value ahead of its deadline; `None`: never.
    pub(crate) refresh: Option<Box<dyn Refresh<K, V>>>,
    pub(crate) counters: Counters,
    pub(crate) suspects: Suspects,
    pub(crate) reports: Reports,
    /// The loads of `get_with` that run, by their placeholder or else their key. It keeps nothing.
    pub(crate) flights: Cache<Arc<[u8]>, Result<Option<V>, NearError>>,
    /// The turns of large writes that are free.
    turns: Semaphore,
    /// The keys whose large writes have failed lately, other than by waiting in vain, and when.
    pub(crate) failed_writes: tokio::sync::Mutex<HashMap<Vec<u8>, Instant>>,
    /// How many large writes were answered.
    pub(crate) large_answers: AtomicU64,
    /// What was awaited goes on here when its call has gone.
    pub(crate) runtime: Handle,
    /// Tells the cleaner that outdated entries wait to be removed.
    pub(crate) flush_wanted: Notify,
    /// The last error that says why there is no connection, or no answer.
    fault: Mutex<Option<NearError>>,
}

impl<K: Key, V: Val, S: Hasher> Shared<K, V, S> {
    pub(crate) fn new(
        local: Cache<K, Cached<V>, S>,
        codec: Box<dyn Codec<V>>,
        refresh: Option<Box<dyn Refresh<K, V>>>,
        settings: Settings,
    ) -> Self {
        Self {
            local,
            line: Line::new(),
            codec,
            settings: Arc::new(settings),
            refresh,
            counters: Counters::default(),
            suspects: Suspects::default(),
            reports: Reports::default(),
            flights: Cache::builder().max_capacity(0).build(),
            turns: Semaphore::new(LARGE_WRITES),
            failed_writes: tokio::sync::Mutex::default(),
            large_answers: AtomicU64::new(0),
            runtime: Handle::current(),
            flush_wanted: Notify::new(),
            fault: Mutex::new(None),
        }
    }

    /// Removes all entries that will not be served any more. Only the cleaner waits for it.
    pub(crate) async fn flush(&self) {
        let local = self.local.clone();
        let stamp = self.line.stamp();
        let is_last = self.line.is_closed();
        let walk = move || {
            local.retain(|_, cached| cached.stamp >= stamp);
            if is_last {
                // So that the drop of the last handle, which a task may do, waits for no listener.
                local.run_pending_tasks();
            }
        };
        // In another thread: it walks the whole cache. An error means that the runtime shuts
        // down, and then nothing is served.
        let _ = spawn_blocking(walk).await;
        self.counters.flushed();
        trace::flushed();
    }
}

impl<K, V, S> Shared<K, V, S> {
    pub(crate) fn set_fault(&self, fault: Option<NearError>) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// The current connection and the stamp for what it brings; waits while there is none.
    pub(crate) async fn link(&self) -> Result<(u64, Arc<Link>), NearError> {
        let link = self.line.link().await;
        link.ok_or_else(|| self.no_answer(Duration::ZERO))
    }

    /// The turn of a large write. It waits as long as such writes are answered.
    pub(crate) async fn turn_to_write(&self) -> Result<SemaphorePermit<'_>, NearError> {
        let mut turn = pin!(self.turns.acquire());
        loop {
            // Relaxed: only a count.
            let answers = self.large_answers.load(Ordering::Relaxed);
            match timeout(self.settings.request_timeout, &mut turn).await {
                Ok(turn) => return turn.map_err(|_| NearError::Closed),
                Err(_) if self.large_answers.load(Ordering::Relaxed) == answers => {
                    return Err(self.timed_out());
                }
                Err(_) => {}
            }
        }
    }

    /// The error of a call that got no answer within its time.
    pub(crate) fn timed_out(&self) -> NearError {
        let error = self.no_answer(self.settings.request_timeout);
        if matches!(error, NearError::Unavailable { .. })
            && self.settings.fail_fast_after < u32::MAX
        {
            // The next calls would wait in vain, too.
            self.line.refuse();
        }
        error
    }

    /// The error of a call that has waited for this time, or not at all.
    fn no_answer(&self, waited: Duration) -> NearError {
        let last = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        let last = last.clone().map(Box::new);
        if self.line.is_closed() {
            NearError::Closed
        } else if self.line.is_up() {
            NearError::TimedOut { waited, last }
        } else {
            NearError::Unavailable { waited, last }
        }
    }
}
