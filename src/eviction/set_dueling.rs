//! Duels: which of two keys is used again first? The results decide which keys are promoted.
//!
//! # How it works
//!
//! A key that could be promoted (the *candidate*) would push the oldest protected entry (the
//! *incumbent*) out of the protected queue. Whether that gives more hits depends on the workload,
//! so the policy measures it. It notes both keys. The one that is used first wins the duel, whether
//! the promotion was made or not. If the candidate wins, the score of its *class* rises by one; if
//! the incumbent wins, it falls by one. The score, from -32 to 32, sets the chance of a promotion.
//!
//! | class   | the key came back ...                           | starts at | chance at score s |
//! |---------|-------------------------------------------------|-----------|-------------------|
//! | Recent  | sooner than the incumbent has waited (LIRS)     | 16        | (32 + s) / 64     |
//! | Late    | later, but a ghost of it was known              | -32       | (32 + s) / 64     |
//! | Unknown | without a ghost, and the incumbent is long unused | -32       | s / 512, if > 0   |
//!
//! A candidate of class Unknown wins only if its next use is a miss: a hit would have come from the
//! window without any promotion. DESIGN.md says what each class is for.
//!
//! # Invariants
//!
//! 1. A candidate names the slot and the generation of an incumbent. It counts only while that slot
//!    still holds that incumbent.
//! 2. `open` of an incumbent counts the candidates that name it, by class (saturating).
//!
//! A class opens at most 256 duels in a turnover. A new duel takes an occupied slot in one case of
//! sixteen. So a duel may last for several turnovers in a cache of any size.
//!
//! Cost: 3 KiB for each cache; for each use one slot of a table that stays in the first-level
//! cache.

use crate::hash::next_random;

const DUEL_SLOTS: usize = 256;
const MAX_SCORE: i32 = 32;

/// The class of a key that could enter the protected queue; see the table in the module docs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Recent = 0,
    Late = 1,
    Unknown = 2,
}

const CLASSES: [Class; 3] = [Class::Recent, Class::Late, Class::Unknown];

#[derive(Clone, Copy, Debug)]
enum Slot {
    Empty,
    Candidate {
        tag: u32,
        class: Class,
        incumbent: u8,
        generation: u8,
    },
    Incumbent {
        tag: u32,
        generation: u8,
        open: [u8; 3],
    },
}

pub(super) struct SetDueling {
    /// None until a duel opens: a cache that never evicts has none.
    slots: Vec<Slot>,
    score: [i32; 3],
    /// When the next duel of the class may open, by the count that `open` is given.
    due: [u64; 3],
    generation: u8,
    /// The state of the random numbers. They only have to be hard to predict, and the seed is
    /// secret.
    random: u64,
}

impl SetDueling {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            slots: Vec::new(),
            score: [MAX_SCORE / 2, -MAX_SCORE, -MAX_SCORE],
            due: [0; 3],
            generation: 0,
            random: seed,
        }
    }

    /// Counts a use of the key, whose `hash` is mixed over all 64 bits; `missed` if the key was not
    /// in the cache.
    pub(super) fn used(&mut self, hash: u64, missed: bool) {
        let at = slot_of(hash);
        match self.slots.get(at).copied().unwrap_or(Slot::Empty) {
            Slot::Incumbent { tag, open, .. } if tag == tag_of(hash) => {
                self.slots[at] = Slot::Empty;
                for class in CLASSES {
                    self.shift(class, -i32::from(open[class as usize]));
                }
            }
            Slot::Candidate { tag, class, .. } if tag == tag_of(hash) => {
                let live = self.vacate(at);
                if live && (missed || class != Class::Unknown) {
                    self.shift(class, 1);
                }
            }
            _ => {}
        }
    }

    /// Opens a duel if one of this class is due and both slots are free. `now` counts evictions and
    /// protected entries that reached the tail.
    pub(super) fn open(
        &mut self,
        candidate: u64,
        incumbent: u64,
        class: Class,
        now: u64,
        resident: usize,
    ) {
        if now < self.due[class as usize] {
            return;
        }
        let at = slot_of(candidate);
        let against = slot_of(incumbent);
        if at == against {
            return;
        }
        if self.slots.is_empty() {
            self.slots.resize(DUEL_SLOTS, Slot::Empty);
        }
        let known =
            matches!(self.slots[against], Slot::Incumbent { tag, .. } if tag == tag_of(incumbent));
        let taken = !matches!(self.slots[at], Slot::Empty)
            || !known && !matches!(self.slots[against], Slot::Empty);
        if taken && next_random(&mut self.random) % 16 != 0 {
            return;
        }
        self.due[class as usize] = now + resident as u64 / DUEL_SLOTS as u64;
        self.vacate(at);
        if !known {
            self.vacate(against);
            self.generation = self.generation.wrapping_add(1);
            self.slots[against] = Slot::Incumbent {
                tag: tag_of(incumbent),
                generation: self.generation,
                open: [0; 3],
            };
        }
        if let Slot::Incumbent {
            generation, open, ..
        } = &mut self.slots[against]
        {
            let n = &mut open[class as usize];
            *n = n.saturating_add(1);
            self.slots[at] = Slot::Candidate {
                tag: tag_of(candidate),
                class,
                incumbent: against as u8,
                generation: *generation,
            };
        }
    }

    /// Draws whether a key of this class may enter the protected queue.
    pub(super) fn grant(&mut self, class: Class) -> bool {
        let score = self.score[class as usize];
        let of_512 = match class {
            Class::Recent | Class::Late => (score + MAX_SCORE) * (256 / MAX_SCORE),
            Class::Unknown => score,
        };
        ((next_random(&mut self.random) & 511) as i32) < of_512
    }

    fn shift(&mut self, class: Class, by: i32) {
        let score = &mut self.score[class as usize];
        *score = (*score + by).clamp(-MAX_SCORE, MAX_SCORE);
    }

    /// Empties a slot; true if it held a candidate whose incumbent is still there.
    fn vacate(&mut self, at: usize) -> bool {
        let was = std::mem::replace(&mut self.slots[at], Slot::Empty);
        let Slot::Candidate {
            class,
            incumbent,
            generation: named,
            ..
        } = was
        else {
            return false;
        };
        match &mut self.slots[usize::from(incumbent)] {
            Slot::Incumbent {
                generation, open, ..
            } if *generation == named => {
                let n = &mut open[class as usize];
                *n = n.saturating_sub(1);
                true
            }
            _ => false,
        }
    }
}

fn slot_of(hash: u64) -> usize {
    (hash >> 56) as usize
}

fn tag_of(hash: u64) -> u32 {
    (hash >> 16) as u32
}

#[cfg(test)]
mod tests;
