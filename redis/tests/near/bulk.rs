//! Many keys in one call.

use crate::support::proxy::{Direction, Proxy};
use crate::support::server::{Server, installed};
use crate::support::{Writer, near, values};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wheelhouse_redis::NearError;

async fn fill(writer: &mut Writer, keys: usize) {
    for first in (0..keys).step_by(1000) {
        let names: Vec<String> = (first..keys.min(first + 1000))
            .map(|n| format!("k{n}"))
            .collect();
        let mut words = vec!["MSET"];
        names
            .iter()
            .for_each(|name| words.extend([name.as_str(), "v"]));
        writer.send::<()>(&words).await;
    }
}

/// The time grows with the number of keys alone, and each value is kept when it comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_cold_keys_are_read_in_one_call() {
    const KEYS: usize = 20_000;
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        fill(&mut writer, KEYS).await;
        let near = near(server.port).request_timeout(Duration::from_secs(60));
        let near = near.connect().await.unwrap();
        let keys = || (0..KEYS).map(|n| format!("k{n}"));
        let begun = Instant::now();
        for part in keys().collect::<Vec<_>>().chunks(1000) {
            values(near.get_all(part.to_vec()).await);
        }
        let in_parts = begun.elapsed();
        near.local().invalidate_all();
        let begun = Instant::now();
        let found = values(near.get_all(keys()).await);
        let at_once = begun.elapsed();
        println!("{KEYS} keys at once: {at_once:?}, by 1,000: {in_parts:?}");
        assert!(found.iter().all(|value| value.as_deref() == Some("v")));
        assert!(at_once < in_parts * 4 + Duration::from_secs(1));
        assert_eq!(near.stats().loads(), 2 * KEYS as u64);
        assert_eq!(values(near.get_all(keys()).await).len(), KEYS);
        assert_eq!(near.stats().loads(), 2 * KEYS as u64, "all are kept");
    }
}

/// On a runtime of one thread, hits stay fresh while a large call is under way: from the reply to a
/// write until the value is seen, the call asks for few of its keys, and stores few.
#[tokio::test]
async fn hits_stay_fresh_during_a_large_call() {
    const KEYS: usize = 20_000;
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        fill(&mut writer, KEYS).await;
        writer.set("hot", "0").await;
        let near = near(server.port).request_timeout(Duration::from_secs(60));
        let near = near.connect().await.unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let reader = tokio::spawn({
            let (near, done) = (near.clone(), done.clone());
            async move {
                let progress = || near.stats().loads() + near.local().entry_count();
                let (mut most, mut version) = (0, 0);
                while !done.load(Ordering::Relaxed) {
                    version += 1;
                    writer.set("hot", &version.to_string()).await;
                    let written = progress();
                    while near.get("hot").await.unwrap() != Some(version.to_string()) {
                        tokio::task::yield_now().await;
                    }
                    most = most.max(progress().saturating_sub(written));
                }
                most
            }
        });
        values(near.get_all((0..KEYS).map(|n| format!("k{n}"))).await);
        done.store(true, Ordering::Relaxed);
        let most = reader.await.unwrap();
        println!("during the longest staleness, {most} keys were asked for or stored");
        assert!(most < KEYS as u64 / 2, "{most}");
    }
}

/// The limit is one of silence: a call may take longer than it as long as values arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_link_brings_all_keys() {
    const KEYS: usize = 20_000;
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        fill(&mut writer, KEYS).await;
        let near = near(proxy.port).request_timeout(Duration::from_millis(1000));
        let near = near.connect().await.unwrap();
        proxy.throttle(100_000);
        let begun = Instant::now();
        let found = near.preload((0..KEYS).map(|n| format!("k{n}"))).await;
        assert_eq!(found.unwrap(), KEYS);
        assert!(
            begun.elapsed() > Duration::from_secs(2),
            "{:?}",
            begun.elapsed()
        );
    }
}

/// Many more keys than the limit of a call would suffice for, through a delay of a millisecond.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delay_fails_none_of_many_cold_keys() {
    const KEYS: usize = 160_000;
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        fill(&mut writer, KEYS).await;
        let near = near(proxy.port).request_timeout(Duration::from_secs(1));
        let near = near.connect().await.unwrap();
        proxy.delay(Direction::ToClient, Duration::from_millis(1));
        let begun = Instant::now();
        let found = near.get_all((0..KEYS).map(|n| format!("k{n}"))).await;
        println!("{:?}", begun.elapsed());
        let failed = found.iter().filter(|value| value.is_err()).count();
        assert_eq!(failed, 0);
    }
}

