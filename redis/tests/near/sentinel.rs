//! Three sentinels, a primary and its replica.

use crate::support::server::{Server, installed, pair, sentinel};
use crate::support::{Near, Text, Writer, client, read, until};
use std::path::Path;
use std::time::{Duration, Instant};

struct Watched {
    primary: Server,
    replica: Server,
    sentinels: Vec<Server>,
}

impl Watched {
    async fn start(program: &Path) -> Self {
        let (primary, replica) = pair(program, &[]).await;
        let mut sentinels = Vec::new();
        for _ in 0..3 {
            sentinels.push(sentinel(program, primary.port).await);
        }
        for one in &sentinels {
            let mut asked = Writer::connect(one.port).await;
            let begun = Instant::now();
            // All know the replica and each other.
            loop {
                let info: String = asked.send(&["INFO", "sentinel"]).await;
                if info.contains("slaves=1,sentinels=3") {
                    break;
                }
                assert!(begun.elapsed() < Duration::from_secs(40), "{info}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Self {
            primary,
            replica,
            sentinels,
        }
    }

    async fn near(&self) -> Near {
        let sentinels = self.sentinels.iter().map(|one| client(one.port));
        let primary = redis::Client::open("redis://main/").unwrap();
        let near = Near::sentinel_builder(sentinels, primary).codec(Text);
        let near = near
            .connect_timeout(Duration::from_secs(5))
            .request_timeout(Duration::from_secs(2));
        near.heartbeat(Duration::from_secs(60))
            .connect()
            .await
            .unwrap()
    }
}

/// The primary dies: the near cache follows the sentinels to the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_primary_is_replaced() {
    for program in installed() {
        let mut watched = Watched::start(&program).await;
        let near = watched.near().await;
        near.set("k", "old".to_string(), None).await.unwrap();
        assert_eq!(read(&near, "k").await, "old");
        watched.primary.kill();
        let begun = Instant::now();
        loop {
            match near.set("k", "new".to_string(), None).await {
                Ok(()) => break,
                Err(error) => assert!(error.is_transient(), "{error:?}"),
            }
            assert!(begun.elapsed() < Duration::from_secs(60));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        println!("written after {:?}", begun.elapsed());
        assert_eq!(read(&near, "k").await, "new");
        let mut writer = Writer::connect(watched.replica.port).await;
        writer.set("k", "newer").await;
        until("the change is seen", async || {
            read(&near, "k").await == "newer"
        })
        .await;
    }
}

/// The sentinels replace a primary that still answers: `+switch-master` is heard, long before a
/// heartbeat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_report_of_a_switch_is_heard() {
    for program in installed() {
        let watched = Watched::start(&program).await;
        let near = watched.near().await;
        near.set("k", "old".to_string(), None).await.unwrap();
        assert_eq!(read(&near, "k").await, "old");
        until("the near cache has subscribed", async || {
            for sentinel in &watched.sentinels {
                let mut asked = Writer::connect(sentinel.port).await;
                let list: String = asked.send(&["CLIENT", "LIST", "TYPE", "pubsub"]).await;
                if list.contains(" sub=1 ") {
                    return true;
                }
            }
            false
        })
        .await;
        // Stands still, so that it neither closes connections nor reports.
        watched.primary.stop();
        let begun = Instant::now();
        let left = async || near.stats().connections() >= 2;
        let mut waited = 0;
        while !left().await {
            waited += 1;
            assert!(begun.elapsed() < Duration::from_secs(50), "{waited}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        println!("left after {:?}", begun.elapsed());
        let mut writer = Writer::connect(watched.replica.port).await;
        writer.set("k", "new").await;
        until("the new value is read", async || {
            near.get("k")
                .await
                .is_ok_and(|value| value.as_deref() == Some("new"))
        })
        .await;
        watched.primary.resume();
    }
}
