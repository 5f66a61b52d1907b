//! The wheel compared with a sorted map: both run a program of operations, decoded from bytes.
//!
//! The oracle counts time in `i128`, from any origin, and knows buckets only by their contract: the
//! wheel returns no entry before its deadline; it keeps no entry once the tick of its deadline has
//! ended, or, after a sweep, once it is due; and the next deadline is the earliest visit over all
//! occupied buckets, found by trying each of them against each tick boundary of a turn.
//!
//! The bytes may come from a fuzzer or from a generator of random numbers: every string is a
//! program.

use super::level::{self, BUCKETS_PER_LEVEL, LEVELS, Spans};
use super::{LATE, Wheel};
use crate::node::{Columns, NO_BUCKET, NewNode, NodePtr, NodeState, Slab, Times};
use crate::time::{self, MAX_LIFETIME_NANOS};
use std::collections::{BTreeMap, BTreeSet};

/// No distance between now and a deadline exceeds this, so that the wrapping differences are right.
const HORIZON: i128 = MAX_LIFETIME_NANOS as i128 + (MAX_LIFETIME_NANOS / 2) as i128;

/// The most nodes that a program has.
const CROWD: usize = 400;

type Timed = NodePtr<u64, u64>;

/// Makes nodes, which are freed when this is dropped.
pub(super) struct Nodes {
    slab: Slab<u64, u64>,
    made: u64,
}

impl Default for Nodes {
    fn default() -> Self {
        Self {
            slab: Slab::new(Columns::default()),
            made: 0,
        }
    }
}

impl Nodes {
    /// A live node with this deadline, in no bucket.
    pub(super) fn make(&mut self, deadline: u64) -> Timed {
        let number = self.made;
        self.made += 1;
        let times = Times {
            written: 0,
            deadline,
            own: deadline,
        };
        let mut new = NewNode::new(number, number, number, 1);
        self.slab.create(Columns::default(), &mut new, times)
    }

    /// A live node with this deadline in the entry of another.
    pub(super) fn succeed(&mut self, old: Timed, deadline: u64) -> Timed {
        let times = Times {
            written: 0,
            deadline,
            own: deadline,
        };
        let mut new = NewNode::new(*old.key(), *old.value(), old.hash(), 1);
        let new = self.slab.succeed(Columns::default(), old, &mut new, times);
        new.entry().set_node(new);
        new
    }
}

/// Moves a wanted deadline as a reader or a writer would, without an event for the wheel.
pub(super) fn want(node: Timed, deadline: u64) {
    assert!(
        node.move_deadline(node.deadline(), deadline).is_ok(),
        "no other thread moves it"
    );
}

/// The state of a node in the oracle.
struct Entry {
    node: Timed,
    /// The wanted deadline; `None` for never.
    deadline: Option<i128>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In no bucket.
    Out,
    /// Linked, and found by its deadline.
    In,
    /// Linked unless the wheel has met it since its deadline became never.
    Stale,
    /// Linked by a deadline that a claim has moved away since: any visit may return it.
    Replaced,
}

/// The bytes of a program.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// The next byte, or 0 at the end.
    fn any(&mut self) -> u8 {
        self.byte().unwrap_or(0)
    }

    /// A distance in nanoseconds whose magnitude is spread evenly over 0 to `bits` bits, with some
    /// exact powers of two.
    fn distance(&mut self, bits: u32) -> i128 {
        let (size, low, high) = (self.any(), self.any(), self.any());
        let bits = u32::from(size & 63) % (bits + 1);
        let head = 1u128 << bits;
        // A boundary, one off a boundary, or any distance of that magnitude.
        let value = match size >> 6 {
            0 => head,
            1 => head - 1,
            _ => {
                let fraction = u128::from(u16::from_le_bytes([low, high]));
                head + ((head * fraction) >> 16)
            }
        };
        value.saturating_sub(u128::from(bits == 0)) as i128
    }
}

