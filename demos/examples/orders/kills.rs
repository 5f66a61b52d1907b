//! Kills the program at random moments, starts it again, and checks the book.
//!
//! The program under test is this one, with `--state`. A kill is SIGKILL: nothing gets a chance to
//! tidy up. Some moments lie so close together that the next kill hits the start, and after some
//! kills the program stays down for a while, so that orders fall due meanwhile. One more stop is by
//! SIGTERM.
//!
//! The witness is not the state but the receipts: what customers were told. Each run writes them to
//! a file of its own, and a kill leaves what was written. Afterwards:
//!
//! * each order of the plan is in the book exactly once;
//! * an order with a receipt has the deadline of the receipt in the book;
//! * an order with a receipt for its payment is paid in the book, not closed;
//! * none was closed before its deadline, and none later than the bound after its deadline, or
//!   after the start that followed a kill.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use crate::audit::Audit;
use crate::log::{self, Line, Unreadable, What};
use crate::market::Plan;
use crate::mixed::share;
use crate::state_file::beside;

/// When the program was down, in nanoseconds since 1970.
struct Down {
    from: u64,
    until: u64,
}

pub(crate) fn run(plan: &Plan, kills: u32, seed: Option<u64>, bound: Duration) -> ExitCode {
    let seed = seed.unwrap_or_else(|| log::now() ^ u64::from(std::process::id()));
    let folder = std::env::temp_dir().join(format!("orders-kills-{}", std::process::id()));
    println!(
        "{} orders in {} s, {kills} kills, seed {seed}, in {}",
        plan.orders,
        plan.seconds,
        folder.display()
    );
    let right = std::fs::create_dir(&folder)
        .map_err(|error| error.to_string())
        .and_then(|()| check(plan, kills, seed, bound, &folder));
    match right {
        Ok(true) => {
            let _ = std::fs::remove_dir_all(&folder);
            ExitCode::SUCCESS
        }
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!(
                "{error}\nverdict: WRONG; see the files in {}",
                folder.display()
            );
            ExitCode::FAILURE
        }
    }
}

