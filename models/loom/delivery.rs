//! Notifications: threads that post against threads that deliver.

use super::{Owned, explore};
use crate::engine::delivery::Notifier;
use crate::listener::RemovalCause;
use crate::sync::Mutex;
use crate::time::NEVER;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

#[test]
fn two_posts_against_each_other_are_delivered_once_each() {
    explore(|| {
        let (inside, notes) = (AtomicBool::new(false), Arc::new(Mutex::new(Vec::new())));
        let heard = Arc::clone(&notes);
        let notifier = Arc::new(Notifier::new(Some(Box::new(
            move |key: &u64, _: &u64, _: RemovalCause| {
                // Relaxed: the notifier has to order the two accesses.
                assert!(
                    !inside.load(Ordering::Relaxed),
                    "two threads deliver at once"
                );
                inside.store(true, Ordering::Relaxed);
                heard.lock().push(*key);
                inside.store(false, Ordering::Relaxed);
            },
        ))));
        let nodes = [Owned::new(1, NEVER), Owned::new(2, NEVER)];
        // A post is one of a holder of the maintenance lock (delivery 1).
        let passes = Arc::new(Mutex::new(()));
        let post = |node, notifier: &Notifier<u64, u64>, passes: &Mutex<()>| {
            let pass = passes.lock();
            notifier.post(&mut vec![(node, RemovalCause::Explicit)]);
            drop(pass);
            notifier.deliver(u64::MAX, |told| told.clear());
        };
        let (theirs, second, their_passes) =
            (Arc::clone(&notifier), nodes[1].0, Arc::clone(&passes));
        let other = thread::spawn(move || post(second, &theirs, &their_passes));
        post(nodes[0].0, &notifier, &passes);
        other.join().unwrap();
        assert_eq!(notifier.waiting(), 0, "left undelivered");
        let mut delivered = notes.lock().clone();
        delivered.sort_unstable();
        assert_eq!(delivered, [1, 2]);
    });
}

#[test]
fn posts_in_order_against_a_delivery_are_delivered_in_order() {
    explore(|| {
        let notes = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&notes);
        let notifier = Arc::new(Notifier::new(Some(Box::new(
            move |key: &u64, _: &u64, _: RemovalCause| heard.lock().push(*key),
        ))));
        let nodes = [Owned::new(1, NEVER), Owned::new(2, NEVER)];
        // Only the holder of the maintenance lock posts (delivery 1): here one thread.
        let (theirs, posted) = (Arc::clone(&notifier), [nodes[0].0, nodes[1].0]);
        let poster = thread::spawn(move || {
            for node in posted {
                theirs.post(&mut vec![(node, RemovalCause::Explicit)]);
                theirs.deliver(u64::MAX, |nodes| nodes.clear());
            }
        });
        notifier.deliver(u64::MAX, |nodes| nodes.clear());
        poster.join().unwrap();
        assert_eq!(*notes.lock(), [1, 2]);
        assert_eq!(notifier.waiting(), 0);
    });
}
