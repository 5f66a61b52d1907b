//! Two nodes of a service, each with a near cache in front of one Redis server, a writer, and
//! readers that check everything they see. After seven seconds the connection of node B is cut.
//! It ends after 15 s with a verdict.
//!
//! ```sh
//! cargo run --release -p wheelhouse-redis --example two_nodes
//! ```

#[path = "../../tests/support/mod.rs"]
#[allow(unreachable_pub, reason = "shared with the tests")]
mod support;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::Writer;
use support::proxy::Proxy;
use support::server::{Server, installed};
use tokio::runtime::{Builder, Runtime};
use watch::{Node, Versions};
use wheelhouse::Cache;
use wheelhouse_redis::NearCache;

const KEYS: u64 = 1_000;
const SECONDS: u64 = 14;
const CUT_AT: u64 = 7;
/// How long node B cannot connect again.
const OUTAGE: Duration = Duration::from_millis(1_500);
const READERS: u64 = 2;

/// Each node has a runtime of its own, as a process has.
fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

async fn near(port: u16) -> NearCache<u64, u64> {
    NearCache::builder(support::client(port))
        .local(Cache::builder().max_capacity(100_000).record_stats())
        .key_prefix("item:")
        .request_timeout(Duration::from_millis(500))
        .connect()
        .await
        .unwrap()
}

/// Writes rising versions of all keys, a few hundred writes a second.
async fn write(versions: Arc<Versions>, port: u16, done: Arc<AtomicBool>) {
    let mut writer = Writer::connect(port).await;
    let mut key = 0;
    while !done.load(Ordering::Relaxed) {
        key = (key + 617) % KEYS;
        let version = versions.next(key);
        writer
            .set(&format!("item:{key}"), &version.to_string())
            .await;
        versions.acknowledged(key);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn main() {
    let Some(program) = installed().into_iter().next() else {
        // `installed` has said what to install.
        return;
    };
    let outside = runtime();
    let server = outside.block_on(Server::start(&program, &[]));
    let proxy = outside.block_on(Proxy::to(server.port));
    println!("{} on port {}; {KEYS} keys", program.display(), server.port);

    let versions = Arc::new(Versions::new(KEYS));
    let done = Arc::new(AtomicBool::new(false));
    let (a, b) = (runtime(), runtime());
    let nodes = [
        Arc::new(Node::new("A", a.block_on(near(server.port)))),
        Arc::new(Node::new("B", b.block_on(near(proxy.port)))),
    ];
    outside.block_on(async {
        let mut writer = Writer::connect(server.port).await;
        for key in 0..KEYS {
            let version = versions.next(key);
            writer
                .set(&format!("item:{key}"), &version.to_string())
                .await;
            versions.acknowledged(key);
        }
    });
    outside.spawn(write(versions.clone(), server.port, done.clone()));
    let mut readers = Vec::new();
    for (runtime, node) in [(&a, &nodes[0]), (&b, &nodes[1])] {
        for seed in 1..=READERS {
            let read = node.clone().read(versions.clone(), done.clone(), seed);
            readers.push(runtime.spawn(read));
        }
    }

    println!("{}", watch::HEADING);
    let mut info = outside.block_on(Writer::connect(server.port));
    let mut commands = outside.block_on(watch::commands(&mut info));
    for second in 1..=SECONDS {
        if second == CUT_AT {
            println!("-- the connection of node B is cut, for {OUTAGE:?}");
            proxy.refuse(true);
            proxy.cut();
        }
        let tick = Instant::now();
        if (CUT_AT..CUT_AT + 2).contains(&second) {
            let rest = OUTAGE.saturating_sub(Duration::from_secs(second - CUT_AT));
            std::thread::sleep(rest.min(Duration::from_secs(1)));
            if second > CUT_AT {
                proxy.refuse(false);
            }
        }
        std::thread::sleep(Duration::from_secs(1).saturating_sub(tick.elapsed()));
        let now = outside.block_on(watch::commands(&mut info));
        for node in &nodes {
            println!("{}", node.row(second, now - commands));
        }
        commands = now;
    }
    done.store(true, Ordering::Relaxed);
    for reader in readers {
        outside.block_on(reader).unwrap();
    }
    let wrong: u64 = nodes.iter().map(|node| node.wrong()).sum();
    let (losses, connected) = (
        nodes[1].near.stats().lost_connections(),
        nodes[1].near.is_connected(),
    );
    for node in &nodes {
        outside.block_on(node.near.close());
    }
    // Without hits in the last second, the absence of wrong reads proves nothing.
    let read = nodes.iter().all(|node| node.hits_at_the_end() > 0);
    let right = wrong == 0 && losses >= 1 && connected && read;
    println!(
        "wrong reads: {wrong}; node B lost its connection {losses} time(s) and is {}; failed reads: \
         A {}, B {}",
        if connected { "back" } else { "NOT back" },
        nodes[0].all_failed(),
        nodes[1].all_failed(),
    );
    println!("verdict: {}", if right { "right" } else { "WRONG" });
    // `exit` runs no destructor: the server is stopped first.
    drop((nodes, server));
    std::process::exit(i32::from(!right));
}
