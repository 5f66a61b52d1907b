//! Computes: closures that see the live entry and say what becomes of it.

use super::begin::Got;
use super::commit::Lead;
use super::run::End;
use crate::RemovalCause;
use crate::map::Revalidated;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

impl<K, V, S> Lead<'_, K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Removes the entry over which this run leads, if the load is still current.
    pub(super) fn remove<X>(self, seen: Option<Got<V>>) -> End<V, X> {
        let core = self.core();
        let load = Arc::clone(self.load());
        let hash = load.hash();
        let map = &core.shared.map;
        let (cause, outcome) = loop {
            let pin = core.shared.pin();
            let probe = map.probe(hash, &pin, |node| load.key() == node.key());
            let mut shard = probe.lock();
            let Some(revalidated) = shard.revalidate(hash, &probe) else {
                continue;
            };
            if !load.is_current() {
                drop((shard, probe));
                drop(pin);
                let by = load.revoked();
                self.release_discarded();
                return End::NotRemoved { by };
            }
            let (Revalidated::Occupied(spot), Some(node)) = (revalidated, probe.found) else {
                break (None, None);
            };
            let cause = core.take_out(&mut shard, spot, node);
            if !load.seal() {
                shard.unlist_load(&load);
            }
            break (Some(cause), Some(core.took(&shard)));
        };
        self.release();
        if let Some(outcome) = outcome {
            core.maintenance.after_write(&core.shared, outcome);
        }
        match (cause, seen) {
            (Some(RemovalCause::Explicit), Some(seen)) => End::Removed(seen),
            _ => End::NotRemoved { by: None },
        }
    }
}
