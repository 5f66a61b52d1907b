//! A checker of loads and deletes, in four processes.
//!
//! Writers change a row of the source, then delete its key. Readers in four processes call
//! `get_with`, whose load reads the row. Three sentinels watch a primary and its replica; a
//! failover comes every ten seconds, a process is killed every few seconds, and one sentinel is
//! stopped for good. The rules:
//!
//! 1. A call that begins later than a report may take after a delete was acknowledged returns no
//!    older row.
//! 2. A call takes no longer than its load and two seconds: no key stands still when the process
//!    that loads it is killed.
//! 3. A process ends when it is killed, and never by itself.
//!
//! It runs for 20 s; by hand: `WHEELHOUSE_REDIS_CHECK_SECONDS=600 cargo test --release -p
//! wheelhouse-redis --features sentinel --test loads -- --nocapture`.

#[allow(unreachable_pub, reason = "shared with other test programs")]
mod support;

use std::collections::VecDeque;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::server::{Server, installed, pair, sentinel};
use support::{Near, Text, Writer, client, until};
use tokio::time::sleep;

const KEYS: usize = 12;
const PROCESSES: usize = 4;
const READERS: usize = 3;
/// How long a report may take, on a machine whose cores are busy.
const BOUND: Duration = Duration::from_millis(2000);
/// What a failover adds: the old primary may serve until the heartbeat finds it out.
const AFTER_FAILOVER: Duration = Duration::from_secs(3);
const LONGEST_LOAD: Duration = Duration::from_millis(60);
/// How long a key may stand still, on a machine whose cores are busy.
const STANDS_STILL: Duration = Duration::from_millis(2500);
/// Names a child process, and the ports that it needs.
const CHILD: &str = "WHEELHOUSE_REDIS_LOADS_CHILD";

/// What a process knows of the deletes that were acknowledged.
struct Known {
    /// When it was asked for, and the row of each key that a delete has made the oldest.
    floors: VecDeque<(Instant, Vec<u64>)>,
    /// When a failover was last under way.
    failover: Option<Instant>,
}

async fn learn(known: Arc<Mutex<Known>>, mut source: Writer) {
    let mut words = vec!["MGET".to_string(), "failover".to_string()];
    words.extend((0..KEYS).map(|n| format!("deleted:{n}")));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut last = 0;
    loop {
        let numbers: Vec<Option<u64>> = source.send(&words).await;
        let at = Instant::now();
        let failovers = numbers[0].unwrap_or(0);
        let floors = numbers[1..].iter().map(|n| n.unwrap_or(0)).collect();
        {
            let mut known = known.lock().unwrap();
            if failovers != last || failovers % 2 == 1 {
                known.failover = Some(at);
            }
            known.floors.push_back((at, floors));
            while known.floors.len() > 2000 {
                known.floors.pop_front();
            }
        }
        last = failovers;
        sleep(Duration::from_millis(10)).await;
    }
}

/// A process: it reads until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Ok(ports) = std::env::var(CHILD) else {
        return;
    };
    let ports: Vec<u16> = ports.split(',').map(|port| port.parse().unwrap()).collect();
    let (source, sentinels) = (ports[0], &ports[1..]);
    let primary = redis::Client::open("redis://main/").unwrap();
    let near = Near::sentinel_builder(sentinels.iter().map(|port| client(*port)), primary);
    let near = near
        .codec(Text)
        .heartbeat(Duration::from_millis(500))
        .request_timeout(Duration::from_secs(1))
        .connect_lazy()
        .unwrap();
    let known = Arc::new(Mutex::new(Known {
        floors: VecDeque::new(),
        failover: Some(Instant::now()),
    }));
    let asked = Writer::connect(source).await;
    let learning = tokio::spawn(learn(known.clone(), asked.clone()));
    let seed = u64::from(std::process::id());
    let counts = Arc::new([const { AtomicU64::new(0) }; 3]);
    for reader in 0..READERS as u64 {
        let reading = read(
            near.clone(),
            asked.clone(),
            known.clone(),
            seed * 7 + reader,
            counts.clone(),
        );
        tokio::spawn(async move {
            if tokio::spawn(reading).await.is_err() {
                std::process::exit(101);
            }
        });
    }
    let mut tell = asked.clone();
    loop {
        sleep(Duration::from_millis(200)).await;
        assert!(!learning.is_finished());
        for (name, count) in ["reads", "failed"].iter().zip(counts.iter()) {
            let count = count.swap(0, Ordering::Relaxed).to_string();
            tell.send::<i64>(&["INCRBY", name, &count]).await;
        }
        let longest = counts[2].load(Ordering::Relaxed).to_string();
        tell.send::<i64>(&["ZADD", "longest", "GT", &longest, "call"])
            .await;
    }
}

