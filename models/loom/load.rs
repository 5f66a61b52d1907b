//! The state of a load: leader, waiters, revocation.

use super::explore;
use crate::compute::Entry;
use crate::flight::{Load, Outcome, RevokedBy, Verdict, Want};
use crate::map::Map;
use crate::node::Columns;
use crate::sync::cycle::{Ticket, WaitTarget};
use crate::sync::{AtomicU64, Mutex, Ordering, Parker};
use crate::time::NEVER;
use loom::thread;
use std::sync::Arc;
use std::task::{Context, Waker};

/// A load behind its shard's lock, with a flag that says whether it is listed.
struct Scene {
    load: Load<u8, u32>,
    listed: Mutex<bool>,
}

impl Scene {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            load: Load::new(7, 1, 0, 0),
            listed: Mutex::new(true),
        })
    }

    /// The leader stores its value if the load is current, and publishes the outcome.
    fn commit(&self, value: u32) -> bool {
        let mut listed = self.listed.lock();
        let current = self.load.is_current();
        assert_eq!(current, *listed, "listed exactly while it is current");
        let waited = current && self.load.seal();
        *listed = self.load.is_current();
        drop(listed);
        if waited || !current {
            let shared = Arc::new(Entry {
                key: (),
                value,
                fresh: false,
                replaced: false,
                stored: current,
                left: None,
            });
            self.end(&Outcome::Value(shared, NEVER));
        }
        current
    }

    fn end(&self, outcome: &Outcome<u32>) {
        let mut listed = self.listed.lock();
        let ended = self.load.publish_end(outcome, 0);
        *listed &= self.load.is_current();
        drop(listed);
        ended.release();
    }

    /// Whether a waiter that was offered the lead does so: else a write came first.
    fn lead(&self, ticket: Ticket) -> bool {
        let listed = self.listed.lock();
        let leads = *listed;
        if leads {
            let is_free = self.load.is_free_for(Some(ticket), Want::Value);
            assert!(is_free, "nothing else takes the lead");
            assert!(self.load.take_lead(Some(ticket), 0));
        }
        drop(listed);
        if !leads && self.load.leave(ticket) {
            self.end(&Outcome::Nothing);
        }
        leads
    }

    fn revoke(&self) -> bool {
        let mut listed = self.listed.lock();
        let was = std::mem::replace(&mut *listed, false);
        if was {
            self.load.revoke(RevokedBy::Overwrite);
        }
        drop(listed);
        if was {
            self.load.release_waiters().release();
        }
        was
    }

    /// The outcome that a waiter gets; `None` if the load was no longer current. If it is
    /// offered the lead, it takes that as a call does that claims the key again.
    fn wait(&self, want: Want) -> Option<Verdict<u8, u32>> {
        let ticket = Ticket::draw();
        let parker = Parker::own();
        let waker = Waker::from(Arc::clone(&parker));
        let listed = self.listed.lock();
        if !*listed {
            return None;
        }
        self.load.join(ticket, want);
        drop(listed);
        loop {
            match self.load.poll(ticket, &mut Context::from_waker(&waker)) {
                Some(Verdict::Offered) => {
                    let leads = self.lead(ticket);
                    return Some(if leads {
                        Verdict::Offered
                    } else {
                        Verdict::Retry
                    });
                }
                Some(verdict) => return Some(verdict),
                None => parker.park(None),
            }
        }
    }
}

#[test]
fn a_waiter_against_a_commit_gets_the_value_or_comes_too_late() {
    explore(|| {
        let scene = Scene::new();
        let theirs = Arc::clone(&scene);
        let waiter = thread::spawn(move || match theirs.wait(Want::Value) {
            Some(Verdict::Ended(Outcome::Value(shared, _))) => assert_eq!(shared.value, 5),
            Some(_) => panic!("another verdict"),
            None => assert!(!theirs.load.is_current()),
        });
        assert!(scene.commit(5));
        waiter.join().unwrap();
        assert!(!*scene.listed.lock());
    });
}

#[test]
fn a_waiter_against_a_failure_leads_or_comes_too_late() {
    explore(|| {
        let scene = Scene::new();
        let theirs = Arc::clone(&scene);
        let waiter = thread::spawn(move || match theirs.wait(Want::Value) {
            Some(Verdict::Offered) => assert!(theirs.commit(6)),
            Some(_) => panic!("another verdict"),
            None => (),
        });
        scene.end(&Outcome::Nothing);
        waiter.join().unwrap();
        assert!(!*scene.listed.lock(), "a load is left behind");
    });
}