/// Runs a program on the wheel and on the oracle, checks every step, and returns the number of
/// operations.
pub(crate) fn run(program: &[u8]) -> usize {
    let mut script = Script(program);
    let shift = match script.any() {
        // Small spans, so that short distances use all levels.
        small @ 0..=127 => u32::from(small % 17),
        wide => u32::from(wide % 44),
    };
    let origin = match script.any() % 8 {
        0 => 0,
        1 => i128::from(u64::MAX) - script.distance(40),
        2 => (1 << 63) - script.distance(40),
        3 => (1 << 63) + script.distance(40),
        4 => i128::from(time::NEVER) - script.distance(40),
        5 => -script.distance(20),
        _ => script.distance(63),
    };
    let mut bench = Bench::new(origin, shift);
    let mut operations = 0;
    while let Some(operation) = script.byte() {
        bench.step(operation, &mut script);
        bench.check();
        operations += 1;
    }
    bench.finish();
    operations
}

struct Bench {
    wheel: Wheel<u64, u64>,
    spans: Spans,
    now: i128,
    entries: Vec<Entry>,
    /// The nodes in state `In` by deadline.
    due: BTreeSet<(i128, usize)>,
    by_address: BTreeMap<usize, usize>,
    nodes: Nodes,
}

impl Bench {
    fn new(now: i128, shift: u32) -> Self {
        let spans = Spans::with_shift(shift);
        Self {
            wheel: Wheel::new(now as u64, spans),
            spans,
            now,
            entries: Vec::new(),
            due: BTreeSet::new(),
            by_address: BTreeMap::new(),
            nodes: Nodes::default(),
        }
    }

    fn step(&mut self, operation: u8, script: &mut Script<'_>) {
        match operation % 16 {
            0..=2 => self.create(script),
            3 => self.reschedule(script),
            4 => self.deschedule(script),
            5 => self.succeed(script),
            6 | 7 => self.extend(script),
            8 => self.forget_deadline(script),
            9 => self.replace(script),
            10 => self.forward(script, 40),
            11 => self.forward(script, 62),
            12 => self.back(script),
            13 => self.jump_to_next_visit(),
            14 => self.sweep(script),
            _ => {
                // A drain at which the clock does not advance.
                let budget = usize::from(script.any());
                self.drain(budget, script);
            }
        }
    }

    /// A deadline some distance from now, before or after it but mostly after; sometimes `None`.
    fn deadline(&self, script: &mut Script<'_>) -> Option<i128> {
        let kind = script.any();
        let deadline = match kind {
            0..=7 => return None,
            8..=23 => self.now - script.distance(40),
            24..=39 => self.now,
            40..=47 => self.now + i128::from(MAX_LIFETIME_NANOS),
            48..=63 => self.now + script.distance(61),
            _ => {
                // Within the reach of the levels, whatever the resolution.
                let reach = self.spans.span(LEVELS - 1).as_nanos().ilog2() + 2;
                self.now + script.distance(reach.min(61))
            }
        };
        if deadline as u64 == time::NEVER {
            return Some(deadline + 1);
        }
        Some(deadline)
    }

    /// One of the nodes that hold their entry.
    fn pick(&self, script: &mut Script<'_>) -> Option<usize> {
        let number = u16::from_le_bytes([script.any(), script.any()]);
        let id = usize::from(number).checked_rem(self.entries.len())?;
        let node = self.entries[id].node;
        (node.entry().node() == node).then_some(id)
    }

    fn make(&mut self, deadline: Option<i128>) -> usize {
        let node = self.nodes.make(raw(deadline));
        self.know(node, deadline)
    }

    fn know(&mut self, node: Timed, deadline: Option<i128>) -> usize {
        let id = self.entries.len();
        self.by_address.insert(node.as_raw().addr(), id);
        self.entries.push(Entry {
            node,
            deadline,
            state: State::Out,
        });
        id
    }

    fn create(&mut self, script: &mut Script<'_>) {
        if self.entries.len() == CROWD {
            return;
        }
        let deadline = self.deadline(script);
        let id = self.make(deadline);
        self.wheel.schedule(self.entries[id].node);
        self.linked(id);
    }

