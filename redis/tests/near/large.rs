//! Replies that are large: slow ones, and those that the server refuses to hold.

use crate::support::proxy::{Direction, Proxy};
use crate::support::server::{Server, installed};
use crate::support::{Near, Text, Writer, client, connected, lost, near, read, until};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::timeout;
use wheelhouse_redis::{Credentials, NearError};

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
        proxy.throttle(1 << 20);
        assert_eq!(read(&near, "large").await.len(), 6 << 20);
        assert_eq!(near.stats().lost_connections(), 0);
        let loads = near.stats().loads();
        assert_eq!(read(&near, "small").await, "v");
        assert_eq!(near.stats().loads(), loads, "nothing was flushed");
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

/// Large values that wait until others have arrived have ended no connection: their keys are not
/// refused, however often connections are cut meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_waits_for_others_is_not_blamed() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(proxy.port).request_timeout(Duration::from_secs(60));
        let near = near.connect().await.unwrap();
        let keys = || (0..6).map(|n| format!("large{n}"));
        for key in keys() {
            writer.set(&key, &"x".repeat(3 << 20)).await;
            // So its size is known.
            read(&near, &key).await;
        }
        proxy.throttle(1 << 20);
        let mut reads = JoinSet::new();
        for key in keys() {
            let near = near.clone();
            reads.spawn(async move { near.refresh(&key).await });
        }
        for cuts in 1..=2 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            proxy.cut();
            lost(&near, cuts).await;
            connected(&near).await;
        }
        proxy.throttle(0);
        let results = reads.join_all().await;
        let refused: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        // That of the one value that was on its way both times.
        assert!(refused.len() <= 1, "{refused:?}");
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
        assert!(near.stats().refused_keys() > 0);
        // Its value comes over a connection of its own from the first time on.
        assert_eq!(near.stats().lost_connections(), 0);
        // Once the value is small, the key is read again.
        writer.set("poison", "small").await;
        until("the key is no longer refused", async || {
            ask(&near).await.is_ok()
        })
        .await;
        assert_eq!(read(&near, "poison").await, "small");
    }
}

