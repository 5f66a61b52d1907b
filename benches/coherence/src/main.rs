//! The guest of the simulator: `scale CACHE WORKLOAD THREADS [HOT]`, and natively
//! `scale --native ...`, which prints what it measures on this machine.

mod caches;
#[cfg(feature = "peers")]
mod peers;

use caches::{Cache, Kind, Plan};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub const CAPACITY: u64 = 100_000;
const SEQUENCE: usize = 4096;

#[repr(C, align(4096))]
struct Control {
    phase: AtomicU64,
    _pad: [u64; 15],
    ops: [[AtomicU64; 16]; 128],
}
static CONTROL: Control = Control {
    phase: AtomicU64::new(0),
    _pad: [0; 15],
    ops: [const { [const { AtomicU64::new(0) }; 16] }; 128],
};

fn magic(number: i64, a: u64, b: u64, c: u64, d: u64, e: u64) {
    unsafe { libc::syscall(number, a, b, c, d, e) };
}

/// The processor time of the calling thread, in nanoseconds.
fn cpu_time() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

struct Random(u64);
impl Random {
    #[inline]
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    #[inline]
    fn below(&mut self, n: u64) -> u64 {
        ((self.next() >> 32) * n) >> 32
    }
}

/// Keys by Zipf's law with the exponent 0.99.
fn zipf(keys: u64, seed: u64) -> Vec<u64> {
    use std::sync::OnceLock;
    static SUMS: OnceLock<Vec<f64>> = OnceLock::new();
    let sums = SUMS.get_or_init(|| {
        let mut sum = 0.0;
        (1..=keys)
            .map(|rank| {
                sum += (rank as f64).powf(-0.99);
                sum
            })
            .collect()
    });
    let all = sums[sums.len() - 1];
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    (0..SEQUENCE)
        .map(|_| {
            let at = (random.next() >> 11) as f64 / (1_u64 << 53) as f64 * all;
            sums.partition_point(|&sum| sum < at).min(sums.len() - 1) as u64
        })
        .collect()
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Work {
    Zipf,
    Uniform,
    OneKey,
    Replace,
    Evict,
    EvictZipf,
    Idle,
    IdleShort,
    Churn,
    GetWith,
    Insert,
    Toy,
}

fn run<C: Cache>(work: Work, threads: usize, keys: u64, native: bool) {
    let hour = Duration::from_secs(3600);
    let kind = match work {
        Work::Idle => Kind::Idle(hour),
        Work::IdleShort => Kind::Idle(Duration::from_secs(5)),
        Work::Churn => Kind::PerEntry(Duration::from_millis(2)),
        _ => Kind::PerEntry(hour),
    };
    let cache = C::build(Plan {
        capacity: CAPACITY,
        kind,
    });
    let filled = match work {
        Work::OneKey => 1,
        Work::Churn => 0,
        Work::Evict | Work::EvictZipf | Work::Insert => CAPACITY,
        _ => keys,
    };
    for key in 0..filled {
        cache.insert(key, key);
    }
    cache.settle();
    // After the last run of maintenance, so that the size policy knows of the uses.
    for _ in 0..2 {
        for key in 0..filled {
            black_box(cache.get(key));
        }
    }
    let sequences: Vec<Vec<u64>> = (0..threads)
        .map(|thread| match work {
            Work::Zipf | Work::Replace | Work::Idle | Work::IdleShort | Work::GetWith => {
                zipf(keys, thread as u64 + 1)
            }
            Work::EvictZipf => zipf(CAPACITY * 4, thread as u64 + 1),
            _ => Vec::new(),
        })
        .collect();
    let cache = &cache;
    let seconds: f64 = std::env::var("SECS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(1.0);
    std::thread::scope(|scope| {
        for (thread, sequence) in sequences.iter().enumerate() {
            scope.spawn(move || {
                let mut random =
                    Random((thread as u64 + 1).wrapping_mul(0xD134_2543_DE82_EF95) | 1);
                for _ in 0..20 {
                    random.next();
                }
                let counter = &CONTROL.ops[thread][0];
                let mut at = 0;
                let mut fresh = (thread as u64 + 1) << 40;
                // What a thread's first calls cost (its number, its record) is not counted.
                for key in 0..20 {
                    black_box(cache.get(key));
                }
                if !native {
                    magic(7002, thread as u64, 0, 0, 0, 0);
                }
                let mut count = 0_u64;
                macro_rules! go {
                    ($op:expr) => {
                        while CONTROL.phase.load(Ordering::Relaxed) != 3 {
                            $op;
                            count += 1;
                            counter.store(count, Ordering::Relaxed);
                        }
                    };
                }
                let cpu = cpu_time();
                let mut key = || {
                    at = (at + 1) % SEQUENCE;
                    sequence[at]
                };
                match work {
                    Work::Zipf | Work::Idle | Work::IdleShort => {
                        go!(_ = black_box(cache.get(key())))
                    }
                    Work::Uniform => go!(_ = black_box(cache.get(random.below(keys)))),
                    Work::OneKey => go!(_ = black_box(cache.get(black_box(0)))),
                    Work::Replace => go!({
                        let key = key();
                        if random.next() >> 62 == 0 {
                            cache.insert(key, count)
                        } else {
                            _ = black_box(cache.get(key))
                        }
                    }),
                    Work::Evict | Work::EvictZipf => go!({
                        let key = if work == Work::Evict {
                            random.below(CAPACITY * 2)
                        } else {
                            key()
                        };
                        if cache.get(key).is_none() {
                            cache.insert(key, count)
                        }
                    }),
                    Work::Churn | Work::Insert => go!({
                        fresh += 1;
                        cache.insert(fresh, count)
                    }),
                    Work::GetWith => go!(_ = black_box(cache.get_with(key()))),
                    Work::Toy => go!({ cache.insert(random.below(keys), count) }),
                }
                CONTROL.ops[thread][1].store(cpu_time() - cpu, Ordering::Relaxed);
            });
        }
        if native {
            std::thread::sleep(Duration::from_secs_f64(seconds / 2.0));
            let sum = || {
                CONTROL
                    .ops
                    .iter()
                    .map(|ops| ops[0].load(Ordering::Relaxed))
                    .sum::<u64>()
            };
            let (from, start) = (sum(), Instant::now());
            std::thread::sleep(Duration::from_secs_f64(seconds));
            let (to, end) = (sum(), start.elapsed());
            CONTROL.phase.store(3, Ordering::Relaxed);
            print!(
                "{{\"n\":{threads},\"mops\":{:.3}",
                (to - from) as f64 / end.as_secs_f64() / 1e6
            );
        }
    });
    if native {
        let sum = |i: usize| {
            CONTROL
                .ops
                .iter()
                .map(|ops| ops[i].load(Ordering::Relaxed))
                .sum::<u64>() as f64
        };
        println!(",\"cpu_ns\":{:.1}}}", sum(1) / sum(0));
    }
    // Without the destructors.
    use std::io::Write;
    _ = std::io::stdout().flush();
    unsafe { libc::_exit(0) };
}

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let native = args[0] == "--native";
    if native {
        args.remove(0);
    }
    let threads: usize = args[2].parse().unwrap();
    let keys: u64 = args.get(3).map_or(CAPACITY, |keys| keys.parse().unwrap());
    let work = match &*args[1] {
        "zipf" => Work::Zipf,
        "uniform" => Work::Uniform,
        "onekey" => Work::OneKey,
        "replace" => Work::Replace,
        "evict" => Work::Evict,
        "evictzipf" => Work::EvictZipf,
        "idle" => Work::Idle,
        "idle5" => Work::IdleShort,
        "churn" => Work::Churn,
        "getwith" => Work::GetWith,
        "insert" => Work::Insert,
        "toy" => Work::Toy,
        other => panic!("{other}"),
    };
    if !native {
        // The emulator flushes its translations when the first thread begins; before the rules.
        std::thread::spawn(|| ()).join().unwrap();
        let at = (&raw const CONTROL) as u64;
        let ops = (&raw const CONTROL.ops) as u64;
        magic(
            7001,
            at,
            ops,
            threads as u64,
            at,
            at + size_of::<Control>() as u64,
        );
    }
    caches::dispatch!(&*args[0], run(work, threads, keys, native));
}
