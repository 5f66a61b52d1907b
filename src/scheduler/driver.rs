//! The thread behind [`Scheduler::background`](super::Scheduler::background).
//!
//! # How it works
//!
//! A *driver* has a list of caches, each with the moment at which it wants to run. Its thread
//! starts when a moment is first asked for, sleeps until the earliest, runs that cache's
//! maintenance in bounded passes, and ends when its last cache has gone. It holds the caches
//! weakly. With nothing scheduled it sleeps without a timeout.
//!
//! # Invariants
//!
//! 1. `wake_at` of a member is the earliest moment asked for since its last run began.
//! 2. At most one thread per driver; `started` changes under the roster's lock.
//!
//! # Cost
//!
//! A request looks through the members, under a lock that the thread holds only while it does the
//! same.

use super::{Job, Task};
use crate::contain::contain;
use crate::sync::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering};
use std::fmt;
use std::io::Write;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// A thread to be, and the caches it runs.
pub(crate) struct Driver {
    roster: Mutex<Roster>,
    earlier: Condvar,
    numbers: AtomicU64,
    failed: AtomicBool,
}

struct Roster {
    members: Vec<Member>,
    started: bool,
    /// Until when the thread sleeps; `None` while it runs or sleeps without end.
    asleep_until: Option<Instant>,
}

struct Member {
    number: u64,
    task: Weak<dyn Task>,
    job: Job,
    wake_at: Option<Instant>,
}

impl Driver {
    pub(super) fn new() -> Self {
        Self {
            roster: Mutex::new(Roster {
                members: Vec::new(),
                started: false,
                asleep_until: None,
            }),
            earlier: Condvar::new(),
            numbers: AtomicU64::new(0),
            failed: AtomicBool::new(false),
        }
    }

    /// A number for the next member.
    pub(super) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether its thread could not be started, so that nobody will run its members.
    #[inline]
    pub(super) fn has_failed(&self) -> bool {
        // Relaxed: set once and for good; a late look costs one idle request.
        self.failed.load(Ordering::Relaxed)
    }

    pub(super) fn enlist(&self, number: u64, task: Weak<dyn Task>, job: Job) {
        self.roster.lock().members.push(Member {
            number,
            task,
            job,
            wake_at: None,
        });
    }

    pub(super) fn wake(self: &Arc<Self>, number: u64, after: Duration, name: Option<&str>) {
        // A moment beyond what the platform can express is as good as never.
        let Some(at) = Instant::now().checked_add(after) else {
            return;
        };
        let mut roster = self.roster.lock();
        let Some(member) = roster.members.iter_mut().find(|m| m.number == number) else {
            return;
        };
        if member.wake_at.is_some_and(|known| known <= at) {
            return;
        }
        member.wake_at = Some(at);
        if !roster.started {
            self.start(&mut roster, name);
        } else if roster.asleep_until.is_none_or(|until| at < until) {
            self.earlier.notify_one();
        }
    }

    fn start(self: &Arc<Self>, roster: &mut Roster, name: Option<&str>) {
        if self.failed.load(Ordering::Relaxed) {
            return;
        }
        let driver = Arc::clone(self);
        let thread = std::thread::Builder::new()
            .name(format!("wheelhouse-{}", name.unwrap_or("cache")))
            .spawn(move || driver.drive());
        match thread {
            Ok(_) => roster.started = true,
            Err(error) => {
                self.failed.store(true, Ordering::Relaxed);
                // Not `eprintln`, which panics where standard error is closed.
                _ = writeln!(
                    std::io::stderr(),
                    "wheelhouse: {}the background thread could not be started ({error}); maintenance is left to the callers",
                    name.map_or(String::new(), |name| format!("cache {name:?}: "))
                );
            }
        }
    }

    pub(super) fn leave(&self, number: u64) {
        let mut roster = self.roster.lock();
        roster.members.retain(|m| m.number != number);
        self.earlier.notify_one();
    }

    /// The thread's life.
    fn drive(&self) {
        let mut roster = self.roster.lock();
        loop {
            if roster.members.is_empty() {
                roster.started = false;
                return;
            }
            let next = roster
                .members
                .iter()
                .enumerate()
                .filter_map(|(index, member)| Some((member.wake_at?, index)))
                .min();
            let Some((at, index)) = next else {
                roster.asleep_until = None;
                self.earlier.wait(&mut roster);
                continue;
            };
            let now = Instant::now();
            if at > now {
                roster.asleep_until = Some(at);
                self.earlier.wait_for(&mut roster, at - now);
                continue;
            }
            let member = &mut roster.members[index];
            member.wake_at = None;
            let (task, job) = (member.task.clone(), member.job);
            // Not asleep: nobody needs to wake this thread up, it looks at all members again after
            // the run.
            roster.asleep_until = Some(now);
            drop(roster);
            run(&task, job);
            roster = self.roster.lock();
        }
    }
}

/// Runs a task, and drops it, which may drop the cache and everything of the user's in it. A panic
/// in there, in a ticker or in a destructor, has been reported by the panic hook; it must not end
/// the thread that other caches rely on.
fn run(task: &Weak<dyn Task>, job: Job) {
    contain(|| {
        let Some(task) = task.upgrade() else {
            return;
        };
        match job {
            // The run arranges its own next one.
            Job::Maintenance => _ = task.run_due(),
            Job::Delivery => task.deliver(),
        }
    });
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("failed", &self.failed)
            .finish()
    }
}