/// Other large values share the connection that a value above the server's limit ends. Each of them
/// is a suspect then, and is asked for alone: so only the one that ends connections is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_values_beside_one_that_ends_connections_are_not_refused() {
    for program in installed() {
        let limit = ["--client-output-buffer-limit", "normal 3mb 0 0"];
        let server = Server::start(&program, &limit).await;
        let mut writer = Writer::connect(server.port).await;
        // It leaves room for the others.
        writer.set("poison", &"x".repeat(3400 << 10)).await;
        let mut direct = Writer::connect(server.port).await;
        if direct.try_send::<String>(&["GET", "poison"]).await.is_ok() {
            println!("skipped: {} does not keep its limit", program.display());
            continue;
        }
        let near = near(server.port).connect().await.unwrap();
        let over = Instant::now() + Duration::from_secs(4);
        let mut reads = JoinSet::new();
        for n in 0..6 {
            let (near, key) = (near.clone(), format!("large{n}"));
            writer.set(&key, &"x".repeat(100 << 10)).await;
            reads.spawn(async move {
                while Instant::now() < over {
                    near.refresh(&key).await.unwrap();
                }
            });
        }
        while Instant::now() < over {
            let refused = near.get("poison").await;
            assert!(
                matches!(refused, Err(NearError::Refused { .. })),
                "{:?}",
                refused.map(|value| value.map(|value| value.len()))
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        reads.join_all().await;
        assert_eq!(near.stats().lost_connections(), 0);
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

/// A value takes two seconds to arrive, twice the time of a call: it is asked for once, a late
/// reply is kept, and other keys do not wait behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_key_harms_no_other() {
    const LARGE: usize = 8 << 20;
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        writer.set("slow", &"x".repeat(LARGE)).await;
        writer.set("small", "v").await;
        let near = near(proxy.port).request_timeout(Duration::from_secs(1));
        let near = near.connect().await.unwrap();
        proxy.throttle(4 << 20);
        // Each round the value changes, so it is read again.
        let rounds = async {
            let mut failed = 0;
            for round in 0..4 {
                loop {
                    match near.get("slow").await {
                        Ok(Some(value)) => {
                            assert_eq!(value.len(), LARGE);
                            break;
                        }
                        Ok(None) => panic!("the key is there"),
                        Err(error) => {
                            assert!(matches!(error, NearError::TimedOut { .. }), "{error:?}");
                            failed += 1;
                        }
                    }
                    assert!(failed < 40, "round {round}");
                }
                writer
                    .clone()
                    .send::<i64>(&["EXPIRE", "slow", "1000"])
                    .await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            failed
        };
        // A near cache that asks for no slow key, at the same time: a busy machine delays both.
        let beside = Proxy::to(server.port).await;
        beside.throttle(4 << 20);
        let control = crate::support::near(beside.port).request_timeout(Duration::from_secs(1));
        let control = control.connect().await.unwrap();
        let done = AtomicBool::new(false);
        let others = times_of_reads(&near, &done);
        let control = times_of_reads(&control, &done);
        let rounds = async {
            let failed = rounds.await;
            done.store(true, Ordering::Relaxed);
            failed
        };
        let (failed, took, control) = tokio::join!(rounds, others, control);
        let p99 = |times: &[Duration]| times[(times.len() - 1) * 99 / 100];
        println!(
            "{} reads of another key: p99 {:?}, without a slow key {:?}; {failed} late calls",
            took.len(),
            p99(&took),
            p99(&control)
        );
        // Behind the slow key they would take the second of a call, and fail.
        let bound = Duration::from_millis(50).max(p99(&control).saturating_mul(3));
        let bound = bound.min(Duration::from_millis(900));
        assert!(p99(&took) < bound, "{:?}", p99(&took));
        // Each round at most one request more than the value needs.
        assert!(failed <= 4 * 4, "{failed}");
        let begun = Instant::now();
        assert_eq!(near.refresh("small").await.unwrap().as_deref(), Some("v"));
        assert!(
            begun.elapsed() < Duration::from_secs(1),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(near.stats().lost_connections(), 0);
    }
}

/// Many long values on a slow line: read by tasks again and again, and in bulk, also those of the
/// longest size that is not large. Other keys do not wait behind them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_long_values_harm_no_other_key() {
    const KEYS: usize = 100;
    for program in installed() {
        for (is_bulk, length) in [(false, 60 << 10), (true, 60 << 10), (true, 16 << 10)] {
            let server = Server::start(&program, &[]).await;
            let proxy = Proxy::to(server.port).await;
            let mut writer = Writer::connect(server.port).await;
            let names: Vec<String> = (0..KEYS).map(|n| format!("long:{n}")).collect();
            for name in &names {
                writer.set(name, &"x".repeat(length)).await;
            }
            writer.set("small", "v").await;
            let near = near(proxy.port).request_timeout(Duration::from_secs(20));
            let near = near.connect().await.unwrap();
            assert_eq!(read(&near, "small").await, "v");
            proxy.throttle(4 << 20);
            let beside = Proxy::to(server.port).await;
            beside.throttle(4 << 20);
            let control = crate::support::near(beside.port).connect().await.unwrap();
            let done = AtomicBool::new(false);
            // At first their sizes are not known.
            let measured = Instant::now() + Duration::from_secs(3);
            let over = measured + Duration::from_secs(6);
            let long = async {
                let mut reads = 0;
                if is_bulk {
                    while Instant::now() < over {
                        near.local().invalidate_all();
                        assert_eq!(near.preload(names.clone()).await.unwrap(), KEYS);
                        reads += KEYS;
                    }
                } else {
                    let mut readers = tokio::task::JoinSet::new();
                    for first in 0..32 {
                        let (near, names) = (near.clone(), names.clone());
                        readers.spawn(async move {
                            let mut reads = 0;
                            while Instant::now() < over {
                                let name = &names[(first * 7 + reads) % KEYS];
                                near.refresh(name).await.unwrap().unwrap();
                                reads += 1;
                            }
                            reads
                        });
                    }
                    reads = readers.join_all().await.iter().sum();
                }
                done.store(true, Ordering::Relaxed);
                reads
            };
            let times = async |near| {
                tokio::time::sleep_until(measured.into()).await;
                times_of_reads(near, &done).await
            };
            let (reads, took, control) = tokio::join!(long, times(&near), times(&control));
            let of = |times: &[Duration], percent| times[(times.len() - 1) * percent / 100];
            for percent in [50, 90, 99] {
                let (took, control) = (of(&took, percent), of(&control, percent));
                println!(
                    "bulk {is_bulk}, {length}: p{percent} {took:?}, without long values {control:?}"
                );
            }
            println!("{reads} long values, {} reads of another key", took.len());
            // Behind the long values each would take half a second. A busy machine has few reads.
            let bound = Duration::from_millis(50).max(of(&control, 99).saturating_mul(3));
            let bound = bound.min(Duration::from_millis(400));
            assert!(of(&took, 99) < bound, "{:?}", of(&took, 99));
            assert_eq!(near.stats().lost_connections(), 0);
        }
    }
}

/// A bulk of small values, while a large one comes whose size is not known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_key_harms_no_bulk() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let names: Vec<String> = (0..200).map(|n| format!("k{n}")).collect();
        for name in &names {
            writer.set(name, "v").await;
        }
        writer.set("slow", &"x".repeat(16 << 20)).await;
        let near = near(proxy.port).request_timeout(Duration::from_secs(2));
        let near = near.connect().await.unwrap();
        assert_eq!(read(&near, "k0").await, "v");
        proxy.throttle(2 << 20);
        let reader = near.clone();
        let reading = tokio::spawn(async move { reader.get("slow").await });
        tokio::time::sleep(Duration::from_millis(300)).await;
        let begun = Instant::now();
        for value in near.get_all(names).await {
            assert_eq!(value.unwrap().as_deref(), Some("v"));
        }
        let took = begun.elapsed();
        println!("{took:?}");
        // The large value takes eight seconds.
        assert!(took < Duration::from_secs(5), "{took:?}");
        reading.abort();
        assert_eq!(near.stats().lost_connections(), 0);
    }
}

/// How long reads of a small key took until `done`, in rising order; `Duration::MAX`: it failed.
async fn times_of_reads(near: &Near, done: &AtomicBool) -> Vec<Duration> {
    let mut reads = tokio::task::JoinSet::new();
    while !done.load(Ordering::Relaxed) {
        let near = near.clone();
        reads.spawn(async move {
            let begun = Instant::now();
            match near.refresh("small").await {
                Ok(_) => begun.elapsed(),
                Err(_) => Duration::MAX,
            }
        });
        tokio::time::sleep(Duration::from_millis(4)).await;
    }
    let mut took = reads.join_all().await;
    took.sort_unstable();
    took
}

/// A second connection cannot be made, since its handshake hangs: the calls that need it wait for
/// one attempt together, and the main connection serves them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_connection_that_hangs_fails_no_call() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let large = "x".repeat(100 << 10);
        let names: Vec<String> = (0..12).map(|n| format!("large:{n}")).collect();
        let near = near(proxy.port).request_timeout(Duration::from_secs(4));
        let near = near.connect().await.unwrap();
        for name in &names {
            writer.set(name, &large).await;
        }
        // It accepts later connections, and says nothing.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        proxy.retarget(silent.local_addr().unwrap().port());
        let accepted = proxy.accepted();
        for _round in 0..2 {
            let begun = Instant::now();
            let mut reads = tokio::task::JoinSet::new();
            for name in names.clone() {
                let near = near.clone();
                reads.spawn(async move { near.refresh(&name).await });
            }
            for found in reads.join_all().await {
                assert_eq!(found.unwrap().unwrap().len(), large.len());
            }
            println!("{:?}", begun.elapsed());
        }
        near.set("large:0", large.clone(), None).await.unwrap();
        assert_eq!(
            proxy.accepted(),
            accepted + 2,
            "one attempt for reads and one for writes"
        );
        assert_eq!(near.stats().lost_connections(), 0);
    }
}

