//! A checker of loads and deletes, in four processes.
//!
//! Writers change a row of the source, then delete its key. Readers in four processes call
//! `get_with`, whose load reads the row. Some keys load for up to 1.5 s and are deleted in pairs:
//! the second delete comes while the load runs that the first one caused, and then none comes for
//! almost six seconds. So neither an outdated row nor the placeholder of a dead process would be
//! deleted before a reader finds it.
//!
//! Three sentinels watch a primary and its replica. One sentinel is stopped for good before the
//! first failover. A failover begins ten seconds after the end of the one before. Once the replica
//! is the primary, the writers go on there, while the old primary still takes itself for one: it
//! becomes a replica seven seconds later. Between failovers, a process that loads one of the slow
//! keys is killed every few seconds. The rules:
//!
//! 1. A call that begins later than a report may take after a delete was acknowledged returns no
//!    older row.
//! 2. When a process is killed while it loads a key, another load of the key begins within two
//!    seconds. And no call takes longer than three loads and two seconds: one load is ended by a
//!    delete, one by a kill. (A run of no given length allows twice as much before another load
//!    begins, since other tests may keep the cores busy.)
//! 3. A process ends when it is killed, and never by itself.
//!
//! The rules about times hold from five seconds after a failover until the next one. The run ends
//! ten seconds after its second failover, or after a later one if no load has been taken over yet:
//! after half a minute with each server. By hand:
//! `WHEELHOUSE_REDIS_CHECK_SECONDS=600 cargo test --release -p wheelhouse-redis --features sentinel
//! --test loads -- --nocapture`.

#[allow(unreachable_pub, reason = "shared with other test programs")]
mod support;

use std::collections::VecDeque;
use std::mem;
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
/// The first keys are slow to load.
const SLOW_KEYS: usize = 4;
const PROCESSES: usize = 4;
const READERS: usize = 3;
/// How long a report may take, on a machine whose cores are busy.
const BOUND: Duration = Duration::from_millis(2000);
/// What a failover adds: the old primary may serve until the heartbeat finds it out.
const AFTER_FAILOVER: Duration = Duration::from_secs(3);
/// From the end of a failover to the begin of the next one.
const BETWEEN_FAILOVERS: Duration = Duration::from_secs(10);
/// From the end of a failover until the old primary is told to follow the new one: longer than what
/// a failover adds to the bound of a report.
const SPLIT: Duration = Duration::from_secs(7);
const BETWEEN_KILLS: Duration = Duration::from_millis(3700);
const LONGEST_LOAD: Duration = Duration::from_millis(60);
const LONGEST_SLOW_LOAD: Duration = Duration::from_millis(1500);
/// How long a key may stand still whose loading process was killed.
const STANDS_STILL: Duration = Duration::from_secs(2);
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
    let counts = Arc::new([const { AtomicU64::new(0) }; 2]);
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
    }
}

