//! Keeps the line up: one task for each near cache.
//!
//! The supervisor watches the current connection: the push handler reports its end, and a heartbeat
//! finds one that is silently dead. After a loss it goes through the same steps each time: stop
//! serving (or serve on for the time that is set), flush, connect, track, serve. It ends with
//! `close`, with the last handle, or with the runtime; then the line is closed.
//!
//! To flush is to move the stamp, which is one store: from then on no old entry is served. A second
//! task, the cleaner, removes these entries afterwards. The supervisor never waits for it, so
//! neither a large cache nor a busy pool of blocking threads delays a heartbeat or a reconnect.

use crate::config::{LONGEST_TIME, OnDisconnect, shortened};
use crate::connect::{Connect, Connector};
use crate::connection::Ended;
use crate::error::NearError;
use crate::key::{Hasher, Key, Val};
use crate::link::Link;
use crate::shared::Shared;
use crate::trace;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};

/// The pause before the second attempt to connect. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A connection that lived longer than this was good: the next attempt begins at once.
const STABLE_AFTER: Duration = Duration::from_secs(1);
/// The longest pause before the first attempt, after a connection that ended sooner than that.
const LONGEST_FIRST_PAUSE: Duration = Duration::from_millis(200);

/// The task that keeps the line up.
pub(crate) struct Supervisor<K, V, S> {
    pub(crate) shared: Arc<Shared<K, V, S>>,
    connector: Connector,
    generation: u64,
    /// How long to wait before the next attempt to connect.
    pause: Duration,
}

impl<K, V, S> Drop for Supervisor<K, V, S> {
    /// Without supervision nothing may be served: the task has ended, or its runtime has.
    fn drop(&mut self) {
        self.shared.line.close();
    }
}

impl<K: Key, V: Val, S: Hasher> Supervisor<K, V, S> {
    pub(crate) fn new(shared: Arc<Shared<K, V, S>>, connector: Connector) -> Self {
        Self {
            shared,
            connector,
            generation: 0,
            pause: Duration::ZERO,
        }
    }

    /// One attempt to connect.
    pub(crate) async fn connect(&mut self) -> Result<Arc<Link>, NearError> {
        self.generation += 1;
        let generation = self.generation;
        // Weakly: the near cache owns the connection.
        let shared = Arc::downgrade(&self.shared);
        let connect = Connect {
            settings: self.shared.settings.clone(),
            generation,
            ended: Ended::default(),
            on_push: Arc::new(move |push| {
                if let Some(shared) = shared.upgrade() {
                    shared.handle_push(generation, push);
                }
            }),
        };
        let opening = self.connector.open(&connect);
        let link = trace::connecting(generation, opening).await?;
        self.shared.counters.made_connection();
        Ok(Arc::new(link))
    }

    /// Keeps the line up. The connection `first`, if there is one, has already brought it up.
    pub(crate) async fn run(mut self, first: Option<Arc<Link>>) {
        let shared = self.shared.clone();
        let cleaner = tokio::spawn(clean_up(shared.clone()));
        let mut up = first;
        loop {
            if let Some(link) = up {
                let up_since = Instant::now();
                self.watch_link(&link).await;
                drop(link);
                self.pause = if up_since.elapsed() >= STABLE_AFTER {
                    Duration::ZERO
                } else {
                    longer(self.pause, LONGEST_FIRST_PAUSE)
                };
            }
            let again = tokio::select! {
                biased;
                () = shared.line.closed() => break,
                link = self.reconnect() => link,
            };
            shared.set_fault(None);
            shared.up(again.clone());
            up = Some(again);
        }
        // The cleaner ends when the line is closed, after a last walk.
        let _ = cleaner.await;
    }

    /// Watches a connection until it is not the current one any more.
    async fn watch_link(&mut self, link: &Link) {
        let every = self.shared.settings.heartbeat.min(LONGEST_TIME);
        let replaced = self.connector.replaced(link, &self.shared.settings, every);
        let fault = tokio::select! {
            biased;
            () = self.shared.line.left(link.generation) => return,
            () = replaced => NearError::Disconnected {
                reason: "the sentinels name another primary".into(),
            },
            Err(fault) = beat(link, every) => fault,
        };
        self.shared.lost(link.generation, fault);
    }

    /// From the loss of a connection to the next one.
    async fn reconnect(&mut self) -> Arc<Link> {
        let shared = self.shared.clone();
        let serve_for = match shared.settings.on_disconnect {
            // `Shared::lost` has stopped serving.
            OnDisconnect::Flush => Duration::ZERO,
            OnDisconnect::ServeFor(time) => time,
        };
        let mut connecting = pin!(self.connect_until_it_works());
        let early = timeout(serve_for, &mut connecting).await;
        shared.line.stop_serving();
        shared.flush_wanted.notify_one();
        match early {
            Ok(link) => link,
            Err(_) => connecting.await,
        }
    }

    async fn connect_until_it_works(&mut self) -> Arc<Link> {
        let mut refused = 0;
        loop {
            if refused >= self.shared.settings.fail_fast_after {
                self.shared.line.refuse();
            }
            if !self.pause.is_zero() {
                // The processes that lost one server do not come back at one moment.
                sleep(shortened(self.pause, 0.5)).await;
            }
            match self.connect().await {
                Ok(link) => return link,
                Err(fault) => self.shared.set_fault(Some(fault)),
            }
            self.pause = longer(self.pause, LONGEST_PAUSE);
            refused += 1;
        }
    }
}

/// Asks again and again whether the link is alive, and still the right one; ends with a fault. Some
/// byte must arrive within the time between two beats.
async fn beat(link: &Link, every: Duration) -> Result<Infallible, NearError> {
    let mut beats = interval_at(Instant::now() + every, every);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beats.tick().await;
        link.ping(every).await?;
        #[cfg(feature = "cluster")]
        crate::cluster::check(link, every).await?;
    }
}

/// The pause that follows this one.
fn longer(pause: Duration, longest: Duration) -> Duration {
    (pause * 2).clamp(FIRST_PAUSE, longest)
}

/// The cleaner: walks over the local cache whenever outdated entries wait to be removed, and a last
/// time when the line is closed.
async fn clean_up<K: Key, V: Val, S: Hasher>(shared: Arc<Shared<K, V, S>>) {
    loop {
        let open = tokio::select! {
            biased;
            () = shared.line.closed() => false,
            () = shared.flush_wanted.notified() => true,
        };
        shared.flush().await;
        if !open {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_spread_between_half_and_all() {
        let pauses: Vec<_> = (0..200).map(|_| shortened(FIRST_PAUSE, 0.5)).collect();
        assert!(
            pauses
                .iter()
                .all(|p| (FIRST_PAUSE / 2..=FIRST_PAUSE).contains(p))
        );
        let (least, most) = (pauses.iter().min(), pauses.iter().max());
        assert!(*most.unwrap() - *least.unwrap() > FIRST_PAUSE / 4);
    }
}
