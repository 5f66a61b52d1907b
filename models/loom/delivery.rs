//! The listener's token: a thread that posts against a thread that delivers.

use super::{Owned, explore};
use crate::listener::RemovalCause;
use crate::notify::{Notification, Notifier, Token};
use crate::sync::Mutex;
use crate::time::NEVER;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use std::collections::VecDeque;

/// A queue whose items are delivered by the holder of the token.
struct Scene {
    queue: Mutex<VecDeque<u32>>,
    token: Token<()>,
    inside: AtomicBool,
    delivered: Mutex<Vec<u32>>,
}

impl Scene {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            queue: Mutex::new(VecDeque::new()),
            token: Token::new(()),
            inside: AtomicBool::new(false),
            delivered: Mutex::new(Vec::new()),
        })
    }

    fn post(&self, item: u32) {
        self.queue.lock().push_back(item);
        self.token.run(
            |()| {
                // Relaxed: the token has to order the two accesses.
                assert!(
                    !self.inside.load(Ordering::Relaxed),
                    "two threads deliver at once"
                );
                self.inside.store(true, Ordering::Relaxed);
                let items = std::mem::take(&mut *self.queue.lock());
                self.delivered.lock().extend(items);
                self.inside.store(false, Ordering::Relaxed);
                false
            },
            || self.queue.lock().is_empty(),
        );
    }
}

#[test]
fn two_posts_against_each_other_are_delivered_once_each() {
    explore(|| {
        let scene = Scene::new();
        let theirs = Arc::clone(&scene);
        let other = thread::spawn(move || theirs.post(2));
        scene.post(1);
        other.join().unwrap();
        assert!(scene.queue.lock().is_empty(), "left lying");
        let mut delivered = scene.delivered.lock().clone();
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
        // Only the holder of the maintenance lock posts (notify 1): here one thread.
        let (theirs, posted) = (Arc::clone(&notifier), [nodes[0].0, nodes[1].0]);
        let poster = thread::spawn(move || {
            for node in posted {
                theirs.post(&mut vec![Notification {
                    node,
                    cause: RemovalCause::Explicit,
                }]);
                theirs.deliver(|| true, &mut |nodes| nodes.clear());
            }
        });
        notifier.deliver(|| true, &mut |nodes| nodes.clear());
        poster.join().unwrap();
        assert_eq!(*notes.lock(), [1, 2]);
        assert_eq!(notifier.waiting(), 0);
    });
}
