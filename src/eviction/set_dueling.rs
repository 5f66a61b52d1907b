//! Who is used again first? Small bets that decide how readily a key enters the core.
//!
//! # How it works
//!
//! Whenever a key could be promoted, it would push the oldest core node (the *defender*) out of the
//! core. Whether that pays depends on the load, so it is measured: the key becomes a *challenger*,
//! both are noted, and whichever of the two is used first wins the duel, whether the promotion was
//! made or not. A win of the challenger moves the score of its *class* up by one, a win of the
//! defender down. The score, from -32 to 32, sets the chance of a promotion.
//!
//! | class   | the key came back ...                       | starts at | chance at score s |
//! |---------|---------------------------------------------|-----------|-------------------|
//! | Recent  | sooner than the defender has waited (LIRS)  | 16        | (32 + s) / 64     |
//! | Late    | later, but still known                      | -32       | (32 + s) / 64     |
//! | Unknown | not known at all; the defender is idle long | -32       | s / 512, if > 0   |
//!
//! Recent is what LIRS always promotes. Loads that walk back and forth, where LIRS promotes the
//! wrong half each time, drive its score down and the core stands still, which is right for them.
//! Late takes over frequency's part. Unknown is the way out of a core that died in a change of load
//! while the new keys are too many to be remembered: no ghost would ever hit.
//!
//! A challenger of class Unknown wins only by a miss: a hit would have come from the window without
//! any promotion.
//!
//! # Invariants
//!
//! 1. A challenger names a defender's slot and generation; it counts only while that slot still
//!    holds that defender.
//! 2. A defender's `open` are the challengers that name it, by class (saturating).
//!
//! SetDueling of one class open at most every 256th of a turnover, and an occupied slot is given up
//! in one case of sixteen, so that a duel may last for several turnovers in a cache of any size.
//!
//! Cost: 3 KiB a cache; for each use one slot, of a table that stays in the first-level cache.

const SLOTS: usize = 256;
const LIMIT: i32 = 32;

/// What is known of a key that could enter the core; see the table in the module docs.
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
    Challenger {
        tag: u32,
        class: Class,
        defender: u8,
        generation: u8,
    },
    Defender {
        tag: u32,
        generation: u8,
        open: [u8; 3],
    },
}

pub(super) struct SetDueling {
    slots: Box<[Slot; SLOTS]>,
    score: [i32; 3],
    /// When the next duel of the class may open, in turns.
    due: [u64; 3],
    generation: u8,
    random: u64,
}

impl SetDueling {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            slots: Box::new([Slot::Empty; SLOTS]),
            score: [LIMIT / 2, -LIMIT, -LIMIT],
            due: [0; 3],
            generation: 0,
            // Xorshift never leaves 0.
            random: seed | 1,
        }
    }

    /// Tells of a use of the key, `hash` spread over all 64 bits; `missed` if the key was not in
    /// the cache.
    pub(super) fn used(&mut self, hash: u64, missed: bool) {
        let at = slot_of(hash);
        match self.slots[at] {
            Slot::Defender { tag, open, .. } if tag == tag_of(hash) => {
                self.slots[at] = Slot::Empty;
                for class in CLASSES {
                    self.shift(class, -i32::from(open[class as usize]));
                }
            }
            Slot::Challenger { tag, class, .. } if tag == tag_of(hash) => {
                let alive = self.vacate(at);
                if alive && (missed || class != Class::Unknown) {
                    self.shift(class, 1);
                }
            }
            _ => {}
        }
    }

    /// Opens a duel if one of the class is due and the slots can be had. `now` counts turns:
    /// evictions, and core nodes that reached the rim.
    pub(super) fn open(
        &mut self,
        challenger: u64,
        defender: u64,
        class: Class,
        now: u64,
        resident: usize,
    ) {
        if now < self.due[class as usize] {
            return;
        }
        let (at, against) = (slot_of(challenger), slot_of(defender));
        if at == against {
            return;
        }
        let known =
            matches!(self.slots[against], Slot::Defender { tag, .. } if tag == tag_of(defender));
        let taken = !matches!(self.slots[at], Slot::Empty)
            || !known && !matches!(self.slots[against], Slot::Empty);
        if taken && !self.random().is_multiple_of(16) {
            return;
        }
        self.due[class as usize] = now + resident as u64 / SLOTS as u64;
        self.vacate(at);
        if !known {
            self.vacate(against);
            self.generation = self.generation.wrapping_add(1);
            self.slots[against] = Slot::Defender {
                tag: tag_of(defender),
                generation: self.generation,
                open: [0; 3],
            };
        }
        if let Slot::Defender {
            generation, open, ..
        } = &mut self.slots[against]
        {
            let n = &mut open[class as usize];
            *n = n.saturating_add(1);
            self.slots[at] = Slot::Challenger {
                tag: tag_of(challenger),
                class,
                defender: against as u8,
                generation: *generation,
            };
        }
    }

    /// Draws whether a key of this class may enter the core.
    pub(super) fn grant(&mut self, class: Class) -> bool {
        let score = self.score[class as usize];
        let of_512 = match class {
            Class::Recent | Class::Late => (score + LIMIT) * (256 / LIMIT),
            Class::Unknown => score,
        };
        ((self.random() & 511) as i32) < of_512
    }

    fn shift(&mut self, class: Class, by: i32) {
        let score = &mut self.score[class as usize];
        *score = (*score + by).clamp(-LIMIT, LIMIT);
    }

    /// Empties a slot; true if it held a challenger whose defender is still there.
    fn vacate(&mut self, at: usize) -> bool {
        let was = std::mem::replace(&mut self.slots[at], Slot::Empty);
        let Slot::Challenger {
            class,
            defender,
            generation: named,
            ..
        } = was
        else {
            return false;
        };
        match &mut self.slots[usize::from(defender)] {
            Slot::Defender {
                generation, open, ..
            } if *generation == named => {
                let n = &mut open[class as usize];
                *n = n.saturating_sub(1);
                true
            }
            _ => false,
        }
    }

    /// Xorshift64* (Marsaglia; Vigna): a chance is all that is asked of it, and the seed is the
    /// cache's secret.
    fn random(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32
    }
}

