//! Loads across processes: each near cache here stands for a process of its own.

use crate::support::proxy::{Direction, Proxy};
use crate::support::server::{Server, installed};
use crate::support::{Near, Writer, connected, lost, near, until};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use wheelhouse::refresh;
use wheelhouse_redis::codec::{BoxError, Codec};
use wheelhouse_redis::{Credentials, LoadLock, Loaded, NearError, Tracking};

const TTL: Duration = Duration::from_secs(3600);

async fn load_after(pause: Duration, value: &str) -> String {
    sleep(pause).await;
    value.to_string()
}

/// A `DEL` of an absent key is not reported, and ends a load all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_wins_over_a_load_of_another_process() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        for lock in [None, Some(Duration::from_secs(10))] {
            let builder = || match lock {
                Some(life) => near(server.port).load_lock(life),
                None => near(server.port),
            };
            let loading = builder().connect().await.unwrap();
            let deleting = builder().connect().await.unwrap();
            let load = async {
                let row = load_after(Duration::from_millis(100), "v1").await;
                // Another process changes the row, and deletes the key.
                assert!(deleting.delete("user:1").await.unwrap(), "the placeholder");
                sleep(Duration::from_millis(100)).await;
                row
            };
            loading.get_with("user:1", TTL, load).await.unwrap();
            assert_eq!(loading.stats().unsaved_loads(), 1);
            for near in [&loading, &deleting] {
                let load = load_after(Duration::ZERO, "v2");
                assert_eq!(near.get_with("user:1", TTL, load).await.unwrap(), "v2");
            }
            loading.delete("user:1").await.unwrap();
        }
    }
}

/// A call that begins after a delete does not join a load that began before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_after_a_delete_loads_anew() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let near = near(server.port).connect().await.unwrap();
        let mut writer = Writer::connect(server.port).await;
        let old = tokio::spawn({
            let near = near.clone();
            async move {
                let load = load_after(Duration::from_millis(900), "old");
                near.get_with("k", TTL, load).await
            }
        });
        let claimed = async || writer.clone().send::<u64>(&["EXISTS", "k"]).await == 1;
        until("the key is claimed", claimed).await;
        writer.send::<()>(&["DEL", "k"]).await;
        sleep(Duration::from_millis(100)).await;
        let begun = Instant::now();
        let new = near
            .get_with("k", TTL, load_after(Duration::ZERO, "new"))
            .await;
        assert_eq!(new.unwrap(), "new");
        assert!(
            begun.elapsed() < Duration::from_millis(700),
            "{:?}",
            begun.elapsed()
        );
        // The older load ends: it returns what the key has.
        assert_eq!(old.await.unwrap().unwrap(), "new");
        assert_eq!(writer.send::<String>(&["GET", "k"]).await, "new");
    }
}

/// Calls are cancelled at any moment: no placeholder stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_calls_leave_no_placeholder() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let writer = Writer::connect(server.port).await;
        // One near cache: it goes on removing what a claim on its way leaves.
        let near = near(proxy.port).load_lock(Duration::from_secs(60));
        let near = near.connect().await.unwrap();
        for delay in [Duration::ZERO, Duration::from_millis(20)] {
            proxy.delay(Direction::ToClient, delay);
            let mut calls = JoinSet::new();
            for n in 0..200u32 {
                let near = near.clone();
                calls.spawn(async move {
                    let key = format!("k{n}");
                    let never = near.get_with(&key, TTL, std::future::pending());
                    let limit = (delay + Duration::from_micros(500)) * 3 * n / 200;
                    assert!(timeout(limit, never).await.is_err());
                });
            }
            calls.join_all().await;
            let free = async || writer.clone().send::<u64>(&["DBSIZE"]).await == 0;
            // Within less than the life of 60 s, which ends none of them.
            until("no placeholder is left", free).await;
        }
    }
}

/// So are calls for many keys: while they claim, while they load, and while they write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_calls_for_many_keys_leave_no_placeholder() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(proxy.port).load_lock(Duration::from_secs(60));
        let near = near.connect().await.unwrap();
        proxy.delay(Direction::ToClient, Duration::from_millis(5));
        for n in 0..40u64 {
            let load = async |keys: Vec<String>| {
                sleep(Duration::from_millis(10)).await;
                Ok::<_, NearError>(keys.into_iter().map(Some).collect())
            };
            let keys = (0..200).map(|key| key.to_string());
            let call = near.get_all_with(keys, TTL, load);
            let _ = timeout(Duration::from_millis(2 * n), call).await;
            until("no placeholder is left", async || {
                let mut writer = writer.clone();
                let keys: Vec<String> = writer.send(&["KEYS", "*"]).await;
                let mut left = 0;
                for key in keys {
                    let value: Vec<u8> = writer.send(&["GET", &key]).await;
                    left += usize::from(value.starts_with(b"\0wheelhouse:loading:"));
                }
                left == 0
            })
            .await;
            writer.send::<()>(&["FLUSHALL"]).await;
        }
    }
}

/// A load panics, or the codec on what it has loaded: the call panics, no placeholder stays, and a
/// call that waits takes over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_that_panics_leaves_no_placeholder() {
    struct Picky;
    impl Codec<String> for Picky {
        fn encode(&self, value: &String) -> Result<Vec<u8>, BoxError> {
            assert!(value != "panics", "as the test wants it");
            Ok(value.clone().into_bytes())
        }
        fn decode(&self, bytes: &[u8]) -> Result<String, BoxError> {
            Ok(String::from_utf8(bytes.to_vec())?)
        }
    }
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let writer = Writer::connect(server.port).await;
        let near = near(server.port).codec(Picky);
        let near = near.load_lock(Duration::from_secs(60)).connect().await;
        let near = near.unwrap();
        for panics_early in [true, false] {
            let leading = near.clone();
            let leading = tokio::spawn(async move {
                let load = async {
                    sleep(Duration::from_millis(100)).await;
                    assert!(!panics_early, "as the test wants it");
                    "panics".to_string()
                };
                leading.get_with("k", TTL, load).await
            });
            until("the placeholder is there", async || {
                writer.clone().send::<u64>(&["EXISTS", "k"]).await == 1
            })
            .await;
            let load = load_after(Duration::ZERO, "v");
            assert_eq!(near.get_with("k", TTL, load).await.unwrap(), "v");
            assert!(leading.await.unwrap_err().is_panic());
            near.delete("k").await.unwrap();
        }
    }
}