/// A value that turns out to be large is asked for its size once, and that is no write. A value of
/// the longest size that is not large, and an empty one, come as they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_all_sizes_are_read() {
    const LARGE: usize = 16 << 10;
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port).connect().await.unwrap();
        for (length, gets, sizes) in [
            (0, 1, 0),
            (1, 0, 0),
            (LARGE, 0, 0),
            (LARGE + 1, 1, 1),
            (8 << 20, 1, 1),
        ] {
            let value = "x".repeat(length);
            writer.set("k", &value).await;
            writer.send::<()>(&["CONFIG", "RESETSTAT"]).await;
            let found = near.refresh("k").await.unwrap();
            assert!(found == Some(value), "{length}");
            assert_eq!(writer.calls("get").await, gets, "{length}");
            assert_eq!(writer.calls("strlen").await, sizes, "{length}");
            // Its size is known from now on.
            assert_eq!(near.refresh("k").await.unwrap().unwrap().len(), length);
            assert_eq!(writer.calls("strlen").await, sizes, "{length}");
            writer.send::<()>(&["DEL", "k"]).await;
            assert_eq!(near.refresh("k").await.unwrap(), None);
        }
        assert_eq!(near.stats().writes(), 0);
        // What a call for many keys has loaded, too, is asked for 1 KiB.
        let load = async |_| Ok::<_, NearError>(vec![Some("x".repeat(2 << 10))]);
        writer.send::<()>(&["CONFIG", "RESETSTAT"]).await;
        let loaded = near.get_all_with(["k".to_string()], None, load).await;
        assert!(loaded[0].is_ok());
        assert_eq!(writer.calls("strlen").await, 1);
        let one = near.refresh("k").await.unwrap();
        assert_eq!(one.unwrap().len(), 2 << 10);
        assert_eq!(writer.calls("strlen").await, 1);
    }
}

/// A balancer leads the second connections to another server: they are not used. Nor are they for a
/// user who may not ask which server it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_connection_to_another_server_is_not_used() {
    for program in installed() {
        for info in ["+info", "-info"] {
            let (server, other) = (
                Server::start(&program, &[]).await,
                Server::start(&program, &[]).await,
            );
            let proxy = Proxy::to(server.port).await;
            let mut here = Writer::connect(server.port).await;
            let mut there = Writer::connect(other.port).await;
            let user = ["ACL", "SETUSER", "near", "on", ">secret", "~*", "+@all"];
            for writer in [&mut here, &mut there] {
                writer.send::<()>(&[&user[..], &[info]].concat()).await;
            }
            here.set("large", &"x".repeat(100 << 10)).await;
            there.set("large", &"y".repeat(100 << 10)).await;
            let login = || async { Ok(Credentials::new("near", "secret")) };
            let near = near(proxy.port).credentials(login).connect().await.unwrap();
            proxy.retarget(other.port);
            let accepted = proxy.accepted();
            assert_eq!(read(&near, "large").await, "x".repeat(100 << 10), "{info}");
            near.set("written", "z".repeat(100 << 10), None)
                .await
                .unwrap();
            assert_eq!(proxy.accepted(), accepted + 2, "both were tried");
            assert_eq!(here.send::<u64>(&["STRLEN", "written"]).await, 100 << 10);
            assert_eq!(there.send::<u64>(&["EXISTS", "written"]).await, 0);
            assert_eq!(near.stats().lost_connections(), 0);
        }
    }
}

/// A second connection dies silently while no request uses it: the next request has another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_connection_that_dies_unused_is_left() {
    for program in installed() {
        for is_write in [false, true] {
            let server = Server::start(&program, &[]).await;
            let proxy = Proxy::to(server.port).await;
            let mut writer = Writer::connect(server.port).await;
            writer.set("large", &"x".repeat(100 << 10)).await;
            let near = near(proxy.port).request_timeout(Duration::from_millis(1500));
            let near = near.heartbeat(Duration::from_millis(1500));
            let near = near.connect().await.unwrap();
            let ask = async || {
                if is_write {
                    near.set("written", "z".repeat(100 << 10), None).await
                } else {
                    near.refresh("large").await.map(|_| ())
                }
            };
            ask().await.unwrap();
            let accepted = proxy.accepted();
            proxy.mute_newest();
            tokio::time::sleep(Duration::from_millis(3200)).await;
            ask().await.unwrap();
            assert_eq!(proxy.accepted(), accepted + 1);
            assert_eq!(near.stats().lost_connections(), 0);
        }
    }
}

/// A value that is empty comes over the main connection: it waits behind no large one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_value_waits_behind_no_large_one() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        writer.set("empty", "").await;
        writer.set("large", &"x".repeat(8 << 20)).await;
        let near = near(proxy.port).request_timeout(Duration::from_secs(3));
        let near = near.connect().await.unwrap();
        assert_eq!(read(&near, "large").await.len(), 8 << 20);
        writer.send::<()>(&["CONFIG", "RESETSTAT"]).await;
        proxy.throttle(1 << 20);
        let reader = near.clone();
        let reading = tokio::spawn(async move { reader.refresh("large").await });
        until("the large value is asked for", async || {
            writer.clone().calls("get").await == 1
        })
        .await;
        // The large value takes eight seconds.
        assert_eq!(near.get("empty").await.unwrap().as_deref(), Some(""));
        let found = near.get_all(["empty".to_string()]).await.remove(0);
        assert_eq!(found.unwrap().as_deref(), Some(""));
        reading.abort();
        assert_eq!(near.stats().lost_connections(), 0);
    }
}

