//! Point 3: the end of a connection, and what the next one may serve.

use crate::support::proxy::{Direction, Proxy};
use crate::support::server::{Server, installed};
use crate::support::{Writer, connected, lost, near, read, until, values};
use std::time::{Duration, Instant};
use wheelhouse_redis::{LoadLock, NearError, OnDisconnect};

/// Point 3: nothing is served without a connection, and nothing of before with the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_stops_serving_and_flushes() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let wait = Duration::from_millis(300);
        let near = near(proxy.port)
            .request_timeout(wait)
            .connect()
            .await
            .unwrap();
        for n in 0..100 {
            writer.set(&format!("k{n}"), "old").await;
            let loaded = async || near.get(&format!("k{n}")).await.is_ok();
            until("the key is loaded", loaded).await;
        }
        proxy.refuse(true);
        proxy.cut();
        lost(&near, 1).await;
        let begun = Instant::now();
        let found = near.get("k0").await;
        assert!(
            matches!(found, Err(NearError::Unavailable { .. })),
            "{found:?}"
        );
        assert!(begun.elapsed() >= wait, "it waits for a connection");
        assert!(
            begun.elapsed() < wait + Duration::from_secs(5),
            "{:?}",
            begun.elapsed()
        );
        until("the old entries are removed", async || {
            near.local().entry_count() == 0
        })
        .await;
        for n in 0..100 {
            writer.set(&format!("k{n}"), "new").await;
        }
        proxy.refuse(false);
        connected(&near).await;
        for n in 0..100 {
            let found = async || near.get(&format!("k{n}")).await.ok().flatten();
            until("the key is read", async || found().await.is_some()).await;
            assert_eq!(found().await.as_deref(), Some("new"));
        }
        // And tracking is on again.
        writer.set("k7", "newest").await;
        let seen = async || near.get("k7").await.ok().flatten().as_deref() == Some("newest");
        until("the last write is seen", seen).await;
    }
}

/// With a grace, the entries are served for that long, and never after the reconnect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_are_served_during_the_grace_period() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let grace = Duration::from_secs(4);
        let near = near(proxy.port)
            .on_disconnect(OnDisconnect::ServeFor(grace))
            .request_timeout(Duration::from_millis(500));
        let near = near.connect().await.unwrap();
        writer.set("k", "old").await;
        until("the key is loaded", async || near.get("k").await.is_ok()).await;

        proxy.refuse(true);
        proxy.cut();
        lost(&near, 1).await;
        let noticed = Instant::now();
        writer.set("k", "new").await;
        assert_eq!(read(&near, "k").await, "old");
        let cold = near.get("cold").await;
        assert!(
            matches!(cold, Err(NearError::Unavailable { .. })),
            "{cold:?}"
        );
        // The grace ends.
        until("the grace is over", async || near.get("k").await.is_err()).await;
        assert!(
            noticed.elapsed() > grace / 2,
            "over after {:?}",
            noticed.elapsed()
        );
        proxy.refuse(false);
        connected(&near).await;
        until("the new value is read", async || {
            near.get("k").await.is_ok()
        })
        .await;
        assert_eq!(read(&near, "k").await, "new");

        // The reconnect ends it, too: no reader sees the old value once a new one was seen.
        proxy.cut();
        lost(&near, 2).await;
        writer.set("k", "newest").await;
        connected(&near).await;
        until("the newest value is read", async || {
            near.get("k").await.is_ok()
        })
        .await;
        assert_eq!(read(&near, "k").await, "newest");
    }
}

