//! Intrusive lists compared with deques: two lists over one pair of links, a third over the other
//! pair of the same entries.

use super::script::{Script, make};
use crate::list::{List, QUEUE, TIMER};
use crate::node::{Columns, EntryPtr, Slab, Times};
use std::collections::VecDeque;

/// Nodes of a program.
const CROWD: usize = 24;

/// A list, and the numbers of the entries that are in it.
struct Pair<const CHAIN: bool> {
    list: List<u64, u64, CHAIN>,
    deque: VecDeque<usize>,
}

impl<const CHAIN: bool> Pair<CHAIN> {
    fn new() -> Self {
        Self {
            list: List::new(),
            deque: VecDeque::new(),
        }
    }

    fn has(&self, number: usize) -> bool {
        self.deque.contains(&number)
    }

    /// One operation on this list with an entry that is in it, or in no list of its chain (`free`).
    fn step(
        &mut self,
        operation: u8,
        entries: &[EntryPtr<u64, u64>],
        number: usize,
        free: Option<usize>,
    ) {
        let entry = entries[number];
        match (operation, self.has(number), free) {
            (0, false, Some(fresh)) => {
                self.list.push_back(entries[fresh]);
                self.deque.push_back(fresh);
            }
            (1, true, _) => {
                self.list.unlink(entry);
                self.deque.retain(|&other| other != number);
            }
            (2, true, _) => {
                self.list.unlink(entry);
                self.list.push_back(entry);
                self.deque.retain(|&other| other != number);
                self.deque.push_back(number);
            }
            _ => {}
        }
    }

    fn check(&self, entries: &[EntryPtr<u64, u64>]) {
        self.list.check_invariants();
        let at = |number: Option<&usize>| number.map(|&number| entries[number]);
        assert_eq!(self.list.len(), self.deque.len());
        assert_eq!(self.list.is_empty(), self.deque.is_empty());
        assert!(self.list.front() == at(self.deque.front()));
        assert!(self.list.back() == at(self.deque.back()));
        assert!(
            self.list
                .iter()
                .eq(self.deque.iter().map(|&number| entries[number]))
        );
        for (place, &number) in self.deque.iter().enumerate() {
            let before = place.checked_sub(1).and_then(|place| self.deque.get(place));
            assert!(List::<u64, u64, CHAIN>::prev(entries[number]) == at(before));
            assert!(
                List::<u64, u64, CHAIN>::next(entries[number]) == at(self.deque.get(place + 1))
            );
        }
    }
}

/// Runs a program of list operations, decoded from `data`, beside deques, and panics if they
/// differ.
pub fn list_against_deques(data: &[u8]) {
    let columns = Columns {
        queue: true,
        weight: true,
        own: false,
        refresh: false,
    };
    let mut slab = Slab::new(columns);
    let entries: Vec<_> = (0..CROWD as u64)
        .map(|number| {
            slab.create(columns, &mut make(number, number, number), Times::NONE)
                .entry()
        })
        .collect();
    let mut timers = [Pair::<TIMER>::new(), Pair::new()];
    let mut queue = Pair::<QUEUE>::new();
    let mut script = Script(data);
    while let Some(operation) = script.operation() {
        let (number, fresh) = (script.operand(), script.operand());
        let number = usize::from(number) % CROWD;
        let fresh = usize::from(fresh) % CROWD;
        let [one, two] = &mut timers;
        match operation % 9 {
            operation @ 0..3 => {
                let free = (!one.has(fresh) && !two.has(fresh)).then_some(fresh);
                one.step(operation, &entries, number, free);
            }
            operation @ 3..6 => {
                let free = (!one.has(fresh) && !two.has(fresh)).then_some(fresh);
                two.step(operation - 3, &entries, number, free);
            }
            operation => {
                let free = (!queue.has(fresh)).then_some(fresh);
                queue.step(operation - 6, &entries, number, free);
            }
        }
        timers.iter().for_each(|pair| pair.check(&entries));
        queue.check(&entries);
    }
}