/// The connection ends between the claim and its reply: the placeholder is removed over the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_cut_off_leaves_no_placeholder() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let writer = Writer::connect(server.port).await;
        let near = near(proxy.port).load_lock(Duration::from_secs(60));
        let near = near.connect().await.unwrap();
        let call = tokio::spawn({
            let near = near.clone();
            async move {
                let never = near.get_with("k", TTL, std::future::pending());
                let _ = timeout(Duration::from_millis(1500), never).await;
            }
        });
        // The answer that the key is absent takes a moment: then the claim is under way.
        proxy.delay(Direction::ToClient, Duration::from_millis(50));
        let claimed = async || writer.clone().send::<u64>(&["EXISTS", "k"]).await == 1;
        until("the key is claimed", claimed).await;
        proxy.cut();
        proxy.delay(Direction::ToClient, Duration::ZERO);
        call.await.unwrap();
        connected(&near).await;
        let free = async || writer.clone().send::<u64>(&["EXISTS", "k"]).await == 0;
        until("the placeholder is removed", free).await;
    }
}

/// A process waits for the load of another one, which takes longer than the placeholder's life:
/// it is told, or looks twice a second where the server reports nothing, and asks hardly anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_waits_is_told() {
    for (program, tracking) in in_each_mode() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let late = match tracking {
            Tracking::Broadcast { .. } => Duration::from_millis(750),
            _ => Duration::from_millis(250),
        };
        let loading = near(server.port).connect().await.unwrap();
        let waiting = near(proxy.port).tracking(tracking);
        let waiting = waiting.connect().await.unwrap();
        let ended = tokio::spawn(async move {
            let load = load_after(Duration::from_millis(4000), "loaded");
            loading.get_with("k", TTL, load).await.unwrap();
            Instant::now()
        });
        let claimed = async || writer.clone().send::<u64>(&["EXISTS", "k"]).await == 1;
        until("the key is claimed", claimed).await;
        proxy.take_sent();
        let begun = Instant::now();
        let found = waiting
            .get_with("k", TTL, load_after(Duration::ZERO, "own"))
            .await;
        let told = Instant::now();
        assert_eq!(found.unwrap(), "loaded");
        assert_eq!(waiting.stats().load_waits(), 1);
        let ended = ended.await.unwrap();
        assert!(told < ended + late, "{:?}", told - ended);
        let sent = proxy.take_sent().concat();
        let commands = ["GETRANGE\r\n", "PTTL\r\n", "CACHING\r\n"];
        let commands = commands.map(|name| sent.matches(name).count());
        let all: usize = commands.iter().sum();
        let seconds = (told - begun).as_secs_f64();
        println!("{all} commands in {seconds:.1} s");
        // Five a second, the first look and the last one included.
        assert!(all as f64 <= seconds * 5.0, "{all}: {sent}");
        assert_eq!(sent.matches("EVAL\r\n").count(), 0, "{sent}");
        // A plain read of the placeholder says that there is nothing.
        writer.send::<()>(&["DEL", "k"]).await;
    }
}

/// Each installed server, in each mode in which it tells of single keys, and in one in which it
/// tells nothing of the keys of the tests.
fn in_each_mode() -> impl Iterator<Item = (PathBuf, Tracking)> {
    let prefixes = vec!["other:".to_string()];
    let modes = [
        Tracking::Default,
        Tracking::OptIn,
        Tracking::Broadcast { prefixes },
    ];
    let each = move |program: PathBuf| modes.clone().map(|mode| (program.clone(), mode));
    installed().into_iter().flat_map(each)
}

/// Four processes load at the same time: all return what the key has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_processes_return_one_value() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut caches = Vec::new();
        for _ in 0..4 {
            caches.push(near(server.port).connect().await.unwrap());
        }
        for round in 0..20 {
            let key = format!("k{round}");
            let loads = Arc::new(AtomicU64::new(0));
            let mut calls = JoinSet::new();
            for task in 0..40 {
                let (near, key, loads) = (caches[task % 4].clone(), key.clone(), loads.clone());
                calls.spawn(async move {
                    let load = async {
                        let number = loads.fetch_add(1, Ordering::SeqCst);
                        load_after(Duration::from_millis(5), &number.to_string()).await
                    };
                    let begun = Instant::now();
                    let found = near.get_with(&key, TTL, load).await.unwrap();
                    assert!(
                        begun.elapsed() < Duration::from_secs(5),
                        "{:?}",
                        begun.elapsed()
                    );
                    found
                });
            }
            let found = calls.join_all().await;
            assert!(found.iter().all(|value| value == "0"), "{found:?}");
        }
    }
}

/// A plain read does not wait for a load, and a refresh throws no loaded value away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_do_not_wait_for_a_load_nor_disturb_it() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port).connect().await.unwrap();
        let load = async {
            let begun = Instant::now();
            assert_eq!(near.get("k").await.unwrap(), None);
            assert_eq!(near.refresh("k").await.unwrap(), None);
            assert_eq!(near.get_and_touch("k", TTL).await.unwrap(), None);
            assert!(
                begun.elapsed() < Duration::from_secs(2),
                "{:?}",
                begun.elapsed()
            );
            "loaded".to_string()
        };
        assert_eq!(near.get_with("k", TTL, load).await.unwrap(), "loaded");
        assert_eq!(writer.send::<String>(&["GET", "k"]).await, "loaded");
    }
}

