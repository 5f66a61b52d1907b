//! Point 5: own writes.

use crate::support::proxy::{Direction, Proxy};
use crate::support::server::{Server, installed};
use crate::support::{Text, Writer, client, lost, near, read, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use wheelhouse_redis::{NearCache, NearError};

/// Point 5: each write is read at once, while others read the same keys all the time, and no
/// value of before comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_writes_are_read_and_never_undone() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let near = near(server.port).connect().await.unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let mut readers = JoinSet::new();
        for key in ["a", "b"] {
            let (near, done) = (near.clone(), done.clone());
            readers.spawn(async move {
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    let now = near.get(key).await.unwrap();
                    let now: u64 = now.map_or(0, |text| text.parse().unwrap());
                    assert!(now >= last, "{key} went back from {last} to {now}");
                    last = now;
                    tokio::task::yield_now().await;
                }
            });
        }
        for version in 1..=500u64 {
            for key in ["a", "b"] {
                near.set(key.to_string(), version.to_string(), None)
                    .await
                    .unwrap();
                assert_eq!(read(&near, key).await, version.to_string());
            }
        }
        done.store(true, Ordering::Relaxed);
        readers.join_all().await;
        assert!(
            near.stats().invalidated_keys() > 0,
            "own writes are reported, too"
        );
    }
}

/// Two writers in one process: whichever write the server executed last is what stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_writes_of_one_process_end_with_the_servers_value() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port).connect().await.unwrap();
        for round in 0..300 {
            let mut tasks = JoinSet::new();
            for which in 0..4 {
                let near = near.clone();
                tasks.spawn(async move {
                    let value = format!("{round}.{which}");
                    near.set("k".to_string(), value, None).await.unwrap();
                    read(&near, "k").await
                });
            }
            tasks.join_all().await;
            let at_server: String = writer.send(&["GET", "k"]).await;
            assert_eq!(read(&near, "k").await, at_server);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletions_and_lifetimes_reach_the_server() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port)
            .absent_ttl(Duration::from_secs(60))
            .connect()
            .await
            .unwrap();
        assert!(!near.delete("k").await.unwrap());
        assert_eq!(near.get("k").await.unwrap(), None);
        let (key, value) = ("k".to_string(), "v".to_string());
        near.set(&key, &value, Duration::from_secs(100))
            .await
            .unwrap();
        let pttl: i64 = writer.send(&["PTTL", "k"]).await;
        assert!((80_000..=100_000).contains(&pttl), "{pttl}");
        assert_eq!(read(&near, "k").await, "v");
        near.set(&key, &value, None).await.unwrap();
        assert_eq!(writer.send::<i64>(&["PTTL", "k"]).await, -1);
        assert!(near.delete("k").await.unwrap());
        assert_eq!(near.get("k").await.unwrap(), None);
        assert_eq!(writer.send::<i64>(&["EXISTS", "k"]).await, 0);
        let zero = near.set(&key, &value, Duration::ZERO).await;
        assert!(matches!(zero, Err(NearError::ZeroTtl)), "{zero:?}");
    }
}

/// The reply of a write never comes: the caller is told that it may have happened, and reads see
/// it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unconfirmed_write_says_so_and_is_seen() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(proxy.port).connect().await.unwrap();
        writer.set("k", "old").await;
        assert_eq!(read(&near, "k").await, "old");
        proxy.hold(Direction::ToClient);
        let writing = tokio::spawn({
            let near = near.clone();
            async move { near.set("k".to_string(), "new".to_string(), None).await }
        });
        let arrived = async || writer.clone().send::<String>(&["GET", "k"]).await == "new";
        until("the server has executed it", arrived).await;
        proxy.cut();
        let written = writing.await.unwrap();
        assert!(
            matches!(written, Err(NearError::Unconfirmed { .. })),
            "{written:?}"
        );
        lost(&near, 1).await;
        assert_eq!(read(&near, "k").await, "new");
    }
}

/// A write whose future is dropped may still reach the server: reads see it all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_write_leaves_no_old_value() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(proxy.port).connect().await.unwrap();
        for round in 0..20 {
            let value = round.to_string();
            assert!(near.get("k").await.is_ok());
            proxy.delay(Direction::ToServer, Duration::from_millis(20));
            let write = near.set("k".to_string(), value.clone(), None);
            let _ = tokio::time::timeout(Duration::from_millis(5), write).await;
            // A read between the end of the call and the execution of the write.
            assert!(near.get("k").await.is_ok());
            proxy.delay(Direction::ToServer, Duration::ZERO);
            let at_server: Option<String> = writer.send(&["GET", "k"]).await;
            let agrees = async || near.get("k").await.unwrap() == at_server;
            until("the near cache agrees with the server", agrees).await;
        }
    }
}

/// Text and tuples are keys of a write as they are of a read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_written_as_they_are_read() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let texts = near(server.port).connect().await.unwrap();
        let (key, value) = ("user:3".to_string(), "v".to_string());
        texts.set("user:1", &value, None).await.unwrap();
        texts.set("user:2".to_string(), &value, None).await.unwrap();
        texts.set(&key, &value, None).await.unwrap();
        for key in ["user:1", "user:2", "user:3"] {
            assert_eq!(read(&texts, key).await, "v");
        }
        let tuples = NearCache::<(String, u64), String>::builder(client(server.port)).codec(Text);
        let tuples = tuples.connect().await.unwrap();
        let key = ("user".to_string(), 4);
        tuples.set(&key, &value, None).await.unwrap();
        assert_eq!(tuples.get(&key).await.unwrap().as_deref(), Some("v"));
        writer.set("user:4", "new").await;
        let seen = async || tuples.get(&key).await.unwrap().as_deref() == Some("new");
        until("the change is seen", seen).await;
    }
}

/// A key that is touched lives longer, at the server and in memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_touched_key_lives_longer() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let near = near(server.port).connect().await.unwrap();
        let mut writer = Writer::connect(server.port).await;
        let (short, long) = (Duration::from_secs(2), Duration::from_secs(1000));
        for key in ["a", "b", "c"] {
            near.set(key, "v".to_string(), short).await.unwrap();
            assert_eq!(read(&near, key).await, "v");
        }
        assert!(near.touch("a", long).await.unwrap());
        assert!(!near.touch("absent", long).await.unwrap());
        let value = near.get_and_touch("b", long).await.unwrap();
        assert_eq!(value.as_deref(), Some("v"));
        assert_eq!(near.get_and_touch("absent", long).await.unwrap(), None);
        for key in ["a", "b"] {
            let ttl: i64 = writer.send(&["TTL", key]).await;
            assert!(ttl > 900, "{ttl}");
            // In memory with the new life, in the end: a report may have come in between.
            until("the entry has the new life", async || {
                let _ = near.get(key).await;
                let entry = near.local().get_ref(key);
                let left = entry.and_then(|entry| entry.time_left());
                left.is_some_and(|left| left > short)
            })
            .await;
        }
        until("the untouched key has ended", async || {
            near.get("c").await.unwrap().is_none()
        })
        .await;
        // And shorter: the entry in memory does not outlive the server's.
        assert!(near.touch("a", Duration::from_millis(50)).await.unwrap());
        until("the key has ended", async || {
            near.get("a").await.unwrap().is_none()
        })
        .await;
        let zero = near.touch("a", Duration::ZERO).await;
        assert!(matches!(zero, Err(NearError::ZeroTtl)), "{zero:?}");
    }
}
