//! What a run keeps on disk, and in which order it writes.
//!
//! A save goes in three steps, and a crash may come between any two of them:
//!
//! 1. [`Store::begin_journal`] makes journal `N + 1`. Lines go there from now on. Then the snapshot
//!    is taken: it contains what the journals up to `N` say. After a crash, the old snapshot is
//!    read, and both journals.
//! 2. [`Store::save`] replaces the state by the snapshot, which names journal `N + 1` as the first
//!    to read. After a crash, the older journals are still there, and are not read.
//! 3. [`Store::cut`] removes them.
//!
//! Rules that hold at every moment:
//!
//! 1. An order that has not ended is in the snapshot, or in a journal that the state does not make
//!    obsolete. So step 2 comes only after the ends of all orders that had left the cache before
//!    the snapshot are in the book (`live.rs` waits for that).
//! 2. An order whose end is in the book is not restored. So it ends once.
//! 3. A payment counts from the moment when its line in the journal is synced. The start writes it
//!    into the book if a crash came before that.

use std::collections::HashSet;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use wheelhouse::Snapshot;

use crate::log::{self, Line, Log, Unreadable, What};
use crate::market::Plan;
use crate::state_file::{Open, Saved, beside, decode, encode, replace, sync_directory};

pub(crate) struct Store {
    path: PathBuf,
    plan: Plan,
    began: u64,
    journal: Log,
    /// The number of the journal that is written.
    newest: u64,
}

/// What a start finds.
pub(crate) struct Found {
    pub(crate) book: Log,
    /// All ends, of all runs.
    pub(crate) ends: Vec<Line>,
    /// The snapshot, without the orders that have ended since.
    pub(crate) orders: Snapshot<u32, Open>,
    /// Orders placed since the snapshot, without those that have ended.
    pub(crate) placed: Vec<Line>,
    /// Payments that the journal knew of and the book did not.
    pub(crate) payments: usize,
    /// Bytes of lines that a crash cut off.
    pub(crate) torn: usize,
    /// This is the first run.
    pub(crate) fresh: bool,
}

impl Store {
    /// Opens a state, or makes one. The error says what is wrong, and what to do.
    pub(crate) fn open(path: &Path, plan: &Plan) -> Result<(Self, Found), String> {
        let unusable = |wrong: &dyn Display| {
            format!(
                "{} {wrong}\nTo begin anew, move {0} and the files {0}.* away, or give --state \
                 another file. To go on, put back a copy of all of them.",
                path.display()
            )
        };
        let bytes = match std::fs::read(path) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
        };
        let fresh = bytes.is_none();
        let saved = match bytes {
            Some(bytes) => decode(&bytes).map_err(|wrong| unusable(&wrong))?,
            None => begin(path, plan).map_err(|wrong| unusable(&wrong))?,
        };
        if saved.plan != *plan {
            return Err(unusable(&format_args!(
                "is of a run with --orders {} --seconds {}: give the same to go on with it.",
                saved.plan.orders, saved.plan.seconds
            )));
        }
        let mut journals = journals(path).map_err(|error| unusable(&error))?;
        for obsolete in journals.extract_if(.., |number| *number < saved.journal) {
            // A crash came before step 3.
            remove(path, obsolete).map_err(|error| unusable(&error))?;
        }
        if journals.first() != Some(&saved.journal) {
            let wrong = format!("needs the journal {}, which is missing", saved.journal);
            return Err(unusable(&wrong));
        }
        let book_path = beside(path, "book");
        if !book_path.exists() {
            return Err(unusable(&"needs its book, which is missing"));
        }
        let open = |path: &Path| {
            Log::open(path).map_err(|error| match error {
                Unreadable::Io(error) => format!("cannot use {}: {error}", path.display()),
                Unreadable::Damaged(line) => unusable(&format_args!(
                    "cannot be used: {} is damaged in line {line}",
                    path.display()
                )),
            })
        };
        let (mut book, read) = open(&book_path)?;
        let (mut ends, mut torn) = (read.lines, read.torn);
        let mut since = Vec::new();
        let mut newest = None;
        for &number in &journals {
            let (log, read) = open(&journal_path(path, number))?;
            since.extend(read.lines);
            torn += read.torn;
            newest = Some((log, number));
        }
        let (journal, newest) = newest.ok_or_else(|| unusable(&"has no journal"))?;