#[test]
fn a_revocation_against_a_commit_comes_before_or_after() {
    explore(|| {
        let scene = Scene::new();
        let theirs = Arc::clone(&scene);
        let writer = thread::spawn(move || theirs.revoke());
        let stored = scene.commit(5);
        let revoked = writer.join().unwrap();
        assert!(stored != revoked, "stored {stored}, revoked {revoked}");
    });
}

#[test]
fn a_turn_against_a_revocation_is_not_held_up_by_a_stuck_leader() {
    explore(|| {
        let scene = Scene::new();
        let theirs = Arc::clone(&scene);
        let turn = thread::spawn(move || match theirs.wait(Want::OwnTurn) {
            Some(Verdict::Retry) | None => (),
            Some(_) => panic!("another verdict"),
        });
        // A leader that never ends.
        assert!(scene.revoke());
        turn.join().unwrap();
        assert!(!*scene.listed.lock(), "a load is left behind");
    });
}

#[test]
fn a_hand_over_against_a_revocation_wakes_the_waiter() {
    explore(|| {
        let scene = Scene::new();
        let theirs = Arc::clone(&scene);
        let waiter = thread::spawn(move || match theirs.wait(Want::Value) {
            Some(Verdict::Offered) => _ = theirs.commit(6),
            Some(Verdict::Retry) | None => (),
            Some(_) => panic!("another verdict"),
        });
        let writers = Arc::clone(&scene);
        let writer = thread::spawn(move || writers.revoke());
        scene.end(&Outcome::Nothing);
        waiter.join().unwrap();
        writer.join().unwrap();
        assert!(!*scene.listed.lock(), "a load is left behind");
    });
}

#[test]
fn a_waiter_that_leaves_against_a_hand_over_passes_it_on() {
    explore(|| {
        let scene = Scene::new();
        let first = Ticket::draw();
        scene.load.join(first, Want::Value);
        let theirs = Arc::clone(&scene);
        let second = thread::spawn(move || match theirs.wait(Want::Value) {
            Some(Verdict::Offered) => assert!(theirs.commit(6)),
            Some(_) => panic!("another verdict"),
            None => (),
        });
        let leaving = Arc::clone(&scene);
        let leaves = thread::spawn(move || {
            if leaving.load.leave(first) {
                leaving.end(&Outcome::Nothing);
            }
        });
        scene.end(&Outcome::Nothing);
        second.join().unwrap();
        leaves.join().unwrap();
        assert!(!*scene.listed.lock(), "a load is left behind");
    });
}

#[test]
fn a_hand_over_against_a_look_for_a_cycle() {
    explore(|| {
        const LEADER: u64 = 8;
        const WAITER: u64 = 9;
        let scene = Scene::new();
        scene.load.set_leader_thread(LEADER);
        let ticket = Ticket::draw();
        scene.load.join(ticket, Want::Value);
        let theirs = Arc::clone(&scene);
        let leader = thread::spawn(move || theirs.end(&Outcome::Nothing));
        // Another thread looks for whom the waiter waits, while the leader hands the lead to it,
        // and it leads.
        let others = Arc::clone(&scene);
        let looks = thread::spawn(move || others.load.awaited_thread(ticket));
        let leads = |verdict| {
            assert!(matches!(verdict, Verdict::Offered));
            scene.load.set_leader_thread(WAITER);
        };
        let early = scene
            .load
            .poll(ticket, &mut Context::from_waker(Waker::noop()))
            .map(leads);
        let awaited = looks.join().unwrap();
        assert!(matches!(awaited, None | Some(LEADER)), "a false alarm");
        leader.join().unwrap();
        if early.is_none() {
            scene
                .load
                .poll(ticket, &mut Context::from_waker(Waker::noop()))
                .map(leads)
                .unwrap();
        }
        scene.commit(6);
    });
}

/// The source of the values is the program's, outside of the cache. Its writer changes it, then
/// removes the absent key. Either it finds the load, and revokes it, or the load reads the new
/// value.
#[test]
fn a_load_against_a_change_of_its_source_and_a_removal() {
    explore(|| {
        let map = Arc::new(
            Map::<u8, u32>::new(1, 0, Columns::default()).expect("memory for a small map"),
        );
        let source = Arc::new(AtomicU64::new(0));
        let theirs = (Arc::clone(&map), Arc::clone(&source));
        let reader = thread::spawn(move || {
            let (map, source) = theirs;
            let load = Arc::new(Load::new(7, 1, 0, 0));
            map.lock(7).change_loads(|loads| loads.add(load));
            source.load(Ordering::Relaxed)
        });
        source.store(1, Ordering::Relaxed);
        let finds_load = !map.lock(7).loads().is_empty();
        let loaded = reader.join().unwrap();
        assert!(finds_load || loaded == 1, "the old value would be stored");
    });
}
