//! The thread that writes the book of ends.
//!
//! Ends come one by one, and syncing a file takes milliseconds. So the clerk takes all that wait,
//! writes them with one sync, and only then counts them.

use std::collections::HashSet;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::log::{Line, Log, What};

pub(crate) struct Clerk {
    ends: Sender<Line>,
    desk: Arc<Desk>,
    thread: JoinHandle<()>,
}

pub(crate) struct Desk {
    booked: Mutex<Booked>,
    more: Condvar,
}

#[derive(Default)]
struct Booked {
    numbers: HashSet<u32>,
    lines: Vec<Line>,
    failure: Option<String>,
}

impl Clerk {
    /// Starts with what the book says already.
    pub(crate) fn new(book: Log, lines: Vec<Line>) -> Self {
        let desk = Arc::new(Desk {
            booked: Mutex::new(Booked {
                numbers: lines.iter().map(|line| line.number).collect(),
                lines,
                failure: None,
            }),
            more: Condvar::new(),
        });
        let (ends, inbox) = channel();
        let thread = {
            let desk = Arc::clone(&desk);
            std::thread::spawn(move || work(book, &inbox, &desk))
        };
        Self { ends, desk, thread }
    }

    /// Where ends are handed in.
    pub(crate) fn inbox(&self) -> Sender<Line> {
        self.ends.clone()
    }

    /// How many orders were paid, and how many closed.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let booked = self.desk.booked.lock().unwrap();
        let paid = booked.lines.iter().filter(|line| line.what == What::Paid);
        let paid = paid.count();
        (paid, booked.lines.len() - paid)
    }

    /// How many different orders have ended. An error if the book cannot be written.
    pub(crate) fn ended(&self) -> Result<usize, String> {
        let booked = self.desk.booked.lock().unwrap();
        match &booked.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(booked.numbers.len()),
        }
    }

    /// Waits until the ends of all these orders are in the book.
    pub(crate) fn wait_for(&self, orders: &[u32], patience: Duration) -> Result<(), String> {
        let limit = Instant::now() + patience;
        let mut booked = self.desk.booked.lock().unwrap();
        loop {
            if let Some(failure) = &booked.failure {
                return Err(failure.clone());
            }
            let missing = orders.iter().find(|order| !booked.numbers.contains(order));
            let Some(missing) = missing else {
                return Ok(());
            };
            let now = Instant::now();
            if now >= limit {
                return Err(format!(
                    "order {missing} has left the cache, and its end was not told within {patience:?}"
                ));
            }
            booked = self.desk.more.wait_timeout(booked, limit - now).unwrap().0;
        }
    }

    /// Ends the thread when all that was handed in is written; the answer is the whole book. All
    /// other senders must be gone.
    pub(crate) fn close(self) -> Vec<Line> {
        drop(self.ends);
        self.thread.join().expect("the clerk does not panic");
        std::mem::take(&mut self.desk.booked.lock().unwrap().lines)
    }
}

fn work(mut book: Log, inbox: &Receiver<Line>, desk: &Desk) {
    while let Ok(first) = inbox.recv() {
        let batch: Vec<Line> = std::iter::once(first).chain(inbox.try_iter()).collect();
        let written = book.append(&batch);
        let mut booked = desk.booked.lock().unwrap();
        match written {
            Ok(()) => {
                booked.numbers.extend(batch.iter().map(|line| line.number));
                booked.lines.extend(batch);
            }
            Err(failure) => booked.failure = Some(failure),
        }
        let failed = booked.failure.is_some();
        drop(booked);
        desk.more.notify_all();
        if failed {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Clerk {
        pub(crate) fn desk(&self) -> Arc<Desk> {
            Arc::clone(&self.desk)
        }
    }

    impl Desk {
        /// While it is held, nothing new counts.
        pub(crate) fn hold(&self) -> std::sync::MutexGuard<'_, impl Sized> {
            self.booked.lock().unwrap()
        }
    }

    #[test]
    fn an_end_counts_when_it_is_in_the_file() {
        let path = std::env::temp_dir().join(format!("orders-clerk-{}", std::process::id()));
        let line = |number| Line {
            what: What::Closed,
            number,
            at: 2,
            due: 1,
        };
        let (book, _) = Log::open(&path).unwrap();
        let clerk = Clerk::new(book, vec![line(7)]);
        let (short, long) = (Duration::from_millis(1), Duration::from_secs(60));
        assert!(clerk.wait_for(&[7], short).is_ok());
        let missing = clerk.wait_for(&[7, 8], short).unwrap_err();
        assert!(missing.contains("order 8"), "{missing}");
        for number in 8..100 {
            clerk.inbox().send(line(number)).unwrap();
        }
        clerk.wait_for(&[8, 99], long).unwrap();
        let written = crate::log::read(&path).unwrap().lines;
        assert_eq!(written, (8..100).map(line).collect::<Vec<_>>());
        assert_eq!(clerk.ended(), Ok(93));
        assert_eq!(clerk.counts(), (0, 93));
        assert_eq!(clerk.close().len(), 93);
        std::fs::remove_file(path).unwrap();
    }
}