/// A value of `get_all` waits for its turn on the second connection, and grows meanwhile above what
/// the server sends: its key is refused as one that was large from the beginning.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_grows_above_the_limit_is_refused() {
    for program in installed() {
        let limit = ["--client-output-buffer-limit", "normal 6mb 0 0"];
        let server = Server::start(&program, &limit).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        writer.set("poison", &"x".repeat(16 << 20)).await;
        let mut direct = Writer::connect(server.port).await;
        if direct.try_send::<String>(&["GET", "poison"]).await.is_ok() {
            println!("skipped: {} does not keep its limit", program.display());
            continue;
        }
        writer.set("poison", &"x".repeat(2 << 10)).await;
        writer.set("large", &"x".repeat(4 << 20)).await;
        let near = near(proxy.port).connect().await.unwrap();
        assert_eq!(read(&near, "large").await.len(), 4 << 20);
        proxy.throttle(1 << 20);
        writer.send::<()>(&["CONFIG", "RESETSTAT"]).await;
        let reader = near.clone();
        let reading = tokio::spawn(async move { reader.refresh("large").await });
        until("the large value is asked for", async || {
            writer.clone().calls("get").await == 1
        })
        .await;
        let reader = near.clone();
        let growing = tokio::spawn(async move { reader.get_all(["poison".to_string()]).await });
        until("its length is asked for", async || {
            writer.clone().calls("strlen").await == 1
        })
        .await;
        writer.set("poison", &"x".repeat(16 << 20)).await;
        assert_eq!(reading.await.unwrap().unwrap().unwrap().len(), 4 << 20);
        let refused = growing.await.unwrap().remove(0);
        assert!(
            matches!(refused, Err(NearError::Refused { .. })),
            "{:?}",
            refused.map(|value| value.map(|value| value.len()))
        );
        assert_eq!(near.stats().lost_connections(), 0);
    }
}

/// One connection for large writes has ended and cannot be made again; another one is open, and
/// takes the next write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_write_prefers_a_connection_that_is_open() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(proxy.port).heartbeat(Duration::from_secs(60));
        let near = near.connect().await.unwrap();
        let large = "x".repeat(100 << 10);
        near.set("k", &large, None).await.unwrap();
        let clients: String = writer.send(&["CLIENT", "LIST"]).await;
        let mut wrote = clients.lines().filter(|l| l.contains(" cmd=set "));
        let id = wrote.next().unwrap().split(' ').next().unwrap();
        let id = id.strip_prefix("id=").unwrap();
        let accepted = proxy.accepted();
        let (one, two) = tokio::join!(near.set("k", &large, None), near.set("l", &large, None));
        one.and(two).unwrap();
        assert_eq!(proxy.accepted(), accepted + 1);
        proxy.refuse(true);
        assert_eq!(writer.send::<u64>(&["CLIENT", "KILL", "ID", id]).await, 1);
        // The near cache may not know yet that it has ended.
        until("the value is written", async || {
            near.set("k", &large, None).await.is_ok()
        })
        .await;
        // That may have been the write which found out that no other can be made.
        near.set("k", &large, None).await.unwrap();
        let clients: String = writer.send(&["CLIENT", "LIST"]).await;
        let main = clients.lines().find(|l| l.contains(" flags=t ")).unwrap();
        assert!(!main.contains(" cmd=set "), "{clients}");
        assert_eq!(near.stats().lost_connections(), 0);
    }
}

/// A large write waits for what was sent before it over the main connection, and nothing comes, or
/// that connection ends: nothing of the write was sent, and no error says otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_write_that_was_not_sent_says_so() {
    for program in installed() {
        for ends in [false, true] {
            let server = Server::start(&program, &[]).await;
            let proxy = Proxy::to(server.port).await;
            let near = near(proxy.port).request_timeout(Duration::from_secs(4));
            let near = near.heartbeat(Duration::from_secs(60));
            let near = near.connect().await.unwrap();
            let large = "x".repeat(100 << 10);
            near.set("k", &large, None).await.unwrap();
            assert_eq!(near.stats().writes(), 1);
            proxy.hold(Direction::ToClient);
            let (writing, value) = (near.clone(), large.clone());
            let writing = tokio::spawn(async move { writing.set("k", value, None).await });
            if ends {
                tokio::time::sleep(Duration::from_millis(300)).await;
                proxy.cut();
                // It goes over the next connection.
                writing.await.unwrap().unwrap();
                assert_eq!(near.stats().writes(), 2);
            } else {
                let written = writing.await.unwrap();
                assert!(
                    matches!(written, Err(NearError::TimedOut { .. })),
                    "{written:?}"
                );
                assert_eq!(near.stats().writes(), 1, "nothing was sent");
            }
        }
    }
}

/// A user who may not end connections: a large write goes over the main one, in its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_write_that_could_not_be_ended_keeps_its_turn() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let user = [
            "ACL",
            "SETUSER",
            "near",
            "on",
            ">secret",
            "~*",
            "+@all",
            "-client|kill",
        ];
        writer.send::<()>(&user).await;
        let login = || async { Ok(Credentials::new("near", "secret")) };
        for (may_kill, over_main) in [(false, true), (true, false)] {
            if may_kill {
                writer
                    .send::<()>(&["ACL", "SETUSER", "near", "+client|kill"])
                    .await;
            }
            let near = near(server.port)
                .credentials(login)
                .heartbeat(Duration::from_secs(60));
            let near = near.connect().await.unwrap();
            near.set("k", "x".repeat(100 << 10), None).await.unwrap();
            let clients: String = writer.send(&["CLIENT", "LIST"]).await;
            let tracks = |line: &str| line.contains(" flags=t ");
            let wrote: Vec<&str> = clients
                .lines()
                .filter(|l| l.contains(" cmd=set "))
                .collect();
            assert!(
                wrote.len() == 1 && tracks(wrote[0]) == over_main,
                "{clients}"
            );
            near.close().await;
        }
    }
}

