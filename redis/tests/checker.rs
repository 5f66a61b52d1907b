//! A checker of histories: writers stamp increasing versions, readers of four near caches record
//! what they saw and when.
//!
//! Two near caches have quiet links; two read through proxies that cut, half-close, delay, hold
//! back and slow down. Those two also ask for a value that takes seconds to arrive and for one that
//! ends the connection. A pair of servers exchanges its roles every ten seconds. Together the near
//! caches use all three tracking modes. The rules:
//!
//! 1. A reader never goes back: the versions that it sees of a key only grow.
//! 2. A reader lags by the way of a report at most: it never sees a version that was outdated for
//!    longer than the bound of its link.
//! 3. A read that begins on a connection never returns a version older than the last one that was
//!    acknowledged before that connection was made.
//! 4. No reader sees an absence, or a value, that a flush of the server does not explain.
//! 5. On a quiet link no read fails, and a failover alone ends a connection.
//!
//! It runs for 20 s; by hand: `WHEELHOUSE_REDIS_CHECK_SECONDS=600 cargo test --release -p
//! wheelhouse-redis --test checker -- --nocapture`.

#[allow(unreachable_pub, reason = "shared with other test programs")]
mod support;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::proxy::{Direction, Proxy};
use support::server::{Server, exchange_roles, installed, pair};
use support::{Near, Writer, near};
use tokio::task::JoinSet;
use tokio::time::sleep;
use wheelhouse_redis::{NearError, OnDisconnect, Tracking};

const KEYS: usize = 24;
const WRITERS: usize = 3;
const READERS: usize = 2;
/// How long a report may take on a quiet link, on a machine whose cores are busy.
const QUIET_BOUND: Duration = Duration::from_secs(2);
/// The time between two failovers.
const FAILOVER_EVERY: Duration = Duration::from_secs(10);
/// After a failover, the old primary may serve as a replica until the heartbeat finds it out.
const AFTER_FAILOVER: Duration = Duration::from_secs(3);
/// Larger than what the servers hold for a client.
const POISON: usize = 3 << 20;
const LARGE: usize = 300 << 10;
/// Bytes a second of a slow link: the large value takes two seconds.
const SLOW: u64 = 150 << 10;
const LONGEST_SLOW: Duration = Duration::from_millis(2500);
const HEARTBEAT: Duration = Duration::from_secs(1);
const LONGEST_HOLD: Duration = Duration::from_millis(500);
/// On a link with faults: until the heartbeat gives the connection up, or the hold ends, or what
/// came before the report on a slow link has arrived.
const FAULTY_BOUND: Duration = Duration::from_millis(2 * 1000 + 500 + 2500 + 2000);

fn key(number: usize) -> String {
    format!("check:{number}")
}

/// A small generator of random numbers (xorshift), seeded by name.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// The acknowledged writes of one key. `acknowledged[v - 1]` is when version `v` was.
#[derive(Default)]
struct History {
    begun: Vec<Instant>,
    acknowledged: Vec<Instant>,
}

impl History {
    /// The last version that was acknowledged before this moment.
    fn last_before(&self, moment: Instant) -> u64 {
        self.acknowledged.partition_point(|at| *at < moment) as u64
    }
}

#[derive(Clone, Copy)]
struct Flush {
    begun: Instant,
    /// `None` while it is under way.
    acknowledged: Option<Instant>,
}

struct World {
    histories: Vec<Mutex<History>>,
    flushes: Mutex<Vec<Flush>>,
    /// The port of the primary.
    primary: AtomicU16,
    /// When the roles were exchanged.
    failovers: Mutex<Vec<Instant>>,
    /// Writers hold it for reading; the flusher, and a failover, for writing: a flush and a write
    /// never overlap, so it is known which came first.
    order: tokio::sync::RwLock<()>,
    done: AtomicBool,
    reads: AtomicU64,
    failures: AtomicU64,
    absences: AtomicU64,
}