/// Values stop arriving in the middle of a call: what has arrived is returned, and kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_arrived_in_time_is_kept() {
    const KEYS: usize = 20_000;
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let mut writer = Writer::connect(server.port).await;
        fill(&mut writer, KEYS).await;
        let near = near(proxy.port).request_timeout(Duration::from_millis(1500));
        let near = near.connect().await.unwrap();
        // A key costs eleven bytes on the way back: a part arrives before the silence.
        proxy.throttle(50_000);
        let silence = async {
            tokio::time::sleep(Duration::from_millis(1000)).await;
            proxy.hold(Direction::ToClient);
        };
        let keys = (0..KEYS).map(|n| format!("k{n}"));
        let (found, ()) = tokio::join!(near.get_all(keys), silence);
        let arrived = found.iter().filter(|one| one.is_ok()).count();
        assert!((1..KEYS).contains(&arrived), "{arrived} of {KEYS} arrived");
        for one in found.iter().filter_map(|one| one.as_ref().err()) {
            assert!(one.is_transient(), "{one}");
        }
        assert!(near.local().iter().count() >= arrived);
    }
}

/// Each write has its own result.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_keys_are_written_and_deleted_in_one_call() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port).connect().await.unwrap();
        let entries = (0..500).map(|n| (format!("k{n}"), format!("v{n}")));
        let writer_of_all = near.clone();
        // Each call may run in a task of its own.
        let writing = tokio::spawn(async move {
            let written = writer_of_all.set_all(entries, Duration::from_secs(100));
            values(written.await);
            let gone = writer_of_all.delete_all(["absent".to_string()]).await;
            assert_eq!(values(gone), [false]);
            let load = async |keys: Vec<String>| Ok::<_, NearError>(vec![None; keys.len()]);
            let ttl = Duration::from_secs(100);
            let found = writer_of_all.get_all_with(["absent".to_string()], ttl, load);
            assert_eq!(values(found.await), [None]);
        });
        writing.await.unwrap();
        let ttl: i64 = writer.send(&["TTL", "k499"]).await;
        assert!((1..=100).contains(&ttl), "{ttl}");
        assert_eq!(
            near.preload((0..501).map(|n| format!("k{n}")))
                .await
                .unwrap(),
            500
        );
        let loads = near.stats().loads();
        assert_eq!(near.get("k7").await.unwrap().as_deref(), Some("v7"));
        assert_eq!(near.stats().loads(), loads, "from memory");
        let keys = ["k0", "absent", "k1"].map(String::from);
        assert_eq!(values(near.delete_all(keys).await), [true, false, true]);
        assert_eq!(near.get("k0").await.unwrap(), None);
        let zero = near
            .set_all([("k".to_string(), "v".to_string())], Duration::ZERO)
            .await;
        assert!(zero[0].is_err());
    }
}

/// What comes first in a call is sent first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_begin_in_the_order_of_the_call() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let proxy = Proxy::to(server.port).await;
        let near = near(proxy.port).connect().await.unwrap();
        let names: Vec<String> = (100..200).map(|n| format!("name{n}")).collect();
        let entries = names.iter().map(|name| (name.clone(), "v".to_string()));
        proxy.take_sent();
        values(near.set_all(entries, None).await);
        let sent = proxy.take_sent().concat();
        let place = |name: &String| sent.find(name).expect("it was written");
        let places = names.iter().map(place);
        assert!(places.is_sorted(), "{sent}");
    }
}

/// Of a key that is there twice, the last value alone is written: a large one, which takes a
/// connection of its own, would come after a small one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_value_of_a_key_wins() {
    for program in installed() {
        let server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        let near = near(server.port).connect().await.unwrap();
        let large = "x".repeat(100 << 10);
        for (first, last) in [(&*large, "v"), ("v", &*large), ("old", "new")] {
            let before = near.stats().writes();
            let entries = [("k", first), ("l", "other"), ("k", last)];
            let entries = entries.map(|(key, value)| (key.to_string(), value.to_string()));
            assert_eq!(values(near.set_all(entries, None).await).len(), 3);
            assert_eq!(writer.send::<String>(&["GET", "k"]).await, last);
            assert_eq!(writer.send::<String>(&["GET", "l"]).await, "other");
            assert_eq!(near.stats().writes(), before + 2);
        }
    }
}
