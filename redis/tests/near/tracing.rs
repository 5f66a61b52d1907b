//! Spans and events.

use crate::support::proxy::{Direction, Proxy};
use crate::support::server::{Server, installed};
use crate::support::{connected, lost, near, read, until};
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Writes down all that it is told.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

/// A line of the log while it is written.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Log {
    /// Adds a line in one step: other threads add theirs, too.
    fn line(&self, begin: &str, record: impl FnOnce(&mut Line)) {
        let mut line = Line(format!("\n{begin}"));
        record(&mut line);
        self.0.lock().unwrap().push_str(&line.0);
    }

    fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }

    fn has(&self, part: &str) -> bool {
        self.text().contains(part)
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("wheelhouse_redis")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.line(span.metadata().name(), |line| span.record(line));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        self.line("record", |line| values.record(line));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.line("event", |line| event.record(line));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Connect, slow request, lost, flush; the key where it is asked for alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happens_is_traced() {
    // For all threads: the log has the lines of other tests, too, none of which has this key.
    let log = Log::default();
    tracing::subscriber::set_global_default(log.clone()).unwrap();
    for program in installed() {
        for keys in [false, true] {
            log.0.lock().unwrap().clear();
            let server = Server::start(&program, &[]).await;
            let proxy = Proxy::to(server.port).await;
            let near = near(proxy.port).trace_keys(keys).connect().await.unwrap();
            near.set("secret", "v".to_string(), None).await.unwrap();
            proxy.delay(Direction::ToClient, Duration::from_millis(150));
            assert_eq!(read(&near, "secret").await, "v");
            proxy.delay(Direction::ToClient, Duration::ZERO);
            proxy.cut();
            lost(&near, 1).await;
            connected(&near).await;
            until("the flush is traced", async || log.has("flushed")).await;
            for part in [
                "\nconnect generation=1",
                "slow request",
                "connection lost",
                "request command=",
            ] {
                assert!(log.has(part), "{part}: {}", log.text());
            }
            assert_eq!(log.has("secret"), keys);
        }
    }
}
