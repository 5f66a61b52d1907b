//! Values of the user's source.

use crate::support::server::{Server, installed};
use crate::support::{Near, Writer, client, near, until};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use wheelhouse_redis::{NearCache, NearError};

const TTL: Duration = Duration::from_secs(100);

/// A source that counts how often it is asked.
#[derive(Clone, Default)]
struct Source(Arc<AtomicU64>);

impl Source {
    async fn load(self) -> String {
        let count = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
        format!("v{count}")
    }

    fn asked(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

async fn ask_from_many_tasks(caches: &[Near], tasks: usize, source: &Source) -> Vec<String> {
    let mut asking = JoinSet::new();
    for task in 0..tasks {
        let (near, source) = (caches[task % caches.len()].clone(), source.clone());
        asking.spawn(async move { near.get_with("k", TTL, source.load()).await.unwrap() });
    }
    asking.join_all().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_loads_once() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port).absent_ttl(TTL).connect().await.unwrap();
        // An absence in memory is no value.
        assert_eq!(near.get("k").await.unwrap(), None);
        let source = Source::default();
        let found = ask_from_many_tasks(std::slice::from_ref(&near), 200, &source).await;
        assert!(found.iter().all(|value| value == "v1"), "{found:?}");
        assert_eq!(source.asked(), 1);
        let at_server: String = writer.send(&["GET", "k"]).await;
        assert_eq!(at_server, "v1");
        let ttl: i64 = writer.send(&["TTL", "k"]).await;
        assert!((1..=100).contains(&ttl), "{ttl}");
        // In memory, and invalidated as any entry.
        until("the key is kept", async || near.get("k").await.is_ok()).await;
        let loads = near.stats().loads();
        let again = near
            .get_with("k", TTL, source.clone().load())
            .await
            .unwrap();
        assert_eq!((again.as_str(), near.stats().loads()), ("v1", loads));
        writer.set("k", "theirs").await;
        let seen = async || {
            near.get_with("k", TTL, source.clone().load())
                .await
                .unwrap()
                == "theirs"
        };
        until("the write is seen", seen).await;
        assert_eq!(source.asked(), 1);
    }
}

/// With the lock, one of four processes loads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_processes_load_once_with_the_lock() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let mut caches = Vec::new();
        for _ in 0..4 {
            let near = near(server.port).load_lock(Duration::from_secs(60));
            caches.push(near.connect().await.unwrap());
        }
        for round in 1..=5 {
            let source = Source::default();
            let found = ask_from_many_tasks(&caches, 200, &source).await;
            assert!(found.iter().all(|value| value == "v1"), "{found:?}");
            assert_eq!(source.asked(), 1, "round {round}");
            writer.send::<u64>(&["DEL", "k"]).await;
            let gone = async || {
                for near in &caches {
                    if near.get("k").await.unwrap().is_some() {
                        return false;
                    }
                }
                true
            };
            until("all have heard of the deletion", gone).await;
        }
    }
}

/// A placeholder of a process that has died ends with its life; a cancelled load removes its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_placeholder_ends_by_itself_or_with_its_load() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port).load_lock(Duration::from_secs(60));
        let near = near.connect().await.unwrap();
        writer
            .send::<()>(&["SET", "k", "\0wheelhouse:loading:7", "PX", "300"])
            .await;
        assert_eq!(near.get("k").await.unwrap(), None, "it is no value");
        let source = Source::default();
        let value = near
            .get_with("k", TTL, source.clone().load())
            .await
            .unwrap();
        assert_eq!((value.as_str(), source.asked()), ("v1", 1));
        let never = near.get_with("other", TTL, std::future::pending());
        let _ = tokio::time::timeout(Duration::from_millis(300), never).await;
        let free = async || writer.clone().send::<u64>(&["EXISTS", "other"]).await == 0;
        until("the placeholder is removed", free).await;
    }
}

/// A load that fails: all that waited share the error, nothing is kept. On one thread, so that a
/// task which has begun waits already.
#[tokio::test]
async fn an_error_of_the_load_is_shared() {
    const TASKS: u64 = 20;
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let near = near(server.port).connect().await.unwrap();
        let (asked, begun) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let (near, asked, begun) = (near.clone(), asked.clone(), begun.clone());
            tasks.spawn(async move {
                begun.fetch_add(1, Ordering::SeqCst);
                let load = async {
                    asked.fetch_add(1, Ordering::SeqCst);
                    while begun.load(Ordering::SeqCst) < TASKS {
                        tokio::task::yield_now().await;
                    }
                    Err::<String, _>(std::io::Error::other("the database is away"))
                };
                near.try_get_with("k", TTL, load).await
            });
        }
        for result in tasks.join_all().await {
            let Err(NearError::Load(source)) = result else {
                panic!("{result:?}");
            };
            assert!(source.downcast_ref::<std::io::Error>().is_some());
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        assert_eq!(near.get("k").await.unwrap(), None);
        let load = async { Ok::<_, Infallible>("fine".to_string()) };
        assert_eq!(near.try_get_with("k", None, load).await.unwrap(), "fine");
    }
}

