//! Points 1, 2, 6 and 8: invalidations revoke what they must, and never block.

use crate::support::proxy::{Direction, Proxy};
use crate::support::server::{Server, installed};
use crate::support::{Writer, lost, near, read, until};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use wheelhouse::{Cache, RemovalCause};
use wheelhouse_redis::{Cached, Tracking};

/// Point 1. The proxy holds the reply and the report back, so the load is under way when both
/// arrive, in the order that the server chose.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_after_the_reply_revokes_the_load() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(proxy.port).connect().await.unwrap();
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
        proxy.release(Direction::ToClient);

        // It began before the write, so it may see either value.
        assert_eq!(reading.await.unwrap(), "old");
        let heard = async || near.stats().invalidated_keys() == 1;
        until("the report has arrived", heard).await;
        for _ in 0..3 {
            assert_eq!(read(&near, "k").await, "new");
        }
    }
}

/// Point 1. The report of an earlier read arrives before the reply of a later one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_before_the_reply_revokes_the_load() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(proxy.port).connect().await.unwrap();
        writer.set("k", "old").await;
        assert_eq!(read(&near, "k").await, "old");
        near.local().invalidate("k");

        proxy.hold(Direction::ToClient);
        writer.set("k", "new").await;
        let reading = tokio::spawn({
            let near = near.clone();
            async move { read(&near, "k").await }
        });
        until("the server has the request", async || {
            writer.clone().calls("getrange").await == 2
        })
        .await;
        proxy.release(Direction::ToClient);

        assert_eq!(reading.await.unwrap(), "new");
        assert_eq!(near.stats().revoked_loads(), 1);
        assert_eq!(read(&near, "k").await, "new");
        assert_eq!(near.stats().loads(), 3, "the revoked load was not kept");
        // The key is tracked again.
        writer.set("k", "newest").await;
        until("the last write is seen", async || {
            read(&near, "k").await == "newest"
        })
        .await;
    }
}

/// Point 1, at every place where chance puts the write: it races with the read a thousand times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_race_between_a_load_and_a_write_leaves_the_old_value() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port).connect().await.unwrap();
        for version in 0..1000 {
            let key = format!("k{}", version % 7);
            let (mut racing, value) = (writer.clone(), version.to_string());
            let write = {
                let (key, value) = (key.clone(), value.clone());
                tokio::spawn(async move { racing.set(&key, &value).await })
            };
            let _ = near.get(&key).await.unwrap();
            write.await.unwrap();
            until("the write is seen", async || {
                read(&near, &key).await == value
            })
            .await;
            if version % 10 == 0 {
                writer.send::<()>(&["DEL", &key]).await;
            }
        }
    }
}

/// Point 2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_null_report_means_everything() {
    for program in installed() {
        for command in ["FLUSHALL", "FLUSHDB"] {
            let server = Server::start(&program, &[]).await;
            let mut writer = Writer::connect(server.port).await;
            let near = near(server.port).connect().await.unwrap();
            for n in 0..200 {
                writer.set(&format!("k{n}"), "old").await;
                assert_eq!(read(&near, &format!("k{n}")).await, "old");
            }
            writer.send::<()>(&[command]).await;
            let heard = async || near.stats().invalidations_of_everything() == 1;
            until("the report has arrived", heard).await;
            for n in 0..200 {
                assert_eq!(near.get(&format!("k{n}")).await.unwrap(), None, "{command}");
            }
            let empty = async || near.local().iter().all(|entry| entry.value().is_absent());
            until("the old entries are removed", empty).await;
        }
    }
}

/// Point 1 with a null report: a reply that was sent before it is not kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_null_report_outdates_the_loads_under_way() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(proxy.port).connect().await.unwrap();
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
        writer.send::<()>(&["FLUSHALL"]).await;
        proxy.release(Direction::ToClient);
        assert_eq!(reading.await.unwrap(), "old");
        let heard = async || near.stats().invalidations_of_everything() == 1;
        until("the report has arrived", heard).await;
        assert_eq!(near.get("k").await.unwrap(), None);
    }
}

