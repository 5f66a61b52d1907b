//! A record of what a removal listener received.

use std::sync::{Arc, Mutex};

use wheelhouse::RemovalCause;

/// What a removal listener received, in order.
pub struct Record<K, V>(Arc<Mutex<Vec<(K, V, RemovalCause)>>>);

impl<K, V> Clone for Record<K, V> {
    fn clone(&self) -> Self {
        Record(Arc::clone(&self.0))
    }
}

impl<K, V> Record<K, V>
where
    K: Clone + Send + 'static,
    V: Clone + Send + 'static,
{
    pub fn new() -> Self {
        Record(Arc::new(Mutex::new(Vec::new())))
    }

    pub fn listener(&self) -> impl Fn(&K, &V, RemovalCause) + Send + Sync + 'static {
        let record = self.clone();
        move |key, value, cause| record.note(key, value, cause)
    }

    pub fn note(&self, key: &K, value: &V, cause: RemovalCause) {
        let notice = (key.clone(), value.clone(), cause);
        self.0.lock().unwrap().push(notice);
    }

    /// All notifications since the last call.
    pub fn take(&self) -> Vec<(K, V, RemovalCause)> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    pub fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl<K: Ord, V: Ord> Record<K, V> {
    /// As `take`, sorted: for removals that happen together, whose order between keys is not
    /// guaranteed.
    pub fn take_sorted(&self) -> Vec<(K, V, RemovalCause)> {
        let mut all = std::mem::take(&mut *self.0.lock().unwrap());
        all.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        all
    }
}
