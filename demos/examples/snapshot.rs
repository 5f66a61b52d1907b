//! A cache that survives a restart: saved to a file by one process, restored by the next.
//!
//! Run: `cargo run --release -p wheelhouse-examples --example snapshot`
//!
//! The first process fills a cache of 1,000 sessions: some live for an hour, some for a moment,
//! some for ever. It reads a hundred of them again and again, so that they are hot. Another 1,000
//! fall due while the process stops; a removal listener closes a session that has ended. The
//! process stops so that no session is closed and saved too. It saves a snapshot with postcard, in
//! a way that a crash at any moment leaves the old file or the new one, and starts this program
//! again. The second process has a cache half as large. It restores, and prints what came back.
//!
//! Expect: each session is closed or saved, none is both; what had a moment to live has ended
//! during the downtime; of the others the 500 hottest are back, among them the hundred, and an hour
//! is less than an hour now. The exit status is 1 if anything was wrong.

use std::collections::HashSet;
use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use clap::Parser;
use serde::{Deserialize, Serialize};
use wheelhouse::{Cache, Restore, Snapshot};

const SESSIONS: u64 = 1_000;
/// How many more fall due while the process stops, one every tenth of a millisecond.
const ENDING: u64 = 1_000;
const HOUR: Duration = Duration::from_secs(3600);
const MOMENT: Duration = Duration::from_secs(1);

/// A cache that is saved to a file and restored by another process
#[derive(Parser)]
struct Args {
    /// Restore this file, as the second process does
    #[arg(long, value_name = "FILE")]
    restore: Option<PathBuf>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Session {
    user: String,
}

fn main() -> ExitCode {
    let done = match Args::parse().restore {
        Some(file) => restore(&file),
        None => save_and_start_again(),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The first process.
fn save_and_start_again() -> Result<bool, Box<dyn Error>> {
    // The sessions that were closed. The listener closes a session that has left the cache; while
    // the process stops, it only sends its number.
    let closed = Arc::new(Mutex::new(HashSet::new()));
    let close = {
        let closed = Arc::clone(&closed);
        move |id| assert!(closed.lock().unwrap().insert(id), "closed once")
    };
    let stopping = Arc::new(AtomicBool::new(false));
    let (sender, late) = mpsc::channel();
    let (stops, closes) = (Arc::clone(&stopping), close.clone());
    let cache: Cache<u64, Session> = Cache::builder()
        .max_capacity(SESSIONS + ENDING)
        .expiry_resolution(Duration::from_millis(1))
        .removal_listener(move |&id: &u64, _: &Session, _| {
            if stops.load(Ordering::SeqCst) {
                sender.send(id).expect("the receiver outlives the cache");
            } else {
                closes(id);
            }
        })
        .build();
    for id in 0..SESSIONS {
        let user = format!("user {id}");
        match id % 10 {
            0..7 => cache.insert_with_ttl(id, Session { user }, HOUR),
            7..9 => cache.insert_with_ttl(id, Session { user }, MOMENT),
            _ => cache.insert(id, Session { user }),
        }
    }
    cache.run_pending_tasks();
    for _ in 0..5 {
        for id in hot() {
            cache.get(&id);
        }
        cache.run_pending_tasks();
    }
    for id in SESSIONS..SESSIONS + ENDING {
        let user = format!("user {id}");
        let life = Duration::from_micros(100 * (id - SESSIONS + 1));
        cache.insert_with_ttl(id, Session { user }, life);
    }
    thread::sleep(Duration::from_millis(30));

    // The stop: what is due now is removed, and the drop waits until the listener has heard of it.
    stopping.store(true, Ordering::SeqCst);
    let mut snapshot = cache.snapshot();
    cache.run_pending_tasks();
    drop(cache);
    let late: HashSet<u64> = late.try_iter().collect();
    snapshot.retain(|saved| !late.contains(&saved.key));
    println!(
        "stopped  {} sessions closed before, {} now",
        closed.lock().unwrap().len(),
        late.len()
    );
    late.into_iter().for_each(close);
    let closed = closed.lock().unwrap();
    let both = snapshot.iter().any(|saved| closed.contains(&saved.key));
    let exact = !both && (closed.len() + snapshot.len()) as u64 == SESSIONS + ENDING;
    println!(
        "each session is {}",
        if exact {
            "closed or saved, once"
        } else {
            "NOT closed or saved once"
        }
    );

    let file = std::env::temp_dir().join(format!("sessions-{}.snapshot", std::process::id()));
    let bytes = postcard::to_stdvec(&snapshot)?;
    replace(&file, &bytes)?;
    println!(
        "saved    {} sessions, {} bytes, to {}",
        snapshot.len(),
        bytes.len(),
        file.display()
    );

    thread::sleep(MOMENT);
    let again = Command::new(std::env::current_exe()?)
        .arg("--restore")
        .arg(&file)
        .status()?;
    fs::remove_file(&file)?;
    Ok(exact && again.success())
}

/// The sessions that are read often.
fn hot() -> impl Iterator<Item = u64> {
    (0..SESSIONS).step_by(10)
}

/// Writes a file as a whole: under another name first, which then takes the place of the old file.
fn replace(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let new = file.with_extension("new");
    let mut writer = File::create(&new)?;
    writer.write_all(bytes)?;
    writer.sync_all()?;
    fs::rename(&new, file)?;
    // The name, too, must survive a power failure. Only Unix can sync a directory.
    match file.parent() {
        Some(directory) if cfg!(unix) => File::open(directory)?.sync_all(),
        _ => Ok(()),
    }
}

/// The second process.
fn restore(file: &Path) -> Result<bool, Box<dyn Error>> {
    let snapshot: Snapshot<u64, Session> = postcard::from_bytes(&fs::read(file)?)
        .map_err(|error| format!("{} is not a snapshot: {error}", file.display()))?;
    let age = snapshot.taken_at().elapsed().unwrap_or_default();
    println!(
        "read     {} sessions, saved {:.1} s ago",
        snapshot.len(),
        age.as_secs_f64()
    );

    let ended = snapshot.len() as u64 - SESSIONS * 8 / 10;
    let cache: Cache<u64, Session> = Cache::new(SESSIONS / 2);
    let restored = cache.restore(snapshot, Restore::default());
    println!("restored {:4} of the hottest", restored.restored);
    println!("expired  {:4} during the downtime", restored.expired);
    println!("refused  {:4} of the coldest", restored.refused);
    let hot_ones = hot().filter(|id| cache.contains_key(id)).count();
    println!("{hot_ones} of the 100 sessions that were read often are back");
    let Some(session) = cache.get_ref(&0) else {
        println!("session 0 is not back");
        return Ok(false);
    };
    let left = session.time_left().unwrap_or(Duration::MAX);
    println!(
        "session 0 of {} has {:.1} s left of its hour",
        session.user,
        left.as_secs_f64()
    );

    let expected = (500, ended, 0, 300);
    let restored = (
        restored.restored,
        restored.expired,
        restored.present,
        restored.refused,
    );
    // At least the downtime is gone, and not more than a slow machine takes.
    let lived = HOUR.saturating_sub(left);
    let right = restored == expected
        && hot_ones == 100
        && session.user == "user 0"
        && lived >= MOMENT
        && lived < Duration::from_secs(60);
    println!("{}", if right { "as it should be" } else { "WRONG" });
    Ok(right)
}