/// A write that comes while a load runs wins, in this process and in another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_wins_over_a_load() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port).connect().await.unwrap();
        let (own, theirs) = (near.clone(), writer.clone());
        let load = async {
            own.set("k", "written".to_string(), None).await.unwrap();
            "loaded".to_string()
        };
        assert_eq!(near.get_with("k", TTL, load).await.unwrap(), "written");
        assert_eq!(near.get("k").await.unwrap().as_deref(), Some("written"));
        let load = async {
            theirs.clone().set("other", "written").await;
            "loaded".to_string()
        };
        assert_eq!(near.get_with("other", TTL, load).await.unwrap(), "written");
        let at_server: String = writer.send(&["GET", "other"]).await;
        assert_eq!(at_server, "written");
        until("memory agrees", async || {
            near.get("other").await.unwrap().as_deref() == Some("written")
        })
        .await;
    }
}

/// A value that cannot be written is returned, and counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loaded_value_that_cannot_be_written_is_returned() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        writer
            .send::<()>(&["CONFIG", "SET", "maxmemory", "1"])
            .await;
        let near = near(server.port).connect().await.unwrap();
        let load = async { "loaded".to_string() };
        assert_eq!(near.get_with("k", TTL, load).await.unwrap(), "loaded");
        assert_eq!(near.stats().unsaved_loads(), 1);
    }
}

/// The source has nothing: an `Option` keeps that, at the server and in memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_source_does_not_have_is_kept_as_none() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let server = client(server.port);
        let near = NearCache::<String, Option<String>>::builder(server);
        let near = near.connect().await.unwrap();
        for _ in 0..2 {
            let found = near.get_with("k", TTL, async { None }).await;
            assert_eq!(found.unwrap(), None);
        }
        assert_eq!(near.stats().load_runs(), 1);
        assert_eq!(writer.send::<String>(&["GET", "k"]).await, "null");
        let loads = near.stats().loads();
        assert_eq!(near.get("k").await.unwrap(), Some(None));
        assert_eq!(near.stats().loads(), loads, "from memory");
    }
}

/// The flat list has the counts of loads, and the two gauges at its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loads_are_counted_in_the_flat_list() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let near = near(server.port).connect().await.unwrap();
        let (release, released) = tokio::sync::oneshot::channel();
        let leading = near.clone();
        let leading = tokio::spawn(async move {
            let load = async { released.await.unwrap() };
            leading.get_with("k", TTL, load).await
        });
        until("the load runs", async || near.stats().load_runs() == 1).await;
        let waiting = near.clone();
        let waiting = tokio::spawn(async move {
            let own = async { "own".to_string() };
            waiting.get_with("k", TTL, own).await
        });
        until("the call waits", async || near.stats().load_waits() == 1).await;
        release.send("v".to_string()).unwrap();
        for found in [leading.await, waiting.await] {
            assert_eq!(found.unwrap().unwrap(), "v");
        }
        near.try_get_with("l", TTL, async { Err::<String, _>("away") })
            .await
            .unwrap_err();
        let in_memory =
            async || near.get("k").await.is_ok() && near.stats().list().last().unwrap().1 == 1;
        until("the value is in memory", in_memory).await;
        let list: Vec<(&str, u64)> = near.stats().list().collect();
        let of = |name| list.iter().find(|(known, _)| *known == name).unwrap().1;
        assert_eq!(of("load_runs"), 2);
        assert_eq!(of("load_waits"), 1);
        assert_eq!(of("unsaved_loads"), 0);
        assert_eq!(of("refused_keys"), 0);
        assert_eq!(
            list[list.len() - 2..],
            [("connected", 1), ("local_entries", 1)]
        );
        near.close().await;
        let list: Vec<(&str, u64)> = near.stats().list().collect();
        assert_eq!(
            list[list.len() - 2..],
            [("connected", 0), ("local_entries", 0)]
        );
    }
}
