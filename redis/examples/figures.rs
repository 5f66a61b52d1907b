//! The figures of redis/RESULTS.md, as a table.
//!
//! ```sh
//! cargo run --release -p wheelhouse-redis --example figures
//! cargo run --release -p wheelhouse-redis --example figures -- hits invalidation
//! ```

#[path = "../tests/support/mod.rs"]
#[allow(unreachable_pub, reason = "shared with the tests")]
mod support;

use hdrhistogram::Histogram;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, AsyncTypedCommands, PushInfo, PushKind};
use std::collections::hash_map::RandomState;
use std::fmt::Display;
use std::hash::{Hash, Hasher};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};
use support::Writer;
use support::proxy::Proxy;
use support::server::{Server, installed};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use wheelhouse::{Cache, CacheBuilder, expiry};
use wheelhouse_redis::{Cached, NearCache, NearKey, Tracking, codec};

type Value = Arc<[u8]>;
type Near = NearCache<String, Value>;

const KEYS: usize = 1_000;
const VALUE: [u8; 200] = [b'x'; 200];
/// Rounds of each timed loop; the best counts, since other work only adds.
const ROUNDS: usize = 15;
/// Those of the hits: more of them, each so short that some meet no other work.
const SHORT_ROUNDS: usize = 300;

fn row(what: &str, figure: impl Display) {
    println!("| {what} | {figure} |");
}

fn key(number: usize) -> String {
    format!("figures:{number}")
}

async fn near(port: u16) -> Near {
    tracked(port, Tracking::Default).await
}

async fn tracked(port: u16, tracking: Tracking) -> Near {
    let local = Cache::builder().max_capacity(1_000_000).record_stats();
    over(port, tracking, local).await
}

async fn over(port: u16, tracking: Tracking, local: CacheBuilder<String, Cached<Value>>) -> Near {
    let near = Near::builder(support::client(port))
        .local(local)
        .codec(codec::Bytes);
    let near = near
        .tracking(tracking)
        .request_timeout(Duration::from_secs(20));
    near.heartbeat(Duration::from_secs(20))
        .connect()
        .await
        .unwrap()
}

async fn fill(writer: &mut Writer, keys: usize) {
    let value = "x".repeat(VALUE.len());
    for first in (0..keys).step_by(1000) {
        let names: Vec<String> = (first..keys.min(first + 1000)).map(key).collect();
        let mut words = vec!["MSET"];
        for name in &names {
            words.extend([name.as_str(), &value]);
        }
        writer.send::<()>(&words).await;
    }
}

/// Hits of this many keys, in an order that says nothing about where their entries are. In the
/// order of its writes, `wheelhouse` alone would read its memory from one end to the other; replies
/// come in an order of their own.
async fn hits(port: u16, keys: usize, statistics: bool) {
    const CALLS: usize = 10_000;
    let mut names: Vec<String> = (0..keys).map(key).collect();

    // The same kind of policy as the near cache's: each entry has a deadline of its own.
    let life = |_: &String, _: &Value| Some(Duration::from_secs(300));
    let mut core = Cache::builder().max_capacity(1_000_000);
    let mut local = Cache::builder().max_capacity(1_000_000);
    if statistics {
        (core, local) = (core.record_stats(), local.record_stats());
    }
    let core: Cache<String, Value> = core.expire_after(expiry::writing(life)).build();
    names
        .iter()
        .for_each(|name| core.insert(name.clone(), Arc::from(&VALUE[..])));
    let near = over(port, Tracking::Default, local).await;
    assert_eq!(near.preload(names.clone()).await.unwrap(), keys);
    names.sort_by_cached_key(|name| std::hash::BuildHasher::hash_one(&RandomState::new(), name));
    // In turn, so that other work of the machine meets both.
    let (mut core_hit, mut near_hit) = (f64::MAX, f64::MAX);
    for _ in 0..SHORT_ROUNDS {
        let begun = Instant::now();
        for _ in 0..CALLS / keys {
            for name in &names {
                black_box(core.get(name.as_str()));
            }
        }
        core_hit = core_hit.min(begun.elapsed().as_nanos() as f64 / CALLS as f64);
        let begun = Instant::now();
        for _ in 0..CALLS / keys {
            for name in &names {
                black_box(near.get(name.as_str()).await.unwrap());
            }
        }
        near_hit = near_hit.min(begun.elapsed().as_nanos() as f64 / CALLS as f64);
    }

    let ratio = near_hit / core_hit;
    let counted = if statistics { ", with statistics" } else { "" };
    let what = match keys {
        1 => format!("hit of one key{counted}"),
        _ => format!("hit among {keys} keys{counted}"),
    };
    row(
        &format!("{what}: `wheelhouse` alone"),
        format!("{core_hit:.1} ns"),
    );
    row(
        &format!("{what}: near cache"),
        format!("{near_hit:.1} ns, {ratio:.2} × that of `wheelhouse`"),
    );
    near.close().await;
}

