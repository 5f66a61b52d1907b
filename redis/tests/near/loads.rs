//! Point 7 and what else is true of loads.

use crate::support::proxy::{Direction, Proxy};
use crate::support::server::{Server, installed};
use crate::support::{Near, Writer, near, read, until, values};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use wheelhouse::Cache;
use wheelhouse_redis::NearError;

async fn herd(
    near: &Near,
    key: &'static str,
    size: usize,
) -> Vec<Result<Option<String>, NearError>> {
    let (barrier, mut tasks) = (Arc::new(Barrier::new(size)), JoinSet::new());
    for _ in 0..size {
        let (near, barrier) = (near.clone(), barrier.clone());
        tasks.spawn(async move {
            barrier.wait().await;
            near.get(key).await
        });
    }
    tasks.join_all().await
}

/// Point 7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_herd_on_a_cold_key_sends_one_get() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port).connect().await.unwrap();
        writer.set("k", "v").await;
        for found in herd(&near, "k", 1000).await {
            assert_eq!(found.unwrap().as_deref(), Some("v"));
        }
        assert_eq!(writer.calls("getrange").await, 1);
        assert_eq!(writer.calls("pttl").await, 1);
        assert_eq!(near.stats().loads(), 1);
    }
}

/// A herd on an absent key, on a key whose bytes cannot be decoded, and on one of another type
/// shares one outcome, too. Nothing of a failure is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_herd_shares_absence_and_failure() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(proxy.port).connect().await.unwrap();
        writer.send::<()>(&["RPUSH", "list", "v"]).await;
        let mut set = redis::cmd("SET");
        set.arg("broken").arg(&b"\xff\xfe"[..]);
        let client = crate::support::client(server.port);
        let mut raw = client.get_multiplexed_async_connection().await.unwrap();
        set.query_async::<()>(&mut raw).await.unwrap();

        // So that all have joined before the reply comes.
        proxy.delay(Direction::ToClient, Duration::from_millis(300));
        for (key, loads) in [("absent", 1), ("list", 2), ("broken", 3)] {
            for found in herd(&near, key, 200).await {
                match (key, found) {
                    ("absent", Ok(None)) => {}
                    ("list", Err(NearError::WrongType { key, .. })) => assert_eq!(key, "list"),
                    ("broken", Err(NearError::Decode { key, .. })) => assert_eq!(key, "broken"),
                    (key, found) => panic!("{key}: {found:?}"),
                }
            }
            assert_eq!(near.stats().loads(), loads, "{key}");
        }
        proxy.delay(Direction::ToClient, Duration::ZERO);
        writer.send::<()>(&["DEL", "list", "broken"]).await;
        writer.set("broken", "whole").await;
        assert_eq!(read(&near, "broken").await, "whole");
        assert_eq!(near.get("list").await.unwrap(), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_read_is_a_hit() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let local = Cache::builder().max_capacity(1000).record_stats();
        let near = near(server.port).local(local).connect().await.unwrap();
        writer.set("k", "v").await;
        for _ in 0..10 {
            assert_eq!(read(&near, "k").await, "v");
        }
        assert_eq!(near.stats().loads(), 1);
        assert_eq!(near.stats().local().hits(), 9);
        assert_eq!(writer.calls("getrange").await, 1);
    }
}

/// The leader of a load is cancelled: the next waiter leads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_load_is_taken_over() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(proxy.port).connect().await.unwrap();
        writer.set("k", "v").await;
        proxy.hold(Direction::ToClient);
        let leader = tokio::spawn({
            let near = near.clone();
            async move { read(&near, "k").await }
        });
        until("the leader's request is sent", async || {
            near.stats().loads() == 1
        })
        .await;
        let waiter = tokio::spawn({
            let near = near.clone();
            async move { read(&near, "k").await }
        });
        leader.abort();
        assert!(leader.await.unwrap_err().is_cancelled());
        until("the waiter leads", async || near.stats().loads() == 2).await;
        proxy.release(Direction::ToClient);
        assert_eq!(waiter.await.unwrap(), "v");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_all_reads_what_is_missing_together() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(proxy.port).connect().await.unwrap();
        for n in (0..1000).step_by(2) {
            writer.set(&format!("k{n}"), &n.to_string()).await;
        }
        let names = |range: std::ops::Range<u32>| range.map(|n| format!("k{n}"));
        let expect = |n: u32| n.is_multiple_of(2).then(|| n.to_string());
        for n in 0..10 {
            assert_eq!(near.get(&format!("k{n}")).await.unwrap(), expect(n));
        }
        proxy.take_sent();
        // Duplicates are folded; the order is the caller's.
        let keys: Vec<String> = names(0..300).chain(names(0..300).rev()).collect();
        let found = values(near.get_all(keys).await);
        let expected: Vec<_> = (0..300).chain((0..300).rev()).map(expect).collect();
        assert_eq!(found, expected);
        // Five of the first ten are in memory; absences are not kept.
        assert_eq!(near.stats().loads(), 10 + 295);
        assert!(
            proxy.take_sent().len() <= 20,
            "pipelines, not single requests"
        );
        assert_eq!(
            values(near.get_all(Vec::new()).await),
            Vec::<Option<String>>::new()
        );

        // Overlapping calls do not wait for each other in a ring.
        let mut tasks = JoinSet::new();
        for shift in 0..20 {
            let near = near.clone();
            let keys: Vec<String> = match shift % 2 {
                0 => names(300 + shift..700).collect(),
                _ => names(300..700 - shift).rev().collect(),
            };
            tasks.spawn(async move { values(near.get_all(keys).await).len() });
        }
        tasks.join_all().await;
        // Invalidated as single reads are.
        writer.set("k302", "new").await;
        until("the write is seen", async || {
            read(&near, "k302").await == "new"
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_all_reports_the_result_of_each_key() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port).connect().await.unwrap();
        writer.send::<()>(&["RPUSH", "list", "v"]).await;
        writer.set("k", "v").await;
        let found = near.get_all(["list", "k"].map(String::from)).await;
        let own = matches!(&found[..], [Err(NearError::WrongType { .. }), Ok(Some(_))]);
        assert!(own, "{found:?}");
        assert_eq!(read(&near, "k").await, "v");
        assert_eq!(near.stats().loads(), 2, "the other key was read and kept");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refresh_reads_anew() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(proxy.port).connect().await.unwrap();
        writer.set("k", "old").await;
        assert_eq!(read(&near, "k").await, "old");
        // Reports are on their way, but slow.
        proxy.delay(Direction::ToClient, Duration::from_millis(200));
        writer.set("k", "new").await;
        assert_eq!(near.refresh("k").await.unwrap().as_deref(), Some("new"));
        assert_eq!(read(&near, "k").await, "new");
        assert_eq!(near.refresh("absent").await.unwrap(), None);
    }
}