        let mut ended: HashSet<u32> = ends.iter().map(|line| line.number).collect();
        let (paid, placed): (Vec<Line>, Vec<Line>) =
            since.into_iter().partition(|line| line.what == What::Paid);
        let payments: Vec<Line> = paid
            .into_iter()
            .filter(|line| ended.insert(line.number))
            .collect();
        book.append(&payments)?;
        ends.extend(&payments);
        let mut orders = saved.orders;
        orders.retain(|entry| !ended.contains(&entry.key));
        let placed = placed
            .into_iter()
            .filter(|line| !ended.contains(&line.number))
            .collect();
        let store = Self {
            path: path.to_owned(),
            plan: saved.plan,
            began: saved.began,
            journal,
            newest,
        };
        let payments = payments.len();
        let found = Found {
            book,
            ends,
            orders,
            placed,
            payments,
            torn,
            fresh,
        };
        Ok((store, found))
    }

    /// When the first run began, in nanoseconds since 1970.
    pub(crate) fn began(&self) -> u64 {
        self.began
    }

    /// Writes into the journal: when this returns, it stays.
    pub(crate) fn note(&mut self, lines: &[Line]) -> Result<(), String> {
        self.journal.append(lines)
    }

    /// The first step of a save.
    pub(crate) fn begin_journal(&mut self) -> Result<(), String> {
        let number = self.newest + 1;
        let path = journal_path(&self.path, number);
        let (journal, _) =
            Log::open(&path).map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        sync_directory(&self.path).map_err(|error| self.failed(&error))?;
        (self.journal, self.newest) = (journal, number);
        Ok(())
    }

    /// The second step of a save; the answer is the size of the file.
    pub(crate) fn save(&mut self, orders: Snapshot<u32, Open>) -> Result<usize, String> {
        let bytes = encode(&Saved {
            plan: self.plan.clone(),
            began: self.began,
            journal: self.newest,
            orders,
        });
        replace(&self.path, &bytes).map_err(|error| self.failed(&error))?;
        Ok(bytes.len())
    }

    /// The third step of a save.
    pub(crate) fn cut(&mut self) -> Result<(), String> {
        let journals = journals(&self.path).map_err(|error| self.failed(&error))?;
        for obsolete in journals.into_iter().filter(|&number| number < self.newest) {
            remove(&self.path, obsolete).map_err(|error| self.failed(&error))?;
        }
        Ok(())
    }

    fn failed(&self, error: &io::Error) -> String {
        format!("cannot save to {}: {error}", self.path.display())
    }
}

/// Makes the files of a new run. The state comes last: before it is there, the others are empty.
fn begin(path: &Path, plan: &Plan) -> Result<Saved, String> {
    let text = |error: io::Error| format!("cannot be made: {error}");
    let book = beside(path, "book");
    let mut kept = vec![book.clone()];
    for number in journals(path).map_err(text)? {
        kept.push(journal_path(path, number));
    }
    for file in kept {
        if std::fs::metadata(&file).is_ok_and(|meta| meta.len() > 0) {
            return Err(format!("is missing, but {} is there.", file.display()));
        }
    }
    for file in [book, journal_path(path, 1)] {
        std::fs::File::create(&file)
            .and_then(|file| file.sync_all())
            .map_err(text)?;
    }
    let saved = Saved {
        plan: plan.clone(),
        began: log::now(),
        journal: 1,
        orders: Vec::new().into_iter().collect(),
    };
    replace(path, &encode(&saved)).map_err(text)?;
    Ok(saved)
}

fn journal_path(path: &Path, number: u64) -> PathBuf {
    beside(path, &format!("journal.{number}"))
}