/// What a near cache saves.
async fn peers(port: u16) {
    const CALLS: usize = 200_000;
    let names: Vec<String> = (0..KEYS).map(key).collect();
    let url = format!("redis://127.0.0.1:{port}/?protocol=resp3");
    let client = redis::Client::open(url).unwrap();
    let mut plain = client.get_multiplexed_async_connection().await.unwrap();
    let config = AsyncConnectionConfig::new().set_cache_config(redis::caching::CacheConfig::new());
    let mut aio = client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .unwrap();
    for name in &names {
        aio.get(name).await.unwrap().unwrap();
    }
    let (mut aio_hit, mut get) = (f64::MAX, f64::MAX);
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        for call in 0..CALLS / 20 {
            black_box(aio.get(names[call % KEYS].as_str()).await.unwrap());
        }
        aio_hit = aio_hit.min(begun.elapsed().as_nanos() as f64 / (CALLS / 20) as f64);
        let begun = Instant::now();
        for call in 0..CALLS / 100 {
            black_box(plain.get(names[call % KEYS].as_str()).await.unwrap());
        }
        get = get.min(begun.elapsed().as_nanos() as f64 / (CALLS / 100) as f64);
    }
    row("hit of `cache-aio`", format!("{aio_hit:.0} ns"));
    row(
        "plain `GET`, one at a time",
        format!("{:.1} µs", get / 1000.0),
    );
}

/// Many cold keys in one call, and in calls of 1,000.
async fn bulk(port: u16, writer: &mut Writer) {
    const MANY: usize = 160_000;
    fill(writer, MANY).await;
    let near = near(port).await;
    let (mut at_once, mut in_parts) = (f64::MAX, f64::MAX);
    for _ in 0..3 {
        near.local().invalidate_all();
        let begun = Instant::now();
        assert_eq!(near.preload((0..MANY).map(key)).await.unwrap(), MANY);
        at_once = at_once.min(begun.elapsed().as_secs_f64());
        near.local().invalidate_all();
        let begun = Instant::now();
        for first in (0..MANY).step_by(1000) {
            near.preload((first..first + 1000).map(key)).await.unwrap();
        }
        in_parts = in_parts.min(begun.elapsed().as_secs_f64());
    }
    let figure = format!("{at_once:.2} s, in calls of 1,000 {in_parts:.2} s");
    row("160,000 cold keys in one call of `get_all`", figure);
    near.close().await;
}

