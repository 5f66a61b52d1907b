//! The buffers that callers fill, compared with queues: rings of read events, a batch of write
//! events, notifications.
//!
//! One thread: this tests each part's own arithmetic (rings that fill up, wrap, and receive offers
//! while they are drained; the wrap of the stamp; posts that are delivered in pieces, by a listener
//! that posts and delivers itself). The models in `models/loom` test what threads do to each other
//! there.

use super::script::{Script, make};
use crate::buffer::{LEN, ReadBuffer, Ring};
use crate::engine::delivery::{Notification, Notifier};
use crate::listener::RemovalCause;
use crate::map::{Batch, EventKind, WriteEvent};
use crate::node::{Columns, NodePtr, Slab, Times};
use crate::reclaim::Domain;
use crate::scheduler::inside_listener;
use std::collections::VecDeque;
use std::ptr;
use std::sync::{Arc, Mutex, Weak};

/// Nodes of a program. A posted node is not freed, so that it may be posted again.
const CROWD: usize = 64;

type Event = NodePtr<u64, u64>;

/// A ring, and its expected content.
struct Pair {
    ring: Ring<u8>,
    queue: VecDeque<usize>,
}

impl Pair {
    fn offer(&mut self, number: usize) {
        let answer = self.ring.offer(item(number));
        assert_eq!(answer, expected(&mut self.queue, number));
    }

    /// Drains the ring; for each of the first `again` items, another is offered meanwhile, which
    /// the next drain takes.
    fn drain(&mut self, mut again: u8) {
        let Self { ring, queue } = self;
        let (mut left, mut out) = (queue.clone(), 0);
        let complete = ring.drain(|met| {
            let number = left.pop_front().expect("no more than was there");
            assert_eq!((met, queue.pop_front()), (item(number), Some(number)));
            out += 1;
            if again > 0 {
                again -= 1;
                assert_eq!(ring.offer(item(out)), expected(queue, out));
            }
        });
        assert!(complete, "all slots are filled");
        assert!(left.is_empty(), "{left:?} were not drained");
    }
}

fn item(number: usize) -> *mut u8 {
    ptr::without_provenance_mut(8 * (number + 1))
}

/// Whether a ring with this content is expected to take an item.
fn expected(queue: &mut VecDeque<usize>, number: usize) -> bool {
    if queue.len() == LEN {
        return false;
    }
    queue.push_back(number);
    true
}

/// The state of the listener: what it has seen, and what it does next.
#[derive(Default)]
struct Stage {
    /// Whether there is a listener. Without one, nothing is posted.
    listens: bool,
    nodes: Vec<Event>,
    posted: VecDeque<u64>,
    heard: u64,
    /// How many notifications the listener posts for each of the next ones it receives, and whether
    /// it tries to deliver them.
    cues: VecDeque<u8>,
}

struct Bench {
    rings: [Pair; 2],
    nodes: Vec<Event>,
    domain: Domain,
    reads: ReadBuffer<u64, u64>,
    records_each: bool,
    read: VecDeque<usize>,
    seen: [u8; CROWD],
    stamp: u8,
    batch: Batch<u64, u64>,
    written: VecDeque<String>,
    stage: Arc<Mutex<Stage>>,
    notifier: Arc<Notifier<u64, u64>>,
}

/// Runs a program of operations, decoded from `data`, and panics if the parts differ from their
/// models.
pub fn buffers_against_queues(data: &[u8]) {
    let mut script = Script(data);
    let mut slab = Slab::new(Columns::default());
    let nodes: Vec<Event> = (0..CROWD as u64)
        .map(|number| {
            slab.create(
                Columns::default(),
                &mut make(number, number, number),
                Times::NONE,
            )
        })
        .collect();
    let kind = script.operand();
    let records_each = kind & 0x40 != 0;
    let reads = ReadBuffer::new(1 << (kind % 4), 1);
    reads.record_each(records_each);
    let mut bench = Bench::new(nodes, reads, records_each, kind & 0x80 == 0);
    while let Some(operation) = script.operation() {
        bench.step(operation, &mut script);
    }
    bench.finish();
}

impl Bench {
    fn new(
        nodes: Vec<Event>,
        reads: ReadBuffer<u64, u64>,
        records_each: bool,
        listens: bool,
    ) -> Self {
        let stage = Arc::new(Mutex::new(Stage {
            listens,
            nodes: nodes.clone(),
            ..Stage::default()
        }));
        let heard = Arc::clone(&stage);
        let notifier = Arc::new_cyclic(|me: &Weak<Notifier<u64, u64>>| {
            let me = me.clone();
            Notifier::new(listens.then(|| -> crate::listener::Listener<u64, u64> {
                Box::new(move |key, _, _| hear(&heard, &me, *key))
            }))
        });
        let pair = || Pair {
            ring: Ring::new(),
            queue: VecDeque::new(),
        };
        Self {
            rings: [pair(), pair()],
            nodes,
            domain: Domain::new(),
            reads,
            records_each,
            read: VecDeque::new(),
            seen: [0; CROWD],
            stamp: 1,
            batch: Batch::new(),
            written: VecDeque::new(),
            stage,
            notifier,
        }
    }

    fn step(&mut self, operation: u8, script: &mut Script<'_>) {
        let ring = usize::from(operation >> 7);
        match operation % 16 {
            0 => (0..script.operand() % 40).for_each(|n| self.rings[ring].offer(n.into())),
            1 => self.rings[ring].offer(script.operand().into()),
            2 => self.rings[ring].drain(script.operand()),
            3 => self.read(script.operand().into()),
            4 => self.replace(script.operand().into(), operation >> 4),
            5 => (0..CROWD).for_each(|number| self.read(number)),
            6 => self.drain_reads(),
            7 => {
                for _ in 0..=script.operand() {
                    self.renew();
                }
            }
            8 | 9 => self.write(operation >> 4, script.operand().into()),
            10 => self.take_batch(),
            11..=13 => post(&self.stage, &self.notifier, script.operand() % 80),
            14 => {
                let mut stage = self.stage.lock().expect("no panic");
                if stage.cues.len() < 100 {
                    stage.cues.push_back(script.operand());
                }
            }
            _ => self.deliver(script.operand()),
        }
    }