/// Two large values take two seconds to be written, at the same time: reads of other keys do not
/// wait behind them, and the connection is not taken for dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_write_harms_no_other_key() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        writer.set("small", "v").await;
        let near = near(proxy.port).heartbeat(Duration::from_millis(600));
        let near = near.connect().await.unwrap();
        assert_eq!(read(&near, "small").await, "v");
        // For each piece of 64 KiB: 4 MiB in a second.
        proxy.delay(Direction::ToServer, Duration::from_millis(16));
        let done = AtomicBool::new(false);
        let writing = async {
            let large = "x".repeat(8 << 20);
            let (written, another) = tokio::join!(
                near.set("large", &large, None),
                near.set("another", &large, None)
            );
            done.store(true, Ordering::Relaxed);
            written.and(another)
        };
        let reading = async {
            let mut longest = Duration::ZERO;
            while !done.load(Ordering::Relaxed) {
                let begun = Instant::now();
                near.refresh("small").await.unwrap();
                longest = longest.max(begun.elapsed());
            }
            longest
        };
        let (written, longest) = tokio::join!(writing, reading);
        written.unwrap();
        println!("the longest read beside the write: {longest:?}");
        assert!(longest < Duration::from_millis(500), "{longest:?}");
        assert_eq!(near.stats().lost_connections(), 0);
        proxy.delay(Direction::ToServer, Duration::ZERO);
        assert_eq!(read(&near, "large").await.len(), 8 << 20);
    }
}

/// A small write is given up on a slow link, and goes on. A large one of its key takes the second
/// connection, and comes after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_write_that_is_given_up_comes_before_a_large_one_of_its_key() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(proxy.port).request_timeout(Duration::from_secs(1));
        let near = near.heartbeat(Duration::from_secs(60));
        let near = near.connect().await.unwrap();
        let accepted = proxy.accepted();
        near.set("other", &"x".repeat(100 << 10), None)
            .await
            .unwrap();
        assert_eq!(proxy.accepted(), accepted + 1, "the second connection");
        // For each piece of 64 KiB: the first write takes two seconds.
        proxy.delay(Direction::ToServer, Duration::from_secs(2));
        let given_up = near.set("k", &"1".repeat(60 << 10), None).await;
        assert!(
            matches!(given_up, Err(NearError::Unconfirmed { .. })),
            "{given_up:?}"
        );
        proxy.delay(Direction::ToServer, Duration::from_millis(16));
        let second = "2".repeat(100 << 10);
        until("the later write is confirmed", async || {
            near.set("k", &second, None).await.is_ok()
        })
        .await;
        // Whatever is still on its way arrives meanwhile.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) {
            let there: String = writer.send(&["GET", "k"]).await;
            assert!(there == second, "the value of {} bytes", there.len());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A large write is given up, by its limit or by its caller, while its bytes are still on their
/// way, and while a large read is, too. It never comes after a later write of its key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_write_that_is_given_up_never_comes_after_a_later_one() {
    for program in installed() {
        for (later, is_cancelled) in [(1, false), (100 << 10, false), (1, true)] {
            let server = Server::start(&program, &[]).await;
            let proxy = Proxy::to(server.port).await;
            let mut writer = Writer::connect(server.port).await;
            writer.set("slow", &"x".repeat(8 << 20)).await;
            let near = near(proxy.port).request_timeout(Duration::from_secs(1));
            let near = near.heartbeat(Duration::from_secs(60));
            let near = near.connect().await.unwrap();
            assert_eq!(read(&near, "slow").await.len(), 8 << 20);
            proxy.throttle(1 << 20);
            let reader = near.clone();
            let reading = tokio::spawn(async move { reader.refresh("slow").await });
            tokio::time::sleep(Duration::from_millis(200)).await;
            // For each piece of 64 KiB: the first write takes more than two seconds.
            proxy.delay(Direction::ToServer, Duration::from_millis(40));
            let (writing, first) = (near.clone(), "1".repeat(4 << 20));
            let writing = tokio::spawn(async move { writing.set("k", first, None).await });
            if is_cancelled {
                tokio::time::sleep(Duration::from_millis(600)).await;
                writing.abort();
                let _ = writing.await;
            } else {
                let given_up = writing.await.unwrap();
                assert!(
                    matches!(given_up, Err(NearError::Unconfirmed { .. })),
                    "{given_up:?}"
                );
            }
            let second = "2".repeat(later);
            until("the later write is confirmed", async || {
                near.set("k", &second, None).await.is_ok()
            })
            .await;
            // Whatever is still on its way arrives meanwhile.
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(4) {
                let there: String = writer.send(&["GET", "k"]).await;
                assert!(there == second, "the value of {} bytes", there.len());
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            reading.abort();
            assert_eq!(near.stats().lost_connections(), 0);
        }
    }
}

/// A value above the server's limit beside thousands of reads under way: they are measured
/// together, and go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poisoned_key_harms_none_of_thousands() {
    const TASKS: usize = 2000;
    for program in installed() {
        let limit = ["--client-output-buffer-limit", "normal 1mb 0 0"];
        let server = Server::start(&program, &limit).await;
        let mut writer = Writer::connect(server.port).await;
        writer.set("poison", &"x".repeat(4 << 20)).await;
        for n in 0..TASKS {
            writer.set(&format!("k{n}"), "v").await;
        }
        // A busy machine may itself hold up a round for longer than the limit of a call.
        let mut is_unharmed = false;
        for _round in 0..3 {
            let (reads, failed) = reads_beside_poison(server.port, TASKS).await;
            println!("{failed} of {reads} reads failed");
            is_unharmed = failed * 1000 <= reads;
            if is_unharmed {
                break;
            }
        }
        assert!(is_unharmed, "reads failed in each of three rounds");
    }
}

