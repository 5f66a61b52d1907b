//! What servers do to their clients.

use crate::support::proxy::{Direction, Proxy};
use crate::support::server::{Server, installed};
use crate::support::{Writer, connected, lost, near, read, until};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use wheelhouse_redis::{NearError, Tracking};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_killed_and_comes_back() {
    for program in installed() {
        let mut server = Server::start(&program, &[]).await;
        let near = near(server.port)
            .request_timeout(Duration::from_secs(2))
            .connect()
            .await;
        let near = near.unwrap();
        near.set("k".to_string(), "old".to_string(), None)
            .await
            .unwrap();
        assert_eq!(read(&near, "k").await, "old");
        server.kill();
        lost(&near, 1).await;
        let begun = Instant::now();
        let found = near.get("k").await;
        assert!(
            matches!(found, Err(NearError::Unavailable { .. })),
            "{found:?}"
        );
        let message = found.unwrap_err().to_string();
        assert!(
            message.contains("last attempt: could not connect to 127.0.0.1"),
            "{message}"
        );
        let written = near.set("k".to_string(), "lost".to_string(), None).await;
        assert!(
            matches!(written, Err(NearError::Unavailable { .. })),
            "{written:?}"
        );
        assert!(
            begun.elapsed() < Duration::from_secs(15),
            "{:?}",
            begun.elapsed()
        );
        server.restart().await;
        connected(&near).await;
        // Its memory is empty.
        assert_eq!(near.get("k").await.unwrap(), None);
        let mut writer = Writer::connect(server.port).await;
        for value in ["new", "newer"] {
            writer.set("k", value).await;
            let seen = async || near.get("k").await.unwrap().as_deref() == Some(value);
            until("the write is seen", seen).await;
        }
    }
}

/// The server stands still for seconds: callers get an error in the stated time, and afterwards
/// everything is right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_stands_still_for_seconds() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let limit = Duration::from_millis(700);
        let near = near(server.port)
            .request_timeout(limit)
            .connect_timeout(Duration::from_millis(500))
            .heartbeat(Duration::from_millis(300));
        let near = near.connect().await.unwrap();
        let mut writer = Writer::connect(server.port).await;
        writer.set("k", "old").await;
        until("the key is loaded", async || near.get("k").await.is_ok()).await;
        server.stop();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) {
            let call = Instant::now();
            let found = near.get("cold").await;
            assert!(found.is_err(), "{found:?}");
            assert!(
                call.elapsed() < limit + Duration::from_secs(5),
                "{:?}",
                call.elapsed()
            );
        }
        assert!(near.stats().lost_connections() >= 1);
        let found = near.get("k").await;
        assert!(
            found.is_err(),
            "nothing is served without a connection: {found:?}"
        );
        server.resume();
        writer.set("k", "new").await;
        until("the near cache is back", async || {
            near.get("k").await.is_ok()
        })
        .await;
        assert_eq!(near.get("k").await.unwrap().as_deref(), Some("new"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_is_killed() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port).connect().await.unwrap();
        for round in 0..10 {
            let value = round.to_string();
            writer.set("k", &value).await;
            until("the write is seen", async || {
                read(&near, "k").await == value
            })
            .await;
            let killed: i64 = writer
                .send(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
                .await;
            // A connection of the server's start may not be closed yet.
            assert!(killed >= 1, "{killed}");
            lost(&near, round + 1).await;
            writer.set("k", "between").await;
            assert_eq!(read(&near, "k").await, "between");
        }
    }
}

/// The server remembers a hundred keys: it forgets others and says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tracking_table_overflows() {
    for program in installed() {
        let server = Server::start(&program, &["--tracking-table-max-keys", "100"]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port).connect().await.unwrap();
        for n in 0..2000 {
            writer.set(&format!("k{n}"), "old").await;
            assert_eq!(read(&near, &format!("k{n}")).await, "old");
        }
        let forgotten = async || near.stats().invalidated_keys() >= 1500;
        until("the server has reported what it forgot", forgotten).await;
        for n in 0..2000 {
            writer.set(&format!("k{n}"), "new").await;
        }
        for n in 0..2000 {
            let key = format!("k{n}");
            until("the write is seen", async || {
                read(&near, &key).await == "new"
            })
            .await;
        }
    }
}

/// What the README says of the server's memory: an ended connection's items stay, however it ended,
/// until `FLUSHALL`; with `Broadcast` there are none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tracking_table_keeps_items_of_ended_connections() {
    const KEYS: u64 = 100;
    for program in installed() {
        for (tracking, is_growing) in [(Tracking::Default, true), (every_key(), false)] {
            let server = Server::start(&program, &[]).await;
            let mut writer = Writer::connect(server.port).await;
            let near = near(server.port).tracking(tracking);
            let near = near.connect().await.unwrap();
            for n in 0..KEYS {
                writer.set(&format!("k{n}"), "v").await;
            }
            for losses in 1..=3 {
                near.preload((0..KEYS).map(|n| format!("k{n}")))
                    .await
                    .unwrap();
                let kill = ["CLIENT", "KILL", "TYPE", "normal"];
                writer.send::<u64>(&kill).await;
                lost(&near, losses).await;
                connected(&near).await;
            }
            let wanted = if is_growing { 3 * KEYS } else { 0 };
            assert_eq!(writer.info("tracking_total_items").await, wanted);
            writer.send::<()>(&["FLUSHALL"]).await;
            assert_eq!(writer.info("tracking_total_items").await, 0);
        }
    }
}