/// Point 2: with broadcast tracking, one report names many keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_array_report_means_all_its_keys() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let prefixes = vec!["k".to_string()];
        let near = near(server.port).tracking(Tracking::Broadcast { prefixes });
        let near = near.connect().await.unwrap();
        let mut write = vec!["MSET".to_string()];
        for n in 0..500 {
            write.extend([format!("k{n}"), "new".to_string()]);
            writer.set(&format!("k{n}"), "old").await;
        }
        // The reports of these writes must not be counted with those of the next one.
        until("reports are heard", async || {
            near.stats().invalidated_keys() >= 500
        })
        .await;
        for n in 0..500 {
            assert_eq!(read(&near, &format!("k{n}")).await, "old");
        }
        let before = near.stats().invalidated_keys();
        let words: Vec<&str> = write.iter().map(String::as_str).collect();
        writer.send::<()>(&words).await;
        let heard = async || near.stats().invalidated_keys() == before + 500;
        until("the report has arrived", heard).await;
        for n in 0..500 {
            assert_eq!(read(&near, &format!("k{n}")).await, "new");
        }
    }
}

/// Point 2: the proxy slips in messages that no server of today sends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_report_means_nothing() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(proxy.port).connect().await.unwrap();
        writer.set("k", "v").await;
        assert_eq!(read(&near, "k").await, "v");
        let unknown: [&[u8]; 4] = [
            b">2\r\n$7\r\nstrange\r\n*1\r\n$1\r\nk\r\n",
            b">1\r\n$7\r\nstrange\r\n",
            b">3\r\n$7\r\nmessage\r\n$1\r\nk\r\n$1\r\nk\r\n",
            b">2\r\n$10\r\ninvalidate\r\n:7\r\n",
        ];
        for (number, bytes) in unknown.into_iter().enumerate() {
            proxy.forge(bytes);
            let heard = async || near.stats().ignored_pushes() == number as u64 + 1;
            until("the message has arrived", heard).await;
            assert_eq!(read(&near, "k").await, "v");
        }
        assert_eq!(near.stats().loads(), 1);
        // Forged reports of the known kinds have their effect, so these arrive, too.
        proxy.forge(b">2\r\n$10\r\ninvalidate\r\n*2\r\n$1\r\nx\r\n$1\r\nk\r\n");
        until("both keys are invalidated", async || {
            near.stats().invalidated_keys() == 2
        })
        .await;
        assert_eq!(read(&near, "k").await, "v");
        assert_eq!(near.stats().loads(), 2);
        assert_eq!(near.stats().lost_connections(), 0);
    }
}

/// Point 2: reported keys that are not ours change nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_of_foreign_keys_have_no_effect() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        // The server reports all keys, but only those under the prefix are ours.
        let tracking = Tracking::Broadcast {
            prefixes: vec!["app:".into(), "other:".into()],
        };
        let near = near(server.port).key_prefix("app:").tracking(tracking);
        let near = near.connect().await.unwrap();
        writer.set("app:k", "v").await;
        until("the first report is heard", async || {
            near.stats().invalidated_keys() == 1
        })
        .await;
        assert_eq!(read(&near, "k").await, "v");
        writer.set("other:k", "x").await;
        until("the report is heard", async || {
            near.stats().foreign_keys() == 1
        })
        .await;
        assert_eq!(read(&near, "k").await, "v");
        assert_eq!(near.stats().loads(), 1);
    }
}

/// Point 6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_write_that_creates_a_key_ends_its_absence() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port)
            .absent_ttl(Duration::from_secs(600))
            .connect()
            .await
            .unwrap();
        for round in 0..20 {
            let key = format!("k{round}");
            for _ in 0..5 {
                assert_eq!(near.get(&key).await.unwrap(), None);
            }
            assert_eq!(near.stats().loads(), 2 * round + 1, "the absence is kept");
            writer.set(&key, "here").await;
            let seen = async || near.get(&key).await.unwrap().as_deref() == Some("here");
            until("the new value is seen", seen).await;
        }
    }
}

/// Without `absent_ttl`, absences are not kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn absences_are_not_kept_unless_asked_for() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let near = near(server.port).connect().await.unwrap();
        for _ in 0..3 {
            assert_eq!(near.get("k").await.unwrap(), None);
        }
        assert_eq!(near.stats().loads(), 3);
    }
}