/// Four seconds of reads by many tasks beside a key that the server cannot send: how many reads
/// there were, and how many failed.
async fn reads_beside_poison(port: u16, tasks: usize) -> (u64, u64) {
    // Not the limit of a call is asked for here: a busy machine reaches it by itself.
    let near = near(port).request_timeout(Duration::from_secs(20));
    let near = near.connect().await.unwrap();
    let over = Instant::now() + Duration::from_secs(4);
    let mut readers = tokio::task::JoinSet::new();
    for n in 0..tasks {
        let near = near.clone();
        readers.spawn(async move {
            let mut reads = 0u64;
            let mut failed = 0u64;
            let key = format!("k{n}");
            while Instant::now() < over {
                reads += 1;
                failed += u64::from(near.refresh(&key).await.is_err());
            }
            (reads, failed)
        });
    }
    while Instant::now() < over {
        let _ = near.get("poison").await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut reads = 0;
    let mut failed = 0;
    for (of_one, failed_of_one) in readers.join_all().await {
        reads += of_one;
        failed += failed_of_one;
    }
    assert_eq!(near.stats().lost_connections(), 0);
    (reads, failed)
}

/// A call opens a second connection, and its runtime runs nothing any more: neither an attempt that
/// has begun ends with it, nor the connection. A write that stands still keeps its turn alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_that_stops_takes_no_second_connection_with_it() {
    for program in installed() {
        // The runtime stops while it waits for the handshake, or after its write has been answered.
        for (delay, runs_for, second) in [
            (Duration::from_millis(300), Duration::from_millis(150), 2),
            (Duration::ZERO, Duration::from_secs(20), 1),
        ] {
            let server = Server::start(&program, &[]).await;
            let proxy = Proxy::to(server.port).await;
            let large = "x".repeat(100 << 10);
            // Long enough for a call that waits in vain to be told apart.
            let near = near(proxy.port).request_timeout(Duration::from_secs(20));
            let near = near.heartbeat(Duration::from_secs(20));
            let near = near.connect().await.unwrap();
            let accepted = proxy.accepted();
            proxy.delay(Direction::ToClient, delay);
            let (caller, value) = (near.clone(), large.clone());
            let stopped = tokio::task::spawn_blocking(move || {
                let mut runtime = tokio::runtime::Builder::new_current_thread();
                let runtime = runtime.enable_all().build().unwrap();
                let writing =
                    runtime.spawn(async move { caller.set("written", value, None).await });
                let ended = runtime.block_on(async { timeout(runs_for, writing).await });
                (runtime, ended.is_ok())
            });
            let (runtime, has_written) = stopped.await.unwrap();
            assert_eq!(has_written, delay.is_zero());
            until("the attempt has reached the server", async || {
                proxy.accepted() == accepted + 1
            })
            .await;
            let begun = Instant::now();
            near.set("written", &large, None).await.unwrap();
            let took = begun.elapsed();
            println!("{took:?}");
            assert!(took < Duration::from_secs(5), "{took:?}");
            assert_eq!(proxy.accepted(), accepted + second);
            runtime.shutdown_background();
        }
    }
}

/// Many large values are written at once over a slow line: each has its turn, however long that
/// takes, and few connections are opened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_large_writes_take_turns() {
    const WRITES: usize = 128;
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(proxy.port).request_timeout(Duration::from_secs(1));
        let near = near.connect().await.unwrap();
        proxy.delay(Direction::ToServer, Duration::from_millis(10));
        proxy.delay(Direction::ToClient, Duration::from_millis(10));
        let accepted = proxy.accepted();
        let large = "x".repeat(64 << 10);
        let names = |kind: &str| Vec::from_iter((0..WRITES).map(|n| format!("{kind}:{n}")));
        let begun = Instant::now();
        let entries = names("written").into_iter().map(|n| (n, large.clone()));
        let written = near.set_all(entries, None).await;
        let failed = written.iter().filter(|written| written.is_err()).count();
        let opened = proxy.accepted() - accepted;
        println!(
            "{failed} failed, {opened} connections, {:?}",
            begun.elapsed()
        );
        assert_eq!(failed, 0, "{written:?}");
        assert!(opened <= 8, "{opened} connections");
        let load = async |keys: Vec<String>| {
            let values = keys.iter().map(|_| Some(large.clone()));
            Ok::<_, NearError>(values.collect())
        };
        let loaded = near.get_all_with(names("loaded"), None, load).await;
        assert!(loaded.iter().all(Result::is_ok));
        assert_eq!(near.stats().unsaved_loads(), 0);
        // The second connection for reads, too.
        assert!(proxy.accepted() - accepted <= 9);
        assert_eq!(writer.send::<usize>(&["DBSIZE"]).await, 2 * WRITES);
        assert_eq!(near.stats().lost_connections(), 0);
    }
}

/// A user who may not end connections writes many large values over a slow line: the main
/// connection serves, and the others wait as long as it answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_large_writes_over_the_main_connection_take_turns() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let user = "ACL SETUSER near on >secret ~* +@all -client|kill";
        let user = Vec::from_iter(user.split(' '));
        writer.send::<()>(&user).await;
        let login = || async { Ok(Credentials::new("near", "secret")) };
        let near = near(proxy.port).request_timeout(Duration::from_secs(1));
        let near = near.credentials(login).connect().await.unwrap();
        // For each piece of 64 KiB: 4 MiB in a second.
        proxy.delay(Direction::ToServer, Duration::from_millis(16));
        let large = "x".repeat(64 << 10);
        let entries = (0..128).map(|n| (format!("k{n}"), large.clone()));
        let begun = Instant::now();
        for written in near.set_all(entries, None).await {
            written.unwrap();
        }
        println!("{:?}", begun.elapsed());
        assert!(begun.elapsed() > Duration::from_secs(1));
        assert_eq!(near.stats().lost_connections(), 0);
    }
}

/// Large writes wait for their turn, and the server is silent: they do not wait without end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_writes_that_wait_for_a_silent_server_end_in_time() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let near = near(proxy.port).request_timeout(Duration::from_secs(1));
        let near = near.heartbeat(Duration::from_secs(60));
        let near = near.connect().await.unwrap();
        let large = "x".repeat(100 << 10);
        let entries = |count| (0..count).map(|n| (format!("k{n}"), large.clone()));
        proxy.hold_all(Direction::ToClient);
        let begun = Instant::now();
        for written in near.set_all(entries(100), None).await {
            // Those that had their turn have tried the main connection, too.
            assert!(
                matches!(
                    written,
                    Err(NearError::TimedOut { .. } | NearError::Unconfirmed { .. })
                ),
                "{written:?}"
            );
        }
        let took = begun.elapsed();
        println!("{took:?}");
        // One limit for those that wait, and one for those that had their turn at its end.
        assert!(took < Duration::from_secs(6), "{took:?}");
        proxy.release(Direction::ToClient);
        // Attempts that failed are repeated a second later.
        until("all turns are there again", async || {
            let written = near.set_all(entries(20), None).await;
            written.iter().all(Result::is_ok)
        })
        .await;
        assert_eq!(near.stats().lost_connections(), 0);
    }
}