fn slot_of(hash: u64) -> usize {
    (hash >> 56) as usize
}

fn tag_of(hash: u64) -> u32 {
    (hash >> 16) as u32
}

#[cfg(test)]
mod tests {
    use super::super::spread;
    use super::*;

    /// Keys that fall into slots of their own.
    fn keys() -> impl Iterator<Item = u64> {
        let mut used = std::collections::HashSet::new();
        (0..)
            .map(spread)
            .filter(move |&hash| used.insert(slot_of(hash)))
    }

    fn chance(duels: &mut SetDueling, class: Class) -> f64 {
        (0..100_000).filter(|_| duels.grant(class)).count() as f64 / 100_000.0
    }

    #[test]
    fn the_slots_fit_the_first_level_cache() {
        assert_eq!(size_of::<Slot>(), 12);
    }

    #[test]
    fn whoever_is_used_first_wins() {
        let mut duels = SetDueling::new(1);
        let mut keys = keys();
        let (a, b) = (keys.next().unwrap(), keys.next().unwrap());
        let start = duels.score[0];
        duels.open(a, b, Class::Recent, 0, 0);
        duels.used(a, false);
        assert_eq!(duels.score[0], start + 1);
        duels.used(b, false);
        assert_eq!(duels.score[0], start + 1, "a duel is decided once");
        duels.open(a, b, Class::Recent, 0, 0);
        duels.used(b, false);
        assert_eq!(duels.score[0], start);
        duels.used(a, false);
        assert_eq!(duels.score[0], start);
    }

    #[test]
    fn one_defender_answers_all_its_challengers() {
        let mut duels = SetDueling::new(1);
        let mut keys = keys();
        let defender = keys.next().unwrap();
        let challengers: Vec<u64> = keys.take(10).collect();
        for &challenger in &challengers {
            duels.open(challenger, defender, Class::Recent, 0, 0);
        }
        duels.used(challengers[3], true);
        duels.used(defender, false);
        assert_eq!(duels.score[0], 16 + 1 - 9);
    }

    #[test]
    fn an_unknown_key_wins_by_a_miss_only() {
        let mut duels = SetDueling::new(1);
        let mut keys = keys();
        let (a, b, c) = (
            keys.next().unwrap(),
            keys.next().unwrap(),
            keys.next().unwrap(),
        );
        duels.score[2] = 0;
        duels.open(a, c, Class::Unknown, 0, 0);
        duels.open(b, c, Class::Unknown, 0, 0);
        duels.used(a, false);
        assert_eq!(duels.score[2], 0);
        duels.used(b, true);
        assert_eq!(duels.score[2], 1);
    }

    #[test]
    fn the_score_sets_the_chance() {
        let mut duels = SetDueling::new(42);
        for (class, score, wanted) in [
            (Class::Recent, 32, 1.0),
            (Class::Recent, 16, 0.75),
            (Class::Late, 0, 0.5),
            (Class::Late, -32, 0.0),
            (Class::Unknown, 32, 0.0625),
            (Class::Unknown, 0, 0.0),
            (Class::Unknown, -32, 0.0),
        ] {
            duels.score[class as usize] = score;
            let met = chance(&mut duels, class);
            assert!((met - wanted).abs() < 0.01, "{class:?} at {score}: {met}");
        }
    }

    #[test]
    fn duels_open_no_faster_than_their_share_of_a_turnover() {
        let mut duels = SetDueling::new(1);
        let resident = 256 * 100;
        let defender = spread(u64::MAX);
        let mut opened = 0;
        for key in 0..resident as u64 {
            let due = duels.due[0];
            duels.open(spread(key), defender, Class::Recent, key, resident);
            opened += u64::from(duels.due[0] != due);
        }
        assert!(
            (100..=256).contains(&opened),
            "{opened} duels in a turnover"
        );
    }
}