    /// Updates the oracle after the wheel was given a node.
    fn linked(&mut self, id: usize) {
        let entry = &mut self.entries[id];
        entry.state = match entry.deadline {
            Some(deadline) => {
                self.due.insert((deadline, id));
                State::In
            }
            None => State::Out,
        };
        assert_eq!(
            entry.node.entry().bucket_id.get() != NO_BUCKET,
            entry.state == State::In
        );
    }

    /// Updates the oracle before the deadline or the state of a node changes.
    fn forgotten(&mut self, id: usize) {
        let entry = &self.entries[id];
        if let (State::In, Some(deadline)) = (entry.state, entry.deadline) {
            assert!(self.due.remove(&(deadline, id)));
        }
    }

    fn reschedule(&mut self, script: &mut Script<'_>) {
        let Some(id) = self.pick(script) else { return };
        if self.entries[id].state == State::Replaced {
            return;
        }
        let deadline = self.deadline(script);
        self.forgotten(id);
        want(self.entries[id].node, raw(deadline));
        self.entries[id].deadline = deadline;
        self.wheel.reschedule(self.entries[id].node);
        self.linked(id);
    }

    fn deschedule(&mut self, script: &mut Script<'_>) {
        let Some(id) = self.pick(script) else { return };
        self.forgotten(id);
        self.wheel.deschedule(self.entries[id].node);
        assert_eq!(self.entries[id].node.entry().bucket_id.get(), NO_BUCKET);
        if self.entries[id].state != State::Replaced {
            self.entries[id].state = State::Out;
        }
    }

    fn succeed(&mut self, script: &mut Script<'_>) {
        let Some(old) = self.pick(script) else { return };
        if self.entries.len() == CROWD {
            return;
        }
        let deadline = match script.any() {
            // The same deadline: often the same bucket.
            0..=127 => self.entries[old]
                .deadline
                .filter(|deadline| (deadline - self.now).abs() <= i128::from(MAX_LIFETIME_NANOS)),
            _ => self.deadline(script),
        };
        self.forgotten(old);
        let node = self.nodes.succeed(self.entries[old].node, raw(deadline));
        self.entries[old].state = State::Out;
        let new = self.know(node, deadline);
        self.wheel.reschedule(node);
        self.linked(new);
    }

    /// A reader moves a deadline later; the wheel gets no event.
    fn extend(&mut self, script: &mut Script<'_>) {
        let Some(id) = self.pick(script) else { return };
        let (Some(deadline), State::In) = (self.entries[id].deadline, self.entries[id].state)
        else {
            return;
        };
        let mut later = deadline.max(self.now + script.distance(50));
        if later as u64 == time::NEVER {
            later += 1;
        }
        self.forgotten(id);
        want(self.entries[id].node, later as u64);
        self.entries[id].deadline = Some(later);
        self.due.insert((later, id));
    }

    /// A writer takes a deadline away; the event for the wheel is still in a buffer.
    fn forget_deadline(&mut self, script: &mut Script<'_>) {
        let Some(id) = self.pick(script) else { return };
        if self.entries[id].state == State::In {
            self.forgotten(id);
            want(self.entries[id].node, time::NEVER);
            self.entries[id].deadline = None;
            self.entries[id].state = State::Stale;
        }
    }

    /// An entry is replaced; the event for the wheel is still in a buffer.
    fn replace(&mut self, script: &mut Script<'_>) {
        let Some(id) = self.pick(script) else { return };
        let node = self.entries[id].node;
        if self.entries[id].state == State::In {
            self.forgotten(id);
            // A moment before its deadline, so that it is not due.
            node.freeze(None, node.deadline().wrapping_sub(1));
            node.set_state(NodeState::Removed);
            self.entries[id].state = State::Replaced;
        }
    }