async fn read(
    near: Near,
    source: Writer,
    known: Arc<Mutex<Known>>,
    seed: u64,
    counts: Arc<[AtomicU64; 3]>,
) {
    let mut random = seed | 1;
    let mut below = move |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % bound
    };
    loop {
        let number = below(KEYS as u64) as usize;
        let pause = Duration::from_millis(below(LONGEST_LOAD.as_millis() as u64));
        let mut source = source.clone();
        let load = async move {
            let row: u64 = source.send(&["GET", &format!("row:{number}")]).await;
            sleep(pause).await;
            row.to_string()
        };
        let begun = Instant::now();
        let found = near
            .get_with(&format!("key:{number}"), Duration::from_secs(3600), load)
            .await;
        let took = begun.elapsed();
        counts[0].fetch_add(1, Ordering::Relaxed);
        let (floor, in_failover) = {
            let known = known.lock().unwrap();
            let recent = |at: Instant| at.elapsed() < took + AFTER_FAILOVER + BOUND;
            let in_failover = known.failover.is_some_and(recent);
            let bound = if in_failover {
                BOUND + AFTER_FAILOVER
            } else {
                BOUND
            };
            let before = known
                .floors
                .iter()
                .rev()
                .find(|(at, _)| *at + bound < begun);
            (before.map_or(0, |(_, floors)| floors[number]), in_failover)
        };
        match found {
            Ok(row) => {
                let row: u64 = row.parse().unwrap();
                if row < floor {
                    println!("key:{number}: row {row}, though {floor} was there before a delete");
                    panic!("an outdated row");
                }
                if !in_failover {
                    counts[2].fetch_max(took.as_millis() as u64, Ordering::Relaxed);
                    if took > LONGEST_LOAD + STANDS_STILL {
                        println!("key:{number} stood still for {took:?}");
                        panic!("a key stood still");
                    }
                }
            }
            Err(error) => {
                counts[1].fetch_add(1, Ordering::Relaxed);
                if !in_failover || !error.is_transient() {
                    println!("key:{number}: {error}");
                    panic!("a call failed without a failover");
                }
            }
        }
        sleep(Duration::from_micros(below(3000))).await;
    }
}

fn start_child(ports: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]);
    command.env(CHILD, ports).stdin(Stdio::null());
    command.spawn().unwrap()
}

/// The primary and what may change it: writers hold the lock for reading, a failover for writing,
/// so no acknowledged delete is lost by a promotion.
struct Primary {
    port: tokio::sync::RwLock<u16>,
    deletes: AtomicU64,
    done: AtomicBool,
}

async fn write(primary: Arc<Primary>, mut source: Writer, which: usize) {
    let mut held: Option<(u16, Writer)> = None;
    let mut round = which;
    while !primary.done.load(Ordering::Relaxed) {
        let number = (round * 7 + which) % KEYS;
        round += 1;
        let row: u64 = source.send(&["INCR", &format!("row:{number}")]).await;
        let port = primary.port.read().await;
        if held.as_ref().is_none_or(|(at, _)| at != &*port) {
            held = Some((*port, Writer::connect(*port).await));
        }
        if let Some((_, writer)) = &mut held {
            writer.send::<i64>(&["DEL", &format!("key:{number}")]).await;
        }
        drop(port);
        primary.deletes.fetch_add(1, Ordering::Relaxed);
        // Another writer may have deleted a newer row meanwhile: the newest stays.
        let newest = "local now = tonumber(redis.call('GET', KEYS[1]) or 0) \
             if now < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1]) end";
        let key = format!("deleted:{number}");
        source
            .send::<()>(&["EVAL", newest, "1", &key, &row.to_string()])
            .await;
        sleep(Duration::from_millis(3)).await;
    }
}