/// Keys of users that look like those of a lock, and values that look like placeholders.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_and_no_value_of_a_user_ends_a_load() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let lock = LoadLock::default().mark("loading!");
        let lock = lock.longest_wait(Duration::from_millis(800));
        let near = near(server.port).load_lock(lock).connect().await.unwrap();
        writer.set("x:loading", "a user's").await;
        let load = load_after(Duration::ZERO, "v");
        assert_eq!(near.get_with("x", TTL, load).await.unwrap(), "v");
        // Another client has taken the placeholder's deadline away: the wait has an end.
        writer.set("y", "loading!7").await;
        let waited = near
            .get_with("y", TTL, load_after(Duration::ZERO, "v"))
            .await;
        let Err(NearError::LoadTimedOut { key, .. }) = &waited else {
            panic!("{waited:?}");
        };
        assert_eq!(key, "y");
        let refused = near.set("z", "loading! no value".to_string(), None).await;
        assert!(matches!(refused, Err(NearError::Encode(_))), "{refused:?}");
        let load = load_after(Duration::ZERO, "loading! no value");
        let refused = near.get_with("z", TTL, load).await;
        assert!(matches!(refused, Err(NearError::Encode(_))), "{refused:?}");
        let zero = near
            .get_with("z", Duration::ZERO, load_after(Duration::ZERO, "v"))
            .await;
        assert!(matches!(zero, Err(NearError::ZeroTtl)), "{zero:?}");
        until(
            "the placeholder of the refused value is removed",
            async || writer.clone().send::<u64>(&["EXISTS", "z"]).await == 0,
        )
        .await;
    }
}

/// Without the right to run scripts a placeholder could not be removed: none is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_scripts_leaves_no_placeholder() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let user = [
            "ACL", "SETUSER", "near", "on", ">secret", "~*", "+@all", "-eval", "-evalsha",
        ];
        writer.send::<()>(&user).await;
        let login = || async { Ok(Credentials::new("near", "secret")) };
        let builder = || near(server.port).credentials(login);
        let wanted = builder().load_lock(Duration::from_secs(2)).connect().await;
        let error = wanted.unwrap_err();
        assert!(matches!(error, NearError::LoadsDenied { .. }), "{error:?}");
        let near = builder().connect().await.unwrap();
        let asked = AtomicU64::new(0);
        let load = async {
            asked.fetch_add(1, Ordering::SeqCst);
            "v".to_string()
        };
        let denied = near.get_with("k", TTL, load).await;
        assert!(
            matches!(denied, Err(NearError::LoadsDenied { .. })),
            "{denied:?}"
        );
        assert_eq!(asked.load(Ordering::SeqCst), 0);
        assert_eq!(writer.send::<u64>(&["DBSIZE"]).await, 0);
        let near = builder()
            .load_lock(LoadLock::off())
            .connect()
            .await
            .unwrap();
        assert_eq!(
            near.get_with("k", TTL, load_after(Duration::ZERO, "v"))
                .await
                .unwrap(),
            "v"
        );
    }
}

/// A right is missing that a load needs inside its scripts: an error names all that it needs, and
/// nothing is loaded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_missing_inside_a_script_is_told() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        for (keys, right) in [
            ("~*", "-get"),
            ("~*", "-set"),
            ("~*", "-pexpire"),
            ("%R~*", "+set"),
        ] {
            let user = [
                "ACL", "SETUSER", "near", "reset", "on", ">secret", keys, "+@all", right,
            ];
            writer.send::<()>(&user).await;
            let login = || async { Ok(Credentials::new("near", "secret")) };
            let near = near(server.port).credentials(login);
            let near = near.load_lock(Duration::from_secs(2)).connect().await;
            let near = near.unwrap();
            let asked = AtomicU64::new(0);
            let load = async {
                asked.fetch_add(1, Ordering::SeqCst);
                "v".to_string()
            };
            let error = near.get_with("k", TTL, load).await.unwrap_err();
            assert!(matches!(error, NearError::LoadsDenied { .. }), "{error:?}");
            let rights = "`+eval +get +pttl +set +pexpire` and `~` keys";
            assert!(error.to_string().contains(rights), "{error}");
            assert_eq!(asked.load(Ordering::SeqCst), 0, "{keys} {right}");
            until("no placeholder is left", async || {
                writer.clone().send::<u64>(&["DBSIZE"]).await == 0
            })
            .await;
        }
    }
}

/// A failed load needs no right to `DEL`: its placeholder goes at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_load_of_a_user_who_may_not_delete_leaves_nothing() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let user = "ACL SETUSER near on >secret ~* +@all -del";
        let user = Vec::from_iter(user.split(' '));
        writer.send::<()>(&user).await;
        let login = || async { Ok(Credentials::new("near", "secret")) };
        let near = near(server.port).credentials(login);
        let near = near.load_lock(Duration::from_secs(600)).connect().await;
        let near = near.unwrap();
        let load = async { Err::<String, _>("away") };
        assert!(near.try_get_with("k", TTL, load).await.is_err());
        until("the placeholder is removed", async || {
            writer.clone().send::<u64>(&["EXISTS", "k"]).await == 0
        })
        .await;
    }
}

/// What commands do that build on the value of a key, during its load: the README says it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_build_on_a_value_find_the_placeholder() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port).connect().await.unwrap();
        let (release, released) = tokio::sync::oneshot::channel();
        let loading = tokio::spawn({
            let near = near.clone();
            async move {
                let load = async {
                    released.await.unwrap();
                    "loaded".to_string()
                };
                near.get_with("k", TTL, load).await
            }
        });
        until("the placeholder is there", async || {
            writer.clone().send::<u64>(&["EXISTS", "k"]).await == 1
        })
        .await;
        assert!(writer.try_send::<i64>(&["INCR", "k"]).await.is_err());
        let hset = ["HSET", "k", "field", "v"];
        assert!(writer.try_send::<i64>(&hset).await.is_err());
        writer.send::<u64>(&["APPEND", "k", "added"]).await;
        until("the added bytes are read", async || {
            near.refresh("k").await.unwrap().as_deref() == Some("added")
        })
        .await;
        release.send(()).unwrap();
        assert_eq!(loading.await.unwrap().unwrap(), "loaded");
        assert_eq!(writer.send::<String>(&["GET", "k"]).await, "loaded");
    }
}

