//! No number without its machine.

use std::fs;

use serde::Serialize;

use crate::floors::Floors;

/// Where and with what a run was measured.
#[derive(Debug, Default, Serialize)]
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
    pub floors: Floors,
}

impl Machine {
    /// This machine, now.
    pub fn here() -> Self {
        Self {
            processor: processor(),
            cores: crate::cpu::count(),
            memory: line_of("/proc/meminfo", "MemTotal").unwrap_or_else(|| "unknown".into()),
            kernel: first_line("/proc/sys/kernel/osrelease"),
            rustc: env!("BENCH_RUSTC").into(),
            profile: env!("BENCH_PROFILE").into(),
            flags: env!("BENCH_FLAGS").into(),
            commit: env!("BENCH_COMMIT").into(),
            versions: env!("BENCH_VERSIONS")
                .split(';')
                .map(str::to_owned)
                .collect(),
            date: date(),
            load: first_line("/proc/loadavg"),
            floors: Floors::here(),
        }
    }

    /// For the head of the output.
    pub fn print(&self) {
        println!("{} at {}", self.versions.join(", "), self.commit);
        println!(
            "{} x {}, {} memory, kernel {}",
            self.cores, self.processor, self.memory, self.kernel
        );
        let flags = if self.flags.is_empty() {
            String::new()
        } else {
            format!(", flags {}", self.flags)
        };
        println!(
            "{}, profile {}{flags}; {}; load average {}",
            self.rustc, self.profile, self.date, self.load
        );
        let Floors {
            counter,
            instant,
            exchange,
            hash,
        } = self.floors;
        println!(
            "ns on one core: reading the counter {counter:.1}, Instant::now {instant:.1}, an exchange {exchange:.1}, hashing a u64 {hash:.1}"
        );
        if cfg!(debug_assertions) {
            println!(
                "built without optimisation: none of these figures means anything, add --release"
            );
        }
        let load = self
            .load
            .split(' ')
            .next()
            .and_then(|load| load.parse::<f64>().ok());
        if load.is_some_and(|load| load > 0.5) {
            println!(
                "the machine is not quiet (load above 0.5): ratios may hold, pauses and tails do not"
            );
        }
    }
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
    fs::read_to_string(file).map_or("unknown".into(), |text| {
        text.lines().next().unwrap_or_default().to_owned()
    })
}

fn line_of(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Today in UTC, from the days since 1970.
fn date() -> String {
    let seconds = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    let mut day = (seconds / 86_400) as i64;
    let mut year = 1970;
    let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    while day >= 365 + i64::from(leap(year)) {
        day -= 365 + i64::from(leap(year));
        year += 1;
    }
    let months = [
        31,
        28 + i64::from(leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    let mut month = 0;
    while day >= months[month] {
        day -= months[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02}", month + 1, day + 1)
}