/// A key whose value the server cannot send, over a line on which a second connection takes longer
/// than half of a call: it ends one main connection at most, before it is a suspect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspect_never_ends_a_main_connection() {
    for program in installed() {
        let limit = ["--client-output-buffer-limit", "normal 1mb 0 0"];
        let server = Server::start(&program, &limit).await;
        let mut writer = Writer::connect(server.port).await;
        writer.set("poison", &"x".repeat(4 << 20)).await;
        writer.set("small", "v").await;
        let mut direct = Writer::connect(server.port).await;
        if direct.try_send::<String>(&["GET", "poison"]).await.is_ok() {
            println!("skipped: {} does not keep its limit", program.display());
            continue;
        }
        let proxy = Proxy::to(server.port).await;
        for direction in [Direction::ToServer, Direction::ToClient] {
            proxy.delay(direction, Duration::from_millis(180));
        }
        let near = Near::builder(client(proxy.port)).codec(Text);
        // The other settings are the defaults; a busy machine may itself be silent for a second.
        let near = near.heartbeat(Duration::from_secs(10));
        let near = near.connect().await.unwrap();
        let over = Instant::now() + Duration::from_secs(8);
        let mut refused = 0;
        while Instant::now() < over {
            let error = near.get("poison").await.unwrap_err();
            refused += u64::from(matches!(error, NearError::Refused { .. }));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let losses = near.stats().lost_connections();
        println!("{losses} main connections ended, {refused} calls were refused");
        assert!(losses <= 1, "{losses}");
        assert!(refused > 0);
        assert_eq!(read(&near, "small").await, "v");
    }
}

/// A value that the server does not read, or that takes longer than a heartbeat to be sent, over a
/// line on which a second connection takes longer than half of a call: its writes, one after the
/// other, end one main connection at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_fails_again_and_again_ends_one_main_connection() {
    for program in installed() {
        for (limit, pieces) in [
            ("1mb", Duration::ZERO),
            ("512mb", Duration::from_millis(70)),
        ] {
            let server = Server::start(&program, &["--proto-max-bulk-len", limit]).await;
            let proxy = Proxy::to(server.port).await;
            let near = near(proxy.port).request_timeout(Duration::from_secs(1));
            let near = near.heartbeat(Duration::from_secs(2));
            let near = near.connect().await.unwrap();
            // The way to the server takes this time for each piece of 64 KiB.
            proxy.delay(Direction::ToServer, Duration::from_millis(150) + pieces);
            proxy.delay(Direction::ToClient, Duration::from_millis(150));
            let large = "x".repeat(2 << 20);
            let over = Instant::now() + Duration::from_secs(9);
            let mut failed = 0;
            while Instant::now() < over {
                near.set("large", &large, None).await.unwrap_err();
                failed += 1;
            }
            let losses = near.stats().lost_connections();
            println!("{losses} main connections ended, {failed} writes failed");
            assert!(losses <= 1, "{losses}");
            assert!(failed >= 4, "{failed}");
        }
    }
}

/// A suspect is asked for seldom, over a line on which a second connection takes longer than a
/// call: it is read once that connection is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspect_is_read_over_a_second_connection_that_takes_longer_than_a_call() {
    for program in installed() {
        let limit = ["--client-output-buffer-limit", "normal 1mb 0 0"];
        let server = Server::start(&program, &limit).await;
        let mut writer = Writer::connect(server.port).await;
        writer.set("poison", &"x".repeat(4 << 20)).await;
        let proxy = Proxy::to(server.port).await;
        let near = near(proxy.port).request_timeout(Duration::from_millis(500));
        let near = near.heartbeat(Duration::from_secs(1));
        let near = near.connect().await.unwrap();
        match near.get("poison").await {
            Ok(_) => {
                println!("skipped: {} does not keep its limit", program.display());
                continue;
            }
            Err(error) => println!("{error}"),
        }
        writer.set("poison", "small").await;
        for direction in [Direction::ToServer, Direction::ToClient] {
            proxy.delay(direction, Duration::from_millis(150));
        }
        let mut calls = 0;
        while near.get("poison").await.is_err() {
            calls += 1;
            assert!(calls < 5, "it is never read");
            // An unused connection is replaced after two heartbeats.
            tokio::time::sleep(Duration::from_millis(2500)).await;
        }
        assert_eq!(read(&near, "poison").await, "small");
    }
}

/// A script keeps the server busy while a suspect waits for a second connection: once the script
/// ends, the value still comes over a second connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspect_never_ends_a_main_connection_after_a_script() {
    for program in installed() {
        let limit = ["--client-output-buffer-limit", "normal 1mb 0 0"];
        let options = [&limit[..], &["--lua-time-limit", "20"]].concat();
        let server = Server::start(&program, &options).await;
        let mut writer = Writer::connect(server.port).await;
        writer.set("poison", &"x".repeat(4 << 20)).await;
        let near = near(server.port).connect().await.unwrap();
        match near.get("poison").await {
            Ok(_) => {
                println!("skipped: {} does not keep its limit", program.display());
                continue;
            }
            Err(error) => assert!(matches!(error, NearError::Refused { .. }), "{error:?}"),
        }
        let mut blocking = Writer::connect(server.port).await;
        let script = ["EVAL", "while true do end", "0"];
        let blocking = tokio::spawn(async move { blocking.try_send::<()>(&script).await });
        until("the script keeps the server busy", async || {
            let refused = writer.clone().try_send::<u64>(&["DBSIZE"]).await;
            refused.is_err_and(|error| error.code() == Some("BUSY"))
        })
        .await;
        tokio::time::sleep(Duration::from_millis(150)).await;
        let reader = near.clone();
        let reading = tokio::spawn(async move { reader.get("poison").await });
        tokio::time::sleep(Duration::from_millis(500)).await;
        writer.send::<()>(&["SCRIPT", "KILL"]).await;
        assert!(blocking.await.unwrap().is_err());
        let error = reading.await.unwrap().unwrap_err();
        assert!(matches!(error, NearError::Refused { .. }), "{error:?}");
        assert_eq!(near.get("small").await.unwrap(), None);
        assert_eq!(near.stats().lost_connections(), 0);
    }
}

