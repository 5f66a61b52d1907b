//! Tracking modes, prefixes, codecs, handles.

use crate::support::proxy::{Direction, Proxy};
use crate::support::server::{Server, installed};
use crate::support::{Near, Writer, client, near, read, until, values};
use std::time::{Duration, Instant};
use wheelhouse::{Cache, RemovalCause};
use wheelhouse_redis::{Cached, NearCache, NearError, Tracking};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_mode_learns_of_changes() {
    for program in installed() {
        let prefixes = || vec!["a:".to_string(), "b:".to_string()];
        for tracking in [
            Tracking::Default,
            Tracking::OptIn,
            Tracking::Broadcast { prefixes: vec![] },
            Tracking::Broadcast {
                prefixes: prefixes(),
            },
        ] {
            let server = Server::start(&program, &[]).await;
            let mut writer = Writer::connect(server.port).await;
            let near = near(server.port)
                .tracking(tracking.clone())
                .connect()
                .await
                .unwrap();
            for round in 0..50 {
                let key = format!("{}:{}", ["a", "b"][round % 2], round % 5);
                let value = round.to_string();
                writer.set(&key, &value).await;
                until("the write is seen", async || {
                    read(&near, &key).await == value
                })
                .await;
                // A report under way may have revoked the load, but not every one.
                until("the key is kept", async || {
                    let loads = near.stats().loads();
                    assert_eq!(read(&near, &key).await, value);
                    near.stats().loads() == loads
                })
                .await;
                near.set(&key, format!("own {round}"), None).await.unwrap();
                assert_eq!(read(&near, &key).await, format!("own {round}"));
                let keys = (0..3).map(|n| format!("a:{n}"));
                assert_eq!(values(near.get_all(keys).await).len(), 3);
            }
        }
    }
}

/// With opt-in, the server tracks what was announced, in a pipeline of many keys, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opt_in_announces_each_key() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port)
            .tracking(Tracking::OptIn)
            .connect()
            .await
            .unwrap();
        let keys = || (0..50).map(|n| format!("k{n}"));
        for key in keys() {
            writer.set(&key, "old").await;
        }
        values(near.get_all(keys()).await);
        for key in keys() {
            writer.set(&key, "new").await;
        }
        until("all are invalidated", async || {
            near.stats().invalidated_keys() == 50
        })
        .await;
        for key in keys() {
            assert_eq!(read(&near, &key).await, "new");
        }
    }
}

/// What the server does not report is not kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_outside_the_prefixes_are_read_but_not_kept() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let prefixes = vec!["a:".to_string()];
        let near = near(server.port).tracking(Tracking::Broadcast { prefixes });
        let near = near.connect().await.unwrap();
        for value in ["one", "two", "three"] {
            writer.set("z:1", value).await;
            assert_eq!(read(&near, "z:1").await, value);
        }
        assert_eq!(near.stats().loads(), 3);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefix_separates_two_near_caches() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let make = |prefix: &'static str, tracking| {
            let client = client(server.port);
            let near = NearCache::<u64, Vec<u32>>::builder(client).key_prefix(prefix);
            near.tracking(tracking)
                .request_timeout(Duration::from_secs(10))
                .connect()
        };
        let empty = || Tracking::Broadcast { prefixes: vec![] };
        let (users, orders) = (make("user:", Tracking::Default), make("order:", empty()));
        let (users, orders) = (users.await.unwrap(), orders.await.unwrap());
        users.set(7, vec![1, 2], None).await.unwrap();
        orders.set(7, vec![3], None).await.unwrap();
        assert_eq!(users.get(&7).await.unwrap(), Some(vec![1, 2]));
        assert_eq!(orders.get(&7).await.unwrap(), Some(vec![3]));
        assert_eq!(writer.send::<String>(&["GET", "user:7"]).await, "[1,2]");
        writer.set("user:7", "[9]").await;
        writer.set("order:7", "[8]").await;
        until("both hear", async || {
            users.get(&7).await.unwrap() == Some(vec![9])
                && orders.get(&7).await.unwrap() == Some(vec![8])
        })
        .await;
        assert_eq!(
            orders.stats().foreign_keys(),
            0,
            "the server reports this prefix alone"
        );
    }
}

/// A key type that does not come back from its bytes would never be invalidated: an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_does_not_come_back_is_an_error() {
    use wheelhouse_redis::NearKey;

    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Lossy(u64);

    impl NearKey for Lossy {
        fn write_bytes(&self, out: &mut Vec<u8>) {
            (self.0 % 10).write_bytes(out);
        }

        fn from_bytes(bytes: &[u8]) -> Option<Self> {
            u64::from_bytes(bytes).map(Lossy)
        }
    }

    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let near = NearCache::<Lossy, u32>::builder(client(server.port))
            .connect()
            .await
            .unwrap();
        assert_eq!(near.get(&Lossy(7)).await.unwrap(), None);
        let found = near.get(&Lossy(17)).await;
        assert!(
            matches!(&found, Err(NearError::Key { key }) if key == "7"),
            "{found:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_ends_all_handles() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port).connect().await.unwrap();
        writer.set("k", "v").await;
        assert_eq!(read(&near, "k").await, "v");
        let other: Near = near.clone();
        near.close().await;
        near.close().await;
        for result in [other.get("k").await, other.refresh("k").await] {
            assert!(matches!(result, Err(NearError::Closed)), "{result:?}");
        }
        let written = other.set("k".to_string(), "w".to_string(), None).await;
        assert!(matches!(written, Err(NearError::Closed)), "{written:?}");
        assert_eq!(near.local().entry_count(), 0);
        let gone = async || {
            let clients: String = writer.clone().send(&["CLIENT", "LIST"]).await;
            clients
                .lines()
                .filter(|line| !line.contains("cmd=client|list"))
                .count()
                == 0
        };
        until("the connection is closed", gone).await;
    }
}

