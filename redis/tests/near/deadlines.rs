//! Point 4: how long an entry lives.

use crate::support::proxy::{Direction, Proxy};
use crate::support::server::{Server, installed};
use crate::support::{Writer, near, read, until};
use std::time::{Duration, Instant};

/// `GETRANGE` and `PTTL` go out together, in one piece.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_pipeline_asks_for_value_and_deadline() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let near = near(proxy.port)
            .heartbeat(Duration::from_secs(60))
            .connect()
            .await
            .unwrap();
        proxy.take_sent();
        assert_eq!(near.get("k").await.unwrap(), None);
        let expected = "*4\r\n$8\r\nGETRANGE\r\n$1\r\nk\r\n$1\r\n0\r\n$5\r\n16384\r\n\
                        *2\r\n$4\r\nPTTL\r\n$1\r\nk\r\n";
        assert_eq!(proxy.take_sent(), [expected]);
    }
}

/// The reply takes longer than a third of the key's life, and the server's own report of the
/// expiry never arrives: the proxy holds it back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn life_counts_from_when_the_request_was_sent() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(proxy.port).heartbeat(Duration::from_secs(60));
        let near = near
            .request_timeout(Duration::from_secs(60))
            .connect()
            .await
            .unwrap();

        let life = Duration::from_millis(1500);
        writer.send::<()>(&["SET", "k", "v", "PX", "1500"]).await;
        // The server set its deadline before this moment.
        let deadline = Instant::now() + life;
        proxy.delay(Direction::ToClient, Duration::from_millis(500));
        assert_eq!(read(&near, "k").await, "v");
        assert_eq!(near.stats().loads(), 1);
        proxy.delay(Direction::ToClient, Duration::ZERO);
        proxy.hold(Direction::ToClient);
        let mut hits = 0;
        loop {
            let begun = Instant::now();
            if !near.local().contains_key("k") {
                break;
            }
            assert!(
                begun < deadline,
                "served {:?} past the deadline",
                begun - deadline
            );
            hits += 1;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // On a busy machine the reply may come after the deadline; then nothing was kept.
        println!("{hits} hits before the deadline");
        proxy.release(Direction::ToClient);
        until("the server has expired it", async || {
            near.get("k").await.unwrap().is_none()
        })
        .await;
    }
}

/// Keys that expire at the server, on a quiet link: never served past the deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_served_past_the_servers_deadline() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        // The server looks for expired keys once a second, so its reports come late.
        writer.send::<()>(&["CONFIG", "SET", "hz", "1"]).await;
        let near = near(server.port).connect().await.unwrap();
        for round in 0..20u64 {
            let life = 40 + 13 * round;
            let key = format!("k{round}");
            writer
                .send::<()>(&["SET", &key, "v", "PX", &life.to_string()])
                .await;
            let deadline = Instant::now() + Duration::from_millis(life);
            loop {
                let begun = Instant::now();
                if near.get(&key).await.unwrap().is_none() {
                    break;
                }
                // The server itself serves a key to the end of the deadline's millisecond.
                let late = begun.saturating_duration_since(deadline);
                assert!(late < Duration::from_millis(2), "{key}: {late:?} late");
            }
        }
    }
}

/// The shorter of `local_ttl` and the server's deadline holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_local_ttl_holds_if_it_is_shorter() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let local = Duration::from_millis(300);
        let near = near(server.port).local_ttl(local).connect().await.unwrap();
        writer.set("forever", "v").await;
        writer.send::<()>(&["SET", "long", "v", "EX", "1000"]).await;
        for key in ["forever", "long"] {
            let begun = Instant::now();
            assert_eq!(read(&near, key).await, "v");
            let loaded = Instant::now();
            while near.local().contains_key(key) {
                assert!(loaded.elapsed() < local * 20, "{key} is kept for too long");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // Kept for the whole of it, counted from some moment of the first read.
            assert!(
                begun.elapsed() >= local.mul_f64(0.99),
                "{:?}",
                begun.elapsed()
            );
        }
    }
}

/// A policy of the user can only shorten a life.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_users_policy_shortens_lifetimes() {
    use wheelhouse::expiry;
    use wheelhouse_redis::Cached;
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let policy = expiry::writing(|key: &String, _: &Cached<String>| match key.as_str() {
            "short" => Some(Duration::from_millis(100)),
            _ => Some(Duration::from_secs(10_000)),
        });
        let near = near(server.port)
            .expire_after(policy)
            .connect()
            .await
            .unwrap();
        for key in ["short", "long"] {
            writer.set(key, "v").await;
            assert_eq!(read(&near, key).await, "v");
        }
        until("the short life is over", async || {
            !near.local().contains_key("short")
        })
        .await;
        let left = near.local().peek_ref("long").unwrap().time_left().unwrap();
        assert!(
            left <= Duration::from_secs(300),
            "local_ttl holds: {left:?}"
        );
    }
}
