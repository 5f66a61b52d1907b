//! Replays access traces against the cache, every key with a lifetime of its own.
//!
//! A request is a look-up, followed by an insert if it missed; traces that say more (set, delete)
//! are followed to the letter. Time is virtual: it comes from the trace where it has time stamps,
//! elsewhere requests arrive evenly at a rate that you choose. A key's lifetime comes from the
//! trace where it has one, elsewhere it is drawn by a stable hash of the key from a mix: a
//! *synthetic TTL*.
//!
//! It needs a trace: `cargo run --release -p wheelhouse-examples --example replay -- FILE...`,
//! where FILE is a file or a folder, plain or compressed by gzip, xz or zstd. Without a trace at
//! hand it replays made-up requests: `-- --generate 200000`. Without any argument it takes the
//! traces in `../shared/data/traces`, and says what it needs if there is no such folder.
//!
//! Expect: a progress bar, then a row per trace: requests, hits, hit ratio, expirations, evictions,
//! what is left, and requests per second (the cache's work alone, not the reading of the file). Two
//! things are checked: no look-up may return a value past its deadline, and every value that went
//! in must be in the cache at the end or have been notified as removed exactly once. The exit
//! status is 1 if anything was wrong.

mod generate;
mod mix;
#[path = "../../../examples/common/mixed.rs"]
mod mixed;
mod player;
mod progress;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use mix::Mix;
use player::{Outcome, Player};
use progress::Progress;
use wheelhouse_examples::trace::{self, Format, Requests};

/// Replays access traces with a lifetime for every key
#[derive(Parser)]
struct Args {
    /// Traces, or folders of traces; plain or compressed with gzip, xz or zstd
    files: Vec<PathBuf>,
    /// Entries that the cache may hold
    #[arg(long, short, default_value_t = 1000)]
    capacity: u64,
    /// Hold any number of entries; --capacity is not used
    #[arg(long)]
    unbounded: bool,
    /// Mix of lifetimes: cluster4, 12, 23, 24, 26, 27 or 52 of Twitter's clusters, or a list like
    /// "60s:0.5,1h:0.4,none:0.1"
    #[arg(long, default_value = "cluster4")]
    ttl_mix: Mix,
    /// Requests per virtual second, for traces without time stamps
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// Format of the traces: numbers (LIRS), integers (cache2k), ranges (ARC), cloudphysics,
    /// cachelib or twitter; told from the content if not given
    #[arg(long)]
    format: Option<Format>,
    /// Replay this many made-up requests instead of a file
    #[arg(long, value_name = "REQUESTS", conflicts_with = "files")]
    generate: Option<u64>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("replay: {message}");
            ExitCode::from(2)
        }
    }
}

/// Replays everything; the answer is whether nothing was wrong.
fn run(args: &Args) -> Result<bool, String> {
    let player = Player {
        capacity: (!args.unbounded).then_some(args.capacity),
        mix: &args.ttl_mix,
        rate: args.rate,
    };
    if let Some(count) = args.generate {
        let progress = Progress::of_requests("generated", count);
        announce(args);
        let outcome = player.play(Box::new(generate::requests(count)), &progress)?;
        println!("{}", outcome.row("generated"));
        return Ok(report_wrongs("generated", &outcome));
    }

    let files = trace::files(&args.files).map_err(|why| {
        format!(
            "{why}\nname a trace, a FILE or a folder, or replay made-up requests: --generate 200000"
        )
    })?;
    announce(args);
    let mut right = true;
    for file in &files {
        let name = file
            .file_name()
            .map_or_else(|| file.to_string_lossy(), |name| name.to_string_lossy());
        let in_file = |message: String| format!("{}: {message}", file.display());
        let progress = Progress::of_file(&name, file).map_err(in_file)?;
        let requests = open(file, args.format, &progress).map_err(in_file)?;
        let outcome = player.play(requests, &progress).map_err(in_file)?;
        println!("{}", outcome.row(&name));
        right &= report_wrongs(&name, &outcome);
    }
    Ok(right)
}

fn open(file: &Path, format: Option<Format>, progress: &Progress) -> Result<Requests, String> {
    let raw = std::fs::File::open(file).map_err(|error| format!("cannot be opened: {error}"))?;
    trace::requests(progress.watch(raw), format)
}

fn announce(args: &Args) {
    match args.unbounded {
        true => println!(
            "unbounded cache; lifetimes where the trace has none: synthetic TTL, {}",
            args.ttl_mix
        ),
        false => println!(
            "capacity {} entries; lifetimes where the trace has none: synthetic TTL, {}",
            args.capacity, args.ttl_mix
        ),
    }
    println!("{}", Outcome::HEADER);
}

fn report_wrongs(name: &str, outcome: &Outcome) -> bool {
    if outcome.stale_hits > 0 {
        println!(
            "WRONG: {name}: {} look-ups returned a value past its deadline",
            outcome.stale_hits
        );
    }
    if outcome.unaccounted != 0 {
        println!(
            "WRONG: {name}: {} values neither left in the cache nor notified once",
            outcome.unaccounted
        );
    }
    outcome.stale_hits == 0 && outcome.unaccounted == 0
}
