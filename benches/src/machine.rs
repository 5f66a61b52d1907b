//! Where and with what a run was measured, and what the parts cost there that no cache can do
//! without: two machines can be compared only beside these.

use std::{
    fs,
    hint::black_box,
    process::Command,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use serde::{Deserialize, Serialize};

use crate::{
    cpu,
    measure::{on_a_core, timed_here},
    peer::Hasher,
};

/// Where and with what a run was measured.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub memory: String,
    pub kernel: String,
    pub rustc: String,
    pub profile: String,
    pub flags: String,
    pub commit: String,
    pub versions: Vec<String>,
    pub date: String,
    pub load: String,
    /// Parts and their cost on one core, in nanoseconds.
    pub parts: Vec<(String, f64)>,
}

impl Machine {
    /// This machine, now.
    pub fn here() -> Self {
        Self {
            processor: processor(),
            cores: cpu::count(),
            memory: line_of("/proc/meminfo", "MemTotal").unwrap_or_else(|| "unknown".into()),
            kernel: first_line("/proc/sys/kernel/osrelease"),
            rustc: env!("BENCH_RUSTC").into(),
            profile: env!("BENCH_PROFILE").into(),
            flags: env!("BENCH_FLAGS").into(),
            commit: env!("BENCH_COMMIT").into(),
            versions: env!("BENCH_VERSIONS")
                .split(';')
                .map(String::from)
                .collect(),
            date: today(),
            load: first_line("/proc/loadavg"),
            parts: on_a_core(parts),
        }
    }

    /// As a list in Markdown.
    pub fn describe(&self) -> String {
        let parts = self.parts.iter();
        let parts: Vec<String> = parts
            .map(|(part, nanos)| format!("{part} {nanos:.1}"))
            .collect();
        let flags = match &*self.flags {
            "" => String::new(),
            flags => format!(", flags {flags}"),
        };
        let (commit, date, rustc, profile) = (&self.commit, &self.date, &self.rustc, &self.profile);
        let (cores, processor, memory) = (self.cores, &self.processor, &self.memory);
        let (kernel, load) = (&self.kernel, &self.load);
        let mut text = format!(
            "- Commit {commit}, {date}\n- {cores} x {processor}, {memory} memory, kernel {kernel}, \
             load average {load}\n- {rustc}, profile {profile}{flags}\n\
             - Nanoseconds on one core: {}\n- Versions: {}\n",
            parts.join(", "),
            self.versions.join(", "),
        );
        if cfg!(debug_assertions) {
            text += "- Built without optimisation, so no figure means anything: add --release\n";
        }
        let latest = load.split(' ').next().and_then(|load| load.parse().ok());
        if latest.is_some_and(|load: f64| load > 0.5) {
            text +=
                "- The machine was not quiet (load above 0.5): ratios may hold, pauses do not\n";
        }
        text
    }
}

/// The shortest of some counts each: what others do on the core only adds.
fn parts() -> Vec<(String, f64)> {
    const OPERATIONS: usize = 20_000;
    fn shortest<T>(name: &str, part: impl Fn(u64) -> T) -> (String, f64) {
        let run = || {
            for n in 0..OPERATIONS as u64 {
                black_box(part(black_box(n)));
            }
        };
        let counts = (0..25).map(|_| timed_here(false, OPERATIONS, run).0);
        (name.to_owned(), counts.fold(f64::INFINITY, f64::min))
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
    let Some(name) = line_of("/proc/cpuinfo", "model name") else {
        return std::env::consts::ARCH.into();
    };
    match ["cpu family", "model"].map(|number| line_of("/proc/cpuinfo", &format!("{number}\t"))) {
        [Some(family), Some(model)] => format!("{name} (family {family}, model {model})"),
        _ => name,
    }
}

fn first_line(file: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_else(|_| "unknown".into());
    text.lines().next().unwrap_or_default().to_owned()
}

fn line_of(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn today() -> String {
    let date = Command::new("date").args(["-u", "+%F"]).output();
    date.map_or("unknown date".into(), |date| {
        String::from_utf8_lossy(&date.stdout).trim().to_owned()
    })
}
