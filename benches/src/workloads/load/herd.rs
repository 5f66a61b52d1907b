//! Many callers that ask for one cold key at once: how often the load runs, and when the last of
//! them has its answer.

use futures_util::future::join_all;
use tokio::{runtime::Builder, time::sleep};

use super::loading;
use crate::peers::{Moka, QuickCache, Wheelhouse};
use crate::workloads::prelude::*;

const RUNS: Metric = Metric::worst("runs of the load");
const LAST: Metric = Metric::ranked("last caller us");
const SLOWEST: Metric = Metric::worst("last caller of the slowest herd us");

/// How long a load takes.
const LOAD: Duration = Duration::from_millis(1);
const TASKS: usize = 64;
const THREADS: usize = 8;

/// Runs all herds.
pub(super) fn run(bench: Bench<'_>) {
    let herds = bench.size(100, 10);
    let about = format!(
        "{herds} cold keys, one after the other, each asked for by all callers at once; a load \
         ends 1 ms after the last of them has begun. Times count from the end of its first run; \
         median of the herds. Tasks run on one thread, and those of moka in its cache for tasks"
    );
    let contest = |variant: String| bench.contest(variant, &*about);
    let threads = |fails: bool| {
        let what = if fails { ", the load fails" } else { "" };
        loading!(contest(format!("{THREADS} threads{what}")),
            P => by_threads(herds, &built::<P>(herds)?, fails); Wheelhouse, Moka, QuickCache)
    };
    let tasks = |variant, threads| {
        loading!(contest(variant), P => by_tasks(herds, threads, &built::<P>(herds)?);
            Wheelhouse, QuickCache)
    };
    let moka = move || {
        let cache = moka::future::Cache::new(herds as u64 * 4);
        gather(
            herds,
            0,
            |_, _| (),
            Some(&|key, herd| drive(&cache, key, herd)),
        )
    };
    let all = [
        threads(false),
        tasks(format!("{TASKS} tasks"), 0).with(<Moka as Peer>::CARD, moka),
        tasks(format!("{TASKS} tasks and {THREADS} threads"), THREADS),
        threads(true),
    ];
    bench.run(bench.rounds().min(3), all);
}

fn built<P: Peer>(herds: usize) -> Result<P, Problem> {
    P::build(&roomy(Expiring::Never, herds))
}

/// What the callers for one key saw.
#[derive(Default)]
struct Herd {
    /// Callers that have not begun to ask.
    to_come: AtomicU64,
    runs: AtomicU64,
    /// When the first run of the load ended.
    ended: AtomicU64,
    /// When the last caller had its answer.
    last: AtomicU64,
}

impl Herd {
    fn end(&self) {
        self.runs.fetch_add(1, SeqCst);
        // Fails after the first.
        let (ended, now) = (&self.ended, clock::nanos());
        let _ = ended.compare_exchange(0, now, SeqCst, SeqCst);
    }

    /// A caller begins to ask.
    fn comes(&self) {
        self.to_come.fetch_sub(1, SeqCst);
    }

    /// Some thread may begin late; a load that ended before would not be one for all callers.
    fn load(&self) {
        while self.to_come.load(SeqCst) > 0 {
            thread::sleep(LOAD / 10);
        }
        thread::sleep(LOAD);
        self.end();
    }

    async fn load_by_future(&self, key: u64) -> u64 {
        while self.to_come.load(SeqCst) > 0 {
            sleep(LOAD).await;
        }
        sleep(LOAD).await;
        self.end();
        keys::value(key)
    }

    fn answered(&self) {
        self.last.fetch_max(clock::nanos(), SeqCst);
    }
}

fn by_threads<P: Loads>(herds: usize, cache: &P, fails: bool) -> Outcome {
    let fail = |key, herd: &Herd| {
        let load = || {
            herd.load();
            Err(())
        };
        herd.comes();
        assert_eq!(cache.try_get_with(key, load), None);
    };
    match fails {
        true => gather(herds, THREADS, fail, None),
        false => gather(herds, THREADS, |key, herd| ask(cache, key, herd), None),
    }
}

fn by_tasks<P: Loads + LoadsByFuture>(herds: usize, threads: usize, cache: &P) -> Outcome {
    let tasks = |key, herd: &Herd| drive(cache, key, herd);
    let ask = |key, herd: &Herd| ask(cache, key, herd);
    gather(herds, threads, ask, Some(&tasks))
}

fn ask(cache: &impl Loads, key: u64, herd: &Herd) {
    let load = || {
        herd.load();
        keys::value(key)
    };
    herd.comes();
    assert_eq!(cache.get_with(key, load), keys::value(key));
}

/// Asks by tasks, on the calling thread.
fn drive(cache: &impl LoadsByFuture, key: u64, herd: &Herd) {
    let task = |_| async {
        herd.comes();
        let value = cache.get_with_future(key, herd.load_by_future(key)).await;
        assert_eq!(value, keys::value(key));
        herd.answered();
    };
    let runtime = Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime needs no resources");
    runtime.block_on(join_all((0..TASKS).map(task)));
}

type Ask<'a> = &'a (dyn Fn(u64, &Herd) + Sync);

/// Lets all callers ask for one key after the other.
fn gather(
    herds: usize,
    threads: usize,
    ask: impl Fn(u64, &Herd) + Sync,
    tasks: Option<Ask<'_>>,
) -> Outcome {
    let to_come = threads + if tasks.is_some() { TASKS } else { 0 };
    let herd = |_| Herd {
        to_come: AtomicU64::new(to_come as u64),
        ..Herd::default()
    };
    let all: Vec<Herd> = (0..herds).map(herd).collect();
    let (ask, all): (Ask<'_>, _) = (&ask, &all);
    let barrier = &Barrier::new(threads + usize::from(tasks.is_some()));
    thread::scope(|scope| {
        let by_threads = (0..threads).map(|_| ask);
        for ask in by_threads.chain(tasks) {
            scope.spawn(move || {
                for (herd, rank) in all.iter().zip(0..) {
                    barrier.wait();
                    ask(keys::key(rank), herd);
                    herd.answered();
                }
            });
        }
    });
    let runs = all.iter().map(|herd| herd.runs.load(SeqCst)).max();
    let waited = |herd: &Herd| herd.last.load(SeqCst) - herd.ended.load(SeqCst);
    let mut waited: Vec<u64> = all.iter().map(waited).collect();
    waited.sort_unstable();
    Ok(vec![
        RUNS.of(runs.unwrap_or(0) as f64),
        LAST.of(waited[herds / 2] as f64 / 1e3),
        SLOWEST.of(waited[herds - 1] as f64 / 1e3),
    ])
}