/// The rights that the README names are enough for everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_least_rights_are_enough() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let readme = include_str!("../../README.md");
        let (_, rights) = readme.split_once("ACL SETUSER near ").unwrap();
        let (rights, _) = rights.split_once('`').unwrap();
        let rights = rights.replace('\\', "");
        let words = ["ACL", "SETUSER", "near"]
            .into_iter()
            .chain(rights.split(' '));
        writer.send::<()>(&words.collect::<Vec<_>>()).await;
        let login = || async { Ok(Credentials::new("near", "secret")) };
        let near = near(server.port).credentials(login);
        let near = near
            .load_lock(Duration::from_secs(2))
            .connect()
            .await
            .unwrap();
        let load = load_after(Duration::from_millis(600), "v");
        assert_eq!(near.get_with("user:1", TTL, load).await.unwrap(), "v");
        near.set("user:2", "w".to_string(), TTL).await.unwrap();
        assert_eq!(near.get("user:2").await.unwrap().as_deref(), Some("w"));
        assert!(near.touch("user:2", TTL).await.unwrap());
        assert!(near.get_and_touch("user:2", TTL).await.unwrap().is_some());
        let load = async { Err::<String, _>("away") };
        assert!(near.try_get_with("user:3", TTL, load).await.is_err());
        until("the placeholder is removed", async || {
            writer.clone().send::<u64>(&["EXISTS", "user:3"]).await == 0
        })
        .await;
        assert!(near.delete("user:2").await.unwrap());
        let large = "x".repeat(100 << 10);
        near.set("user:4", &large, TTL).await.unwrap();
        assert_eq!(near.get("user:4").await.unwrap(), Some(large));
        // Each over a connection of its own.
        let clients: String = writer.send(&["CLIENT", "LIST"]).await;
        assert_eq!(clients.matches("user=near").count(), 3, "{clients}");
        assert_eq!(near.stats().unsaved_loads(), 0);
    }
}

/// Without the lock a load writes nothing to the server, and keeps nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_lock_a_load_writes_nothing() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port)
            .load_lock(LoadLock::off())
            .connect()
            .await
            .unwrap();
        for value in ["v1", "v2"] {
            let load = load_after(Duration::from_millis(20), value);
            assert_eq!(near.get_with("k", TTL, load).await.unwrap(), value);
        }
        assert_eq!(near.stats().unsaved_loads(), 2);
        assert_eq!(writer.send::<u64>(&["DBSIZE"]).await, 0);
        assert_eq!(
            (writer.calls("set").await, writer.calls("eval").await),
            (0, 0)
        );
        assert_eq!(near.get("k").await.unwrap(), None);
    }
}

/// Nor does a call that waits for the placeholder of another process, whatever life that has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_lock_a_call_that_waits_writes_nothing() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let endless = format!("\0wheelhouse:loading:{}", "0".repeat(32));
        writer.set("k", &endless).await;
        let lock = LoadLock::off().longest_wait(Duration::from_millis(800));
        let near = near(server.port).load_lock(lock).connect().await.unwrap();
        let load = load_after(Duration::ZERO, "v");
        let waited = near.get_with("k", TTL, load).await;
        assert!(
            matches!(waited, Err(NearError::LoadTimedOut { .. })),
            "{waited:?}"
        );
        assert_eq!(writer.calls("eval").await, 0);
        assert_eq!(writer.send::<i64>(&["PTTL", "k"]).await, -1);
    }
}

/// Without the lock, too, a call after a delete of this process does not join a load that began
/// before the delete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_lock_a_delete_of_this_process_ends_a_load() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let near = near(server.port).load_lock(LoadLock::off());
        let near = near.connect().await.unwrap();
        let old = {
            let near = near.clone();
            async move {
                let load = load_after(Duration::from_secs(2), "old");
                near.get_with("k", TTL, load).await
            }
        };
        let old = tokio::spawn(old);
        let runs = near.clone();
        let begun = async || runs.stats().load_runs() == 1;
        until("the load runs", begun).await;
        near.delete("k").await.unwrap();
        let load = load_after(Duration::ZERO, "new");
        assert_eq!(near.get_with("k", TTL, load).await.unwrap(), "new");
        assert_eq!(old.await.unwrap().unwrap(), "old");
    }
}

/// The load chooses the life of its value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_chooses_the_life_of_its_value() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port).connect().await.unwrap();
        let load = |loaded: Loaded<String>| async { Ok::<_, NearError>(loaded) };
        let token = || Loaded::new("token".to_string());
        let short = token().expires_in(Duration::from_secs(100));
        near.try_get_with("short", TTL, load(short)).await.unwrap();
        let ttl: i64 = writer.send(&["TTL", "short"]).await;
        assert!((90..=100).contains(&ttl), "{ttl}");
        near.try_get_with("long", TTL, load(token().never_expires()))
            .await
            .unwrap();
        assert_eq!(writer.send::<i64>(&["TTL", "long"]).await, -1);
        let none = token().expires_in(Duration::ZERO);
        assert_eq!(
            near.try_get_with("none", TTL, load(none)).await.unwrap(),
            "token"
        );
        until("a value without a life is kept nowhere", async || {
            writer.clone().send::<u64>(&["EXISTS", "none"]).await == 0
        })
        .await;
    }
}