fn every_key() -> Tracking {
    Tracking::Broadcast {
        prefixes: Vec::new(),
    }
}

/// A key that the server evicts or expires is reported as a change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eviction_at_the_server_is_a_change() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port).connect().await.unwrap();
        for n in 0..500 {
            let key = format!("k{n}");
            writer.set(&key, &"x".repeat(10_000)).await;
            read(&near, &key).await;
        }
        writer
            .send::<()>(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"])
            .await;
        writer
            .send::<()>(&["CONFIG", "SET", "maxmemory", "3mb"])
            .await;
        until("evictions are heard", async || {
            near.stats().invalidated_keys() >= 100
        })
        .await;
        let agree = async || {
            for n in 0..500 {
                let exists: bool = writer.clone().send(&["EXISTS", &format!("k{n}")]).await;
                if near.local().contains_key(&format!("k{n}")) && !exists {
                    return false;
                }
            }
            true
        };
        until(
            "the near cache keeps nothing that the server has not",
            agree,
        )
        .await;
    }
}

/// Starts a script that keeps the server busy until `SCRIPT KILL`.
async fn keep_busy(server: &Server, writer: &Writer) -> JoinHandle<redis::RedisResult<()>> {
    let mut scripting = Writer::connect(server.port).await;
    let script = tokio::spawn(async move {
        let endless = ["EVAL", "while true do end", "0"];
        scripting.try_send::<()>(&endless).await
    });
    until("the server is busy", async || {
        let reply = writer.clone().try_send::<()>(&["EXISTS", "k"]).await;
        reply.is_err_and(|error| error.code() == Some("BUSY"))
    })
    .await;
    script
}

/// A script keeps the server busy, which then answers every command with `BUSY`. Reads and writes
/// wait for its end, and the connection stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_keeps_the_server_busy() {
    for program in installed() {
        let server = Server::start(&program, &["--busy-reply-threshold", "50"]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port)
            .request_timeout(Duration::from_secs(20))
            .heartbeat(Duration::from_secs(1));
        let near = near.connect().await.unwrap();
        writer.set("k", "v").await;
        let script = keep_busy(&server, &writer).await;
        let reading = tokio::spawn({
            let near = near.clone();
            async move { near.get("k").await }
        });
        let writing = tokio::spawn({
            let near = near.clone();
            async move { near.set("own".to_string(), "v".to_string(), None).await }
        });
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert!(!reading.is_finished() && !writing.is_finished());
        writer.send::<()>(&["SCRIPT", "KILL"]).await;
        assert_eq!(reading.await.unwrap().unwrap().as_deref(), Some("v"));
        writing.await.unwrap().unwrap();
        assert_eq!(read(&near, "own").await, "v");
        assert!(script.await.unwrap().is_err());
        assert_eq!(near.stats().lost_connections(), 0);
    }
}

/// A server that a script keeps busy when it is connected to: the error blames no setting, and says
/// that a later attempt may succeed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_server_that_is_connected_to_is_named() {
    for program in installed() {
        let server = Server::start(&program, &["--busy-reply-threshold", "50"]).await;
        let mut writer = Writer::connect(server.port).await;
        let script = keep_busy(&server, &writer).await;
        let error = near(server.port).connect().await.unwrap_err();
        assert!(error.is_transient(), "{error}");
        assert!(error.to_string().contains("a script blocks it"), "{error}");
        writer.send::<()>(&["SCRIPT", "KILL"]).await;
        assert!(script.await.unwrap().is_err());
        near(server.port).connect().await.unwrap();
    }
}

/// A server that stays busy is not asked for keys that no call waits for any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_server_is_left_alone_when_the_calls_have_gone() {
    for program in installed() {
        let server = Server::start(&program, &["--busy-reply-threshold", "50"]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port).request_timeout(Duration::from_millis(300));
        let near = near.connect().await.unwrap();
        let script = keep_busy(&server, &writer).await;
        let keys = (0..100).map(|n| format!("k{n}"));
        for found in near.get_all(keys).await {
            assert!(
                matches!(found, Err(NearError::TimedOut { .. })),
                "{found:?}"
            );
        }
        until("no key is asked for", async || {
            let before = near.stats().loads();
            tokio::time::sleep(Duration::from_millis(200)).await;
            near.stats().loads() == before
        })
        .await;
        writer.send::<()>(&["SCRIPT", "KILL"]).await;
        assert!(script.await.unwrap().is_err());
        assert_eq!(near.get("k0").await.unwrap(), None);
        assert_eq!(near.stats().lost_connections(), 0);
    }
}

