//! Writes that depend on the value that is there: compare and set, compare and remove.

use crate::cache::Cache;
use crate::load::state::RevokedBy;
use crate::node::NodePtr;
use crate::operations::{
    Check, Explicit, Hold, LifetimeSource, WriteCondition, Written, remove, write,
};
use crate::time;
use equivalent::Equivalent;
use std::hash::{BuildHasher, Hash};

/// The condition of a write that replaces one certain value.
struct OnlyOver<K, V, M, L> {
    explicit: Explicit,
    /// Whether the value is to be replaced; asked with no lock held.
    matches: M,
    /// Whether a node is in the map and not due.
    lives: L,
    matched: Option<NodePtr<K, V>>,
}

impl<K, V, M, L> WriteCondition<K, V> for OnlyOver<K, V, M, L>
where
    K: Eq,
    M: Fn(&V) -> bool,
    L: Fn(NodePtr<K, V>) -> bool,
{
    const KNOWS_LOADS: bool = true;

    fn look(&mut self, found: Option<NodePtr<K, V>>) -> bool {
        self.matched = found.filter(|&node| (self.lives)(node) && (self.matches)(node.value()));
        self.matched.is_some()
    }

    fn check(
        &mut self,
        found: Option<NodePtr<K, V>>,
        now: u64,
        _: &mut Hold<'_, '_, K, V>,
    ) -> Check {
        // By the time of the write itself: the new value must not replace one that is due at that
        // time.
        let lives = |node: NodePtr<K, V>| !time::is_due(now, node.deadline());
        if found == self.matched && found.is_some_and(lives) {
            Check::Pass
        } else {
            Check::Again
        }
    }

    fn stored(&mut self, hold: &mut Hold<'_, '_, K, V>, written: Written) {
        self.explicit.stored(hold, written);
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Replaces the value of a key if the key is present and `matches` returns true: compare and
    /// set.
    ///
    /// The value that `matches` has seen is the one that is replaced. `matches` runs with no lock
    /// held, and again if another write comes first.
    ///
    /// If the cache has neither a policy nor a `time_to_live`, the entry keeps its deadline.
    ///
    /// # Errors
    ///
    /// The value that was not stored: the key is absent, or its value does not match.
    ///
    /// # Panics
    ///
    /// If `matches`, or other user code that an insert runs, panics.
    ///
    /// # Cost
    ///
    /// A look-up and a clone of the key, then an [`insert`](Self::insert).
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// cache.insert("version", 1);
    /// assert_eq!(cache.replace_if("version", 2, |old| *old == 1), Ok(()));
    /// assert_eq!(cache.replace_if("version", 3, |old| *old == 1), Err(3));
    /// assert_eq!(cache.replace_if("absent", 1, |_| true), Err(1));
    /// ```
    pub fn replace_if<Q>(&self, key: &Q, value: V, matches: impl Fn(&V) -> bool) -> Result<(), V>
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        let core = self.core();
        let hash = core.hash(key);
        let owned = {
            let pin = core.shared.pin();
            let Some(hit) = core.shared.find_live(hash, key, &pin) else {
                return Err(value);
            };
            hit.node.key().clone()
        };
        let condition = OnlyOver {
            explicit: Explicit(RevokedBy::Conditional),
            matches,
            lives: |node| core.shared.is_live(node),
            matched: None,
        };
        let mut new = write::new_node(core, hash, owned, value);
        match write::put_through(core, &mut new, LifetimeSource::Update, condition) {
            Some(outcome) => {
                core.maintenance.after_write(&core.shared, outcome);
                Ok(())
            }
            None => Err(new.take().1),
        }
    }

    /// Removes the value of a key and returns it, if the key is present and `matches` returns true.
    ///
    /// The value that `matches` has seen is the one that is removed. `matches` runs with no lock
    /// held, and again if another write comes first.
    ///
    /// # Panics
    ///
    /// If `matches`, the key's `Hash` or `Eq` or the value's `Clone` panics. The entry is then
    /// still there.
    ///
    /// # Cost
    ///
    /// As [`remove`](Self::remove).
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// cache.insert("token", 1);
    /// assert_eq!(cache.remove_if("token", |token| *token == 2), None);
    /// assert_eq!(cache.remove_if("token", |token| *token == 1), Some(1));
    /// assert_eq!(cache.get("token"), None);
    /// ```
    pub fn remove_if<Q>(&self, key: &Q, matches: impl Fn(&V) -> bool) -> Option<V>
    where
        Q: Equivalent<K> + Hash + ?Sized,
        V: Clone,
    {
        remove::take(self.core(), key, RevokedBy::Conditional, true, |node| {
            let value = node.value();
            (self.core().shared.is_live(node) && matches(value)).then(|| value.clone())
        })
    }
}
