//! Loads of threads: the leader runs its closure on its own stack; a waiter spins if its turn is
//! near, and then parks.

use super::begin::LoadRequest;
use super::bounds::{CacheKey, CacheValue};
use super::commit::{Committed, Lead};
use super::got::Got;
use super::key::Key;
use super::seek::{FinalRole, RoleSearch};
use crate::load::{Failure, Load, Outcome, RevokedBy, Ticket, Verdict, WaitCycle, wait_in};
use crate::operations::{LifetimeSource, LoadView};
use crate::shared::about;
use crate::stripe::cores;
use crate::sync::{IS_MODEL, Parker};
use crate::time::Clock;
use std::any::Any;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

/// The result of a closure. `X` is a part that only the closure's own caller sees.
#[derive(Debug)]
pub(crate) enum Made<V, X> {
    Put(V, LifetimeSource),
    /// There is no value.
    Absent,
    Error(Arc<dyn Any + Send + Sync>),
    /// A compute leaves things as they are.
    Keep,
    /// A compute removes the entry.
    Remove,
    /// A compute failed.
    Broke(X),
}

/// The end of a call.
#[derive(Debug)]
pub(crate) enum End<V, X> {
    /// A value that the call's own closure did not make.
    Found(Got<V>),
    /// The closure's own value, with what its leader saw, and what became of it.
    Put {
        seen: Option<Got<V>>,
        committed: Committed<V>,
    },
    Failed(Failure),
    /// A compute left things as they were.
    Kept(Option<Got<V>>),
    /// A compute removed what it saw.
    Removed(Got<V>),
    /// A compute was to remove the entry, which had gone: by itself, or by a write.
    NotRemoved {
        by: Option<RevokedBy>,
    },
    Broke(X),
    /// The call does not wait.
    Busy,
}

impl<V, X> End<V, X> {
    /// The end of a call that does not lead.
    pub(super) fn of_role<K, S>(role: FinalRole<'_, K, V, S>, clock: &Clock) -> Self
    where
        V: Clone,
    {
        match role {
            FinalRole::Found(got) => Self::Found(got),
            FinalRole::Shared(Outcome::Value(shared)) => Self::Found(Got::of_load(&shared, clock)),
            FinalRole::Shared(Outcome::Failed(failure)) => Self::Failed(failure),
            FinalRole::Busy => Self::Busy,
            FinalRole::Shared(Outcome::Nothing) | FinalRole::Lead(..) => {
                unreachable!("a waiter accepts a value or a failure")
            }
        }
    }

    /// The value, however it came.
    #[inline]
    pub(crate) fn got(self) -> Result<Got<V>, Option<Failure>> {
        match self {
            Self::Found(got) => Ok(got),
            Self::Put { committed, .. } => Ok(committed.got()),
            Self::Failed(failure) => Err(Some(failure)),
            _ => Err(None),
        }
    }
}

impl<V> Committed<V> {
    /// The end of a call that leads: the live value, if the load was revoked and there is one.
    #[inline]
    pub(crate) fn got(self) -> Got<V> {
        match self {
            Self::Stored { got, .. } => got,
            Self::Revoked { live, value, .. } => Self::got_of_revoked(live, value),
        }
    }

    /// The live value if there is one, else the value of the load itself.
    // Out of line: if a value of many kilobytes comes from one of three places, the compiler takes
    // minutes for the caller.
    #[cold]
    #[inline(never)]
    fn got_of_revoked(live: Option<Got<V>>, value: V) -> Got<V> {
        live.unwrap_or(Got::unstored(value))
    }
}

impl<K: CacheKey, V: CacheValue, S: BuildHasher> LoadView<'_, K, V, S> {
    /// Runs a closure for a key in turn, or waits for another call's outcome.
    ///
    /// # Panics
    ///
    /// If the thread would wait for itself.
    #[track_caller]
    pub(crate) fn run<Y: Key<K>, X>(
        self,
        key: Y,
        ask: LoadRequest,
        closure: impl FnOnce(Option<&Got<V>>) -> Made<V, X>,
    ) -> End<V, X> {
        self.run_hashed(self.core.hash(key.query()), key, ask, closure)
    }

