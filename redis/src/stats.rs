//! The statistics of a near cache.

use std::sync::atomic::{AtomicU64, Ordering};
use wheelhouse::RemovalCause;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident by $count:ident;)*) => {
        /// The counts, as they run. Hits are counted by the local cache.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $($name: AtomicU64,)*
        }

        impl Counters {
            $(pub(crate) fn $count(&self) {
                self.$name.fetch_add(1, Ordering::Relaxed);
            })*

            pub(crate) fn snapshot(
                &self,
                local: wheelhouse::Stats,
                connected: bool,
                entries: u64,
            ) -> NearStats {
                NearStats {
                    local,
                    connected,
                    entries,
                    $($name: self.$name.load(Ordering::Relaxed),)*
                }
            }
        }

        /// A snapshot of what a near cache has done since it was connected.
        ///
        /// ```no_run
        /// # async fn example(near: wheelhouse_redis::NearCache<String, String>) {
        /// let stats = near.stats();
        /// println!("{} reads went to the server", stats.loads());
        /// println!("{} hits", stats.local().hits());
        /// # }
        /// ```
        #[derive(Clone, Debug)]
        pub struct NearStats {
            local: wheelhouse::Stats,
            connected: bool,
            entries: u64,
            $($name: u64,)*
        }

        impl NearStats {
            /// The statistics of the local cache: hits, entries, evictions.
            ///
            /// A read that goes to the server looks there more than once, so `misses` counts it
            /// more than once: use [`loads`](Self::loads). `hits` also counts entries that were
            /// found, but were outdated and not served.
            ///
            /// All zero unless the builder of the local cache had `record_stats`.
            pub fn local(&self) -> &wheelhouse::Stats {
                &self.local
            }

            /// Returns all counts as names and numbers, for an exporter: those of this type, then
            /// those of the local cache, whose names begin with `local_`. They only grow, except
            /// for the last two, which are gauges: `connected` (1 or 0) and `local_entries`.
            ///
            /// ```no_run
            /// # fn example(near: wheelhouse_redis::NearCache<String, String>) {
            /// for (name, count) in near.stats().list() {
            ///     println!("near_{name} {count}");
            /// }
            /// # }
            /// ```
            pub fn list(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                let local = &self.local;
                let near = [$((stringify!($name), self.$name),)*];
                let local = [
                    ("local_hits", local.hits()),
                    ("local_misses", local.misses()),
                    ("local_insertions", local.insertions()),
                    ("local_updates", local.updates()),
                    ("local_expired", local.removals(RemovalCause::Expired)),
                    ("local_evicted", local.removals(RemovalCause::Size)),
                    ("local_evicted_weight", local.evicted_weight()),
                    ("connected", u64::from(self.connected)),
                    ("local_entries", self.entries),
                ];
                near.into_iter().chain(local)
            }

            $($(#[$doc])* pub fn $name(&self) -> u64 {
                self.$name
            })*
        }
    };
}

counters! {
    /// Keys asked for at the server; one that is asked for again, after a disconnect, since the
    /// server has put it off or since its value turns out to be large, counts again.
    loads by load;
    /// Loads whose value was returned, but not kept, since the key changed meanwhile.
    revoked_loads by revoked_load;
    /// Loads that ended with an error.
    failed_loads by failed_load;
    /// Loads of the user's source that were begun; a bulk counts once.
    load_runs by load_run;
    /// Values that were loaded, but not written to the server.
    unsaved_loads by unsaved_load;
    /// Waits of `get_with` for the load of another call or process.
    load_waits by load_wait;
    /// Reads that failed since their key was refused.
    refused_keys by refused_key;
    /// Commands that change keys, sent to the server: values, deletions, new lives, and what loads
    /// do with placeholders. One that is sent again counts again.
    writes by write;
    /// Keys that the server reported as changed.
    invalidated_keys by invalidated_key;
    /// Reports that everything changed.
    invalidations_of_everything by invalidated_everything;
    /// Reported keys that are no keys of this near cache.
    foreign_keys by foreign_key;
    /// Messages without effect: of an unknown kind, or of an old connection.
    ignored_pushes by ignored_push;
    /// Connections that were made, the first one included.
    connections by made_connection;
    /// Connections that ended without `close`.
    lost_connections by lost_connection;
    /// Walks over the local cache that removed outdated entries.
    flushes by flushed;
}