/// Point 3: replies and reports that the old connection still delivers change nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_old_connection_never_touches_the_new_generation() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(proxy.port)
            .heartbeat(Duration::from_secs(1))
            .connect()
            .await
            .unwrap();
        writer.set("k", "old").await;
        proxy.hold(Direction::ToClient);
        let reading = tokio::spawn({
            let near = near.clone();
            async move { read(&near, "k").await }
        });
        until("the server has the request", async || {
            writer.clone().calls("getrange").await == 1
        })
        .await;
        writer.set("k", "new").await;
        // The server cuts the old connection; what it sent before is still held back.
        writer
            .send::<i64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
            .await;
        // The heartbeat finds the connection silent; the request continues over the next one.
        assert_eq!(reading.await.unwrap(), "new");
        assert_eq!(near.stats().lost_connections(), 1);
        let (loads, pushes) = (near.stats().loads(), near.stats().invalidated_keys());
        proxy.release(Direction::ToClient);
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(read(&near, "k").await, "new");
        assert_eq!(near.stats().loads(), loads, "still kept");
        assert_eq!(near.stats().invalidated_keys(), pushes);
    }
}

/// A link that is silently dead is given up within two heartbeats.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_link_is_given_up() {
    for program in installed() {
        for direction in [Direction::ToClient, Direction::ToServer] {
            let server = Server::start(&program, &[]).await;
            let proxy = Proxy::to(server.port).await;
            let mut writer = Writer::connect(server.port).await;
            let near = near(proxy.port)
                .heartbeat(Duration::from_millis(200))
                .request_timeout(Duration::from_millis(800));
            let near = near.connect().await.unwrap();
            writer.set("k", "old").await;
            until("the key is loaded", async || near.get("k").await.is_ok()).await;
            proxy.hold_all(direction);
            writer.set("k", "new").await;
            let begun = Instant::now();
            let ended = async || !matches!(near.get("k").await, Ok(Some(v)) if v == "old");
            until("the old value is not served any more", ended).await;
            println!("{direction:?}: served for {:?}", begun.elapsed());
            assert!(begun.elapsed() < Duration::from_secs(10));
            proxy.release(direction);
            until("the new value is read", async || {
                near.get("k").await.is_ok()
            })
            .await;
            assert_eq!(near.get("k").await.unwrap().as_deref(), Some("new"));
        }
    }
}

/// Many losses in a row, while values change and readers read: no reader goes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_reader_goes_back_over_many_losses() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(proxy.port).connect().await.unwrap();
        writer.set("k", "0").await;
        let reader = tokio::spawn({
            let near = near.clone();
            async move {
                let mut last = 0;
                while last < 600 {
                    let now: u64 = read(&near, "k").await.parse().unwrap();
                    assert!(now >= last, "went back from {last} to {now}");
                    last = now;
                    tokio::task::yield_now().await;
                }
            }
        });
        for version in 1..=600 {
            writer.set("k", &version.to_string()).await;
            match version % 60 {
                20 => proxy.cut(),
                40 => proxy.half_close(Direction::ToServer),
                50 => proxy.half_close(Direction::ToClient),
                _ => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
        reader.await.unwrap();
        assert!(near.stats().lost_connections() >= 1);
        // The push handler counts a loss just after it has ended the connection.
        until("each loss is counted", async || {
            near.stats().connections() == near.stats().lost_connections() + 1
        })
        .await;
    }
}

/// The longest durations mean "for ever", and no arithmetic with them fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn durations_without_an_end_are_allowed() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(proxy.port)
            .on_disconnect(OnDisconnect::ServeFor(Duration::MAX))
            .heartbeat(Duration::MAX)
            .connect_timeout(Duration::MAX)
            .request_timeout(Duration::MAX)
            .local_ttl(Duration::MAX)
            .absent_ttl(Duration::MAX)
            .load_lock(LoadLock::new(Duration::MAX).longest_wait(Duration::MAX));
        let near = near.connect().await.unwrap();
        let load = std::future::ready("loaded".to_string());
        near.get_with("loaded", Duration::MAX, load).await.unwrap();
        assert_eq!(writer.send::<String>(&["GET", "loaded"]).await, "loaded");
        let mut exists = async || writer.clone().send::<bool>(&["EXISTS", "loading"]).await;
        let loading = tokio::spawn({
            let near = near.clone();
            async move { near.get_with("loading", None, std::future::pending()).await }
        });
        until("the key is claimed", &mut exists).await;
        loading.abort();
        until("the placeholder is removed", async || !exists().await).await;
        writer.set("k", "old").await;
        assert_eq!(read(&near, "k").await, "old");
        assert_eq!(near.get("absent").await.unwrap(), None);
        proxy.refuse(true);
        proxy.cut();
        lost(&near, 1).await;
        writer.set("k", "new").await;
        for _ in 0..100 {
            assert_eq!(read(&near, "k").await, "old");
            assert_eq!(near.get("absent").await.unwrap(), None);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        proxy.refuse(false);
        connected(&near).await;
        assert_eq!(read(&near, "k").await, "new");
    }
}

