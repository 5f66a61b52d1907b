//! Threads that serve many histories and begin each at the same moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

use crate::linear::history::History;
use crate::linear::record::{Happened, Setup, Step, Subject, pauses, plans};
use crate::support::Dice;

/// The most threads of a history.
pub const MOST_THREADS: usize = 4;
/// The most steps of all threads together: a key's calls and the moves of the clock must fit the
/// checker's word.
const MOST_STEPS: usize = 30;

/// One history to record.
struct Round {
    subject: Subject,
    plans: Vec<Vec<Step>>,
    seed: u64,
    ready: AtomicUsize,
}

/// The running threads.
pub struct Workers {
    orders: Vec<Sender<Arc<Round>>>,
    answers: Receiver<Vec<Happened>>,
}

impl Workers {
    /// They end after the workers were dropped, perhaps a round later.
    pub fn new() -> Workers {
        let (answer, answers) = mpsc::channel();
        let orders = (0..MOST_THREADS)
            .map(|number| {
                let (order, orders) = mpsc::channel();
                let answer = answer.clone();
                std::thread::spawn(move || work(number, &orders, &answer));
                order
            })
            .collect();
        Workers { orders, answers }
    }

    /// Begins a history. Its seed decides the operations; the machine decides their order.
    pub fn begin(&self, setup: &Setup, seed: u64) -> Pending {
        let mut dice = Dice::new(seed);
        // The ends of the clock's range, or anywhere.
        let origin = match dice.below(3) {
            0 => 0,
            1 => u64::MAX - dice.below(1 << 34),
            _ => dice.roll(),
        };
        let parts = [1, 2, 16][dice.below(3) as usize];
        let threads = 2 + dice.below(MOST_THREADS as u64 - 1) as usize;
        let steps = 3 + dice.below((MOST_STEPS / threads) as u64 - 2) as usize;
        let round = Arc::new(Round {
            subject: Subject::new(setup, origin, parts),
            plans: plans(&mut dice, setup, threads, steps),
            seed,
            ready: AtomicUsize::new(0),
        });
        for order in &self.orders[..threads] {
            order.send(Arc::clone(&round)).expect("a worker has ended");
        }
        Pending {
            threads,
            setup: *setup,
        }
    }

    /// Waits for a history that was begun.
    pub fn finish(&self, pending: &Pending) -> History {
        let mut history = History {
            rules: pending.setup.rules(),
            ..History::default()
        };
        for _ in 0..pending.threads {
            // A worker that panics drops its sender; the others' keep the channel open, so wait
            // with a limit.
            let happened = self
                .answers
                .recv_timeout(std::time::Duration::from_secs(60))
                .expect("a worker has panicked or hangs");
            for happened in happened {
                match happened {
                    Happened::Calls(calls) => history.calls.extend(calls),
                    Happened::Advance(advance) => history.advances.push(advance),
                    Happened::Nothing => (),
                }
            }
        }
        history.advances.sort_by_key(|advance| advance.at);
        history
    }
}

/// A history in progress.
pub struct Pending {
    threads: usize,
    setup: Setup,
}

fn work(number: usize, orders: &Receiver<Arc<Round>>, answer: &Sender<Vec<Happened>>) {
    while let Ok(round) = orders.recv() {
        pauses(round.seed ^ (number as u64 + 1) << 48);
        round.ready.fetch_add(1, Ordering::SeqCst);
        let mut turns = 0;
        while round.ready.load(Ordering::SeqCst) < round.plans.len() {
            // Spinning starts all threads at once; but there may be fewer processors than threads.
            turns += 1;
            if turns % 64 == 0 {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        let happened = round.plans[number]
            .iter()
            .map(|&step| round.subject.perform(number, step))
            .collect();
        drop(round);
        if answer.send(happened).is_err() {
            return;
        }
    }
}