/// The numbers of the journals that are there, in order.
fn journals(path: &Path) -> io::Result<Vec<u64>> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let prefix = beside(Path::new(path.file_name().unwrap_or_default()), "journal.");
    let prefix = prefix.to_string_lossy();
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name();
        let number = name.to_string_lossy();
        numbers.extend(
            number
                .strip_prefix(&*prefix)
                .and_then(|number| number.parse::<u64>().ok()),
        );
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn remove(path: &Path, journal: u64) -> io::Result<()> {
    std::fs::remove_file(journal_path(path, journal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicU32, Ordering};
    use wheelhouse::Cache;

    const PLAN: Plan = Plan {
        orders: 10,
        seconds: 10,
    };

    /// A folder of its own for each test.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("orders-store-{}-{number}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            std::fs::create_dir(&folder).unwrap();
            Self(folder)
        }

        fn state(&self) -> PathBuf {
            self.0.join("state")
        }

        fn open(&self) -> (Store, Found) {
            Store::open(&self.state(), &PLAN).unwrap()
        }

        /// What is open, by the snapshot and the journals together.
        fn open_orders(&self) -> BTreeSet<u32> {
            let (_, found) = self.open();
            let saved = found.orders.iter().map(|entry| entry.key);
            saved
                .chain(found.placed.iter().map(|line| line.number))
                .collect()
        }

        fn refused(&self) -> String {
            Store::open(&self.state(), &PLAN).map(|_| ()).unwrap_err()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn line(what: What, number: u32) -> Line {
        Line {
            what,
            number,
            at: 1,
            due: 2,
        }
    }

    fn snapshot(numbers: &[u32]) -> Snapshot<u32, Open> {
        let cache = Cache::builder().build();
        for &number in numbers {
            cache.insert(number, Open { placed: 1, due: 2 });
        }
        cache.snapshot()
    }

    /// Orders 1 to 3 were placed before a save, 4 after it, 1 is closed, 2 is paid.
    fn some_orders(folder: &Folder) -> Store {
        let (mut store, mut found) = folder.open();
        assert!(found.fresh);
        store
            .note(&[1, 2, 3].map(|number| line(What::Placed, number)))
            .unwrap();
        store.begin_journal().unwrap();
        store.save(snapshot(&[1, 2, 3])).unwrap();
        store.cut().unwrap();
        store
            .note(&[line(What::Placed, 4), line(What::Paid, 2)])
            .unwrap();
        found.book.append(&[line(What::Closed, 1)]).unwrap();
        store
    }

    #[test]
    fn what_is_open_survives_a_crash_between_any_two_steps() {
        for steps in 0..=3 {
            let folder = Folder::new();
            let mut store = some_orders(&folder);
            if steps >= 1 {
                store.begin_journal().unwrap();
            }
            if steps >= 2 {
                store.save(snapshot(&[3, 4])).unwrap();
            }
            if steps >= 3 {
                store.cut().unwrap();
            }
            // An order placed just before the crash.
            store.note(&[line(What::Placed, 5)]).unwrap();
            drop(store);
            // The second time the start itself has changed the files.
            for start in 0..2 {
                let open: Vec<u32> = folder.open_orders().into_iter().collect();
                assert_eq!(open, [3, 4, 5], "{steps} steps, start {start}");
            }
        }
    }

    #[test]
    fn a_crash_between_the_steps_leaves_a_journal_that_can_be_written() {
        let folder = Folder::new();
        let mut store = some_orders(&folder);
        store.begin_journal().unwrap();
        drop(store);
        let (mut store, _) = folder.open();
        store.note(&[line(What::Placed, 6)]).unwrap();
        store.begin_journal().unwrap();
        store.save(snapshot(&[3, 4, 6])).unwrap();
        drop(store);
        // Both older journals are there still.
        assert_eq!(journals(&folder.state()).unwrap().len(), 3);
        assert_eq!(folder.open_orders(), BTreeSet::from([3, 4, 6]));
        assert_eq!(journals(&folder.state()).unwrap().len(), 1);
    }

    #[test]
    fn a_payment_that_the_journal_knows_is_booked_once() {
        let folder = Folder::new();
        drop(some_orders(&folder));
        let (_, found) = folder.open();
        assert_eq!(found.payments, 1);
        assert_eq!(
            found.ends,
            [line(What::Closed, 1), line(What::Paid, 2)],
            "in the book"
        );
        drop(found.book);
        let (_, found) = folder.open();
        assert_eq!((found.payments, found.ends.len()), (0, 2));
    }

    #[test]
    fn torn_lines_are_dropped_and_the_next_line_is_whole() {
        let folder = Folder::new();
        let mut store = some_orders(&folder);
        store.begin_journal().unwrap();
        drop(store);
        for file in ["book", "journal.2", "journal.3"] {
            let path = beside(&folder.state(), file);
            let mut bytes = std::fs::read(&path).unwrap();
            bytes.extend(b"placed 7 at 1");
            std::fs::write(&path, bytes).unwrap();
        }
        let (mut store, found) = folder.open();
        assert_eq!(found.torn, 3 * 13);
        store.note(&[line(What::Placed, 8)]).unwrap();
        drop((store, found));
        assert_eq!(folder.open_orders(), BTreeSet::from([3, 4, 8]));
    }

    #[test]
    fn what_cannot_be_used_is_refused_and_left_as_it_is() {
        type Damage = fn(&Path);
        let damages: [(Damage, &str); 7] = [
            (
                |path| std::fs::write(path, "hello\n").unwrap(),
                "not a state",
            ),
            (
                |path| {
                    let mut bytes = std::fs::read(path).unwrap();
                    *bytes.last_mut().unwrap() ^= 1;
                    std::fs::write(path, bytes).unwrap();
                },
                "damaged",
            ),
            (
                |path| std::fs::remove_file(path).unwrap(),
                "is missing, but",
            ),
            (
                |path| std::fs::remove_file(beside(path, "book")).unwrap(),
                "its book, which is missing",
            ),
            (
                |path| std::fs::remove_file(journal_path(path, 2)).unwrap(),
                "the journal 2, which is missing",
            ),
            (
                |path| {
                    let path = journal_path(path, 2);
                    let text = std::fs::read_to_string(&path).unwrap();
                    std::fs::write(&path, text.replacen("placed 4", "placed 5", 1)).unwrap();
                },
                "damaged in line 1",
            ),
            (
                |path| {
                    let (mut saved, plan) = (decode(&std::fs::read(path).unwrap()).unwrap(), PLAN);
                    saved.plan = Plan { orders: 9, ..plan };
                    std::fs::write(path, encode(&saved)).unwrap();
                },
                "--orders 9 --seconds 10",
            ),
        ];
        for (damage, expected) in damages {
            let folder = Folder::new();
            drop(some_orders(&folder));
            damage(&folder.state());
            for _ in 0..2 {
                let refused = folder.refused();
                assert!(refused.contains(expected), "{refused}");
                assert!(refused.contains("To begin anew, move"), "{refused}");
            }
        }
    }

    #[test]
    fn a_crash_before_the_first_state_is_a_new_beginning() {
        let folder = Folder::new();
        std::fs::write(beside(&folder.state(), "book"), "").unwrap();
        std::fs::write(journal_path(&folder.state(), 1), "").unwrap();
        assert!(folder.open().1.fresh);
        assert!(!folder.open().1.fresh);
    }
}
