//! The run in real time, with a state that survives a crash.

use std::collections::HashSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use wheelhouse::{Cache, Ended, RemovalCause, Restore, Restored, SavedEntry, Snapshot};

use crate::audit::Audit;
use crate::clerk::Clerk;
use crate::log::{self, Line, Log, What, between, nanos};
use crate::market::{Event, Kind, Plan};
use crate::state_file::Open;
use crate::store::{Found, Store};

const SAVE_EVERY: Duration = Duration::from_secs(1);
/// The longest sleep of the loop, which looks for signals.
const NAP: Duration = Duration::from_millis(20);
/// What an order gets on top of its time, so that it is never closed early. The deadline on disk is
/// one of the system's clock; the cache counts on a clock of its own, and the two differ slightly.
const CLOCKS: Duration = Duration::from_millis(2);
/// How long the end of an order that has left the cache may take until it is in the book.
const PATIENCE: Duration = Duration::from_secs(30);

/// Plays the plan, from where the state in the file `path` stands.
pub(crate) fn run(plan: &Plan, path: &Path, receipts: Option<&Path>, bound: Duration) -> ExitCode {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // A second signal ends the program at once: after a crash it continues as well.
        let registered =
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)));
        if let Err(error) = registered {
            eprintln!("cannot listen to signals: {error}");
            return ExitCode::FAILURE;
        }
    }
    let started = log::now();
    let receipts = match receipts.map(Log::open).transpose() {
        Ok(receipts) => receipts.map(|(log, _)| log),
        Err(error) => {
            eprintln!("cannot write receipts: {error}");
            return ExitCode::from(2);
        }
    };
    let (store, found) = match Store::open(path, plan) {
        Ok(opened) => opened,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let mut shop = Shop::open(plan, store, found, receipts);
    let finished = match shop.play(&stop) {
        Ok(finished) => finished,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let left = shop.cache.entry_count();
    let book = shop.close();
    if !finished {
        println!("stopped by a signal, {left} orders open: start again to go on");
        return ExitCode::SUCCESS;
    }
    // How late earlier runs were cannot be told: when they were killed is not known here.
    let base = |line: &Line| (line.at >= started).then(|| line.due.max(started));
    if Audit::of(&book, plan.orders, bound, base).print() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

struct Shop {
    cache: Cache<u32, Open>,
    store: Store,
    clerk: Clerk,
    receipts: Option<Log>,
    events: Vec<Event>,
    /// The first event that has not been looked at in this run.
    next: usize,
    /// Orders that were placed, in any run.
    placed: HashSet<u32>,
    /// Orders whose end was not in the book at the last save.
    open: HashSet<u32>,
    save_at: Instant,
}

impl Shop {
    fn open(plan: &Plan, store: Store, found: Found, receipts: Option<Log>) -> Self {
        let now = log::now();
        let Found {
            book,
            ends,
            orders,
            placed: since,
            payments,
            torn,
            fresh,
        } = found;
        let open: HashSet<u32> = orders
            .iter()
            .map(|entry| entry.key)
            .chain(since.iter().map(|line| line.number))
            .collect();
        let placed = open.iter().copied();
        let placed = placed.chain(ends.iter().map(|line| line.number)).collect();
        let (ended, replayed) = (ends.len(), since.len());
        let clerk = Clerk::new(book, ends);
        let cache = order_cache(clerk.inbox());

        // Orders that fell due meanwhile are told to the listener, which closes them.
        let how = Restore::default().ended(Ended::Tell);
        let age = between(nanos(orders.taken_at()), now);
        let from_snapshot = cache.restore(orders, how);
        let since: Snapshot<u32, Open> = since.iter().map(|line| entry(line, now)).collect();
        let from_journal = cache.restore(since, how);
        if fresh {
            println!("a new state");
        } else {
            let told = |restored: Restored| {
                format!(
                    "{} open, {} fell due meanwhile",
                    restored.restored, restored.expired
                )
            };
            println!(
                "going on: {ended} orders have ended\n\
                 snapshot of {:.3} s ago: {}\n\
                 journal since: {replayed} orders placed: {}; {payments} payments; {torn} bytes \
                 of a torn line dropped",
                age.as_secs_f64(),
                told(from_snapshot),
                told(from_journal),
            );
        }
        Self {
            cache,
            store,
            clerk,
            receipts,
            events: plan.events(),
            next: 0,
            placed,
            open,
            // Where kills come so often that no run lasts a second, the starts save.
            save_at: Instant::now() + SAVE_EVERY.saturating_sub(age),
        }
    }

    /// Plays until all orders have ended, which is told as true, or until a signal.
    fn play(&mut self, stop: &AtomicBool) -> Result<bool, String> {
        loop {
            self.play_due_events()?;
            let finished = self.next == self.events.len() && self.clerk.ended()? >= self.orders();
            let stopped = stop.load(Ordering::Relaxed);
            if finished || stopped || Instant::now() >= self.save_at {
                let bytes = self.save()?;
                self.print_progress(bytes);
                self.save_at = Instant::now() + SAVE_EVERY;
            }
            if finished || stopped {
                return Ok(finished);
            }
            let event = self.events.get(self.next);
            let to_event = event.map_or(NAP, |event| event.at.saturating_sub(self.elapsed()));
            let to_save = self.save_at.saturating_duration_since(Instant::now());
            std::thread::sleep(NAP.min(to_event).min(to_save));
        }
    }

    fn orders(&self) -> usize {
        let placing = |event: &&Event| matches!(event.kind, Kind::Place(_));
        self.events.iter().filter(placing).count()
    }

    /// Since the first run began: the time of the plan.
    fn elapsed(&self) -> Duration {
        between(self.store.began(), log::now())
    }

    /// Plays what is due, and what customers could not do while the program was down.
    fn play_due_events(&mut self) -> Result<(), String> {
        let elapsed = self.elapsed();
        let due = self.events[self.next..].partition_point(|event| event.at <= elapsed);
        let now = log::now();
        let (mut new, mut payers) = (Vec::new(), Vec::new());
        for event in &self.events[self.next..self.next + due] {
            let number = event.number;
            match event.kind {
                Kind::Place(order) if self.placed.insert(number) => new.push(Line {
                    what: What::Placed,
                    number,
                    at: now,
                    due: now + order.time_to_pay.as_nanos() as u64,
                }),
                Kind::Place(_) => {}
                Kind::Pay { .. } => payers.push(number),
            }
        }
        self.next += due;
        self.place(&new)?;
        self.pay(&payers)
    }

    fn place(&mut self, lines: &[Line]) -> Result<(), String> {
        if lines.is_empty() {
            return Ok(());
        }
        self.store.note(lines)?;
        for line in lines {
            let order = Open {
                placed: line.at,
                due: line.due,
            };
            let left = between(log::now(), line.due) + CLOCKS;
            self.cache.insert_with_ttl(line.number, order, left);
            self.open.insert(line.number);
        }
        self.receipt(lines)
    }

    /// The cache decides between a payment and the deadline: what it gives out is not closed.
    fn pay(&mut self, numbers: &[u32]) -> Result<(), String> {
        let at = log::now();
        let taken = |number: &u32| {
            let order = self.cache.remove(number)?;
            Some(Line {
                what: What::Paid,
                number: *number,
                at,
                due: order.due,
            })
        };
        let lines: Vec<Line> = numbers.iter().filter_map(taken).collect();
        if lines.is_empty() {
            return Ok(());
        }
        self.store.note(&lines)?;
        let inbox = self.clerk.inbox();
        for line in &lines {
            // A clerk that has given up has said why: `Clerk::ended` tells.
            let _ = inbox.send(*line);
        }
        self.receipt(&lines)
    }

    fn receipt(&mut self, lines: &[Line]) -> Result<(), String> {
        match &mut self.receipts {
            Some(receipts) => receipts.append_unsynced(lines),
            None => Ok(()),
        }
    }

    /// Saves the cache; the answer is the size of the file.
    fn save(&mut self) -> Result<usize, String> {
        self.store.begin_journal()?;
        self.cache.run_pending_tasks();
        let snapshot = self.cache.snapshot();
        // Orders that have left the cache are not in the snapshot, and the journal that has them
        // goes. So their ends must be in the book first.
        let staying: HashSet<u32> = snapshot.iter().map(|entry| entry.key).collect();
        let left: Vec<u32> = self.open.difference(&staying).copied().collect();
        self.clerk.wait_for(&left, PATIENCE)?;
        self.open = staying;
        let bytes = self.store.save(snapshot)?;
        self.store.cut()?;
        Ok(bytes)
    }

    fn print_progress(&self, bytes: usize) {
        let (paid, closed) = self.clerk.counts();
        println!(
            "{:6.1} s  {:6} placed  {:6} open  {paid:6} paid  {closed:6} closed  saved {:.1} kB",
            self.elapsed().as_secs_f64(),
            self.placed.len(),
            self.open.len(),
            bytes as f64 / 1e3
        );
    }

    /// Drops the cache, and with it the listener; then all ends are written.
    fn close(self) -> Vec<Line> {
        drop(self.cache);
        self.clerk.close()
    }
}

fn order_cache(ends: Sender<Line>) -> Cache<u32, Open> {
    Cache::builder()
        .name("orders")
        .expiry_resolution(Duration::from_millis(4))
        .removal_listener(move |&number: &u32, order: &Open, cause: RemovalCause| {
            // A payment is told by the code that takes it, when the journal has it.
            if cause == RemovalCause::Expired {
                let line = Line {
                    what: What::Closed,
                    number,
                    at: log::now(),
                    due: order.due,
                };
                let _ = ends.send(line);
            }
        })
        .build()
}

/// An order that the journal knows of, as an entry that a cache can restore at `now`.
fn entry(line: &Line, now: u64) -> SavedEntry<u32, Open> {
    let left = between(now, line.due);
    let order = Open {
        placed: line.at,
        due: line.due,
    };
    let mut entry = SavedEntry::new(line.number, order);
    entry.time_left = Some(if left.is_zero() { left } else { left + CLOCKS });
    entry.age = between(line.at, now);
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const PLAN: Plan = Plan {
        orders: 3,
        seconds: 86_400,
    };

    fn shop(path: &Path) -> Shop {
        let (store, found) = Store::open(path, &PLAN).unwrap();
        Shop::open(&PLAN, store, found, None)
    }

    fn line(number: u32, due_in: Duration) -> Line {
        let at = log::now();
        Line {
            what: What::Placed,
            number,
            at,
            due: at + due_in.as_nanos() as u64,
        }
    }

    #[test]
    fn orders_go_on_where_they_were_and_a_save_waits_for_the_book() {
        let folder = std::env::temp_dir().join(format!("orders-live-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("state");
        let hour = Duration::from_secs(3600);

        let mut first = shop(&path);
        first
            .place(&[line(0, hour), line(1, hour), line(2, hour)])
            .unwrap();
        // An order that has left the cache, and whose end the clerk cannot count yet.
        let desk = first.clerk.desk();
        let held = desk.hold();
        first.pay(&[1, 1]).unwrap();
        thread::scope(|scope| {
            let save = scope.spawn(|| first.save().unwrap());
            thread::sleep(Duration::from_millis(200));
            assert!(!save.is_finished(), "the journal may be all that knows it");
            drop(held);
            save.join().unwrap();
        });
        first.place(&[line(3, Duration::ZERO)]).unwrap();
        // As after a kill: nothing is saved. Order 3 may be closed by the first run or the second.
        first.close();

        let second = shop(&path);
        assert_eq!(second.placed, HashSet::from([0, 1, 2, 3]));
        second.clerk.wait_for(&[1, 3], hour).unwrap();
        let left = second.cache.get_ref(&0).unwrap().time_left().unwrap();
        assert!(left <= hour + CLOCKS && left > hour / 2, "{left:?}");
        assert_eq!(second.cache.get(&1), None);
        assert!(second.cache.contains_key(&2));
        let mut ends: Vec<_> = second
            .close()
            .iter()
            .map(|line| (line.number, line.what))
            .collect();
        ends.sort_by_key(|end| end.0);
        assert_eq!(ends, [(1, What::Paid), (3, What::Closed)]);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