/// One load for all keys that are missing; what another process loads is awaited.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_missing_keys_are_loaded_at_once() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        // A busy machine may renew hundreds of placeholders late.
        let life = Duration::from_secs(20);
        let first = near(server.port).load_lock(life).connect().await.unwrap();
        let second = near(server.port).load_lock(life).connect().await.unwrap();
        writer.set("k0", "there").await;
        let asked = Arc::new(AtomicU64::new(0));
        let load = |near: Near, from: usize| {
            let asked = asked.clone();
            async move {
                let load = |keys: Vec<String>| {
                    asked.fetch_add(keys.len() as u64, Ordering::SeqCst);
                    async move {
                        sleep(Duration::from_millis(200)).await;
                        let value = |key: String| (key != "k7").then(|| format!("of {key}"));
                        Ok::<_, NearError>(keys.into_iter().map(value).collect())
                    }
                };
                let keys = (from..from + 300).map(|n| format!("k{n}"));
                near.get_all_with(keys, TTL, load).await
            }
        };
        let (a, b) = tokio::join!(load(first.clone(), 0), load(second.clone(), 100));
        for (from, found) in [(0, a), (100, b)] {
            for (n, found) in found.into_iter().enumerate() {
                let wanted = match from + n {
                    0 => Some("there".to_string()),
                    7 => None,
                    n => Some(format!("of k{n}")),
                };
                assert_eq!(found.unwrap(), wanted, "{}", from + n);
            }
        }
        assert_eq!(asked.load(Ordering::SeqCst), 399, "each key once");
        assert_eq!(writer.send::<String>(&["GET", "k399"]).await, "of k399");
        assert_eq!(writer.send::<u64>(&["EXISTS", "k7"]).await, 0);
        let failing = |_| async { Err("the database is away") };
        let keys = ["k1", "k7"].map(String::from);
        let found = first.get_all_with(keys, TTL, failing).await;
        assert_eq!(found[0].as_ref().unwrap().as_deref(), Some("of k1"));
        assert!(matches!(found[1], Err(NearError::Load(_))), "{found:?}");
    }
}

/// The server is away: the source is asked, and its value kept for a while or until the server is
/// back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_source_serves_while_the_server_is_away() {
    for program in installed() {
        let mut server = Server::start(&program, &[]).await;
        let builder = || near(server.port).request_timeout(Duration::from_millis(300));
        let without = builder().connect().await.unwrap();
        let near = builder()
            .load_when_away(Duration::from_secs(60))
            .connect()
            .await
            .unwrap();
        server.kill();
        let away = async || !near.is_connected() && !without.is_connected();
        until("the loss is noticed", away).await;
        let load = || load_after(Duration::from_millis(50), "v1");
        let failed = without.get_with("k", TTL, load()).await;
        assert!(
            matches!(failed, Err(NearError::Unavailable { .. })),
            "{failed:?}"
        );
        let (one, other) = tokio::join!(near.get_with("k", TTL, load()), async {
            near.get_with("k", TTL, load_after(Duration::from_millis(50), "v2"))
                .await
        });
        assert_eq!(one.unwrap(), other.unwrap(), "one load for both");
        let loads = near.stats().load_runs();
        near.get_with("k", TTL, load_after(Duration::ZERO, "v3"))
            .await
            .unwrap();
        assert_eq!(near.stats().load_runs(), loads, "kept");
        let load =
            |keys: Vec<String>| async { Ok::<_, NearError>(keys.into_iter().map(Some).collect()) };
        let keys = || ["a", "b"].map(String::from);
        for found in without.get_all_with(keys(), TTL, load).await {
            assert!(
                matches!(found, Err(NearError::Unavailable { .. })),
                "{found:?}"
            );
        }
        for (key, found) in keys()
            .into_iter()
            .zip(near.get_all_with(keys(), TTL, load).await)
        {
            assert_eq!(found.unwrap(), Some(key));
        }
        assert_eq!(near.stats().load_runs(), loads + 1, "one load for all");
        server.restart().await;
        connected(&near).await;
        let load = load_after(Duration::ZERO, "new");
        assert_eq!(near.get_with("k", TTL, load).await.unwrap(), "new");
    }
}

/// A server that is only silent serves again without a new connection: nothing that the source has
/// said meanwhile is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_loaded_while_the_server_is_silent_is_not_kept() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(proxy.port)
            .request_timeout(Duration::from_millis(400))
            .heartbeat(Duration::from_secs(60))
            .load_when_away(Duration::from_secs(60));
        let near = near.connect().await.unwrap();
        // The server hears of no read, so it reports no change.
        proxy.hold(Direction::ToServer);
        let load = load_after(Duration::ZERO, "old");
        assert_eq!(near.get_with("k", TTL, load).await.unwrap(), "old");
        writer.set("k", "new").await;
        proxy.release(Direction::ToServer);
        until("the server serves again", async || {
            near.get("other").await.is_ok()
        })
        .await;
        let found = near.get("k").await.unwrap();
        assert!(found.as_deref() != Some("old"), "{found:?}");
        assert_eq!(near.stats().lost_connections(), 0);
    }
}

/// A process may start while the server is away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_connection_may_come_late() {
    for program in installed() {
        let mut server = Server::start(&program, &[]).await;
        server.kill();
        let near = near(server.port)
            .request_timeout(Duration::from_millis(300))
            .load_when_away(Duration::from_secs(60))
            .connect_lazy()
            .unwrap();
        assert!(!near.is_connected());
        assert!(near.get("k").await.unwrap_err().is_transient());
        let load = load_after(Duration::ZERO, "v");
        assert_eq!(near.get_with("k", TTL, load).await.unwrap(), "v");
        server.restart().await;
        connected(&near).await;
        assert_eq!(near.get("k").await.unwrap(), None);
        near.set("k", "new".to_string(), None).await.unwrap();
        assert_eq!(near.get("k").await.unwrap().as_deref(), Some("new"));
        near.close().await;
        let never = crate::support::near(1).connect_lazy().unwrap();
        never.close().await;
        assert!(matches!(never.get("k").await, Err(NearError::Closed)));
    }
}

