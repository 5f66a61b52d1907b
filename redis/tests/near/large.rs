//! Replies that are large: slow ones, and those that the server refuses to hold.

use crate::support::proxy::{Direction, Proxy};
use crate::support::server::{Server, installed};
use crate::support::{Near, Writer, lost, near, read, until};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wheelhouse_redis::NearError;

/// Bytes that arrive are a sign of life: a reply that takes ten heartbeats costs nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_may_take_longer_than_the_heartbeat() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        writer.set("large", &"x".repeat(6 << 20)).await;
        writer.set("small", "v").await;
        let near = near(proxy.port)
            .heartbeat(Duration::from_millis(600))
            .request_timeout(Duration::from_secs(60));
        let near = near.connect().await.unwrap();
        assert_eq!(read(&near, "small").await, "v");
        let loads = near.stats().loads();
        proxy.throttle(1 << 20);
        assert_eq!(read(&near, "large").await.len(), 6 << 20);
        assert_eq!(near.stats().lost_connections(), 0);
        assert_eq!(read(&near, "small").await, "v");
        assert_eq!(near.stats().loads(), loads + 1, "nothing was flushed");
    }
}

/// A reply that stops in its middle is silence, and silence ends the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_stops_in_its_middle_is_given_up() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        writer.set("large", &"x".repeat(6 << 20)).await;
        let near = near(proxy.port)
            .heartbeat(Duration::from_millis(300))
            .request_timeout(Duration::from_secs(60));
        let near = near.connect().await.unwrap();
        proxy.throttle(2 << 20);
        let reading = tokio::spawn({
            let near = near.clone();
            async move { read(&near, "large").await.len() }
        });
        tokio::time::sleep(Duration::from_millis(900)).await;
        let begun = Instant::now();
        proxy.hold(Direction::ToClient);
        proxy.throttle(0);
        lost(&near, 1).await;
        println!("given up after {:?}", begun.elapsed());
        // The next connection brings it.
        assert_eq!(reading.await.unwrap(), 6 << 20);
    }
}

/// A value above the server's limit ends the connection whenever it is asked for. Its key is
/// refused, and reads of other keys go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_ends_its_connection_is_refused_by_itself() {
    poisoned(async |near| near.get("poison").await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_touched_key_that_ends_its_connection_is_refused_by_itself() {
    let life = Duration::from_secs(60);
    poisoned(async move |near| near.get_and_touch("poison", life).await).await;
}

async fn poisoned(ask: impl AsyncFn(&Near) -> Result<Option<String>, NearError>) {
    for program in installed() {
        let limit = ["--client-output-buffer-limit", "normal 1mb 0 0"];
        let server = Server::start(&program, &limit).await;
        let mut writer = Writer::connect(server.port).await;
        writer.set("poison", &"x".repeat(4 << 20)).await;
        for n in 0..200 {
            writer.set(&format!("k{n}"), "v").await;
        }
        let mut direct = Writer::connect(server.port).await;
        if direct.try_send::<String>(&["GET", "poison"]).await.is_ok() {
            // Valkey 9 sends a large string without a copy, and does not count it.
            println!("skipped: {} does not keep its limit", program.display());
            continue;
        }
        let near = near(server.port).request_timeout(Duration::from_secs(5));
        let near = near.connect().await.unwrap();
        let done = AtomicBool::new(false);
        let others = async {
            for round in 0..3 {
                for n in 0..200 {
                    let key = format!("k{n}");
                    // Each from the server.
                    let found = near.refresh(&key).await;
                    assert_eq!(found.unwrap().as_deref(), Some("v"), "round {round}");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            done.store(true, Ordering::Relaxed);
        };
        let poison = async {
            let mut refused = String::new();
            while !done.load(Ordering::Relaxed) {
                refused = ask(&near).await.unwrap_err().to_string();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            refused
        };
        let ((), message) = tokio::join!(others, poison);
        assert!(message.contains("\"poison\""), "{message}");
        let losses = near.stats().lost_connections();
        // The first request only: later ones go over a connection of their own.
        assert!((1..=2).contains(&losses), "{losses} connections lost");
        // Once the value is small, the key is read again.
        writer.set("poison", "small").await;
        until("the key is no longer refused", async || {
            ask(&near).await.is_ok()
        })
        .await;
        assert_eq!(read(&near, "poison").await, "small");
    }
}

/// A server reads no value above its `proto-max-bulk-len`: it ends the connection. Only the write
/// of that key fails, and says why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_the_server_does_not_read_is_an_error_of_its_key() {
    for program in installed() {
        let server = Server::start(&program, &["--proto-max-bulk-len", "1mb"]).await;
        let near = near(server.port).connect().await.unwrap();
        near.set("small", "v".to_string(), None).await.unwrap();
        for length in [2 << 20, 64 << 20] {
            let large = "x".repeat(length);
            let error = near.set("large", large, None).await.unwrap_err();
            // The message of the server, or the end of the connection, whichever is met first.
            let message = error.to_string();
            assert!(message.contains("`proto-max-bulk-len`"), "{message}");
            assert_eq!(read(&near, "small").await, "v");
            near.set("small", "v".to_string(), None).await.unwrap();
            assert_eq!(near.get("large").await.unwrap(), None);
        }
    }
}