fn check(
    plan: &Plan,
    kills: u32,
    seed: u64,
    bound: Duration,
    folder: &Path,
) -> Result<bool, String> {
    let program = Program {
        plan,
        bound,
        state: folder.join("orders.state"),
    };
    // Most moments lie in the first half, in which orders are placed; orders are open at each.
    let span = Duration::from_secs(plan.seconds).mul_f64(0.6);
    let mut moments: Vec<Duration> = (0..=kills)
        .map(|kill| span.mul_f64(share(seed ^ u64::from(kill), 1)))
        .collect();
    moments.sort_unstable();
    let gentle = (share(seed, 2) * f64::from(kills + 1)) as usize;

    let began = Instant::now();
    let mut downs: Vec<Down> = Vec::new();
    for (run, &moment) in moments.iter().enumerate() {
        let mut child = program.start(run)?;
        if let Some(down) = downs.last_mut() {
            down.until = child.1;
        }
        std::thread::sleep(moment.saturating_sub(began.elapsed()));
        let early = child.0.try_wait().map_err(|error| error.to_string())?;
        if let Some(status) = early {
            return Err(format!(
                "run {run} ended by itself, {status}: {}",
                program.said(run)
            ));
        }
        let from = log::now();
        let how = if run == gentle {
            let status = terminate(&mut child.0).map_err(|error| error.to_string())?;
            match status.code() {
                Some(0) => "stopped by SIGTERM",
                // The previous moment was so close that the start did not listen yet.
                None => "killed by SIGTERM",
                Some(_) => return Err(format!("SIGTERM: {status}: {}", program.said(run))),
            }
        } else {
            let killed = child.0.kill().and_then(|()| child.0.wait());
            killed.map_err(|error| error.to_string())?;
            "killed"
        };
        // Every third time the program stays down, for up to a twentieth of the run.
        let pause = match run % 3 {
            0 => Duration::from_secs(plan.seconds).mul_f64(share(seed ^ run as u64, 3) / 20.0),
            _ => Duration::ZERO,
        };
        println!(
            "{:6.2} s  {how} ({} of {}), down for {:.2} s",
            began.elapsed().as_secs_f64(),
            run + 1,
            moments.len(),
            pause.as_secs_f64()
        );
        std::thread::sleep(pause);
        downs.push(Down { from, until: from });
    }
    let last = moments.len();
    let (mut child, started) = program.start(last)?;
    if let Some(down) = downs.last_mut() {
        down.until = started;
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    println!("what the last run said:\n{}", program.said(last));
    if !status.success() {
        return Err(format!("the last run ended with {status}"));
    }
    println!("all {} runs together:", last + 1);
    audit(&program, &downs, last)
}

fn audit(program: &Program<'_>, downs: &[Down], last: usize) -> Result<bool, String> {
    let read = |path: &Path| match log::read(path) {
        Ok(read) => Ok(read.lines),
        // Killed before it could write any.
        Err(Unreadable::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(format!("{}: {error}", path.display())),
    };
    let book = read(&beside(&program.state, "book"))?;
    let base = |line: &Line| Some(base(line, downs, program.bound.as_nanos() as u64));
    let mut audit = Audit::of(&book, program.plan.orders, program.bound, base);
    let mut receipts = 0;
    for run in 0..=last {
        for receipt in read(&program.file("receipts", run))? {
            receipts += 1;
            let number = receipt.number;
            let ends = book.iter().filter(|line| line.number == number);
            for end in ends {
                if end.due != receipt.due {
                    audit.complain(format!(
                        "order {number}: the receipt and the book tell different deadlines"
                    ));
                }
                if receipt.what == What::Paid && end.what != What::Paid {
                    audit.complain(format!("order {number} has a receipt, but was closed"));
                }
            }
        }
    }
    // Every order had its receipt, except where a kill came just before it was written.
    let expected = u64::from(program.plan.orders) / 2;
    if receipts < expected {
        audit.complain(format!("{receipts} receipts only: the witness is missing"));
    }
    println!("receipts checked                    {receipts}");
    Ok(audit.print())
}

/// From when on the closing counts as late: from the deadline, or from the start that followed a
/// kill. A program that was late already before the kill is not excused by it.
fn base(line: &Line, downs: &[Down], bound: u64) -> u64 {
    downs.iter().fold(line.due, |base, down| {
        if down.from <= base + bound && base < down.until && down.until <= line.at {
            down.until
        } else {
            base
        }
    })
}

/// The program under test.
struct Program<'a> {
    plan: &'a Plan,
    bound: Duration,
    state: PathBuf,
}

impl Program<'_> {
    /// Starts it; the answer has the moment just before.
    fn start(&self, run: usize) -> Result<(Child, u64), String> {
        let start = || {
            let log = File::create(self.file("log", run))?;
            let mut command = Command::new(std::env::current_exe()?);
            command
                .args(["--orders", &self.plan.orders.to_string()])
                .args(["--seconds", &self.plan.seconds.to_string()])
                .args(["--bound-ms", &self.bound.as_millis().to_string()])
                .arg("--state")
                .arg(&self.state)
                .arg("--receipts")
                .arg(self.file("receipts", run))
                .stdout(log.try_clone()?)
                .stderr(log);
            let now = log::now();
            Ok((command.spawn()?, now))
        };
        start().map_err(|error: io::Error| format!("cannot start the program: {error}"))
    }

    fn file(&self, name: &str, run: usize) -> PathBuf {
        self.state.with_file_name(format!("{name}.{run}"))
    }

    /// What a run printed.
    fn said(&self, run: usize) -> String {
        std::fs::read_to_string(self.file("log", run)).unwrap_or_else(|error| error.to_string())
    }
}

/// Asks the program to stop, by the command `kill`.
fn terminate(child: &mut Child) -> io::Result<ExitStatus> {
    Command::new("kill")
        .args(["-TERM", &child.id().to_string()])
        .status()?;
    child.wait()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_excuses_what_it_delayed_and_nothing_else() {
        let down = |from, until| Down { from, until };
        let closed = |due, at| Line {
            what: What::Closed,
            number: 1,
            at,
            due,
        };
        let downs = [down(100, 200), down(205, 300)];
        // Due while the program was down, or killed again before it could close.
        assert_eq!(base(&closed(150, 204), &downs, 10), 200);
        assert_eq!(base(&closed(150, 310), &downs, 10), 300);
        // Due just before the kill.
        assert_eq!(base(&closed(95, 203), &downs, 10), 200);
        // Due long before the kill: late already.
        assert_eq!(base(&closed(50, 203), &downs, 10), 50);
        // Closed before the kill, or due after the start.
        assert_eq!(base(&closed(95, 99), &downs, 10), 95);
        assert_eq!(base(&closed(301, 302), &downs, 10), 301);
    }
}
