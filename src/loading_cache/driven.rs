//! Loads of an async loader, for calls that wait: each drives the shared futures of the loads that
//! it waits for.

use super::LoadingCache;
use super::error::LoadError;
use super::launch::join_own;
use super::run::answer;
use super::run::{drive, drive_several};
use super::source::{BoxFuture, Futures};
use super::wait::{Lateness, Wait};
use crate::load::{Load, Ticket, Verdict, Want};
use crate::loading::{
    ByRef, CacheHasher, CacheKey, CacheValue, Dropped, Keys, LoadRequest, Right, Role, fallible,
    wrong_number_of_values,
};
use equivalent::Equivalent;
use std::any::TypeId;
use std::borrow::ToOwned;
use std::future::poll_fn;
use std::hash::Hash;
use std::sync::{Arc, OnceLock};

/// The waits of a call for several keys, with their places among the keys.
type Waits<K, V, S> = Vec<(usize, Wait<K, V, S>)>;

/// How a call gets the value of a key.
struct CallPlan<'a, F> {
    /// Which outcomes of another call's load it takes.
    ask: LoadRequest,
    /// Which outcomes of its own load it takes.
    own: Want,
    /// The future of its own load.
    start: F,
    /// The numbers of keys and of values of its loader's last call, if they differ.
    wrong: &'a OnceLock<(usize, usize)>,
}

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>
    LoadingCache<K, V, E, S>
{
    /// Loads an absent key.
    pub(super) async fn load_driven<Q>(
        &self,
        loader: &Arc<dyn Futures<K, V, E>>,
        key: &Q,
    ) -> Result<V, LoadError<E>>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let want = fallible::<LoadError<E>>();
        let plan = CallPlan {
            ask: LoadRequest::value(want),
            own: want,
            start: |right| drive(Arc::clone(loader), right),
            wrong: &OnceLock::new(),
        };
        let value = self.follow(&plan, key, None).await?;
        Ok(value.unwrap_or_else(|| unreachable!("it accepts values and errors only")))
    }

    /// Loads the keys that are absent. One future loads all of them that no other call loads. It
    /// waits for the other loads when its own have ended.
    pub(super) async fn load_all_driven(
        &self,
        loader: &Arc<dyn Futures<K, V, E>>,
        mut keys: Keys<K, V>,
    ) -> Result<Vec<Option<V>>, LoadError<E>> {
        let wrong = Arc::new(OnceLock::new());
        let several = |rights| drive_several(Arc::clone(loader), rights, Arc::clone(&wrong));
        let plan = CallPlan {
            ask: LoadRequest::value(Want::Optional),
            own: Want::Any(TypeId::of::<LoadError<E>>()),
            start: |right| several(vec![right]),
            wrong: &wrong,
        };
        let (own, others) = self.begin_several(&mut keys, plan.own, several);
        for (place, wait) in own.into_iter().chain(others) {
            if !wait.leads() {
                wait.load().wait_now(wait.ticket());
            }
            keys.answers[place] = self.follow(&plan, &keys.unique[place], Some(wait)).await?;
        }
        Ok(keys.in_order())
    }

    /// Finds the call's part in the load of each key that was missed, and starts its own ones.
    fn begin_several(
        &self,
        keys: &mut Keys<K, V>,
        own: Want,
        start: impl FnOnce(Vec<Right<K, V, S>>) -> BoxFuture<()>,
    ) -> (Waits<K, V, S>, Waits<K, V, S>) {
        let core = &self.cache.core;
        let ask = LoadRequest::value(Want::LookUpAgain);
        let (mut places, mut rights, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for &place in &keys.missing {
            let key = &keys.unique[place];
            let mut ticket = None;
            let begun = (core.loads()).begin(
                None,
                &mut ByRef::new(key),
                core.hash(key),
                &ask,
                &mut ticket,
            );
            match begun {
                Role::Found(got) => keys.answers[place] = Some(got.value),
                Role::Lead(lead, _) => {
                    places.push(place);
                    rights.push(self.right_of(lead, None, Dropped::PassesOn));
                }
                Role::Joined(load) => others.push((place, self.wait_for(load, ticket))),
                Role::Busy => unreachable!("it waits"),
            }
        }
        if rights.is_empty() {
            return (Vec::new(), others);
        }
        let loads: Vec<_> = (rights.iter().map(Right::load)).map(Arc::clone).collect();
        let tickets: Vec<_> = (loads.iter())
            .map(|load| join_own(core, load, None, own))
            .collect();
        let mut attached = Some(self.inner.drives.start(&loads, start(rights)));
        let parts = loads.into_iter().zip(tickets);
        let parts = parts
            .map(|(load, ticket)| (self.wait_for(load, Some(ticket))).of_leader(attached.take()));
        (places.into_iter().zip(parts).collect(), others)
    }

    /// Waits until a load of the key has ended: the load of `wait`, or the one that the key has
    /// now.
    ///
    /// A call whose own load is overdue has timed out. One that waits for the load of another call
    /// continues once, with the newer load.
    async fn follow<Q, F>(
        &self,
        plan: &CallPlan<'_, F>,
        key: &Q,
        wait: Option<Wait<K, V, S>>,
    ) -> Result<Option<V>, LoadError<E>>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
        F: Fn(Right<K, V, S>) -> BoxFuture<()>,
    {
        let mut step = match wait {
            Some(wait) => Err(wait),
            None => self.step(plan, key, None, None),
        };
        let mut switched = false;
        loop {
            let mut wait = match step {
                Ok(value) => return Ok(Some(value)),
                Err(wait) => wait,
            };
            let verdict = poll_fn(|cx| wait.poll(cx)).await;
            if let Some(&(asked, got)) = plan.wrong.get() {
                if let Verdict::Leads = verdict {
                    wait.pass_on();
                }
                panic!("{}", wrong_number_of_values(asked, got));
            }
            let offered = match verdict {
                Verdict::Ended(outcome) => return answer(&outcome),
                Verdict::Leads => Some(Arc::clone(wait.load())),
                Verdict::Retry => {
                    match wait.lateness() {
                        Lateness::InTime => (),
                        Lateness::Overdue if wait.leads() => return Err(LoadError::TimedOut),
                        _ if switched => return Err(LoadError::TimedOut),
                        _ => switched = true,
                    }
                    None
                }
            };
            step = self.step(plan, key, Some(wait.ticket()), offered);
        }
    }

    /// A call's part in the load of a key that was absent: its value, or its wait.
    fn step<Q, F>(
        &self,
        plan: &CallPlan<'_, F>,
        key: &Q,
        mut ticket: Option<Ticket>,
        offered: Option<Arc<Load<K, V>>>,
    ) -> Result<V, Wait<K, V, S>>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
        F: Fn(Right<K, V, S>) -> BoxFuture<()>,
    {
        let core = &self.cache.core;
        // Not computed again for a load that is offered: a panic would lose it.
        let hash = (offered.as_ref()).map_or_else(|| core.hash(key), |load| load.hash());
        let mut key = ByRef::new(key);
        match (core.loads()).begin(offered, &mut key, hash, &plan.ask, &mut ticket) {
            Role::Found(got) => Ok(got.value),
            Role::Lead(lead, _) => {
                let right = self.right_of(lead, None, Dropped::PassesOn);
                let load = Arc::clone(right.load());
                let ticket = join_own(core, &load, ticket, plan.own);
                let future = (plan.start)(right);
                let attached = (self.inner.drives).start(std::slice::from_ref(&load), future);
                Err((self.wait_for(load, Some(ticket))).of_leader(Some(attached)))
            }
            Role::Joined(load) => Err(self.wait_for(load, ticket)),
            Role::Busy => unreachable!("it waits"),
        }
    }
}