    fn read(&mut self, number: usize) {
        let (number, pin) = (number % CROWD, self.domain.pin());
        let node = self.nodes[number];
        let should_record = self.should_record(number);
        assert_eq!(self.reads.should_record(node), should_record);
        if should_record {
            let answer = self.reads.offer(node, 0, &pin);
            let is_known = self.read.back() == Some(&number);
            assert_eq!(answer, is_known || expected(&mut self.read, number));
            if answer {
                self.seen[number] = self.stamp;
            }
        }
    }

    fn should_record(&self, number: usize) -> bool {
        self.records_each || self.seen[number] != self.stamp
    }

    /// A write has put a node, which has the stamp of the one before, in its place.
    fn replace(&mut self, old: usize, distance: u8) {
        let (old, new) = (old % CROWD, (old + usize::from(distance)) % CROWD);
        if old != new {
            let should_record = self.should_record(old);
            self.nodes[new].set_seen(self.nodes[old].seen());
            self.seen[new] = self.stamp;
            assert_eq!(self.reads.record_write(self.nodes[new]), should_record);
        }
    }

    fn drain_reads(&mut self) {
        let mut out = Vec::new();
        let complete = self.reads.drain(0, &mut Vec::new(), |nodes| {
            out.extend(nodes.iter().map(|node| *node.key() as usize));
        });
        assert!(complete);
        assert_eq!(std::mem::take(&mut self.read), out);
    }

    fn renew(&mut self) {
        self.reads.renew();
        // The largest stamp says that each read is recorded.
        self.stamp = if self.stamp == u8::MAX - 1 {
            1
        } else {
            self.stamp + 1
        };
    }

    fn write(&mut self, kind: u8, number: usize) {
        let node = self.nodes[number % CROWD];
        let event = match kind % 4 {
            0 => WriteEvent::new(EventKind::Added, node),
            1 => WriteEvent::with_cause(EventKind::Replaced, node, RemovalCause::Replaced),
            2 => WriteEvent::with_cause(EventKind::Removed, node, RemovalCause::Explicit),
            _ => WriteEvent::new(EventKind::Rescheduled, node),
        };
        event.prefetch(true);
        self.written.push_back(format!("{event:?}"));
        self.batch.push(event);
        assert_eq!(self.batch.len(), self.written.len());
        assert!(!self.batch.is_empty());
    }

    fn take_batch(&mut self) {
        let out: Vec<String> = self
            .batch
            .drain(..)
            .map(|event| format!("{event:?}"))
            .collect();
        assert_eq!(std::mem::take(&mut self.written), out);
        assert!(self.batch.is_empty());
        assert_eq!(self.batch.len(), 0);
    }

    /// Delivers in pieces, until about so many more are delivered.
    fn deliver(&mut self, pieces: u8) {
        let mut taken = Vec::new();
        let first = {
            let stage = self.stage.lock().expect("no panic");
            if !stage.listens {
                return;
            }
            stage.heard
        };
        if pieces == u8::MAX {
            self.notifier.deliver(u64::MAX, |nodes| taken.append(nodes));
            assert_eq!(self.notifier.waiting(), 0);
        } else {
            let most = first + u64::from(pieces);
            self.notifier.deliver(most, |nodes| taken.append(nodes));
            let heard = self.stage.lock().expect("no panic").heard;
            assert!(heard >= most || self.notifier.waiting() == 0);
        }
        assert!(!inside_listener());
        // Each delivered node is returned, once.
        let stage = self.stage.lock().expect("no panic");
        assert_eq!(taken.len() as u64, stage.heard - first);
        assert_eq!(self.notifier.waiting(), stage.posted.len() as u64);
    }

    fn finish(mut self) {
        (0..2).for_each(|ring| self.rings[ring].drain(0));
        self.drain_reads();
        self.take_batch();
        self.deliver(u8::MAX);
        assert_eq!(self.notifier.listener_panics(), 0);
    }
}

/// The listener: receives notifications in the order of the posts, and runs the actions that the
/// program chose.
fn hear(stage: &Mutex<Stage>, me: &Weak<Notifier<u64, u64>>, key: u64) {
    assert!(inside_listener());
    let cue = {
        let mut stage = stage.lock().expect("no panic");
        assert_eq!(stage.posted.pop_front(), Some(key), "out of order");
        stage.heard += 1;
        stage.cues.pop_front()
    };
    let (Some(cue), Some(notifier)) = (cue, me.upgrade()) else {
        return;
    };
    post(stage, &notifier, cue % 8);
    if cue & 0x80 != 0 {
        notifier.deliver(u64::MAX, |_| panic!("another delivers"));
    }
}

fn post(stage: &Mutex<Stage>, notifier: &Notifier<u64, u64>, count: u8) {
    let mut stage = stage.lock().expect("no panic");
    if !stage.listens {
        return;
    }
    let mut gathered: Vec<Notification<u64, u64>> = (0..count)
        .map(|number| {
            let node = stage.nodes[usize::from(number) % CROWD];
            (node, RemovalCause::Expired)
        })
        .collect();
    let keys = gathered.iter().map(|(node, _)| *node.key());
    stage.posted.extend(keys);
    notifier.post(&mut gathered);
    assert!(gathered.is_empty());
}