async fn fail_over(primary: &Primary, source: &mut Writer, sentinel: u16, ports: [u16; 2]) {
    let mut now = primary.port.write().await;
    source.send::<u64>(&["INCR", "failover"]).await;
    let mut old = Writer::connect(*now).await;
    // It waits for what this connection has written, and so for all before it.
    old.send::<()>(&["SET", "before the failover", "1"]).await;
    let replicas: u64 = old.send(&["WAIT", "1", "20000"]).await;
    assert_eq!(replicas, 1, "the replica is not in step");
    let asked = Writer::connect(sentinel).await;
    let begins = async || {
        let failover = ["SENTINEL", "FAILOVER", "main"];
        asked.clone().try_send::<()>(&failover).await.is_ok()
    };
    until("the failover begins", begins).await;
    let next = if *now == ports[0] { ports[1] } else { ports[0] };
    let has_role = async |port: u16, role: &str| {
        let info = match Writer::try_connect(port).await {
            Ok(mut writer) => writer.try_send::<String>(&["INFO", "replication"]).await,
            Err(_) => return false,
        };
        info.is_ok_and(|info| info.contains(role))
    };
    until("the replica is the primary", async || {
        has_role(next, "role:master").await
    })
    .await;
    let old = *now;
    until("the primary is a replica in step", async || {
        has_role(old, "master_link_status:up").await
    })
    .await;
    *now = next;
    source.send::<u64>(&["INCR", "failover"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loads_and_deletes_of_four_processes_are_right() {
    let seconds = std::env::var("WHEELHOUSE_REDIS_CHECK_SECONDS");
    let seconds: u64 = seconds.map_or(20, |text| text.parse().unwrap());
    let programs = installed();
    for program in &programs {
        check(
            program,
            Duration::from_secs(seconds) / programs.len() as u32,
        )
        .await;
    }
}

async fn check(program: &Path, limit: Duration) {
    let source = Server::start(program, &[]).await;
    let (first, second) = pair(program, &[]).await;
    let mut sentinels = Vec::new();
    for _ in 0..3 {
        sentinels.push(sentinel(program, first.port).await);
    }
    for one in &sentinels {
        let asked = Writer::connect(one.port).await;
        // A busy machine is no failure: a failover comes by command alone.
        let patient = [
            "SENTINEL",
            "SET",
            "main",
            "down-after-milliseconds",
            "60000",
        ];
        asked.clone().send::<()>(&patient).await;
        until("the sentinels know each other", async || {
            let info: String = asked.clone().send(&["INFO", "sentinel"]).await;
            info.contains("slaves=1,sentinels=3")
        })
        .await;
    }
    let mut rows = Writer::connect(source.port).await;
    for n in 0..KEYS {
        rows.set(&format!("row:{n}"), "1").await;
    }
    let primary = Arc::new(Primary {
        port: tokio::sync::RwLock::new(first.port),
        deletes: AtomicU64::new(0),
        done: AtomicBool::new(false),
    });
    let mut writers = tokio::task::JoinSet::new();
    for which in 0..2 {
        writers.spawn(write(primary.clone(), rows.clone(), which));
    }
    let mut ports = vec![source.port];
    ports.extend(sentinels.iter().map(|one| one.port));
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let ports = ports.join(",");
    let mut children: Vec<Child> = (0..PROCESSES).map(|_| start_child(&ports)).collect();
    let begun = Instant::now();
    let mut next_kill = begun + Duration::from_secs(3);
    let mut next_failover = begun + Duration::from_secs(6);
    let (mut kills, mut failovers, mut stopped) = (0, 0, false);
    while begun.elapsed() < limit {
        sleep(Duration::from_millis(20)).await;
        for child in &mut children {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "a process has ended by itself: {ended:?}");
        }
        assert!(writers.try_join_next().is_none(), "a writer has ended");
        if Instant::now() > next_kill {
            next_kill += Duration::from_millis(3700);
            let child = &mut children[kills % PROCESSES];
            child.kill().unwrap();
            child.wait().unwrap();
            *child = start_child(&ports);
            kills += 1;
        }
        if Instant::now() > next_failover {
            if !stopped && failovers == 1 {
                sentinels[0].stop();
                stopped = true;
            }
            let both = [first.port, second.port];
            fail_over(&primary, &mut rows, sentinels[2].port, both).await;
            failovers += 1;
            // From its end on, so that a slow machine has quiet times, too.
            next_failover = Instant::now() + Duration::from_secs(10);
        }
    }
    primary.done.store(true, Ordering::Relaxed);
    for mut child in children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    writers.join_all().await;
    let reads: u64 = rows.send(&["GET", "reads"]).await;
    let failed: u64 = rows.send(&["GET", "failed"]).await;
    let longest: f64 = rows.send(&["ZSCORE", "longest", "call"]).await;
    println!(
        "{}: {reads} reads, {failed} failed in failovers, the longest other call {longest} ms; {} \
         deletes, {kills} kills, {failovers} failovers, a sentinel stopped: {stopped}",
        program.display(),
        primary.deletes.load(Ordering::Relaxed),
    );
    // A checker that saw nothing proves nothing.
    assert!(reads > 1000 && failed * 2 < reads);
}