/// A call that comes while another one waits for a busy server has its own time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_joins_late_does_not_fail_with_the_first() {
    for program in installed() {
        let server = Server::start(&program, &["--busy-reply-threshold", "50"]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port).request_timeout(Duration::from_secs(2));
        let near = near.connect().await.unwrap();
        let script = keep_busy(&server, &writer).await;
        let get = || {
            let near = near.clone();
            tokio::spawn(async move { near.get("k").await })
        };
        let first = get();
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let second = get();
        let found = first.await.unwrap();
        assert!(
            matches!(found, Err(NearError::TimedOut { .. })),
            "{found:?}"
        );
        writer.send::<()>(&["SCRIPT", "KILL"]).await;
        assert!(script.await.unwrap().is_err());
        assert_eq!(second.await.unwrap().unwrap(), None);
    }
}

/// What the server said long ago is no reason of a later time-out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_time_out_reports_no_older_error() {
    for program in installed() {
        let server = Server::start(&program, &["--busy-reply-threshold", "50"]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port)
            .request_timeout(Duration::from_secs(1))
            .heartbeat(Duration::from_secs(60));
        let near = near.connect().await.unwrap();
        let script = keep_busy(&server, &writer).await;
        let last = async || match near.get("k").await {
            Err(NearError::TimedOut { last, .. }) => last,
            found => panic!("{found:?}"),
        };
        until("the server says that it is busy", async || {
            last().await.is_some()
        })
        .await;
        writer.send::<()>(&["SCRIPT", "KILL"]).await;
        assert!(script.await.unwrap().is_err());
        assert_eq!(near.get("k").await.unwrap(), None);
        server.stop();
        assert!(last().await.is_none());
        server.resume();
    }
}

/// Replies that are out of step with the requests would stay so: every later one would be that of
/// another request. A reply of a wrong type shows it, and ends the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_out_of_step_end_the_connection() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let near = near(proxy.port).heartbeat(Duration::from_secs(3600));
        let near = near.connect().await.unwrap();
        let mut losses = 0;
        // A read waits for its second reply.
        let forged: [&[u8]; 6] = [
            b":7\r\n:7\r\n",
            b"+strange\r\n:-1\r\n",
            b":7\r\n",
            b"+strange\r\n",
            // The client library would take it for the integer that is right here.
            b"$2\r\n17\r\n",
            // And this for bytes.
            b"*1\r\n:7\r\n",
        ];
        for (n, forged) in forged.into_iter().enumerate() {
            // The requests are held back, so the forged reply is taken for the first one.
            proxy.take_sent();
            proxy.hold(Direction::ToServer);
            let (key, value) = (format!("k{n}"), "v".to_string());
            let call = tokio::spawn({
                let (near, key) = (near.clone(), key.clone());
                async move {
                    match n {
                        0 | 1 => near.get(&key).await.map(drop),
                        2 => near.set(&key, &value, None).await,
                        3 | 4 => near.delete(&key).await.map(drop),
                        _ => {
                            let life = Duration::from_secs(60);
                            near.get_and_touch(&key, life).await.map(drop)
                        }
                    }
                }
            });
            until("the request is on its way", async || {
                proxy.take_sent().iter().any(|sent| sent.contains(&key))
            })
            .await;
            proxy.forge(forged);
            let error = call.await.unwrap().unwrap_err();
            match n {
                0 | 1 => assert!(matches!(error, NearError::Protocol(_)), "{error}"),
                _ => assert!(matches!(error, NearError::Unconfirmed { .. }), "{error}"),
            }
            losses += 1;
            lost(&near, losses).await;
            proxy.release(Direction::ToServer);
            connected(&near).await;
            near.set("k".to_string(), n.to_string(), None)
                .await
                .unwrap();
            assert_eq!(read(&near, "k").await, n.to_string());
        }
        assert_eq!(near.stats().lost_connections(), losses);
    }
}

/// Bytes that are no reply at all, or lengths that no memory holds, cost the connection at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_no_reply_cost_the_connection_alone() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let near = near(proxy.port).heartbeat(Duration::from_millis(500));
        let near = near.connect().await.unwrap();
        let mut writer = Writer::connect(server.port).await;
        let nested = b"*1\r\n".repeat(10_000);
        let strange: [&[u8]; 5] = [
            b"what\r\n",
            b"$9223372036854775807\r\n",
            b"*9223372036854775807\r\n",
            b">1000000000\r\n$10\r\ninvalidate\r\n",
            &nested,
        ];
        for (n, bytes) in strange.into_iter().enumerate() {
            writer.set("k", &n.to_string()).await;
            connected(&near).await;
            let losses = near.stats().lost_connections();
            proxy.forge(bytes);
            lost(&near, losses + 1).await;
            writer.set("k", "later").await;
            until("the new value is read", async || {
                near.get("k").await.ok().flatten().as_deref() == Some("later")
            })
            .await;
        }
    }
}