    /// [`run`](Self::run) for a key with this hash.
    #[inline]
    #[track_caller]
    pub(crate) fn run_hashed<Y: Key<K>, X>(
        self,
        hash: u64,
        key: Y,
        ask: LoadRequest,
        closure: impl FnOnce(Option<&Got<V>>) -> Made<V, X>,
    ) -> End<V, X> {
        let ask = ask.of_thread();
        match RoleSearch::new(self.core, key, ask)
            .with_hash(hash)
            .wait(None)
        {
            Ok(Some(FinalRole::Lead(lead, seen))) => {
                let made = closure(seen.as_ref());
                lead.conclude(seen, made)
            }
            Ok(Some(role)) => End::of_role(role, &self.core.shared.clock),
            Ok(None) => unreachable!("it waits for ever"),
            Err(cycle) => panic!("{cycle}"),
        }
    }

    /// Waits as a thread, but not for longer than `until`.
    pub(super) fn wait_until(
        self,
        load: &Arc<Load<K, V>>,
        ticket: Ticket,
        until: Option<Instant>,
    ) -> Result<Option<Verdict<V>>, WaitCycle> {
        let parker = Parker::own();
        let waker = Waker::from(Arc::clone(&parker));
        if let Some(verdict) = load.poll(ticket, Some(&waker)) {
            return Ok(Some(verdict));
        }
        // Spin before noting the wait: a short turn ends sooner than a thread could fall asleep. A
        // thread that is not among the next would only take the processor from the threads before
        // it.
        if !IS_MODEL && load.is_among_next(ticket, cores() - 1) {
            let end = Parker::spins_until();
            // A wake-up may be one of an earlier wait.
            while parker.spin(end) {
                if let Some(verdict) = load.poll(ticket, Some(&waker)) {
                    return Ok(Some(verdict));
                }
            }
        }
        wait_in(Arc::<Load<K, V>>::clone(load), ticket, || {
            loop {
                if let Some(verdict) = load.poll(ticket, Some(&waker)) {
                    return Some(verdict);
                }
                let patience = self.patience(load);
                if patience == Some(Duration::ZERO) {
                    self.give_up(load, ticket);
                    return Some(Verdict::Retry);
                }
                let left = until.map(|until| until.saturating_duration_since(Instant::now()));
                if left == Some(Duration::ZERO) {
                    return None;
                }
                match patience.into_iter().chain(left).min() {
                    None => parker.park(),
                    Some(time) => parker.park_for(time),
                }
            }
        })
    }
}

impl<K, V, S> LoadView<'_, K, V, S> {
    /// A waiter leaves. If it had been told to lead, the next one leads.
    pub(super) fn give_up(self, load: &Arc<Load<K, V>>, ticket: Ticket) {
        if load.leave(ticket) {
            drop(Lead::new(self.core, Arc::clone(load)));
        }
    }

    /// The message about a cycle.
    pub(crate) fn cycle_message(self, load: &Load<K, V>, cycle: WaitCycle) -> String {
        about(self.core.shared.name.as_deref(), &cycle.fault(load.hash()))
    }
}

impl<K: CacheKey, V: CacheValue, S: BuildHasher> Lead<'_, K, V, S> {
    /// Ends the run with what its closure made.
    #[inline]
    pub(super) fn conclude<X>(self, seen: Option<Got<V>>, made: Made<V, X>) -> End<V, X> {
        match made {
            Made::Put(value, given) => End::Put {
                seen,
                committed: self.commit(value, given),
            },
            Made::Absent => {
                self.fail(Failure::Absent);
                End::Failed(Failure::Absent)
            }
            Made::Error(error) => {
                let failure = Failure::Error(error);
                self.fail(failure.clone());
                End::Failed(failure)
            }
            Made::Keep => {
                self.release();
                End::Kept(seen)
            }
            Made::Remove => self.remove(seen),
            Made::Broke(error) => {
                drop(self);
                End::Broke(error)
            }
        }
    }
}