/// A process that loads key `k` without an end. It dies with its runtime: then nothing of it runs.
async fn loads_without_end<F>(port: u16, make: impl FnOnce() -> F + Send + 'static) -> Runtime
where
    F: Future<Output = Near>,
{
    let process = tokio::task::spawn_blocking(move || {
        let runtime = Runtime::new().unwrap();
        runtime.block_on(async {
            let writer = Writer::connect(port).await;
            let near = make().await;
            tokio::spawn(async move {
                loop {
                    // A report may come late, and the call find the value at the server.
                    let _ = near.get_with("k", TTL, std::future::pending()).await;
                    sleep(Duration::from_millis(5)).await;
                }
            });
            let claimed = async || {
                let there: Vec<u8> = writer.clone().send(&["GET", "k"]).await;
                there.starts_with(b"\0wheelhouse:loading:")
            };
            until("the key is claimed", claimed).await;
        });
        runtime
    });
    process.await.unwrap()
}

/// A process dies while it loads a value ahead of the deadline, or closes its near cache: its
/// placeholder has a life of its own, and the next call of another process loads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_ahead_that_has_no_process_ends() {
    for program in installed() {
        for closes in [false, true] {
            let server = Server::start(&program, &[]).await;
            let port = server.port;
            let mut writer = Writer::connect(port).await;
            let closed = Arc::new(Notify::new());
            let close = closed.clone();
            let dying = async move || {
                let near = near(port).refresh_after(refresh::fraction(0.0));
                let near = near.connect().await.unwrap();
                let load = load_after(Duration::ZERO, "v1");
                near.get_with("k", TTL, load).await.unwrap();
                let closing = near.clone();
                tokio::spawn(async move {
                    close.notified().await;
                    closing.close().await;
                });
                near
            };
            let runtime = loads_without_end(port, dying).await;
            let waiting = near(port).connect().await.unwrap();
            assert_eq!(waiting.get("k").await.unwrap().as_deref(), Some("v1"));
            // Longer than the life: it is renewed.
            sleep(Duration::from_millis(1800)).await;
            assert_eq!(waiting.get("k").await.unwrap().as_deref(), Some("v1"));
            let placeholder = writer.send(&["GET", "k"]).await;
            if closes {
                closed.notify_one();
                placeholder_ends(&mut writer, &placeholder).await;
                die(runtime).await;
            } else {
                die(runtime).await;
                placeholder_ends(&mut writer, &placeholder).await;
            }
            assert_eq!(writer.send::<u64>(&["EXISTS", "k"]).await, 0);
            let load = load_after(Duration::ZERO, "v2");
            assert_eq!(waiting.get_with("k", TTL, load).await.unwrap(), "v2");
        }
    }
}

/// A client gives a placeholder another deadline, or none, and the process that loads dies before
/// it renews the placeholder: a call that waits ends the placeholder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_touched_placeholder_ends_with_its_process() {
    for program in installed() {
        // Memory may know the deadline or not, and other keys ring the same bells.
        for (touch, local_ttl) in [
            (vec!["PEXPIRE", "k", "3600000"], Duration::from_secs(300)),
            (vec!["PERSIST", "k"], Duration::from_secs(1)),
            (vec!["PERSIST", "k"], Duration::MAX),
        ] {
            let server = Server::start(&program, &[]).await;
            let port = server.port;
            let mut writer = Writer::connect(port).await;
            let dying = async move || near(port).connect().await.unwrap();
            let runtime = loads_without_end(port, dying).await;
            runtime.shutdown_background();
            let touched = Instant::now();
            assert_eq!(writer.send::<u64>(&touch).await, 1);
            let waiting = near(port).local_ttl(local_ttl).connect().await.unwrap();
            let others = near(port).connect().await.unwrap();
            let busy = tokio::spawn(async move {
                for number in 0.. {
                    let key = format!("other{}", number % 500);
                    others.set(&key, &"v".to_string(), TTL).await.unwrap();
                    sleep(Duration::from_millis(1)).await;
                }
            });
            let load = load_after(Duration::ZERO, "v");
            assert_eq!(waiting.get_with("k", TTL, load).await.unwrap(), "v");
            let stood_still = touched.elapsed();
            busy.abort();
            println!("{stood_still:?}");
            assert!(stood_still < Duration::from_millis(2500), "{stood_still:?}");
        }
    }
}

/// A process dies while it loads, and its runtime with it: nothing of it runs any more. A call of
/// another process that waits goes on when the placeholder's life is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_process_holds_no_key_for_long() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let port = server.port;
        let dying = async move || near(port).connect().await.unwrap();
        let runtime = loads_without_end(port, dying).await;
        let waiting = near(port).connect().await.unwrap();
        let waits = tokio::spawn(async move {
            let load = load_after(Duration::ZERO, "v");
            let found = waiting.get_with("k", TTL, load).await.unwrap();
            assert_eq!(found, "v");
            Instant::now()
        });
        // Longer than the life: it is renewed.
        sleep(Duration::from_millis(1800)).await;
        assert!(!waits.is_finished(), "the load still runs");
        let mut writer = Writer::connect(port).await;
        let placeholder = writer.send(&["GET", "k"]).await;
        die(runtime).await;
        let died = Instant::now();
        let late = placeholder_ends(&mut writer, &placeholder).await;
        let stood_still = waits.await.unwrap() - died;
        println!("{stood_still:?}, a plain client saw the end {late:?} late");
        let bound = Duration::from_secs(2) + late;
        assert!(stood_still < bound, "{stood_still:?}");
    }
}

/// Ends a process: when this returns, nothing of it runs.
async fn die(process: Runtime) {
    let limit = Duration::from_secs(20);
    let dying = tokio::task::spawn_blocking(move || process.shutdown_timeout(limit));
    dying.await.unwrap();
}

