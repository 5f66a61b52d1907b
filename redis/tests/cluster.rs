//! A cluster of three local nodes.

#[allow(unreachable_pub, reason = "shared with other test programs")]
mod support;

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;
use support::proxy::Proxy;
use support::server::{Server, installed};
use support::{Near, Text, Writer, client, lost, read, until, values};
use tokio::task::JoinSet;
use wheelhouse_redis::{LoadLock, NearError};

const NODES: usize = 3;
const OPTIONS: [&str; 4] = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];

struct Cluster {
    nodes: Vec<Server>,
    writers: Vec<Writer>,
    ids: Vec<String>,
}

impl Cluster {
    async fn start(program: &Path) -> Self {
        let (mut nodes, mut writers, mut ids) = (Vec::new(), Vec::new(), Vec::new());
        for index in 0..NODES {
            let node = Server::start(program, &OPTIONS).await;
            let mut writer = Writer::connect(node.port).await;
            let (first, last) = (index * 16384 / NODES, (index + 1) * 16384 / NODES - 1);
            let (first, last) = (first.to_string(), last.to_string());
            writer
                .send::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first, &last])
                .await;
            ids.push(writer.send::<String>(&["CLUSTER", "MYID"]).await);
            nodes.push(node);
            writers.push(writer);
        }
        for node in &nodes[1..] {
            let port = node.port.to_string();
            writers[0]
                .send::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port])
                .await;
        }
        let mut cluster = Self {
            nodes,
            writers,
            ids,
        };
        cluster.settled().await;
        cluster
    }

    /// Waits until each node knows all slots and all nodes.
    async fn settled(&mut self) {
        for writer in &self.writers {
            let known = async || {
                let info: String = writer.clone().send(&["CLUSTER", "INFO"]).await;
                info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
            };
            until("the cluster is complete", known).await;
        }
    }

    async fn near(&self) -> Near {
        let seed = client(self.nodes[0].port);
        Near::cluster_builder([seed])
            .codec(Text)
            .connect_timeout(Duration::from_secs(10))
            .request_timeout(Duration::from_secs(15))
            .heartbeat(Duration::from_secs(1))
            .connect()
            .await
            .unwrap()
    }

    /// The node that has a key.
    async fn node_of(&mut self, key: &str) -> usize {
        for (index, writer) in self.writers.iter_mut().enumerate() {
            if writer
                .try_send::<Option<String>>(&["GET", key])
                .await
                .is_ok()
            {
                return index;
            }
        }
        panic!("no node has {key}");
    }

    async fn set(&mut self, key: &str, value: &str) {
        let node = self.node_of(key).await;
        self.writers[node].set(key, value).await;
    }

    /// How often the nodes have executed a command.
    async fn calls(&mut self, command: &str) -> u64 {
        let mut calls = 0;
        for writer in &mut self.writers {
            calls += writer.calls(command).await;
        }
        calls
    }

    async fn slot(&mut self, key: &str) -> String {
        let slot: u64 = self.writers[0].send(&["CLUSTER", "KEYSLOT", key]).await;
        slot.to_string()
    }

    /// Begins to move a slot.
    async fn begin_move(&mut self, slot: &str, from: usize, to: usize) {
        let (source, target) = (self.ids[from].clone(), self.ids[to].clone());
        let set = ["CLUSTER", "SETSLOT", slot];
        self.writers[to]
            .send::<()>(&[&set[..], &["IMPORTING", &source]].concat())
            .await;
        self.writers[from]
            .send::<()>(&[&set[..], &["MIGRATING", &target]].concat())
            .await;
    }

    async fn move_key(&mut self, key: &str, from: usize, to: usize) {
        let port = self.nodes[to].port.to_string();
        let migrate = ["MIGRATE", "127.0.0.1", &port, key, "0", "10000"];
        self.writers[from].send::<()>(&migrate).await;
    }

    async fn end_move(&mut self, slot: &str, to: usize) {
        let target = self.ids[to].clone();
        for index in [to, 0, 1, 2] {
            let writer = &mut self.writers[index];
            writer
                .send::<()>(&["CLUSTER", "SETSLOT", slot, "NODE", &target])
                .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_tracks_what_is_read_from_it() {
    for program in installed() {
        let mut cluster = Cluster::start(&program).await;
        let near = cluster.near().await;
        for writer in &mut cluster.writers {
            let clients: String = writer.send(&["CLIENT", "LIST"]).await;
            let tracking = clients
                .lines()
                .filter(|line| line.contains(" flags=t "))
                .count();
            assert_eq!(tracking, 1, "{clients}");
        }
        let keys: Vec<String> = (0..60).map(|n| format!("k{n}")).collect();
        let mut at: HashMap<usize, usize> = HashMap::new();
        for key in &keys {
            cluster.set(key, "old").await;
            assert_eq!(read(&near, key).await, "old");
            *at.entry(cluster.node_of(key).await).or_default() += 1;
        }
        assert_eq!(at.len(), NODES, "the keys are on all nodes: {at:?}");
        let loads = near.stats().loads();
        let all = values(near.get_all(keys.clone()).await);
        assert!(all.iter().all(|value| value.as_deref() == Some("old")));
        assert_eq!(near.stats().loads(), loads, "all are kept");
        for key in &keys {
            cluster.set(key, "new").await;
        }
        for key in &keys {
            until("the write is seen", async || {
                read(&near, key).await == "new"
            })
            .await;
        }
        near.local().invalidate_all();
        let all = values(near.get_all(keys.clone()).await);
        assert!(all.iter().all(|value| value.as_deref() == Some("new")));
        for key in &keys {
            near.set(key, format!("own {key}"), Duration::from_secs(100))
                .await
                .unwrap();
            assert_eq!(read(&near, key).await, format!("own {key}"));
            assert!(near.delete(key).await.unwrap());
            assert_eq!(near.get(key).await.unwrap(), None);
        }
        // A flush of one node is a report about everything.
        let before = near.stats().invalidations_of_everything();
        cluster.writers[1].send::<()>(&["FLUSHALL"]).await;
        let heard = async || near.stats().invalidations_of_everything() > before;
        until("the report has arrived", heard).await;
        assert_eq!(near.stats().lost_connections(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_while_its_keys_are_read() {
    for program in installed() {
        let mut cluster = Cluster::start(&program).await;
        let near = cluster.near().await;
        let keys: Vec<String> = (0..10).map(|n| format!("{{moving}}:{n}")).collect();
        for key in &keys {
            cluster.set(key, "old").await;
            assert_eq!(read(&near, key).await, "old");
        }
        let slot = cluster.slot(&keys[0]).await;
        let from = cluster.node_of(&keys[0]).await;
        let to = (from + 1) % NODES;
        // Readers continue for the whole time, and never go back.
        let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let mut readers = JoinSet::new();
        for key in keys.clone() {
            let (near, done) = (near.clone(), done.clone());
            readers.spawn(async move {
                let values = ["old", "new", "newest"];
                let mut last = 0;
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let value = read(&near, &key).await;
                    let now = values.iter().position(|known| *known == value).unwrap();
                    assert!(now >= last, "{key} went back to {value}");
                    last = now;
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            });
        }
        cluster.begin_move(&slot, from, to).await;
        for key in &keys[..5] {
            cluster.move_key(key, from, to).await;
        }
        // Half of the keys have moved: the source answers for these with ASK.
        for key in &keys {
            assert_eq!(read(&near, key).await, "old");
            assert_eq!(near.refresh(key).await.unwrap().as_deref(), Some("old"));
        }
        assert_eq!(
            near.stats().lost_connections(),
            0,
            "a move under way is no new topology"
        );
        let moved = near.set(&keys[0], "new".to_string(), None).await;
        moved.unwrap();
        assert_eq!(read(&near, &keys[0]).await, "new");
        for key in &keys[5..] {
            cluster.move_key(key, from, to).await;
        }
        cluster.end_move(&slot, to).await;
        for key in &keys {
            // The nodes may disagree for a moment about the owner of the slot.
            let mut tries = 0;
            let words = ["SET", key.as_str(), "new"];
            while let Err(refused) = cluster.writers[to].try_send::<()>(&words).await {
                tries += 1;
                assert!(tries < 500, "{refused}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        for key in &keys {
            until("the write at the new node is seen", async || {
                read(&near, key).await == "new"
            })
            .await;
        }
        let noticed = async || near.stats().connections() >= 2 && near.is_connected();
        until("the new topology is noticed", noticed).await;
        for key in &keys {
            assert_eq!(read(&near, key).await, "new");
        }
        cluster.writers[to].set(&keys[3], "newest").await;
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        readers.join_all().await;
        until("tracking is on there", async || {
            read(&near, &keys[3]).await == "newest"
        })
        .await;
    }
}

/// A value that the new node of a slot cannot send comes over a main connection while the slot
/// moves: its key is refused after two losses, whether it was known as large before or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_ends_connections_while_its_slot_moves_is_refused() {
    for program in installed() {
        let mut cluster = Cluster::start(&program).await;
        let near = cluster.near().await;
        let keys = ["{poison}:known", "{poison}:unknown"];
        for key in keys {
            cluster.set(key, &"x".repeat(100 << 10)).await;
        }
        assert_eq!(read(&near, keys[0]).await.len(), 100 << 10);
        let from = cluster.node_of(keys[0]).await;
        let to = (from + 1) % NODES;
        let slot = cluster.slot(keys[0]).await;
        cluster.begin_move(&slot, from, to).await;
        let target = &mut cluster.writers[to];
        let limit = ["client-output-buffer-limit", "normal 1mb 0 0"];
        target
            .send::<()>(&[&["CONFIG", "SET"], &limit[..]].concat())
            .await;
        for key in keys {
            cluster.writers[to].send::<()>(&["ASKING"]).await;
            cluster.writers[to].set(key, &"x".repeat(4 << 20)).await;
            cluster.writers[from].send::<()>(&["DEL", key]).await;
            match near.get(key).await {
                Ok(_) => println!("skipped: {} does not keep its limit", program.display()),
                Err(NearError::Refused { losses: 2, .. }) => {}
                Err(error) => panic!("{key}: {error:?}"),
            }
        }
    }
}

/// A slot moves with a large value, which is read and written before, meanwhile and afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_value_moves_with_its_slot() {
    let large = |letter: &str| letter.repeat(100 << 10);
    for program in installed() {
        let mut cluster = Cluster::start(&program).await;
        let near = cluster.near().await;
        near.set("k", large("a"), None).await.unwrap();
        assert_eq!(read(&near, "k").await, large("a"));
        let slot = cluster.slot("k").await;
        let from = cluster.node_of("k").await;
        let to = (from + 1) % NODES;
        cluster.begin_move(&slot, from, to).await;
        near.set("k", large("b"), None).await.unwrap();
        assert_eq!(read(&near, "k").await, large("b"));
        cluster.move_key("k", from, to).await;
        // Over the main connection of the new node.
        assert_eq!(read(&near, "k").await, large("b"));
        near.set("k", large("c"), None).await.unwrap();
        assert_eq!(read(&near, "k").await, large("c"));
        assert_eq!(near.stats().lost_connections(), 0);
        cluster.end_move(&slot, to).await;
        // The nodes may disagree for a moment about the owner of the slot.
        until("the value is written at the new node", async || {
            near.set("k", large("d"), None).await.is_ok()
        })
        .await;
        assert_eq!(read(&near, "k").await, large("d"));
        let noticed = async || near.stats().connections() >= 2 && near.is_connected();
        until("the new topology is noticed", noticed).await;
        cluster.writers[to].set("k", &large("e")).await;
        until("the write of another client is seen", async || {
            near.get("k").await.ok().flatten() == Some(large("e"))
        })
        .await;
        assert_eq!(near.stats().refused_keys(), 0);
    }
}

/// A process dies while it loads a key whose slot moves: calls that wait do not prolong the life of
/// its placeholder, which the new node has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_process_holds_no_key_whose_slot_moves() {
    for program in installed() {
        let mut cluster = Cluster::start(&program).await;
        let near = Near::cluster_builder([client(cluster.nodes[0].port)])
            .codec(Text)
            .request_timeout(Duration::from_secs(15))
            .load_lock(LoadLock::default().longest_wait(Duration::from_secs(10)));
        let near = near.connect().await.unwrap();
        let from = cluster.node_of("k").await;
        let to = (from + 1) % NODES;
        let slot = cluster.slot("k").await;
        cluster.begin_move(&slot, from, to).await;
        let placeholder = format!("\0wheelhouse:loading:{}", "0".repeat(32));
        cluster.writers[to].send::<()>(&["ASKING"]).await;
        let set = ["SET", "k", &placeholder, "PX", "1700"];
        cluster.writers[to].send::<()>(&set).await;
        let load = async { "v".to_string() };
        let found = near.get_with("k", Duration::from_secs(60), load).await;
        assert_eq!(found.unwrap(), "v");
        assert_eq!(near.stats().load_waits(), 1);
    }
}

/// A large value comes from one primary, and connections to another one end again and again
/// meanwhile: the key of that value is not blamed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_connection_to_one_primary_blames_no_key_of_another() {
    const LARGE: usize = 4 << 20;
    for program in installed() {
        let mut cluster = Cluster::start(&program).await;
        cluster.set("large", &"x".repeat(LARGE)).await;
        let slow = cluster.node_of("large").await;
        let other = (slow + 1) % NODES;
        let proxy = Proxy::to(cluster.nodes[slow].port).await;
        let port = proxy.port.to_string();
        let announce = ["CONFIG", "SET", "cluster-announce-port", &port];
        cluster.writers[slow].send::<()>(&announce).await;
        for writer in &cluster.writers {
            until("all nodes know the proxy", async || {
                let nodes: String = writer.clone().send(&["CLUSTER", "NODES"]).await;
                nodes.contains(&format!(":{port}@"))
            })
            .await;
        }
        let near = Near::cluster_builder([client(cluster.nodes[other].port)])
            .codec(Text)
            .request_timeout(Duration::from_secs(60))
            .heartbeat(Duration::from_secs(60));
        let near = near.connect().await.unwrap();
        // So its size is known.
        assert_eq!(read(&near, "large").await.len(), LARGE);
        cluster.writers[slow]
            .send::<()>(&["CONFIG", "RESETSTAT"])
            .await;
        proxy.throttle(1 << 20);
        let reader = near.clone();
        let reading = tokio::spawn(async move { reader.refresh("large").await });
        for losses in 1..=3 {
            until("the value is asked for", async || {
                cluster.writers[slow].clone().calls("get").await == losses
            })
            .await;
            let kill = ["CLIENT", "KILL", "TYPE", "normal"];
            cluster.writers[other].send::<u64>(&kill).await;
            lost(&near, losses).await;
        }
        proxy.throttle(0);
        let found = reading.await.unwrap().unwrap();
        assert_eq!(found.unwrap().len(), LARGE);
    }
}

/// Slots without keys move: no request is redirected, the heartbeat notices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_topology_flushes() {
    for program in installed() {
        let mut cluster = Cluster::start(&program).await;
        let near = cluster.near().await;
        cluster.set("k", "v").await;
        assert_eq!(read(&near, "k").await, "v");
        let flushes = near.stats().flushes();
        let slot = cluster.slot("{unused}").await;
        let from = cluster.node_of("{unused}").await;
        let to = (from + 1) % NODES;
        cluster.begin_move(&slot, from, to).await;
        cluster.end_move(&slot, to).await;
        until("the change is noticed", async || {
            near.stats().lost_connections() >= 1
        })
        .await;
        until("a flush has run", async || near.stats().flushes() > flushes).await;
        until("the key is read", async || near.get("k").await.is_ok()).await;
        assert_eq!(read(&near, "k").await, "v");
        assert!(near.stats().connections() >= 2);
    }
}

/// The seed is one of the nodes that die; the others are known. (The dead node had no slots any
/// more: a cluster without all slots serves nothing.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_nodes_are_known_when_the_seed_dies() {
    for program in installed() {
        let mut cluster = Cluster::start(&program).await;
        let near = cluster.near().await;
        // The two others take over the slots of the seed.
        for slot in (0..16384 / NODES).map(|slot| slot.to_string()) {
            for node in [1, 0, 2] {
                let target = cluster.ids[1].clone();
                let set = ["CLUSTER", "SETSLOT", &slot, "NODE", &target];
                cluster.writers[node].send::<()>(&set).await;
            }
        }
        let noticed = async || near.stats().connections() >= 2 && near.is_connected();
        until("the change is noticed", noticed).await;
        cluster.nodes[0].kill();
        cluster.set("{a}", "x").await;
        until("the key is read", async || near.get("{a}").await.is_ok()).await;
        // A loss that needs the topology anew.
        let kill = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
        cluster.writers[1].send::<i64>(&kill).await;
        let losses = near.stats().lost_connections();
        until("the loss is noticed", async || {
            near.stats().lost_connections() >= losses.min(2)
        })
        .await;
        cluster.set("{a}", "y").await;
        let seen = async || near.get("{a}").await.ok().flatten().as_deref() == Some("y");
        until("the write is seen", seen).await;
    }
}

/// A slot that no node has: reads of its keys wait and time out. The other slots stay in use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_without_a_node_harms_no_other() {
    for program in installed() {
        let mut cluster = Cluster::start(&program).await;
        for writer in &mut cluster.writers {
            let option = ["CONFIG", "SET", "cluster-require-full-coverage", "no"];
            writer.send::<()>(&option).await;
        }
        cluster.set("{kept}", "v").await;
        let slot = cluster.slot("{orphan}").await;
        for writer in &mut cluster.writers {
            writer.send::<()>(&["CLUSTER", "DELSLOTS", &slot]).await;
        }
        let near = Near::cluster_builder([client(cluster.nodes[0].port)])
            .codec(Text)
            .request_timeout(Duration::from_secs(1))
            .connect()
            .await
            .unwrap();
        for _ in 0..3 {
            assert_eq!(read(&near, "{kept}").await, "v");
            let found = near.get("{orphan}").await.unwrap_err();
            assert!(matches!(found, NearError::TimedOut { .. }), "{found:?}");
            assert!(
                found.to_string().contains("no node of the topology"),
                "{found}"
            );
            let written = near
                .set("{orphan}".to_string(), "v".to_string(), None)
                .await;
            assert!(
                matches!(written, Err(NearError::TimedOut { .. })),
                "{written:?}"
            );
        }
        assert_eq!(near.stats().lost_connections(), 0);
        let reads = cluster.calls("getrange").await;
        assert_eq!(read(&near, "{kept}").await, "v");
        assert_eq!(
            cluster.calls("getrange").await,
            reads,
            "the other key is kept"
        );
    }
}

/// A node joins the cluster, and the first slot moves to it: as long as it has none, reads of keys
/// that are there time out. The other keys stay in use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_to_a_new_node_harms_no_other() {
    for program in installed() {
        let mut cluster = Cluster::start(&program).await;
        let new = Server::start(&program, &OPTIONS).await;
        let mut writer = Writer::connect(new.port).await;
        let meet = ["CLUSTER", "MEET", "127.0.0.1", &new.port.to_string()];
        cluster.writers[0].send::<()>(&meet).await;
        cluster.ids.push(writer.send(&["CLUSTER", "MYID"]).await);
        cluster.nodes.push(new);
        cluster.writers.push(writer);
        for writer in &cluster.writers {
            until("all nodes know each other", async || {
                let info: String = writer.clone().send(&["CLUSTER", "INFO"]).await;
                info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:4")
            })
            .await;
        }
        cluster.set("{kept}", "v").await;
        let near = Near::cluster_builder([client(cluster.nodes[0].port)])
            .codec(Text)
            .connect_timeout(Duration::from_secs(10))
            .request_timeout(Duration::from_secs(2))
            .heartbeat(Duration::from_secs(15))
            .connect()
            .await
            .unwrap();
        let from = cluster.node_of("moves").await;
        let slot = cluster.slot("moves").await;
        cluster.begin_move(&slot, from, NODES).await;
        for _ in 0..2 {
            assert_eq!(read(&near, "{kept}").await, "v");
            let found = near.get("moves").await;
            assert!(
                matches!(found, Err(NearError::TimedOut { .. })),
                "{found:?}"
            );
            // The answer to the last request may come too late.
            let written = near.set("moves", "v".to_string(), None).await;
            assert!(written.unwrap_err().is_transient());
        }
        assert_eq!(near.stats().lost_connections(), 0);
        cluster.end_move(&slot, NODES).await;
        until("the value is written at the new node", async || {
            near.set("moves", "w".to_string(), None).await.is_ok()
        })
        .await;
        assert_eq!(read(&near, "moves").await, "w");
        assert_eq!(cluster.node_of("moves").await, NODES);
    }
}

