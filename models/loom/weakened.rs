//! A model that must fail: a delivery that ends without a second look at the queue.
//!
//! If this model passed, the others would prove nothing.

use super::explore;
use crate::sync::{AtomicBool, Mutex, Ordering};
use loom::sync::Arc;
use loom::thread;

/// Like [`Notifier`](crate::engine::delivery::Notifier), but the thread that delivers takes all
/// that waits at once, and ends without another look at the queue.
struct Hasty {
    taken: AtomicBool,
    queue: Mutex<Vec<u32>>,
}

impl Hasty {
    fn post(&self, item: u32) -> Vec<u32> {
        self.queue.lock().push(item);
        if self.taken.swap(true, Ordering::SeqCst) {
            return Vec::new();
        }
        let delivered = std::mem::take(&mut *self.queue.lock());
        self.taken.store(false, Ordering::SeqCst);
        delivered
    }
}

#[test]
#[should_panic(expected = "left undelivered, as it must be")]
fn two_posts_against_each_other_leave_one_undelivered_without_the_second_look() {
    explore(|| {
        let hasty = Arc::new(Hasty {
            taken: AtomicBool::new(false),
            queue: Mutex::new(Vec::new()),
        });
        let theirs = Arc::clone(&hasty);
        let other = thread::spawn(move || theirs.post(2));
        hasty.post(1);
        other.join().unwrap();
        assert!(
            hasty.queue.lock().is_empty(),
            "left undelivered, as it must be"
        );
    });
}
