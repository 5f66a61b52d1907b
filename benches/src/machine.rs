//! The machine and the program of a run, and what the operations cost there that every cache needs.
//! Compare the figures of two machines only together with these costs.

use std::{
    fs,
    hint::black_box,
    process::Command,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use crate::{
    cpu,
    measure::{on_a_core, timed_here},
    peer::Hasher,
};

/// This machine, now, and this program, as a list in Markdown.
pub fn describe() -> String {
    let (commit, rustc) = (env!("BENCH_COMMIT"), env!("BENCH_RUSTC"));
    let (profile, versions) = (env!("BENCH_PROFILE"), env!("BENCH_VERSIONS"));
    let flags = match env!("BENCH_FLAGS") {
        "" => String::new(),
        flags => format!(", flags {flags}"),
    };
    let (date, cores, processor) = (today(), cpu::count(), processor());
    let memory = line_of("/proc/meminfo", "MemTotal");
    let [kernel, load] = ["/proc/sys/kernel/osrelease", "/proc/loadavg"].map(first_line);
    let parts = on_a_core(parts).join(", ");
    let mut text = format!(
        "- Commit {commit}, {date}\n- {cores} x {processor}, {memory} memory, kernel {kernel}, \
         load average {load}\n- {rustc}, profile {profile}{flags}\n\
         - Nanoseconds on one core: {parts}\n- Versions: {versions}\n",
    );
    if cfg!(debug_assertions) {
        text += "- Built without optimisation, so no figure means anything: add --release\n";
    }
    let latest = load.split(' ').next().and_then(|load| load.parse().ok());
    if latest.is_some_and(|load: f64| load > 0.5) {
        text += "- The machine was not quiet (load above 0.5): ratios may hold, pauses do not\n";
    }
    text
}

/// The shortest of several runs of each operation: other work on the core only makes a run longer.
fn parts() -> Vec<String> {
    const OPERATIONS: usize = 20_000;
    fn shortest<T>(name: &str, part: impl Fn(u64) -> T) -> String {
        let run = || {
            for n in 0..OPERATIONS as u64 {
                black_box(part(black_box(n)));
            }
        };
        let counts = (0..25).map(|_| timed_here(false, OPERATIONS, run).0);
        format!("{name} {:.1}", counts.fold(f64::INFINITY, f64::min))
    }
    let (clock, hasher, word) = (quanta::Clock::new(), Hasher::new(), AtomicU64::new(0));
    vec![
        shortest("reading the counter", |_| clock.raw()),
        shortest("`Instant::now`", |_| Instant::now()),
        shortest("an atomic exchange", |n| word.swap(n, Ordering::SeqCst)),
        shortest("hashing a `u64`", |n| hasher.hash_one(n)),
    ]
}

/// Its name, with the numbers that tell it from others of that name.
fn processor() -> String {
    let of = |what| line_of("/proc/cpuinfo", what);
    let (name, family, model) = (of("model name"), of("cpu family\t"), of("model\t"));
    format!("{name} (family {family}, model {model})")
}

fn first_line(file: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_else(|_| "unknown".into());
    text.lines().next().unwrap_or_default().to_owned()
}

fn line_of(file: &str, name: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.split_once(':'));
    value
        .map_or("unknown", |(_, value)| value.trim())
        .to_owned()
}

fn today() -> String {
    let date = Command::new("date").args(["-u", "+%F"]).output();
    date.map_or("unknown date".into(), |date| {
        String::from_utf8_lossy(&date.stdout).trim().to_owned()
    })
}