/// A near cache for one server, connected to a node of a cluster, is told what to use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_cluster_is_no_single_server() {
    for program in installed() {
        let mut cluster = Cluster::start(&program).await;
        let near = support::near(cluster.nodes[0].port)
            .connect()
            .await
            .unwrap();
        let mut keys = (0..).map(|n| format!("k{n}"));
        let key = loop {
            let key = keys.next().unwrap();
            if cluster.node_of(&key).await != 0 {
                break key;
            }
        };
        let error = near.get(&key).await.unwrap_err();
        assert!(
            error.to_string().contains("use `cluster_builder`"),
            "{error}"
        );
    }
}

/// A replica takes the place of its primary, once by order and once since the primary has died.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_takes_the_place_of_its_primary() {
    for program in installed() {
        let mut cluster = Cluster::start(&program).await;
        let mut replica = Server::start(&program, &OPTIONS).await;
        let mut at_replica = Writer::connect(replica.port).await;
        let port = replica.port.to_string();
        cluster.writers[0]
            .send::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port])
            .await;
        let primary = cluster.ids[0].clone();
        until("the replica has begun", async || {
            let replicate = ["CLUSTER", "REPLICATE", &primary];
            at_replica.clone().try_send::<()>(&replicate).await.is_ok()
        })
        .await;
        until("the replica is up to date", async || {
            let info: String = at_replica.clone().send(&["INFO", "replication"]).await;
            info.contains("master_link_status:up")
        })
        .await;
        let key = {
            let mut keys = (0..).map(|n| format!("k{n}"));
            loop {
                let key = keys.next().unwrap();
                if cluster.node_of(&key).await == 0 {
                    break key;
                }
            }
        };
        cluster.writers[0].set(&key, "old").await;
        let near = cluster.near().await;
        assert_eq!(read(&near, &key).await, "old");
        assert_eq!(near.get("absent").await.unwrap(), None);

        // By order. All nodes must know of the replica, or it gets no votes.
        until("the replica takes over", async || {
            let mut replica = at_replica.clone();
            let _ = replica.try_send::<()>(&["CLUSTER", "FAILOVER"]).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
            let role: String = replica.send(&["INFO", "replication"]).await;
            role.contains("role:master")
        })
        .await;
        at_replica.set(&key, "new").await;
        until("the write at the new primary is seen", async || {
            near.get(&key).await.ok().flatten().as_deref() == Some("new")
        })
        .await;
        let noticed = async || near.stats().connections() >= 2 && near.is_connected();
        until("the new topology is noticed", noticed).await;
        near.set(&key, "own".to_string(), None).await.unwrap();
        assert_eq!(at_replica.send::<String>(&["GET", &key]).await, "own");

        // By death. The old primary is up to date again, and takes its place back.
        until("the old primary follows", async || {
            let info: String = cluster.writers[0]
                .clone()
                .send(&["INFO", "replication"])
                .await;
            info.contains("role:slave") && info.contains("master_link_status:up")
        })
        .await;
        assert_eq!(read(&near, &key).await, "own");
        replica.kill();
        until("the old primary takes over", async || {
            let role: String = cluster.writers[0]
                .clone()
                .send(&["INFO", "replication"])
                .await;
            role.contains("role:master")
        })
        .await;
        let newest = async || {
            let set = ["SET", &key, "newest"];
            cluster.writers[0]
                .clone()
                .try_send::<()>(&set)
                .await
                .is_ok()
        };
        until("the old primary accepts a write", newest).await;
        until("the write is seen", async || {
            near.get(&key).await.ok().flatten().as_deref() == Some("newest")
        })
        .await;
    }
}

/// A script keeps the node busy that is asked for the topology: a later attempt may succeed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_seed_is_named() {
    for program in installed() {
        let server = Server::start(&program, &["--busy-reply-threshold", "50"]).await;
        let mut writer = Writer::connect(server.port).await;
        let mut scripting = Writer::connect(server.port).await;
        let script = tokio::spawn(async move {
            let endless = ["EVAL", "while true do end", "0"];
            scripting.try_send::<()>(&endless).await
        });
        let seed = || [client(server.port)];
        until("the seed is busy", async || {
            let opened = Near::cluster_builder(seed()).codec(Text).connect().await;
            let error = opened.unwrap_err();
            let busy = error.to_string().contains("a script blocks it");
            assert!(!busy || error.is_transient(), "{error}");
            busy
        })
        .await;
        writer.send::<()>(&["SCRIPT", "KILL"]).await;
        assert!(script.await.unwrap().is_err());
    }
}