/// Waits until key `k` has not this placeholder any more, whose process has just ended. Nothing
/// gives it a longer life. Returns how late the end is seen here, after what the server has said:
/// by as much a busy machine delays all.
async fn placeholder_ends(writer: &mut Writer, placeholder: &Vec<u8>) -> Duration {
    let died = Instant::now();
    let mut ends = Duration::ZERO;
    loop {
        let asked = died.elapsed();
        let left: i64 = writer.send(&["PTTL", "k"]).await;
        let there: Option<Vec<u8>> = writer.send(&["GET", "k"]).await;
        if there.as_ref() != Some(placeholder) {
            return died.elapsed().saturating_sub(ends);
        }
        ends = asked + Duration::from_millis(left.try_into().unwrap_or(0));
        // The life of 1.7 s, and what was on its way.
        assert!(ends < Duration::from_millis(1900), "{ends:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// The near cache is closed while a call waits for the load of another process: the call ends at
/// once, whatever life the placeholder has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_ends_the_wait_for_another_process() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let placeholder = format!("\0wheelhouse:loading:{}", "0".repeat(32));
        let set = ["SET", "k", &placeholder, "EX", "20"];
        writer.send::<()>(&set).await;
        let near = near(server.port).load_lock(Duration::from_secs(20));
        let near = near.connect().await.unwrap();
        let waiting = near.clone();
        let waiting = tokio::spawn(async move {
            let load = load_after(Duration::ZERO, "v");
            waiting.get_with("k", TTL, load).await
        });
        until("the call waits", async || near.stats().load_waits() == 1).await;
        let begun = Instant::now();
        near.close().await;
        let ended = waiting.await.unwrap();
        assert!(matches!(ended, Err(NearError::Closed)), "{ended:?}");
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
}

/// A load that counts how often it has run.
async fn number(asked: Arc<AtomicU64>) -> String {
    let number = asked.fetch_add(1, Ordering::SeqCst) + 1;
    load_after(Duration::from_millis(300), &format!("v{number}")).await
}

/// One of four processes loads a value ahead of its deadline; all are served meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_loads_ahead_of_the_deadline() {
    const LIFE: Duration = Duration::from_secs(4);
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let mut caches = Vec::new();
        for _ in 0..4 {
            let policy = refresh::jittered(refresh::fraction(0.5), 0.1);
            let near = near(server.port).refresh_after(policy);
            caches.push(near.connect().await.unwrap());
        }
        let asked = Arc::new(AtomicU64::new(0));
        for near in &caches {
            let load = number(asked.clone());
            assert_eq!(near.get_with("k", LIFE, load).await.unwrap(), "v1");
        }
        let begun = Instant::now();
        let mut reading = JoinSet::new();
        for task in 0..12 {
            let near = caches[task % 4].clone();
            let asked = asked.clone();
            reading.spawn(async move {
                let mut slow = 0;
                loop {
                    let before = Instant::now();
                    let load = number(asked.clone());
                    let found = near.get_with("k", LIFE, load).await.unwrap();
                    slow += u64::from(before.elapsed() >= Duration::from_millis(300));
                    if found == "v2" {
                        return slow;
                    }
                    assert_eq!(found, "v1");
                    // A plain read is served, too.
                    assert!(near.get("k").await.unwrap().is_some());
                    sleep(Duration::from_millis(3)).await;
                }
            });
        }
        let slow: u64 = reading.join_all().await.iter().sum();
        println!("{slow} calls took as long as a load");
        assert_eq!(asked.load(Ordering::SeqCst), 2, "one process has loaded");
        assert!(begun.elapsed() < LIFE, "ahead: {:?}", begun.elapsed());
        assert_eq!(writer.send::<String>(&["GET", "k"]).await, "v2");
        let left: u64 = writer.send(&["PTTL", "k"]).await;
        assert!(left > 2500, "a life of its own: {left}");
    }
}

/// A process loads ahead of the deadline, and another one wants to, which has not heard of that: it
/// loads nothing, and returns the old value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_loads_ahead_though_another_hears_late() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let connect = async |port| {
            let policy = refresh::fraction(0.0001);
            near(port).refresh_after(policy).connect().await.unwrap()
        };
        let (first, second) = (connect(server.port).await, connect(proxy.port).await);
        writer.send::<()>(&["SET", "k", "old", "EX", "1000"]).await;
        for near in [&first, &second] {
            assert_eq!(near.get("k").await.unwrap().as_deref(), Some("old"));
        }
        // From now on both are to load.
        sleep(Duration::from_millis(150)).await;
        proxy.delay(Direction::ToClient, Duration::from_secs(1));
        let (release, released) = tokio::sync::oneshot::channel();
        let loading = tokio::spawn(async move {
            let load = async { released.await.unwrap() };
            first.get_with("k", TTL, load).await
        });
        until("the key is claimed", async || {
            let value: Vec<u8> = writer.clone().send(&["GET", "k"]).await;
            value.starts_with(b"\0wheelhouse:loading:")
        })
        .await;
        let load = load_after(Duration::ZERO, "own");
        assert_eq!(second.get_with("k", TTL, load).await.unwrap(), "old");
        assert_eq!(second.stats().load_runs(), 0);
        release.send("new".to_string()).unwrap();
        assert_eq!(loading.await.unwrap().unwrap(), "new");
        assert_eq!(writer.send::<String>(&["GET", "k"]).await, "new");
    }
}

/// A load ahead of the deadline that fails leaves the old value as it was; a delete ends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_ahead_that_fails_or_comes_too_late_changes_nothing() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        // Each value is stale at once.
        let builder = near(server.port).refresh_after(refresh::fraction(0.0));
        let near = builder.connect().await.unwrap();
        let load = load_after(Duration::ZERO, "v1");
        near.get_with("k", TTL, load).await.unwrap();
        let failing = async { Err::<String, _>("the source is away") };
        let found = near
            .try_get_with("k", Duration::from_secs(9), failing)
            .await;
        assert_eq!(found.unwrap(), "v1");
        until("the old value is alone again", async || {
            writer.clone().send::<String>(&["GET", "k"]).await == "v1"
        })
        .await;
        let ttl: u64 = writer.send(&["TTL", "k"]).await;
        assert!(ttl > 3000, "{ttl}");
        // The first reply comes after the report of the change, which may revoke it. The second one
        // is kept.
        assert!(near.refresh("k").await.unwrap().is_some());
        assert!(near.get("k").await.unwrap().is_some());
        // A client gives the key another deadline while the load runs, for longer than a renewal.
        let mut touching = writer.clone();
        let failing = async {
            touching.send::<()>(&["PEXPIRE", "k", "7200000"]).await;
            sleep(Duration::from_secs(2)).await;
            Err::<String, _>("the source is away")
        };
        let found = near.try_get_with("k", TTL, failing).await;
        assert_eq!(found.unwrap(), "v1");
        until("the old value is alone once more", async || {
            writer.clone().send::<String>(&["GET", "k"]).await == "v1"
        })
        .await;
        let ttl: u64 = writer.send(&["TTL", "k"]).await;
        assert!(ttl > 7000, "{ttl}");
        // The first reply comes after the report of the change, which may revoke it. The second one
        // is kept.
        assert!(near.refresh("k").await.unwrap().is_some());
        assert!(near.get("k").await.unwrap().is_some());
        let runs = near.stats().load_runs();
        let mut deleting = writer.clone();
        let load = async {
            let there: Vec<u8> = deleting.send(&["GET", "k"]).await;
            assert!(there.ends_with(b"v1") && there.starts_with(b"\0wheelhouse:loading:"));
            assert_eq!(near.get("k").await.unwrap().as_deref(), Some("v1"));
            deleting.send::<()>(&["DEL", "k"]).await;
            "v2".to_string()
        };
        assert_eq!(near.get_with("k", TTL, load).await.unwrap(), "v2");
        assert_eq!(near.stats().load_runs(), runs + 1);
        assert_eq!(writer.send::<u64>(&["EXISTS", "k"]).await, 0);
        assert_eq!(near.get("k").await.unwrap(), None);
        // An empty value could not be told from none behind a placeholder.
        let load = load_after(Duration::ZERO, "");
        assert_eq!(near.get_with("k", TTL, load).await.unwrap(), "");
        let load = load_after(Duration::ZERO, "v3");
        assert_eq!(near.get_with("k", TTL, load).await.unwrap(), "");
        assert_eq!(writer.send::<String>(&["GET", "k"]).await, "");
    }
}