    /// Whether all deadlines stay within the horizon if the clock shows `now`. Each replacement has
    /// moved a deadline half of the longest lifetime into the past; the test allows for twice as
    /// much.
    fn can_show(&self, now: i128) -> bool {
        let replacements = self
            .entries
            .iter()
            .filter(|entry| entry.state == State::Replaced);
        let claimed =
            replacements.filter_map(|entry| Some(entry.deadline? - i128::from(MAX_LIFETIME_NANOS)));
        let first = self.due.first().map(|&(deadline, _)| deadline);
        let last = self.due.last().map(|&(deadline, _)| deadline);
        let mut known = claimed.chain(first).chain(last);
        known.all(|deadline| (deadline - now).abs() <= HORIZON)
    }

    fn forward(&mut self, script: &mut Script<'_>, bits: u32) {
        let now = self.now + script.distance(bits);
        if self.can_show(now) {
            self.now = now;
            let budget = usize::from(script.any());
            self.drain(budget, script);
        }
    }

    fn back(&mut self, script: &mut Script<'_>) {
        let now = self.now - script.distance(50);
        if self.can_show(now) {
            self.now = now;
            let budget = usize::from(script.any());
            self.drain(budget, script);
        }
    }

    /// Just before the next deadline the wheel has nothing to do; at the deadline it has.
    fn jump_to_next_visit(&mut self) {
        let mut nothing = Script(&[]);
        self.drain(usize::MAX, &mut nothing);
        let Some(next) = self.wheel.next_visit() else {
            return;
        };
        let ahead = i128::from(next.wrapping_sub(self.now as u64));
        assert!(
            ahead > 0,
            "no work is left, so the next deadline lies ahead"
        );
        if !self.can_show(self.now + ahead) {
            return;
        }
        self.now += ahead - 1;
        self.wheel.advance(self.now as u64);
        assert!(!self.wheel.has_work(), "work before the next deadline");
        self.now += 1;
        self.wheel.advance(self.now as u64);
        assert!(self.wheel.has_work(), "no work at the next deadline");
        self.drain(usize::MAX, &mut nothing);
    }

    fn sweep(&mut self, script: &mut Script<'_>) {
        let budget = usize::from(script.any());
        self.wheel.sweep(self.now as u64);
        if self.drain(budget, script) {
            // A drain may have rescheduled an entry into the swept bucket; the next sweep takes it.
            self.wheel.sweep(self.now as u64);
            self.drain(usize::MAX, &mut Script(&[]));
            let left = self.due.first();
            assert!(
                left.is_none_or(|&(deadline, _)| deadline > self.now),
                "a sweep left {left:?} behind at {}",
                self.now
            );
        }
    }

    /// Takes out the pending nodes within a budget, and changes other nodes between two of them.
    /// Returns whether all were taken.
    fn drain(&mut self, budget: usize, script: &mut Script<'_>) -> bool {
        let now = self.now as u64;
        let mut left = budget;
        while let Some(node) = self.wheel.next_due(now, &mut left) {
            assert_eq!(
                node.entry().bucket_id.get(),
                NO_BUCKET,
                "returned while linked"
            );
            let id = self.by_address[&node.as_raw().addr()];
            match self.entries[id].state {
                State::In => {
                    let deadline = self.entries[id].deadline.expect("a state `In` has one");
                    assert!(deadline <= self.now, "returned early");
                    self.forgotten(id);
                    self.entries[id].state = State::Out;
                }
                State::Replaced => {}
                state => panic!("returned in state {state:?}"),
            }
            match script.any() % 8 {
                // A reader extended the deadline before the judgement: the caller puts the node
                // back.
                1 if self.entries[id].state == State::Out => {
                    let later = self.now + 1 + script.distance(40);
                    let later = later + i128::from(later as u64 == time::NEVER);
                    want(node, later as u64);
                    self.entries[id].deadline = Some(later);
                    self.wheel.schedule(node);
                    self.linked(id);
                }
                // Changes that a callback may make to other nodes.
                2 => self.deschedule(script),
                3 => self.reschedule(script),
                4 => self.succeed(script),
                5 => self.create(script),
                // A panic ends the caller's drain early; a later call continues it.
                6 => return false,
                _ => {}
            }
        }
        if self.wheel.has_work() {
            assert_eq!(left, 0, "stopped with budget left");
            return false;
        }
        let first = self.due.first();
        assert!(
            first.is_none_or(|&(deadline, _)| self.flush_time(deadline) > self.now),
            "{first:?} is still linked at {} though its tick has ended",
            self.now
        );
        true
    }