/// All blocking threads of the runtime are busy, so the walk that removes outdated entries cannot
/// begin. Nothing waits for it: not the reconnect, not a read, not the heartbeat, not `close`.
#[test]
fn a_walk_that_cannot_begin_delays_nothing() {
    for program in installed() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (let_go, gate) = std::sync::mpsc::channel::<()>();
        runtime.spawn_blocking(move || gate.recv());
        runtime.block_on(async {
            let server = Server::start(&program, &[]).await;
            let proxy = Proxy::to(server.port).await;
            let mut writer = Writer::connect(server.port).await;
            let near = near(proxy.port)
                .heartbeat(Duration::from_millis(500))
                .request_timeout(Duration::from_secs(10));
            let near = near.connect().await.unwrap();
            let keys = || (0..300).map(|n| format!("k{n}"));
            let set_all = async |writer: &mut Writer, value: &str| {
                for key in keys() {
                    writer.set(&key, value).await;
                }
            };
            set_all(&mut writer, "old").await;
            values(near.get_all(keys()).await);

            // After a loss.
            proxy.cut();
            lost(&near, 1).await;
            set_all(&mut writer, "new").await;
            connected(&near).await;
            proxy.take_sent();
            let found = values(near.get_all(keys()).await);
            assert!(found.iter().all(|value| value.as_deref() == Some("new")));
            let pieces = proxy.take_sent().len();
            assert!(
                pieces <= 20,
                "{pieces} requests, though entries are outdated"
            );

            // After a report about everything; the heartbeat continues.
            writer.send::<()>(&["FLUSHALL"]).await;
            until("the report has arrived", async || {
                near.stats().invalidations_of_everything() == 1
            })
            .await;
            assert_eq!(near.get("k0").await.unwrap(), None);
            proxy.hold(Direction::ToClient);
            lost(&near, 2).await;
            connected(&near).await;
            assert_eq!(near.get("k0").await.unwrap(), None);
            assert_eq!(near.stats().flushes(), 0, "no walk has begun");

            let begun = Instant::now();
            near.close().await;
            assert!(
                begun.elapsed() < Duration::from_secs(15),
                "{:?}",
                begun.elapsed()
            );
        });
        drop(let_go);
    }
}

/// Five reads in turn take one `request_timeout` together, whether connections are refused or get
/// no answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_fail_at_once_while_no_connection_can_be_made() {
    for program in installed() {
        for silent in [false, true] {
            let server = Server::start(&program, &[]).await;
            let proxy = Proxy::to(server.port).await;
            let limit = Duration::from_secs(3);
            let near = near(proxy.port).request_timeout(limit).fail_fast_after(3);
            let near = near.connect().await.unwrap();
            proxy.refuse(!silent);
            if silent {
                proxy.hold_all(Direction::ToClient);
            }
            proxy.cut();
            lost(&near, 1).await;
            let begun = Instant::now();
            for _ in 0..5 {
                let error = near.get("k").await.unwrap_err();
                assert!(error.is_transient(), "{error:?}");
            }
            let all = begun.elapsed();
            println!("silent {silent}: {all:?}");
            assert!(all < limit + limit / 2, "{all:?}");
            let written = near.set("k", "v".to_string(), None).await;
            assert!(
                matches!(written, Err(NearError::Unavailable { .. })),
                "{written:?}"
            );
            assert_eq!(near.stats().writes(), 0, "nothing was sent");
            // Until the next attempt that succeeds.
            proxy.release(Direction::ToClient);
            proxy.refuse(false);
            connected(&near).await;
            assert_eq!(near.get("k").await.unwrap(), None);
        }
    }
}