impl World {
    fn goes_on(&self) -> bool {
        !self.done.load(Ordering::Relaxed)
    }

    /// What a failover adds to the bound of a read that began at this moment.
    fn after_failover(&self, begun: Instant) -> Duration {
        let failovers = self.failovers.lock().unwrap();
        let recent = |at: &Instant| *at + 2 * AFTER_FAILOVER > begun;
        match failovers.last().is_some_and(recent) {
            true => AFTER_FAILOVER,
            false => Duration::ZERO,
        }
    }

    /// Whether a reader may see nothing of a key: the first write since the last flush (or ever)
    /// was acknowledged too short a time ago, or not yet.
    fn explains_absence(
        &self,
        number: usize,
        begun: Instant,
        ended: Instant,
        bound: Duration,
    ) -> bool {
        let history = self.histories[number].lock().unwrap();
        let flushes = self.flushes.lock().unwrap();
        let last = flushes.iter().rev().find(|flush| flush.begun < ended);
        let first = match last.map(|last| last.acknowledged) {
            None => 0,
            Some(None) => return true,
            Some(Some(flushed)) => history.acknowledged.partition_point(|at| *at <= flushed),
        };
        history
            .acknowledged
            .get(first)
            .is_none_or(|written| *written + bound >= begun)
    }

    /// When the version that a reader saw was outdated: by the next one, or by a flush.
    fn outdated(&self, number: usize, version: u64) -> Option<Instant> {
        let history = self.histories[number].lock().unwrap();
        let next = history.acknowledged.get(version as usize).copied();
        let written = history.acknowledged.get(version as usize - 1).copied()?;
        let flushes = self.flushes.lock().unwrap();
        let index = flushes.partition_point(|flush| flush.begun < written);
        let flushed = flushes.get(index).and_then(|flush| flush.acknowledged);
        match (next, flushed) {
            (Some(next), Some(flushed)) => Some(next.min(flushed)),
            (next, flushed) => next.or(flushed),
        }
    }
}

/// A connection to the primary of now; the caller holds `order`.
async fn primary(world: &World, port: &mut u16, writer: &mut Option<Writer>) -> Writer {
    let now = world.primary.load(Ordering::SeqCst);
    if writer.is_none() || *port != now {
        *port = now;
        *writer = Some(Writer::connect(now).await);
    }
    writer.clone().unwrap()
}

async fn write(world: Arc<World>, which: usize) {
    let (mut port, mut held) = (0, None);
    let mut random = Random(0x9e37_79b9 + which as u64);
    while world.goes_on() {
        let number = which + WRITERS * random.below((KEYS / WRITERS) as u64) as usize;
        let guard = world.order.read().await;
        let mut writer = primary(&world, &mut port, &mut held).await;
        let begun = Instant::now();
        let version = {
            let mut history = world.histories[number].lock().unwrap();
            history.begun.push(begun);
            history.begun.len().to_string()
        };
        match random.below(3) {
            0 => {
                writer
                    .send::<()>(&["SET", &key(number), &version, "EX", "1000"])
                    .await
            }
            _ => writer.set(&key(number), &version).await,
        }
        world.histories[number]
            .lock()
            .unwrap()
            .acknowledged
            .push(Instant::now());
        drop(guard);
        sleep(Duration::from_millis(random.below(6))).await;
    }
}

/// The values that are no versions: a flush deletes them, too.
async fn set_large(writer: &mut Writer) {
    writer.set("poison", &"x".repeat(POISON)).await;
    writer.set("large", &"x".repeat(LARGE)).await;
}