/// From the cut of a connection to the next value from the server.
async fn reconnects(server: &mut Server) {
    let proxy = Proxy::to(server.port).await;
    let near = near(proxy.port).await;
    let mut times = Vec::new();
    for _ in 0..20 {
        // A connection that lived shorter is not replaced at once.
        tokio::time::sleep(Duration::from_millis(1100)).await;
        near.get("figures:0").await.unwrap();
        let losses = near.stats().lost_connections();
        let begun = Instant::now();
        proxy.cut();
        while near.stats().lost_connections() == losses {
            tokio::task::yield_now().await;
        }
        near.get("figures:0").await.unwrap();
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    row(
        "from a cut to the next value",
        format!("p50 {:.1} ms", times[times.len() / 2]),
    );
    let mut longest: f64 = 0.0;
    for _ in 0..5 {
        server.kill();
        tokio::time::sleep(Duration::from_secs(3)).await;
        server.restart().await;
        let begun = Instant::now();
        while near.get("figures:0").await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        longest = longest.max(begun.elapsed().as_secs_f64());
    }
    let figure = format!("at most {longest:.2} s");
    row(
        "from the restart of a server, down for 3 s, to the next value",
        figure,
    );
    near.close().await;
}

/// When each report of one round had its effect.
#[derive(Default)]
struct Effects {
    times: Mutex<Vec<Instant>>,
    another: Notify,
}

static EFFECTS: LazyLock<Effects> = LazyLock::new(Effects::default);

impl Effects {
    fn note(&self) {
        self.times.lock().unwrap().push(Instant::now());
        self.another.notify_one();
    }

    fn forget(&self) {
        self.times.lock().unwrap().clear();
    }

    /// The moment of the last of so many effects. It waits without spinning: on two cores, a task
    /// that spins keeps the task of a connection waiting until the next tick of the scheduler.
    async fn last_of(&self, count: usize) -> Instant {
        loop {
            let times = self.times.lock().unwrap().clone();
            if times.len() >= count {
                return times[times.len() - 1];
            }
            self.another.notified().await;
        }
    }
}

/// A key that notes when it is dropped, if it was read from bytes. The push handler reads the key
/// of a report from its bytes, and drops it when the entry of the key is gone.
struct NotedKey {
    name: String,
    is_read: bool,
}

impl PartialEq for NotedKey {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for NotedKey {}

impl Hash for NotedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl NotedKey {
    fn new(name: &str) -> Self {
        let name = name.to_string();
        let is_read = false;
        Self { name, is_read }
    }
}

impl Clone for NotedKey {
    fn clone(&self) -> Self {
        Self::new(&self.name)
    }
}

impl Drop for NotedKey {
    fn drop(&mut self) {
        if self.is_read {
            EFFECTS.note();
        }
    }
}

impl NearKey for NotedKey {
    fn write_bytes(&self, out: &mut Vec<u8>) {
        self.name.write_bytes(out);
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let name = String::from_bytes(bytes)?;
        Some(Self {
            name,
            is_read: true,
        })
    }
}

/// From a write to its last effect in four near caches; and, in turn with them, in four plain
/// connections of the client library, whose effect is to note the report.
async fn invalidation(port: u16, writer: &mut Writer) {
    const ROUNDS_IN_TURN: usize = 300;
    let (mut caches, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let near = NearCache::<NotedKey, Value>::builder(support::client(port));
        caches.push(near.codec(codec::Bytes).connect().await.unwrap());
        plain.push(tracked_connection(port).await);
    }
    let name = key(0);
    let noted = NotedKey::new(&name);
    let mut of_caches = Histogram::<u64>::new(3).unwrap();
    let mut of_plain = Histogram::<u64>::new(3).unwrap();
    for _ in 0..10 {
        for _ in 0..ROUNDS_IN_TURN {
            for near in &caches {
                near.get(&noted).await.unwrap();
            }
            of_caches.record(last_effect(writer, &name).await).unwrap();
        }
        for _ in 0..ROUNDS_IN_TURN {
            for connection in &mut plain {
                connection.get(&name).await.unwrap();
            }
            of_plain.record(last_effect(writer, &name).await).unwrap();
        }
    }
    let figure = |times: Histogram<u64>| {
        let micros = |quantile| times.value_at_quantile(quantile) as f64 / 1000.0;
        format!("p50 {:.1} µs, p99 {:.1} µs", micros(0.5), micros(0.99))
    };
    row(
        "from `SET` acknowledged to four near caches clean",
        figure(of_caches),
    );
    row(
        "from `SET` acknowledged to four plain connections told",
        figure(of_plain),
    );
    for near in caches {
        near.close().await;
    }
}

/// A connection of the client library that notes each report.
async fn tracked_connection(port: u16) -> MultiplexedConnection {
    let config = AsyncConnectionConfig::new().set_push_sender(
        |push: PushInfo| -> Result<(), redis::aio::SendError> {
            if push.kind == PushKind::Invalidate {
                EFFECTS.note();
            }
            Ok(())
        },
    );
    let url = format!("redis://127.0.0.1:{port}/?protocol=resp3");
    let client = redis::Client::open(url).unwrap();
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    let mut connection = connecting.await.unwrap();
    let mut tracking = redis::cmd("CLIENT");
    tracking.arg("TRACKING").arg("ON");
    tracking.exec_async(&mut connection).await.unwrap();
    connection
}

/// Writes a key that four others have read. The time, in nanoseconds, from the reply to the last
/// effect of the four reports; zero if all came before the reply.
async fn last_effect(writer: &mut Writer, key: &str) -> u64 {
    EFFECTS.forget();
    writer.set(key, "changed").await;
    let acknowledged = Instant::now();
    let last = EFFECTS.last_of(4).await;
    last.saturating_duration_since(acknowledged).as_nanos() as u64
}

async fn churn(port: u16) {
    const MANY: usize = 10_000;
    let mut writer = Writer::connect(port).await;
    fill(&mut writer, MANY).await;
    let near = near(port).await;
    near.preload((0..MANY).map(key)).await.unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let stop = done.clone();
    let writing = tokio::spawn(async move {
        let mut number = 0;
        let mut tick = tokio::time::interval(Duration::from_secs(1) / (MANY as u32 / 100));
        while !stop.load(Ordering::Relaxed) {
            tick.tick().await;
            writer.set(&key(number), "changed").await;
            number = (number + 1) % MANY;
        }
    });
    let names: Vec<String> = (0..MANY).map(key).collect();
    let (begun, before) = (Instant::now(), near.stats());
    let mut reads = 0u64;
    while begun.elapsed() < Duration::from_secs(3) {
        for _ in 0..1000 {
            let number = (reads as usize).wrapping_mul(7919) % MANY;
            black_box(near.get(names[number].as_str()).await.unwrap());
            reads += 1;
        }
        tokio::task::yield_now().await;
    }
    let seconds = begun.elapsed().as_secs_f64();
    done.store(true, Ordering::Relaxed);
    writing.await.unwrap();
    let hits = (near.stats().local().hits() - before.local().hits()) as f64;
    let figure = format!(
        "{:.1} million hits a second, {:.3} % of the reads",
        hits / seconds / 1e6,
        hits / reads as f64 * 100.0
    );
    row(
        "one reader of 10,000 keys, 1 % of which change per second",
        figure,
    );
    near.close().await;
}

async fn herd(port: u16, writer: &mut Writer) {
    let near = near(port).await;
    writer.send::<()>(&["CONFIG", "RESETSTAT"]).await;
    let mut tasks = JoinSet::new();
    for _ in 0..1000 {
        let near = near.clone();
        tasks.spawn(async move { near.get("figures:1").await.unwrap() });
    }
    tasks.join_all().await;
    let (gets, pttls) = (writer.calls("getrange").await, writer.calls("pttl").await);
    let figure = format!("{gets} `GETRANGE` and {pttls} `PTTL`, in one pipeline");
    row("1,000 tasks, one cold key: what the server saw", figure);
    near.close().await;
}

/// Reads of another key, each at the server, while a value of 8 MB takes two seconds to arrive,
/// again and again for 20 s. At the same time, a plain connection of the client library reads the
/// key over a line of its own: its times are those of the line and of the machine.
async fn slow(port: u16, writer: &mut Writer) {
    let proxy = Proxy::to(port).await;
    writer.set("slow", &"x".repeat(8 << 20)).await;
    let near = near(proxy.port).await;
    proxy.throttle(4 << 20);
    let over = Instant::now() + Duration::from_secs(20);
    let mut values = 0;
    let slow = async {
        while Instant::now() < over {
            values += u32::from(near.get("slow").await.is_ok());
            // A change, so it is read again.
            writer.send::<i64>(&["EXPIRE", "slow", "1000"]).await;
        }
    };
    let others = async {
        let mut reads = JoinSet::new();
        while Instant::now() < over {
            let near = near.clone();
            reads.spawn(async move {
                let begun = Instant::now();
                near.refresh("figures:0").await.unwrap();
                begun.elapsed().as_micros() as u64
            });
            tokio::time::sleep(Duration::from_millis(4)).await;
        }
        reads.join_all().await
    };
    let beside = Proxy::to(port).await;
    let client = support::client(beside.port);
    let plain = client.get_multiplexed_async_connection().await.unwrap();
    beside.throttle(4 << 20);
    let control = async {
        let mut reads = JoinSet::new();
        while Instant::now() < over {
            let mut plain = plain.clone();
            reads.spawn(async move {
                let begun = Instant::now();
                plain.get("figures:0").await.unwrap();
                begun.elapsed().as_micros() as u64
            });
            tokio::time::sleep(Duration::from_millis(4)).await;
        }
        reads.join_all().await
    };
    let ((), reads, control) = tokio::join!(slow, others, control);
    let figure = |reads: Vec<u64>| {
        let mut times = Histogram::<u64>::new(3).unwrap();
        reads.iter().for_each(|time| times.record(*time).unwrap());
        let millis = |quantile| times.value_at_quantile(quantile) as f64 / 1000.0;
        format!("p50 {:.1} ms, p99 {:.1} ms", millis(0.5), millis(0.99))
    };
    row(
        "reads of another key at the server, beside a value of 8 MB that takes 2 s to arrive",
        figure(reads),
    );
    row(
        "the same by a plain connection, over a line of its own",
        figure(control),
    );
    assert!(values >= 5, "{values}");
    near.close().await;
}

/// Resident memory of this process, in bytes.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or(f64::NAN) * 1024.0
}

async fn memory(port: u16, writer: &mut Writer) {
    const MANY: usize = 200_000;
    fill(writer, MANY).await;
    let near = near(port).await;
    let before = resident();
    for first in (0..MANY).step_by(1000) {
        near.preload((first..first + 1000).map(key)).await.unwrap();
    }
    let each = (resident() - before) / MANY as f64;
    let before = resident();
    let core: Cache<String, Value> = Cache::builder()
        .max_capacity(1_000_000)
        .time_to_live(Duration::from_secs(300))
        .build();
    (0..MANY).for_each(|number| core.insert(key(number), Arc::from(&VALUE[..])));
    let alone = (resident() - before) / MANY as f64;
    let figure = format!("{each:.0} bytes, in `wheelhouse` alone {alone:.0}");
    row("memory of an entry, key of 14 bytes", figure);
    drop(core);
    near.close().await;
}

/// CPU time of this process.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<f64> = rest
        .split_whitespace()
        .map(|f| f.parse().unwrap_or(f64::NAN))
        .collect();
    // The 14th and 15th field of the file, in hundredths of a second.
    fields
        .get(11..13)
        .map_or(f64::NAN, |times| times.iter().sum::<f64>() / 100.0)
}

