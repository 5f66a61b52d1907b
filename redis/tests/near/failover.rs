//! A primary that is one no more: its clients leave it.

use crate::support::proxy::Proxy;
use crate::support::server::{Server, exchange_roles, installed, pair};
use crate::support::{Near, Writer, connected, near, read, until};
use std::time::{Duration, Instant};

/// Writes until it works; every error on the way must be one that passes.
async fn set_in_the_end(near: &Near, key: &str, value: &str) {
    until("the write works", async || {
        match near.set(key.to_string(), value.to_string(), None).await {
            Ok(()) => true,
            Err(error) => {
                assert!(error.is_transient(), "{error:?}");
                false
            }
        }
    })
    .await;
}

/// `FAILOVER`: the near cache finds the new primary at the address that it knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demoted_primary_is_left_by_a_write() {
    for program in installed() {
        let (first, second) = pair(&program, &[]).await;
        let proxy = Proxy::to(first.port).await;
        let near = near(proxy.port).heartbeat(Duration::from_secs(3600));
        let near = near
            .request_timeout(Duration::from_secs(3))
            .connect()
            .await
            .unwrap();
        near.set("k".to_string(), "old".to_string(), None)
            .await
            .unwrap();
        assert_eq!(read(&near, "k").await, "old");
        proxy.retarget(second.port);
        exchange_roles(first.port, second.port).await;
        set_in_the_end(&near, "k", "new").await;
        assert_eq!(read(&near, "k").await, "new");
        let mut writer = Writer::connect(second.port).await;
        writer.set("k", "newer").await;
        until("the change is seen", async || {
            read(&near, "k").await == "newer"
        })
        .await;
    }
}

/// `REPLICAOF`: a near cache that only reads finds out by its heartbeat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demoted_primary_is_left_by_a_reader() {
    for program in installed() {
        let (first, second) = pair(&program, &[]).await;
        let proxy = Proxy::to(first.port).await;
        let near = near(proxy.port).heartbeat(Duration::from_millis(200));
        let near = near.connect().await.unwrap();
        let mut writer = Writer::connect(first.port).await;
        writer.set("k", "old").await;
        until("the key is read", async || {
            near.get("k").await.unwrap().is_some()
        })
        .await;
        until("the replica has the key", async || {
            let mut asked = Writer::connect(second.port).await;
            asked.send::<Option<String>>(&["GET", "k"]).await.is_some()
        })
        .await;
        proxy.retarget(second.port);
        let mut promoted = Writer::connect(second.port).await;
        promoted.send::<()>(&["REPLICAOF", "NO", "ONE"]).await;
        // A replica of nothing: it never hears of the new value.
        writer.send::<()>(&["REPLICAOF", "127.0.0.1", "1"]).await;
        promoted.set("k", "new").await;
        until("the new primary is asked", async || {
            read(&near, "k").await == "new"
        })
        .await;
    }
}

/// A server that reads its file answers `LOADING`, which ends the connection. Each error meanwhile
/// is transient.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loads_its_file_is_asked_again() {
    for program in installed() {
        let mut server = Server::start(&program, &[]).await;
        let mut writer = Writer::connect(server.port).await;
        for n in 0..2_000 {
            writer.set(&format!("k{n}"), "v").await;
        }
        writer.send::<()>(&["SAVE"]).await;
        let near = near(server.port).request_timeout(Duration::from_millis(200));
        let near = near.connect().await.unwrap();
        // About two seconds.
        server.relaunch(&["--key-load-delay", "1000"]);
        let (begun, mut refused) = (Instant::now(), 0);
        loop {
            match near.get("k0").await {
                Ok(Some(_)) if refused > 0 => break,
                Ok(_) => {}
                Err(error) => {
                    refused += 1;
                    assert!(error.is_transient(), "{error:?}");
                }
            }
            assert!(begun.elapsed() < Duration::from_secs(30));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        connected(&near).await;
        assert_eq!(read(&near, "k1999").await, "v");
    }
}