/// A load ahead of the deadline is cancelled while the server is away. Once it is back, the old
/// value is alone again, if it is back within the life of the lock; else the value is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_ahead_that_is_cancelled_while_the_server_is_away_leaves_no_placeholder() {
    for program in installed() {
        for (away, after) in [
            (Duration::from_millis(500), "v1"),
            (Duration::from_millis(4500), ""),
        ] {
            let server = Server::start(&program, &[]).await;
            let proxy = Proxy::to(server.port).await;
            let writer = Writer::connect(server.port).await;
            let near = near(proxy.port)
                .refresh_after(refresh::fraction(0.0))
                .load_lock(Duration::from_secs(4))
                .request_timeout(Duration::from_millis(300));
            let near = near.connect().await.unwrap();
            let load = load_after(Duration::ZERO, "v1");
            near.get_with("k", TTL, load).await.unwrap();
            let ahead = near.clone();
            let call = tokio::spawn(async move {
                // A report may come late, and the call find the value at the server.
                loop {
                    let never = std::future::pending();
                    let _ = ahead.get_with("k", TTL, never).await;
                    sleep(Duration::from_millis(5)).await;
                }
            });
            let value = async || writer.clone().send::<Vec<u8>>(&["GET", "k"]).await;
            until("the key is claimed", async || value().await != b"v1").await;
            proxy.refuse(true);
            proxy.cut();
            lost(&near, 1).await;
            call.abort();
            sleep(away).await;
            assert_ne!(value().await, b"v1");
            proxy.refuse(false);
            connected(&near).await;
            until("no placeholder is left", async || {
                value().await == after.as_bytes()
            })
            .await;
        }
    }
}

/// The server takes no write for a while. Calls for one key wait for one claim, and end together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_do_not_wait_in_a_row_for_a_claim_that_is_not_answered() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port).request_timeout(Duration::from_millis(300));
        let near = near.connect().await.unwrap();
        writer
            .send::<()>(&["CLIENT", "PAUSE", "20000", "WRITE"])
            .await;
        let begun = Instant::now();
        let mut calls = JoinSet::new();
        for _ in 0..30 {
            let near = near.clone();
            calls.spawn(async move {
                let load = load_after(Duration::ZERO, "v");
                near.get_with("k", TTL, load).await
            });
        }
        for ended in calls.join_all().await {
            let error = ended.unwrap_err();
            assert!(matches!(error, NearError::TimedOut { .. }), "{error:?}");
        }
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(3), "{took:?}");
        writer.send::<()>(&["CLIENT", "UNPAUSE"]).await;
        let load = load_after(Duration::ZERO, "v");
        assert_eq!(near.get_with("k", TTL, load).await.unwrap(), "v");
    }
}

/// The server takes no write for a while, so no claim is answered in time. The keys are loaded
/// together all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_keys_whose_claims_are_not_answered_are_loaded_together() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port).request_timeout(Duration::from_secs(1));
        // A busy machine may renew a hundred placeholders late.
        let near = near.load_lock(Duration::from_secs(20));
        let near = near.connect().await.unwrap();
        writer
            .send::<()>(&["CLIENT", "PAUSE", "1500", "WRITE"])
            .await;
        let keys = (0..100).map(|n| n.to_string());
        let load =
            async |keys: Vec<String>| Ok::<_, NearError>(keys.into_iter().map(Some).collect());
        let found = near.get_all_with(keys, TTL, load).await;
        for (n, found) in found.into_iter().enumerate() {
            assert_eq!(found.unwrap(), Some(n.to_string()));
        }
        let stats = near.stats();
        assert!(stats.load_runs() <= 3, "{stats:?}");
        assert_eq!(stats.unsaved_loads(), 0);
    }
}

/// With `jitter`, values that were loaded together end at different times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lives_of_loaded_values_are_spread() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port).jitter(0.5).connect().await.unwrap();
        let values =
            |keys: Vec<String>| async { Ok::<_, NearError>(keys.into_iter().map(Some).collect()) };
        let keys = (0..60).map(|n| format!("k{n}"));
        near.get_all_with(keys, TTL, values).await;
        let mut lives = Vec::new();
        for n in 0..60 {
            lives.push(writer.send::<u64>(&["TTL", &format!("k{n}")]).await);
        }
        lives.sort_unstable();
        assert!(lives[0] >= 1799 && lives[59] <= 3600, "{lives:?}");
        assert!(lives[59] - lives[0] > 600, "{lives:?}");
        // What a call of `set` or the load itself says is kept to.
        near.set("set", "v".to_string(), TTL).await.unwrap();
        assert!(writer.send::<u64>(&["TTL", "set"]).await >= 3599);
    }
}