async fn read(
    near: Near,
    source: Writer,
    known: Arc<Mutex<Known>>,
    seed: u64,
    counts: Arc<[AtomicU64; 2]>,
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
        let is_slow = number < SLOW_KEYS;
        let longest = if is_slow {
            LONGEST_SLOW_LOAD
        } else {
            LONGEST_LOAD
        };
        let pause = Duration::from_millis(below(longest.as_millis() as u64));
        let mut source = source.clone();
        let load = async move {
            let row: u64 = source.send(&["GET", &format!("row:{number}")]).await;
            // Each pair of deletes leaves an odd row, whose load no delete ends.
            if is_slow && row % 2 == 1 {
                tell_of_load(&mut source, number, pause).await;
            }
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
                if !in_failover && took > longest * 3 + STANDS_STILL {
                    println!("key:{number}: {took:?}");
                    panic!("a call took too long");
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

/// Tells at the source that this process loads the key, and which load of the key it is.
async fn tell_of_load(source: &mut Writer, number: usize, pause: Duration) {
    let loads: u64 = source.send(&["INCR", &format!("loads:{number}")]).await;
    let load = format!("{} {number} {loads}", std::process::id());
    let life = (pause.as_millis() + 1).to_string();
    source
        .send::<()>(&["SET", "loading", &load, "PX", &life])
        .await;
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

/// Changes the row of a quick key every few milliseconds.
async fn write_quick_keys(primary: Arc<Primary>, source: Writer, which: usize) {
    let mut deleter = Deleter::new(primary, source);
    let mut round = which;
    while !deleter.primary.done.load(Ordering::Relaxed) {
        let number = (round * 7 + which) % (KEYS - SLOW_KEYS);
        round += 1;
        deleter.change_row(SLOW_KEYS + number).await;
        sleep(Duration::from_millis(3)).await;
    }
}

/// Changes the row of each slow key twice in a short time, every six seconds.
async fn write_slow_keys(primary: Arc<Primary>, source: Writer) {
    let mut deleter = Deleter::new(primary, source);
    for number in (0..SLOW_KEYS).cycle() {
        if deleter.primary.done.load(Ordering::Relaxed) {
            return;
        }
        deleter.change_row(number).await;
        sleep(Duration::from_millis(300)).await;
        deleter.change_row(number).await;
        sleep(Duration::from_millis(1200)).await;
    }
}

/// A writer: it changes a row of the source and deletes its key at the primary.
struct Deleter {
    primary: Arc<Primary>,
    source: Writer,
    held: Option<(u16, Writer)>,
}

impl Deleter {
    fn new(primary: Arc<Primary>, source: Writer) -> Self {
        let held = None;
        Self {
            primary,
            source,
            held,
        }
    }

    async fn change_row(&mut self, number: usize) {
        let source = &mut self.source;
        let row: u64 = source.send(&["INCR", &format!("row:{number}")]).await;
        let port = self.primary.port.read().await;
        if self.held.as_ref().is_none_or(|(at, _)| at != &*port) {
            self.held = Some((*port, Writer::connect(*port).await));
        }
        if let Some((_, writer)) = &mut self.held {
            writer.send::<i64>(&["DEL", &format!("key:{number}")]).await;
        }
        drop(port);
        self.primary.deletes.fetch_add(1, Ordering::Relaxed);
        // Another writer may have deleted a newer row meanwhile: the newest stays.
        let newest = "local now = tonumber(redis.call('GET', KEYS[1]) or 0) \
             if now < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1]) end";
        let key = format!("deleted:{number}");
        source
            .send::<()>(&["EVAL", newest, "1", &key, &row.to_string()])
            .await;
    }
}

/// A load whose process was killed.
struct Orphan {
    number: usize,
    /// Which load of the key it was.
    loads: u64,
    killed: Instant,
}

impl Orphan {
    /// Whether another load of the key has begun.
    async fn is_loaded(&self, source: &mut Writer) -> bool {
        let loads: u64 = source
            .send(&["GET", &format!("loads:{}", self.number)])
            .await;
        loads > self.loads
    }

    /// Whether the load had ended before the kill: then the key has a row, and no placeholder.
    async fn had_ended(&self, port: u16) -> bool {
        let mut server = Writer::connect(port).await;
        let value: Option<Vec<u8>> = server.send(&["GET", &format!("key:{}", self.number)]).await;
        value.is_some_and(|value| value.iter().all(u8::is_ascii_digit))
    }
}

/// Kills a process that loads a slow key, and starts another. `None`: none loads one now.
async fn kill_one(children: &mut [Child], ports: &str, source: &mut Writer) -> Option<Orphan> {
    let loading: Option<String> = source.send(&["GET", "loading"]).await;
    let loading = loading?;
    let mut words = loading.split(' ').map(|word| word.parse::<u64>().unwrap());
    let mut next = || words.next().unwrap();
    let (process, number, loads) = (next(), next() as usize, next());
    let found = children.iter_mut().find(|c| u64::from(c.id()) == process);
    let child = found?;
    child.kill().unwrap();
    child.wait().unwrap();
    *child = start_child(ports);
    let killed = Instant::now();
    Some(Orphan {
        number,
        loads,
        killed,
    })
}

/// Makes the other server the primary, and returns the old one, which has not noticed that.
async fn fail_over(primary: &Primary, source: &mut Writer, sentinel: u16, ports: [u16; 2]) -> u16 {
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
    until("the replica is the primary", async || {
        tells(next, "role:master").await
    })
    .await;
    source.send::<u64>(&["INCR", "failover"]).await;
    mem::replace(&mut now, next)
}

/// Makes an old primary the replica of the present one, as the sentinels would do some seconds
/// later.
async fn follow(primary: &Primary, old: u16) {
    let now = primary.port.read().await.to_string();
    let mut follower = Writer::connect(old).await;
    follower.send::<()>(&["REPLICAOF", "127.0.0.1", &now]).await;
    until("the old primary is a replica in step", async || {
        tells(old, "master_link_status:up").await
    })
    .await;
}

/// Whether a server says this of its replication. Its clients are cut off when it changes its role.
async fn tells(port: u16, what: &str) -> bool {
    let info = match Writer::try_connect(port).await {
        Ok(mut writer) => writer.try_send::<String>(&["INFO", "replication"]).await,
        Err(_) => return false,
    };
    info.is_ok_and(|info| info.contains(what))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loads_and_deletes_of_four_processes_are_right() {
    let mut limit = Duration::from_secs(20);
    let mut stands_still = 2 * STANDS_STILL;
    if let Ok(seconds) = std::env::var("WHEELHOUSE_REDIS_CHECK_SECONDS") {
        limit = Duration::from_secs(seconds.parse().unwrap());
        stands_still = STANDS_STILL;
    }
    let programs = installed();
    for program in &programs {
        check(program, limit / programs.len() as u32, stands_still).await;
    }
}

async fn check(program: &Path, limit: Duration, stands_still: Duration) {
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
        writers.spawn(write_quick_keys(primary.clone(), rows.clone(), which));
    }
    writers.spawn(write_slow_keys(primary.clone(), rows.clone()));
    let mut ports = vec![source.port];
    ports.extend(sentinels.iter().map(|one| one.port));
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let ports = ports.join(",");
    let mut children: Vec<Child> = (0..PROCESSES).map(|_| start_child(&ports)).collect();
    let begun = Instant::now();
    let mut next_kill = begun + BETWEEN_KILLS;
    let mut next_failover = begun + BETWEEN_FAILOVERS;
    let mut quiet_from = begun + AFTER_FAILOVER + BOUND;
    let mut demoted: Option<(u16, Instant)> = None;
    let (mut kills, mut failovers) = (0, 0);
    let mut orphan: Option<Orphan> = None;
    let (mut orphans, mut longest) = (0, Duration::ZERO);
    loop {
        sleep(Duration::from_millis(20)).await;
        none_has_ended(&mut children);
        assert!(writers.try_join_next().is_none(), "a writer has ended");
        if let Some(load) = &orphan {
            let still = load.killed.elapsed();
            if load.is_loaded(&mut rows).await {
                orphans += 1;
                longest = longest.max(still);
                orphan = None;
            } else if still > stands_still {
                let port = *primary.port.read().await;
                let number = load.number;
                assert!(load.had_ended(port).await, "key:{number} stands still");
                orphan = None;
            }
            // Neither a kill nor a failover comes meanwhile.
            continue;
        }
        let now = Instant::now();
        if let Some((old, _)) = demoted.take_if(|(_, at)| at.elapsed() > SPLIT) {
            follow(&primary, old).await;
        } else if now > next_failover {
            if failovers >= 2 && orphans > 0 && begun.elapsed() > limit {
                break;
            }
            if failovers == 0 {
                sentinels[0].stop();
            }
            let both = [first.port, second.port];
            let old = fail_over(&primary, &mut rows, sentinels[2].port, both).await;
            demoted = Some((old, Instant::now()));
            failovers += 1;
            next_failover = Instant::now() + BETWEEN_FAILOVERS;
            quiet_from = Instant::now() + AFTER_FAILOVER + BOUND;
        } else if now > next_kill {
            let killed = kill_one(&mut children, &ports, &mut rows).await;
            if killed.is_some() {
                kills += 1;
                next_kill = now + BETWEEN_KILLS;
            }
            orphan = killed.filter(|load| load.killed > quiet_from);
        }
    }
    primary.done.store(true, Ordering::Relaxed);
    writers.join_all().await;
    none_has_ended(&mut children);
    for mut child in children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let reads: u64 = rows.send(&["GET", "reads"]).await;
    let failed: u64 = rows.send(&["GET", "failed"]).await;
    println!(
        "{}: {reads} reads, {failed} failed in failovers; {} deletes, {kills} kills, of {orphans} \
         keys that were then loaded anew the longest stood still for {longest:?}; {failovers} \
         failovers in {:?}",
        program.display(),
        primary.deletes.load(Ordering::Relaxed),
        begun.elapsed(),
    );
    // A checker that saw nothing proves nothing.
    assert!(reads > 1000 && failed * 2 < reads);
}

/// A child tells what it has found, then ends.
fn none_has_ended(children: &mut [Child]) {
    for child in children {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "a process has ended by itself: {ended:?}");
    }
}