/// Exchanges the roles of the two servers again and again.
async fn fail_over(world: Arc<World>, mut ports: [u16; 2], proxies: Vec<Arc<Proxy>>) {
    loop {
        let next = Instant::now() + FAILOVER_EVERY;
        while Instant::now() < next {
            if !world.goes_on() {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
        let _guard = world.order.write().await;
        world.failovers.lock().unwrap().push(Instant::now());
        exchange_roles(ports[0], ports[1]).await;
        ports.swap(0, 1);
        world.primary.store(ports[0], Ordering::SeqCst);
        for proxy in &proxies {
            proxy.retarget(ports[0]);
        }
        world.failovers.lock().unwrap().push(Instant::now());
    }
}

/// Asks for the value that ends the connection, and for the one that takes seconds.
async fn ask_for_large_values(world: Arc<World>, near: Near) {
    let mut arrived = 0;
    while world.goes_on() {
        sleep(Duration::from_millis(200)).await;
        // Some servers (Valkey 9) do not count a large string.
        if let Ok(Some(poison)) = near.get("poison").await {
            assert_eq!(poison.len(), POISON);
        }
        if let Ok(Some(large)) = near.get("large").await {
            assert_eq!(large.len(), LARGE);
            arrived += 1;
        }
    }
    assert!(arrived > 0, "the large value never arrived");
}

async fn flush(world: Arc<World>) {
    let (mut port, mut held) = (0, None);
    while world.goes_on() {
        // Rarely: a flush also hides an outdated entry.
        sleep(Duration::from_millis(6500)).await;
        let _guard = world.order.write().await;
        let mut writer = primary(&world, &mut port, &mut held).await;
        let begun = Instant::now();
        // Recorded first: a reader may see it before it is acknowledged.
        let acknowledged = None;
        let flush = Flush {
            begun,
            acknowledged,
        };
        world.flushes.lock().unwrap().push(flush);
        writer.send::<()>(&["FLUSHALL"]).await;
        if let Some(flush) = world.flushes.lock().unwrap().last_mut() {
            flush.acknowledged = Some(Instant::now());
        }
        set_large(&mut writer).await;
    }
}

/// One near cache, and when its connections were made.
struct Link {
    name: &'static str,
    near: Near,
    bound: Duration,
    quiet: bool,
    /// For each connection a moment shortly before it was made.
    made: Mutex<HashMap<u64, Instant>>,
    staleness: Mutex<Vec<Duration>>,
}

async fn note_connections(world: Arc<World>, link: Arc<Link>) {
    while world.goes_on() {
        let before = Instant::now();
        let next = link.near.stats().connections() + 1;
        // The connection after the present one is made later than this moment.
        link.made.lock().unwrap().insert(next, before);
        sleep(Duration::from_millis(1)).await;
    }
}

async fn read(world: Arc<World>, link: Arc<Link>, which: u64) {
    let mut random = Random(0x517c_c1b7 + which);
    let mut seen = [0u64; KEYS];
    while world.goes_on() {
        let number = random.below(KEYS as u64) as usize;
        // First the number of the connection, then whether one is up: so that one is.
        let connection = link.near.stats().connections();
        let up = link.near.is_connected();
        let made = link.made.lock().unwrap().get(&connection).copied();
        let begun = Instant::now();
        let found = match random.below(50) {
            0 => link.near.get_all([key(number)]).await.pop().unwrap(),
            // Of some keys only: a refresh also hides an outdated entry.
            1 if number < KEYS / 6 => link.near.refresh(&key(number)).await,
            _ => link.near.get(&key(number)).await,
        };
        let ended = Instant::now();
        let name = link.name;
        world.reads.fetch_add(1, Ordering::Relaxed);
        let version: u64 = match found {
            Ok(Some(text)) => text.parse().unwrap(),
            Ok(None) => {
                world.absences.fetch_add(1, Ordering::Relaxed);
                let bound = link.bound + world.after_failover(begun);
                let explained = world.explains_absence(number, begun, ended, bound);
                assert!(
                    explained,
                    "{name}: {} is absent without a flush",
                    key(number)
                );
                continue;
            }
            Err(error) => {
                assert!(!link.quiet, "{name}: a read failed: {error}");
                let awaited = matches!(
                    error,
                    NearError::Unavailable { .. }
                        | NearError::TimedOut { .. }
                        | NearError::Refused { .. }
                );
                assert!(awaited, "{name}: {error:?}");
                world.failures.fetch_add(1, Ordering::Relaxed);
                continue;
            }
        };
        assert!(
            version >= seen[number],
            "{name}: {} went back from {} to {version}",
            key(number),
            seen[number]
        );
        seen[number] = version;
        let stale = world
            .outdated(number, version)
            .map_or(Duration::ZERO, |outdated| {
                begun.saturating_duration_since(outdated)
            });
        assert!(
            stale <= link.bound + world.after_failover(begun),
            "{name}: version {version} of {} was outdated for {stale:?}",
            key(number)
        );
        if let (Some(made), true) = (made, up) {
            let floor = world.histories[number].lock().unwrap().last_before(made);
            assert!(
                version >= floor,
                "{name}: version {version} of {} on connection {connection}, which was made after \
                 version {floor}",
                key(number)
            );
        }
        link.staleness.lock().unwrap().push(stale);
        if random.below(20) == 0 {
            sleep(Duration::from_millis(random.below(4))).await;
        } else {
            tokio::task::yield_now().await;
        }
    }
}

async fn disturb(world: Arc<World>, proxy: Arc<Proxy>, seed: u64) {
    let mut random = Random(seed);
    while world.goes_on() {
        sleep(Duration::from_millis(100 + random.below(500))).await;
        let direction = [Direction::ToClient, Direction::ToServer][random.below(2) as usize];
        match random.below(6) {
            0 => proxy.cut(),
            5 => {
                proxy.throttle(SLOW);
                sleep(LONGEST_SLOW.mul_f64(random.below(100) as f64 / 100.0)).await;
                proxy.throttle(0);
            }
            1 => proxy.half_close(direction),
            2 => {
                proxy.hold(direction);
                let hold = random.below(LONGEST_HOLD.as_millis() as u64);
                sleep(Duration::from_millis(hold)).await;
                // Half of the held connections end while what they carried waits.
                if random.below(2) == 0 {
                    proxy.cut();
                }
                proxy.release(direction);
            }
            3 => proxy.delay(direction, Duration::from_millis(random.below(20))),
            _ => {
                proxy.refuse(true);
                proxy.cut();
                sleep(Duration::from_millis(random.below(300))).await;
                proxy.refuse(false);
            }
        }
    }
}

fn seconds() -> u64 {
    match std::env::var("WHEELHOUSE_REDIS_CHECK_SECONDS") {
        Ok(text) => text.parse().unwrap_or_else(|_| {
            panic!("WHEELHOUSE_REDIS_CHECK_SECONDS is {text:?}, but must be a number of seconds")
        }),
        Err(_) => 20,
    }
}

fn report(link: &Link) {
    let mut staleness = link.staleness.lock().unwrap();
    staleness.sort_unstable();
    let at = |quantile: f64| staleness[((staleness.len() - 1) as f64 * quantile) as usize];
    let stats = link.near.stats();
    println!(
        "{:<9} {:>9} reads {:>8} loads {:>7} revoked {:>4} connections; stale p50 {:?} p99 {:?} \
         max {:?}",
        link.name,
        staleness.len(),
        stats.loads(),
        stats.revoked_loads(),
        stats.connections(),
        at(0.5),
        at(0.99),
        at(1.0),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_of_four_near_caches_are_right() {
    // The whole time is for all servers together.
    let programs = installed();
    for program in &programs {
        println!("{}", program.display());
        let limit = Duration::from_secs(seconds()) / programs.len() as u32;
        let limits = ["--client-output-buffer-limit", "normal 1mb 0 0"];
        check(pair(program, &limits).await, limit).await;
    }
}

async fn check((first, second): (Server, Server), limit: Duration) {
    set_large(&mut Writer::connect(first.port).await).await;
    let world = Arc::new(World {
        histories: (0..KEYS).map(|_| Mutex::default()).collect(),
        flushes: Mutex::default(),
        primary: AtomicU16::new(first.port),
        failovers: Mutex::default(),
        order: tokio::sync::RwLock::new(()),
        done: AtomicBool::new(false),
        reads: AtomicU64::new(0),
        failures: AtomicU64::new(0),
        absences: AtomicU64::new(0),
    });
    let names = ["quiet 1", "quiet 2", "faulty 1", "faulty 2"];
    let (mut proxies, mut links) = (Vec::new(), Vec::new());
    for (index, name) in names.into_iter().enumerate() {
        let proxy = Arc::new(Proxy::to(first.port).await);
        let port = proxy.port;
        proxies.push(proxy);
        let quiet = index < 2;
        let tracking = match index {
            1 => Tracking::Broadcast {
                prefixes: vec!["check:".into()],
            },
            2 => Tracking::OptIn,
            _ => Tracking::Default,
        };
        let builder = near(port).tracking(tracking).heartbeat(HEARTBEAT);
        let mut builder = builder.absent_ttl(Duration::from_secs(100));
        if !quiet {
            builder = builder.request_timeout(Duration::from_secs(4));
        }
        if index == 3 {
            // Shorter than the time in which the loss is noticed and the bound.
            builder = builder.on_disconnect(OnDisconnect::ServeFor(Duration::from_millis(200)));
        }
        links.push(Arc::new(Link {
            name,
            near: builder.connect().await.unwrap(),
            bound: if quiet { QUIET_BOUND } else { FAULTY_BOUND },
            quiet,
            made: Mutex::default(),
            staleness: Mutex::default(),
        }));
    }

    let mut tasks = JoinSet::new();
    for which in 0..WRITERS {
        tasks.spawn(write(world.clone(), which));
    }
    tasks.spawn(flush(world.clone()));
    let ports = [first.port, second.port];
    tasks.spawn(fail_over(world.clone(), ports, proxies.clone()));
    for link in &links[2..] {
        tasks.spawn(ask_for_large_values(world.clone(), link.near.clone()));
    }
    for (index, proxy) in proxies[2..].iter().enumerate() {
        tasks.spawn(disturb(world.clone(), proxy.clone(), 77 + index as u64));
    }
    for (index, link) in links.iter().enumerate() {
        tasks.spawn(note_connections(world.clone(), link.clone()));
        for reader in 0..READERS {
            let which = (index * READERS + reader) as u64;
            tasks.spawn(read(world.clone(), link.clone(), which));
        }
    }
    let over = Instant::now() + limit;
    while Instant::now() < over {
        sleep(Duration::from_millis(50)).await;
        // A task ends early by a panic alone.
        if let Some(ended) = tasks.try_join_next() {
            ended.unwrap();
            panic!("a task ended early");
        }
    }
    world.done.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    links.iter().for_each(|link| report(link));
    let failovers = world.failovers.lock().unwrap().len() / 2;
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let written: usize = world
        .histories
        .iter()
        .map(|h| h.lock().unwrap().begun.len())
        .sum();
    println!(
        "{} reads, {} absences, {} failed; {written} writes, {} flushes, {failovers} failovers",
        count(&world.reads),
        count(&world.absences),
        count(&world.failures),
        world.flushes.lock().unwrap().len(),
    );
    // A checker that saw nothing proves nothing.
    assert!(written > 100 && count(&world.reads) > 1000);
    for link in &links {
        let stats = link.near.stats();
        assert!(stats.invalidated_keys() > 20, "{}: no reports", link.name);
        assert!(
            stats.loads() < count(&world.reads),
            "{}: no hits",
            link.name
        );
        let (losses, switches) = (stats.lost_connections(), failovers as u64);
        match link.quiet {
            true => assert!(losses <= 2 * switches, "{}: {losses} losses", link.name),
            false => assert!(losses > 0, "{}: no losses", link.name),
        }
    }
}