    /// The deadline rounded up to a multiple of the resolution.
    fn flush_time(&self, deadline: i128) -> i128 {
        let span = self.spans.span(0).as_nanos() as i128;
        -((-deadline).div_euclid(span) * span)
    }

    fn check(&self) {
        self.wheel.check_invariants();
        self.wheel.check_promptness();
        let next = self.wheel.next_visit();
        assert_eq!(next, self.first_visit());
        if let Some(&(deadline, id)) = self.due.first() {
            let latest = self.flush_time(deadline).max(self.now);
            let promised = self.wheel.flush_time(deadline as u64);
            if deadline > self.now {
                assert_eq!(promised, latest as u64);
            }
            let next = next.expect("something is linked");
            assert!(
                i128::from(next.wrapping_sub(self.now as u64)) <= latest - self.now,
                "the next deadline is too late for node {id}"
            );
        }
        for &(_, id) in &self.due {
            assert_ne!(
                self.entries[id].node.entry().bucket_id.get(),
                NO_BUCKET,
                "node {id} was lost"
            );
        }
        let may_be = self
            .entries
            .iter()
            .filter(|entry| entry.state != State::Out);
        assert!((self.due.len()..=may_be.count()).contains(&self.wheel.len()));
        let pictured: usize = (0..LEVELS).flat_map(|level| self.wheel.lens(level)).sum();
        assert_eq!(pictured, self.wheel.len());
    }

    /// The next deadline by brute force: tries each occupied bucket with each tick boundary of a
    /// turn.
    fn first_visit(&self) -> Option<u64> {
        if self.wheel.has_work() {
            return Some(self.now as u64);
        }
        let linked = self
            .entries
            .iter()
            .map(|entry| entry.node.entry().bucket_id.get());
        let visits = linked
            .filter(|&bucket_id| bucket_id != NO_BUCKET)
            .map(|bucket_id| {
                assert_ne!(bucket_id, LATE, "a late node is pending");
                let (level, index) = level::level_of(bucket_id).expect("not late");
                let (span, len) = (
                    self.spans.span(level).as_nanos() as i128,
                    i128::from(BUCKETS_PER_LEVEL[level]),
                );
                let tick = self.now.div_euclid(span);
                let begun = (tick + 1..=tick + len)
                    .find(|begun| {
                        // The finest level visits a tick that has ended, the others one that
                        // begins.
                        let visited = if level == 0 { begun - 1 } else { *begun };
                        visited.rem_euclid(len) == i128::from(index)
                    })
                    .expect("a turn visits all buckets");
                begun * span
            });
        visits.min().map(|visit| visit as u64)
    }

    /// Lets all deadlines pass: every linked node is found.
    fn finish(&mut self) {
        let mut nothing = Script(&[]);
        self.drain(usize::MAX, &mut nothing);
        self.check();
        while let Some(&(last, _)) = self.due.last() {
            // In one step, but not beyond the horizon of the earliest deadline.
            let &(first, _) = self.due.first().expect("there is a last one");
            let target = self
                .flush_time(last)
                .min(first + i128::from(MAX_LIFETIME_NANOS));
            self.now = self.now.max(target);
            self.drain(usize::MAX, &mut nothing);
            self.check();
        }
        for id in 0..self.entries.len() {
            self.wheel.deschedule(self.entries[id].node);
        }
        assert!(self.wheel.is_empty());
        assert_eq!(self.wheel.next_visit(), None);
        self.wheel.check_invariants();
    }
}

/// A deadline in the representation of the node.
fn raw(deadline: Option<i128>) -> u64 {
    deadline.map_or(time::NEVER, |deadline| deadline as u64)
}