/// As long as the server accepts no second connection, a suspect is not asked for: the main one
/// ends once. Other large values come over the main one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspect_waits_until_the_server_accepts_a_second_connection() {
    for program in installed() {
        let limit = ["--client-output-buffer-limit", "normal 1mb 0 0"];
        let server = Server::start(&program, &limit).await;
        let mut writer = Writer::connect(server.port).await;
        writer.set("poison", &"x".repeat(4 << 20)).await;
        writer.set("large", &"x".repeat(100 << 10)).await;
        let mut direct = Writer::connect(server.port).await;
        if direct.try_send::<String>(&["GET", "poison"]).await.is_ok() {
            println!("skipped: {} does not keep its limit", program.display());
            continue;
        }
        drop(direct);
        let near = near(server.port).request_timeout(Duration::from_secs(1));
        let near = near.connect().await.unwrap();
        until("no other client is connected", async || {
            let clients: String = writer.clone().send(&["CLIENT", "LIST"]).await;
            clients.lines().count() == 2
        })
        .await;
        let most = |count| ["CONFIG", "SET", "maxclients", count];
        writer.send::<()>(&most("2")).await;
        let over = Instant::now() + Duration::from_secs(4);
        while Instant::now() < over {
            let error = near.get("poison").await.unwrap_err();
            assert!(matches!(error, NearError::TimedOut { .. }), "{error:?}");
            assert!(error.to_string().contains("`maxclients`"), "{error}");
            let large = near.refresh("large").await.unwrap().unwrap();
            assert_eq!(large.len(), 100 << 10);
        }
        assert_eq!(near.stats().lost_connections(), 1);
        let get = || {
            let near = near.clone();
            tokio::spawn(async move { near.get("poison").await })
        };
        // A call that comes late has its own time.
        let first = get();
        tokio::time::sleep(Duration::from_millis(700)).await;
        let second = get();
        assert!(first.await.unwrap().is_err());
        writer.set("poison", "small").await;
        writer.send::<()>(&most("100")).await;
        assert_eq!(second.await.unwrap().unwrap().as_deref(), Some("small"));
        assert_eq!(near.stats().lost_connections(), 1);
    }
}

/// The main connection ends while an attempt to make a second one hangs: a large value comes over
/// the next one, without a wait for that attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_the_main_connection_ends_the_wait_for_a_second_one() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        writer.set("large", &"x".repeat(100 << 10)).await;
        let near = near(proxy.port).request_timeout(Duration::from_secs(20));
        let near = near.heartbeat(Duration::from_secs(60));
        let near = near.connect().await.unwrap();
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        proxy.retarget(silent.local_addr().unwrap().port());
        let accepted = proxy.accepted();
        let begun = Instant::now();
        let reader = near.clone();
        let reading = tokio::spawn(async move { reader.get("large").await });
        until("the attempt hangs", async || {
            proxy.accepted() == accepted + 1
        })
        .await;
        proxy.retarget(server.port);
        let kill = ["CLIENT", "KILL", "TYPE", "normal"];
        assert_eq!(writer.send::<u64>(&kill).await, 1);
        let found = reading.await.unwrap().unwrap();
        assert_eq!(found.unwrap().len(), 100 << 10);
        // Half of the limit of a call is ten seconds.
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(near.stats().lost_connections(), 1);
    }
}

/// The main connection ends again and again while a value comes over the second one: that value is
/// not blamed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_the_main_connection_blames_no_value_of_the_second_one() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        writer.set("large", &"x".repeat(4 << 20)).await;
        let near = near(proxy.port).request_timeout(Duration::from_secs(60));
        let near = near.heartbeat(Duration::from_secs(60));
        let near = near.connect().await.unwrap();
        // So its size is known.
        assert_eq!(read(&near, "large").await.len(), 4 << 20);
        writer.send::<()>(&["CONFIG", "RESETSTAT"]).await;
        proxy.throttle(1 << 20);
        let reader = near.clone();
        let reading = tokio::spawn(async move { reader.refresh("large").await });
        for losses in 1..=3 {
            until("the value is asked for", async || {
                writer.clone().calls("get").await == losses
            })
            .await;
            let clients: String = writer.send(&["CLIENT", "LIST"]).await;
            let main = clients.lines().find(|l| l.contains(" flags=t ")).unwrap();
            let id = main.split(' ').next().unwrap();
            let id = id.strip_prefix("id=").unwrap();
            writer.send::<u64>(&["CLIENT", "KILL", "ID", id]).await;
            lost(&near, losses).await;
        }
        proxy.throttle(0);
        let found = reading.await.unwrap().unwrap();
        assert_eq!(found.unwrap().len(), 4 << 20);
    }
}

/// For a user who may have no second connection, a key is read over the main one also after a
/// connection has ended while it was asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspect_is_read_where_there_can_be_no_second_connection() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        let user = "ACL SETUSER near on >secret ~* +@all -info";
        writer.send::<()>(&Vec::from_iter(user.split(' '))).await;
        writer.set("large", &"x".repeat(1 << 20)).await;
        let login = || async { Ok(Credentials::new("near", "secret")) };
        let near = near(proxy.port).credentials(login).connect().await.unwrap();
        assert_eq!(read(&near, "large").await.len(), 1 << 20);
        proxy.throttle(1 << 20);
        let reader = near.clone();
        let reading = tokio::spawn(async move { reader.refresh("large").await });
        tokio::time::sleep(Duration::from_millis(300)).await;
        proxy.cut();
        proxy.throttle(0);
        let found = reading.await.unwrap().unwrap();
        assert_eq!(found.unwrap().len(), 1 << 20);
        assert_eq!(near.stats().lost_connections(), 1);
    }
}
