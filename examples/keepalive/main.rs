//! The main job: a TCP server that holds one cache entry per connection and drops the ones that
//! fall silent.
//!
//! Every client says in its first bytes how long it may stay silent (as in MQTT), and the server
//! stores its socket in the cache with that expiry. Each received heartbeat is a read of the entry,
//! which extends the deadline. Nothing polls for dead connections: the cache calls the removal
//! listener with `Expired`, which shuts the socket, and the client sees the close. Most clients
//! beat on time, some fall silent at some point and wait to be dropped, some close by themselves.
//!
//! Run: `cargo run --release --example keepalive` (about 15 s), shorter: `-- --connections 200
//! --seconds 4`.
//!
//! Expect: a live line of counts, then a table: connections kept, dropped and closed, all judged
//! against the server's own record of the last heartbeat it received; wrongly dropped or kept (0);
//! how late the drops came after their deadlines; CPU time of the cache's own threads. The exit
//! status is 1 if anything was wrong.
//!
//! Three threads beside the cache's own: this one watches, one serves, one plays the clients.

mod clients;
mod cpu;
mod ledger;
#[path = "../common/mixed.rs"]
mod mixed;
mod plan;
#[path = "../common/quantiles.rs"]
mod quantiles;
mod report;
mod server;
mod threads;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use ledger::Ledger;
use plan::{Args, HELP, Plan};
use report::Report;

/// The cache's name, which its threads bear, too.
const CACHE_NAME: &str = "keepalive";

fn main() -> ExitCode {
    let outcome = match Args::parse(std::env::args().skip(1)) {
        Ok(Some(args)) => Plan::new(&args).and_then(|plan| run(&plan)),
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(message) => Err(message),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("keepalive: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the whole job; the answer is whether nothing was wrong.
fn run(plan: &Plan) -> Result<bool, String> {
    let ledger = Arc::new(Ledger::new(plan));
    let cache = server::session_cache(plan, &ledger);
    println!(
        "{} connections for {} s; each may be silent for {} to {} ms, beats every quarter of that; expiry resolution {} ms",
        plan.connections,
        plan.run_for.as_secs(),
        plan.longest_silence.as_millis() / 2,
        plan.longest_silence.as_millis(),
        cache.policy().expiry_resolution().as_millis(),
    );

    let (stop, stopped) = watch::channel(false);
    let (address, server) = server::start(cache.clone(), Arc::clone(&ledger), stopped.clone())?;
    let clients = clients::start(plan.clone(), address, Arc::clone(&ledger), stopped)?;

    watch_until_end(plan, &ledger);
    let verdicts = ledger.judge(ledger.now());
    let cache_cpu = cpu::of_cache_threads();
    // A close travels through the kernel to the clients' thread: give it a moment before they are
    // told to go home.
    wait_until(Duration::from_secs(3), || ledger.all_closes_seen());

    // The clients go first, so that the server still hears every close.
    stop.send_replace(true);
    clients
        .join()
        .map_err(|_| "the clients' thread panicked")??;
    server
        .join()
        .map_err(|_| "the server's thread panicked")??;
    cache.run_pending_tasks();

    let report = Report::new(plan, &verdicts, &ledger, cache.entry_count(), cache_cpu);
    print!("{report}");
    Ok(report.is_right())
}

/// Prints one line of counts per step: over itself on a terminal, one below the other in a log.
fn watch_until_end(plan: &Plan, ledger: &Ledger) {
    let terminal = std::io::stdout().is_terminal();
    let step = Duration::from_millis(if terminal { 100 } else { 1000 });
    let end = Instant::now() + plan.run_for;
    while Instant::now() < end {
        thread::sleep(step.min(end.saturating_duration_since(Instant::now())));
        let (start, finish) = if terminal {
            ("\r", "\x1b[K")
        } else {
            ("", "\n")
        };
        print!(
            "{start}{:4.1} s  {}{finish}",
            ledger.now().as_secs_f64(),
            ledger.counts()
        );
        // A live line that cannot be shown is no reason to end the job.
        _ = std::io::stdout().flush();
    }
    if terminal {
        println!();
    }
}

fn wait_until(limit: Duration, done: impl Fn() -> bool) {
    let end = Instant::now() + limit;
    while !done() && Instant::now() < end {
        thread::sleep(Duration::from_millis(5));
    }
}