async fn storm(port: u16, broadcast: bool) {
    const A_SECOND: u64 = 100_000;
    const SECONDS: u64 = 4;
    const BATCH: u64 = 1_000;
    let mut writer = Writer::connect(port).await;
    fill(&mut writer, KEYS).await;
    let tracking = match broadcast {
        true => Tracking::Broadcast {
            prefixes: vec!["figures:".into(), "storm:".into()],
        },
        false => Tracking::Default,
    };
    let near = tracked(port, tracking).await;
    let names: Vec<String> = (0..KEYS).map(key).collect();
    near.preload(names.clone()).await.unwrap();
    // With default tracking, the server reports a key once after each read.
    let storm = (0..A_SECOND * SECONDS).map(|number| format!("storm:{number}"));
    if !broadcast {
        for keys in storm.collect::<Vec<_>>().chunks(2_000) {
            near.preload(keys.to_vec()).await.unwrap();
        }
    }
    let done = Arc::new(AtomicBool::new(false));
    let (stop, reader) = (done.clone(), near.clone());
    // The reader has a thread of its own. It rests, so that the CPU is that of the reports.
    let reading = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let mut times = Histogram::<u64>::new(3).unwrap();
        let mut call = 0;
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..100 {
                let begun = Instant::now();
                let found =
                    runtime.block_on(async { reader.get(names[call % KEYS].as_str()).await });
                times.record(begun.elapsed().as_nanos() as u64).unwrap();
                black_box(found.unwrap());
                call += 1;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        times
    });
    let write = "for i = ARGV[1], ARGV[1] + ARGV[2] - 1 do redis.call('SET', 'storm:' .. i, i) end";
    let (begun, before, heard) = (Instant::now(), cpu(), near.stats().invalidated_keys());
    let mut tick = tokio::time::interval(Duration::from_secs(1) * BATCH as u32 / A_SECOND as u32);
    for first in (0..A_SECOND * SECONDS).step_by(BATCH as usize) {
        tick.tick().await;
        let (first, count) = (first.to_string(), BATCH.to_string());
        writer
            .send::<()>(&["EVAL", write, "0", &first, &count])
            .await;
    }
    let all = A_SECOND * SECONDS;
    while near.stats().invalidated_keys() - heard < all {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (seconds, used) = (begun.elapsed().as_secs_f64(), cpu() - before);
    done.store(true, Ordering::Relaxed);
    let times = reading.join().unwrap();
    let figure = format!(
        "{:.0} a second; {:.0} % of a core; hits meanwhile p50 {} ns, p99.9 {:.1} µs",
        all as f64 / seconds,
        used / seconds * 100.0,
        times.value_at_quantile(0.5),
        times.value_at_quantile(0.999) as f64 / 1000.0,
    );
    let mode = if broadcast { "broadcast" } else { "default" };
    row(&format!("invalidations, {mode} tracking"), figure);
    near.close().await;
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let Some(program) = installed().into_iter().next() else {
        // `installed` has said what to install.
        return;
    };
    let mut server = Server::start(&program, &["--tracking-table-max-keys", "0"]).await;
    let mut writer = Writer::connect(server.port).await;
    fill(&mut writer, KEYS).await;
    let named: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |part: &str| named.is_empty() || named.iter().any(|name| name == part);
    println!("| on loopback, values of 200 bytes | |\n|---|---|");
    if wanted("memory") {
        // First, while the process has no freed memory to use again.
        memory(server.port, &mut writer).await;
    }
    fill(&mut writer, 10_000).await;
    if wanted("hits") {
        for keys in [1, KEYS, 10_000] {
            for statistics in [false, true] {
                hits(server.port, keys, statistics).await;
            }
        }
    }
    if wanted("peers") {
        peers(server.port).await;
    }
    if wanted("bulk") {
        bulk(server.port, &mut writer).await;
    }
    if wanted("invalidation") {
        invalidation(server.port, &mut writer).await;
    }
    if wanted("churn") {
        churn(server.port).await;
    }
    if wanted("herd") {
        herd(server.port, &mut writer).await;
    }
    if wanted("storm") {
        storm(server.port, true).await;
        storm(server.port, false).await;
    }
    if wanted("slow") {
        slow(server.port, &mut writer).await;
    }
    if wanted("reconnects") {
        reconnects(&mut server).await;
    }
}