/// Point 8: a listener that blocks for the whole test delays no invalidation and no read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_blocks_delays_no_invalidation() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let (let_go, gate) = mpsc::channel::<()>();
        let (gate, called) = (Mutex::new(gate), Arc::new(AtomicU64::new(0)));
        let count = called.clone();
        let local = Cache::builder().removal_listener(
            move |_: &String, _: &Cached<String>, _: RemovalCause| {
                count.fetch_add(1, Ordering::SeqCst);
                // Until the test drops the other end.
                let _ = gate.lock().unwrap().recv();
            },
        );
        let near = near(server.port).local(local).connect().await.unwrap();
        for n in 0..2000 {
            let key = format!("k{}", n % 100);
            writer.set(&key, &n.to_string()).await;
            let seen = async || read(&near, &key).await == n.to_string();
            until("the write is seen", seen).await;
        }
        assert_eq!(
            called.load(Ordering::SeqCst),
            1,
            "the first call is still under way"
        );
        drop(let_go);
    }
}

/// Point 8: a listener reads the key anew through the near cache.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_may_call_the_near_cache() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let handle = tokio::runtime::Handle::current();
        let owner: Arc<OnceLock<crate::support::Near>> = Arc::default();
        let (heard, read_again) = mpsc::channel();
        let weak = Arc::downgrade(&owner);
        let local = Cache::builder().removal_listener(
            move |key: &String, _: &Cached<String>, cause: RemovalCause| {
                if cause == RemovalCause::Explicit
                    && let Some(owner) = weak.upgrade()
                    && let Some(near) = owner.get()
                {
                    let now = handle.block_on(near.get(key)).unwrap();
                    heard.send((key.clone(), now)).unwrap();
                }
            },
        );
        let near = near(server.port).local(local).connect().await.unwrap();
        owner.set(near.clone()).unwrap();
        writer.set("k", "old").await;
        assert_eq!(read(&near, "k").await, "old");
        writer.set("k", "new").await;
        let told = tokio::task::spawn_blocking(move || {
            read_again.recv_timeout(Duration::from_secs(20)).unwrap()
        });
        assert_eq!(
            told.await.unwrap(),
            ("k".to_string(), Some("new".to_string()))
        );
    }
}

/// A key whose `Hash` panics in the push handler: nothing outdated is served, nothing breaks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_panics_outdates_everything() {
    use std::hash::{Hash, Hasher};
    use wheelhouse_redis::{NearCache, NearKey, codec};

    thread_local! {
        static READER: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    static PANICS: AtomicU64 = AtomicU64::new(0);

    #[derive(Clone, PartialEq, Eq, Debug)]
    struct Fickle(u64);

    impl Hash for Fickle {
        fn hash<H: Hasher>(&self, state: &mut H) {
            if self.0 == 13 && PANICS.load(Ordering::SeqCst) == 1 && !READER.get() {
                PANICS.store(2, Ordering::SeqCst);
                panic!("a hash that panics, on purpose");
            }
            self.0.hash(state);
        }
    }

    impl NearKey for Fickle {
        fn write_bytes(&self, out: &mut Vec<u8>) {
            self.0.write_bytes(out);
        }

        fn from_bytes(bytes: &[u8]) -> Option<Self> {
            u64::from_bytes(bytes).map(Fickle)
        }
    }

    for program in installed() {
        PANICS.store(0, Ordering::SeqCst);
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = NearCache::<Fickle, Vec<u8>>::builder(crate::support::client(server.port))
            .codec(codec::Bytes)
            .request_timeout(Duration::from_secs(10))
            .connect()
            .await
            .unwrap();
        writer.set("13", "old").await;
        assert_eq!(
            near.get(&Fickle(13)).await.unwrap().as_deref(),
            Some(&b"old"[..])
        );
        PANICS.store(1, Ordering::SeqCst);
        writer.set("13", "new").await;
        until("the hash has panicked", async || {
            PANICS.load(Ordering::SeqCst) == 2
        })
        .await;
        let heard = async || near.stats().invalidations_of_everything() == 1;
        until("everything is outdated", heard).await;
        assert_eq!(
            near.get(&Fickle(13)).await.unwrap().as_deref(),
            Some(&b"new"[..])
        );
        assert!(near.is_connected());
    }
}

/// The way of an invalidation is short: far below the time-outs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_is_seen_when_its_report_has_arrived() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port).connect().await.unwrap();
        let mut worst = Duration::ZERO;
        for n in 0..200 {
            writer.set("k", &n.to_string()).await;
            let acknowledged = Instant::now();
            until("the write is seen", async || {
                read(&near, "k").await == n.to_string()
            })
            .await;
            worst = worst.max(acknowledged.elapsed());
        }
        assert!(worst < Duration::from_secs(5), "{worst:?}");
        assert_eq!(near.stats().lost_connections(), 0);
        drop(server);
        lost(&near, 1).await;
    }
}