/// Calls are under way when the near cache is closed: a read that waits for its reply, a write that
/// was sent, and a load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_ends_calls_under_way() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(proxy.port).connect().await.unwrap();
        let (release, released) = tokio::sync::oneshot::channel();
        let calls = near.clone();
        let loading = tokio::spawn(async move {
            let load = async { released.await.unwrap() };
            calls.get_with("loaded", None, load).await
        });
        until("the load runs", async || near.stats().load_runs() == 1).await;
        proxy.hold(Direction::ToClient);
        let calls = near.clone();
        let reading = tokio::spawn(async move { calls.get("read").await });
        let calls = near.clone();
        let value = "v".to_string();
        let writing = tokio::spawn(async move { calls.set("written", value, None).await });
        until("the write has reached the server", async || {
            writer.clone().send::<u64>(&["EXISTS", "written"]).await == 1
        })
        .await;
        let begun = Instant::now();
        near.close().await;
        let read = reading.await.unwrap();
        assert!(matches!(read, Err(NearError::Closed)), "{read:?}");
        let written = writing.await.unwrap();
        let unconfirmed = matches!(written, Err(NearError::Unconfirmed { .. }));
        assert!(unconfirmed, "{written:?}");
        release.send("v".to_string()).unwrap();
        assert_eq!(loading.await.unwrap().unwrap(), "v");
        assert_eq!(near.stats().unsaved_loads(), 1);
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}");
        // Its placeholder ends with its life.
        let left: i64 = writer.send(&["PTTL", "loaded"]).await;
        assert!(left <= 1700 && left != -1, "{left}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_handle_closes_the_connection() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let writer = Writer::connect(server.port).await;
        let near = near(server.port).connect().await.unwrap();
        let clients = async || {
            let clients: String = writer.clone().send(&["CLIENT", "LIST"]).await;
            clients.lines().count()
        };
        // A connection of the server's start may not be closed yet.
        until("two are connected", async || clients().await == 2).await;
        drop(near.clone());
        assert_eq!(near.get("k").await.unwrap(), None);
        drop(near);
        until("the connection is closed", async || clients().await == 1).await;
    }
}

/// The runtime that keeps the connection ends: nothing is served any more.
#[test]
fn nothing_is_served_after_the_runtime() {
    for program in installed() {
        let outer = tokio::runtime::Runtime::new().unwrap();
        let server = outer.block_on(Server::start(&program, &[]));
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let near = runtime.block_on(async {
            let near = near(server.port).connect().await.unwrap();
            near.set("k".to_string(), "v".to_string(), None)
                .await
                .unwrap();
            assert_eq!(read(&near, "k").await, "v");
            near
        });
        drop(runtime);
        let found = outer.block_on(near.get("k"));
        assert!(matches!(found, Err(NearError::Closed)), "{found:?}");
    }
}

/// A task that does nothing but hit, on a runtime with one thread, hears of changes all the same.
#[test]
fn a_task_that_only_hits_learns_of_changes() {
    for program in installed() {
        let outer = tokio::runtime::Runtime::new().unwrap();
        let (server, writer) = outer.block_on(async {
            let server = Server::start(&program, &[]).await;
            let writer = Writer::connect(server.port).await;
            (server, writer)
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        for together in [false, true] {
            let near = runtime.block_on(async {
                let near = near(server.port).connect().await.unwrap();
                near.set("k".to_string(), "old".to_string(), None)
                    .await
                    .unwrap();
                near
            });
            let read = async || match together {
                false => near.get("k").await.unwrap(),
                true => values(near.get_all(["k".to_string()]).await).remove(0),
            };
            assert_eq!(runtime.block_on(read()).as_deref(), Some("old"));
            outer.block_on(writer.clone().set("k", "new"));
            let seen = runtime.block_on(async {
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_secs(10) {
                    if read().await.as_deref() == Some("new") {
                        return true;
                    }
                }
                false
            });
            assert!(seen, "together: {together}");
        }
    }
}

/// The last handle is dropped while a listener needs the runtime, which has one thread: the drop of
/// the local cache waits for the listener, and must not do so on that thread.
#[test]
fn the_end_waits_for_no_listener_on_the_runtime() {
    let cases = installed()
        .into_iter()
        .flat_map(|p| [(p.clone(), false), (p, true)]);
    for (program, closes) in cases {
        let (ended, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let server = Server::start(&program, &[]).await;
                let handle = tokio::runtime::Handle::current();
                let (heard, told) = std::sync::mpsc::channel();
                let local = Cache::builder().removal_listener(
                    move |_: &String, _: &Cached<String>, _: RemovalCause| {
                        // A timer is made inside of the runtime: this thread may be outside.
                        handle.block_on(async {
                            tokio::time::sleep(Duration::from_millis(1)).await;
                        });
                        heard.send(()).unwrap();
                    },
                );
                let near = near(server.port).local(local).connect().await.unwrap();
                let mut writer = Writer::connect(server.port).await;
                for n in 0..20 {
                    writer.set(&format!("k{n}"), "v").await;
                    assert_eq!(read(&near, &format!("k{n}")).await, "v");
                }
                if closes {
                    near.close().await;
                }
                drop(near);
                for _ in 0..20 {
                    until("the listener is told", async || told.try_recv().is_ok()).await;
                }
            });
            ended.send(()).unwrap();
        });
        assert!(end.recv_timeout(Duration::from_secs(30)).is_ok());
    }
}