/// A codec that panics: the call panics, a waiter takes over, and the key stays usable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_codec_that_panics_leaves_the_key_usable() {
    use wheelhouse_redis::codec::{BoxError, Codec};

    struct Fickle;

    impl Codec<String> for Fickle {
        fn encode(&self, value: &String) -> Result<Vec<u8>, BoxError> {
            assert_ne!(value, "boom", "a codec that panics, on purpose");
            Ok(value.clone().into_bytes())
        }

        fn decode(&self, bytes: &[u8]) -> Result<String, BoxError> {
            assert_ne!(bytes, b"boom", "a codec that panics, on purpose");
            Ok(String::from_utf8(bytes.to_vec())?)
        }
    }

    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port).codec(Fickle).connect().await.unwrap();
        writer.set("k", "boom").await;
        let mut tasks = JoinSet::new();
        for _ in 0..5 {
            let near = near.clone();
            tasks.spawn(async move { near.get("k").await });
        }
        while let Some(ended) = tasks.join_next().await {
            assert!(ended.unwrap_err().is_panic());
        }
        let writing = near.clone();
        let boom = async move { writing.set("k".to_string(), "boom".to_string(), None).await };
        assert!(tokio::spawn(boom).await.unwrap_err().is_panic());
        near.set("k".to_string(), "fine".to_string(), None)
            .await
            .unwrap();
        assert_eq!(read(&near, "k").await, "fine");
    }
}

/// What is not kept is no entry: the listener hears of nothing, and nothing takes room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_is_not_kept_fires_no_listener() {
    use std::sync::atomic::{AtomicU64, Ordering};
    use wheelhouse::RemovalCause;
    use wheelhouse_redis::Cached;

    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let heard = Arc::new(AtomicU64::new(0));
        let count = heard.clone();
        let local = Cache::builder().removal_listener(
            move |_: &String, _: &Cached<String>, _: RemovalCause| {
                count.fetch_add(1, Ordering::SeqCst);
            },
        );
        let near = near(server.port).local(local).connect().await.unwrap();
        writer.send::<()>(&["RPUSH", "list", "v"]).await;
        for _ in 0..10 {
            assert_eq!(near.get("absent").await.unwrap(), None);
            assert!(near.get("list").await.is_err());
        }
        near.local().run_pending_tasks();
        assert_eq!(near.local().entry_count(), 0);
        assert_eq!(heard.load(Ordering::SeqCst), 0);
    }
}

/// A call of `get_all` is cancelled: its replies are kept, and another call joins them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_all_joins_what_a_cancelled_call_was_loading() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        for n in 0..100 {
            writer.set(&format!("k{n}"), "v").await;
        }
        let near = near(proxy.port).connect().await.unwrap();
        proxy.hold(Direction::ToClient);
        let keys = || (0..100).map(|n| format!("k{n}"));
        let all = || {
            let near = near.clone();
            tokio::spawn(async move { near.get_all(keys()).await })
        };
        let first = all();
        until("the requests are sent", async || {
            near.stats().loads() == 100
        })
        .await;
        let second = all();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(near.stats().loads(), 100, "the second call waits");
        first.abort();
        tokio::time::sleep(Duration::from_millis(100)).await;
        proxy.release(Direction::ToClient);
        assert_eq!(
            values(second.await.unwrap()),
            vec![Some("v".to_string()); 100]
        );
        assert_eq!(near.stats().loads(), 100, "nothing was asked for twice");
    }
}
