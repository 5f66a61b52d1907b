//! Loads of an async loader, for calls that wait: each drives the shared futures of the loads that
//! it waits for.

use super::LoadingCache;
use super::drive::Attached;
use super::error::LoadError;
use super::run::answer;
use super::run::{drive, drive_several};
use super::source::{BoxFuture, Futures, panicked};
use super::wait::{Lateness, Wait};
use crate::load::{Load, Ticket, Verdict, Want};
use crate::loading::{
    ByRef, CacheHasher, CacheKey, CacheValue, Dropped, Keys, Lead, LoadRequest, Right, Role,
    fallible, wrong_number_of_values,
};
use equivalent::Equivalent;
use std::any::TypeId;
use std::borrow::ToOwned;
use std::future::poll_fn;
use std::hash::Hash;
use std::sync::{Arc, OnceLock};

/// A call's wait for a load.
struct Part<K: CacheKey, V: CacheValue, S: CacheHasher> {
    wait: Wait<K, V, S>,
    ticket: Ticket,
    /// Whether the load is the call's own.
    leads: bool,
}

/// How a call gets the value of a key.
struct Way<'a, F> {
    /// Which outcomes of another call's load it takes.
    ask: LoadRequest,
    /// Which outcomes of its own load it takes.
    own: Want,
    /// The future of its own load.
    start: F,
    /// What its loader was asked for and what it returned, if these are not as many.
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
        let way = Way {
            ask: LoadRequest::value(want),
            own: want,
            start: |right| drive(Arc::clone(loader), right),
            wrong: &OnceLock::new(),
        };
        let value = self.follow(&way, key, None).await?;
        Ok(value.unwrap_or_else(|| unreachable!("it accepts values and errors only")))
    }

    /// Reads several keys, and loads those that are absent: by one future those that no other call
    /// loads. It waits for the other loads when its own have ended.
    pub(super) async fn load_all_driven(
        &self,
        loader: &Arc<dyn Futures<K, V, E>>,
        keys: Vec<K>,
    ) -> Result<Vec<Option<V>>, LoadError<E>> {
        let wrong = Arc::new(OnceLock::new());
        let several = |rights| drive_several(Arc::clone(loader), rights, Arc::clone(&wrong));
        let way = Way {
            ask: LoadRequest::value(Want::Optional),
            own: Want::Any(TypeId::of::<LoadError<E>>()),
            start: |right| several(vec![right]),
            wrong: &wrong,
        };
        let mut keys = Keys::fold(keys);
        keys.look_up(&self.cache);
        let (own, others) = self.begin_several(&mut keys, way.own, several);
        for (place, part) in own {
            keys.answers[place] = self.follow(&way, &keys.unique[place], Some(part)).await?;
        }
        for (place, part) in others {
            part.wait.load().wait_now(part.ticket);
            keys.answers[place] = self.follow(&way, &keys.unique[place], Some(part)).await?;
        }
        Ok(keys.in_order())
    }

    /// Finds the call's part in the load of each key that was missed, and starts its own ones.
    #[expect(
        clippy::type_complexity,
        reason = "the places and parts of its own loads, and of the others"
    )]
    fn begin_several(
        &self,
        keys: &mut Keys<K, V>,
        own: Want,
        start: impl FnOnce(Vec<Right<K, V, S>>) -> BoxFuture<()>,
    ) -> (Vec<(usize, Part<K, V, S>)>, Vec<(usize, Part<K, V, S>)>) {
        let core = &self.cache.core;
        let ask = LoadRequest::value(Want::Later);
        let (mut places, mut rights, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for &place in &keys.missing {
            let key = &keys.unique[place];
            let mut ticket = None;
            let begun =
                (core.loads()).begin(&mut ByRef::new(key), core.hash(key), &ask, &mut ticket);
            match begun {
                Role::Found(got) => keys.answers[place] = Some(got.value),
                Role::Lead(lead, _) => {
                    places.push(place);
                    rights.push(self.right_of(lead));
                }
                Role::Joined(load) => others.push((place, self.joined(load, ticket))),
                Role::Busy => unreachable!("it waits"),
            }
        }
        if rights.is_empty() {
            return (Vec::new(), others);
        }
        let loads: Vec<_> = (rights.iter().map(Right::load)).map(Arc::clone).collect();
        let tickets: Vec<_> = (loads.iter())
            .map(|load| self.join_own(load, None, own))
            .collect();
        let mut attached = Some(self.inner.drives.start(&loads, start(rights)));
        let parts = loads.into_iter().zip(tickets);
        let parts = parts.map(|(load, ticket)| self.leading(load, ticket, attached.take()));
        (places.into_iter().zip(parts).collect(), others)
    }

    /// Waits for the load of a key until that has ended: for the one of `part`, or the one that the
    /// key has now.
    ///
    /// A call whose own load is overdue has timed out. One that waits for the load of another call
    /// continues once, with the newer load.
    async fn follow<Q, F>(
        &self,
        way: &Way<'_, F>,
        key: &Q,
        part: Option<Part<K, V, S>>,
    ) -> Result<Option<V>, LoadError<E>>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
        F: Fn(Right<K, V, S>) -> BoxFuture<()>,
    {
        let mut step = match part {
            Some(part) => Err(part),
            None => self.step(way, key, None, None),
        };
        let mut went_on = false;
        loop {
            let Part {
                mut wait,
                ticket,
                leads,
            } = match step {
                Ok(value) => return Ok(Some(value)),
                Err(part) => part,
            };
            let verdict = poll_fn(|cx| wait.poll(cx)).await;
            if let Some(&(asked, got)) = way.wrong.get() {
                if let Verdict::Leads = verdict {
                    wait.pass_on();
                }
                panic!("{}", wrong_number_of_values(asked, got));
            }
            let told = match verdict {
                Verdict::Ended(outcome) => return answer(&outcome),
                Verdict::Leads => Some(Arc::clone(wait.load())),
                Verdict::Retry => {
                    match wait.lateness() {
                        Lateness::InTime => (),
                        Lateness::Overdue if leads => return Err(LoadError::TimedOut),
                        _ if went_on => return Err(LoadError::TimedOut),
                        _ => went_on = true,
                    }
                    None
                }
            };
            step = self.step(way, key, Some(ticket), told);
        }
    }

    /// A call's part in the load of a key that was absent: its value, or its wait.
    fn step<Q, F>(
        &self,
        way: &Way<'_, F>,
        key: &Q,
        mut ticket: Option<Ticket>,
        told: Option<Arc<Load<K, V>>>,
    ) -> Result<V, Part<K, V, S>>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
        F: Fn(Right<K, V, S>) -> BoxFuture<()>,
    {
        let core = &self.cache.core;
        let begun = told
            .and_then(|load| core.loads().accept_lead(&load, &way.ask))
            .unwrap_or_else(|| {
                let (hash, mut key) = (core.hash(key), ByRef::new(key));
                core.loads().begin(&mut key, hash, &way.ask, &mut ticket)
            });
        match begun {
            Role::Found(got) => Ok(got.value),
            Role::Lead(lead, _) => {
                let right = self.right_of(lead);
                let load = Arc::clone(right.load());
                let ticket = self.join_own(&load, ticket, way.own);
                let future = (way.start)(right);
                let attached = (self.inner.drives).start(std::slice::from_ref(&load), future);
                Err(self.leading(load, ticket, Some(attached)))
            }
            Role::Joined(load) => Err(self.joined(load, ticket)),
            Role::Busy => unreachable!("it waits"),
        }
    }

    /// The right of a call that leads the load of an absent key.
    fn right_of(&self, lead: Lead<'_, K, V, S>) -> Right<K, V, S> {
        let core = self.cache.core.downgrade();
        Right::of(lead, core, None, panicked::<E>, Dropped::PassesOn)
    }

    /// The call waits for its own load, as any other call does.
    fn join_own(&self, load: &Load<K, V>, ticket: Option<Ticket>, want: Want) -> Ticket {
        let loads = self.cache.core.loads();
        let ticket = ticket.unwrap_or_else(Ticket::draw);
        load.join(ticket, want, 0);
        loads.watch_quietly(load, loads.clock());
        ticket
    }

    fn leading(
        &self,
        load: Arc<Load<K, V>>,
        ticket: Ticket,
        attached: Option<Attached<K, V, S>>,
    ) -> Part<K, V, S> {
        Part {
            wait: self.wait_for(load, ticket, attached),
            ticket,
            leads: true,
        }
    }

    fn joined(&self, load: Arc<Load<K, V>>, ticket: Option<Ticket>) -> Part<K, V, S> {
        let Some(ticket) = ticket else {
            unreachable!("a call that waits has a ticket");
        };
        Part {
            wait: self.wait_for(load, ticket, None),
            ticket,
            leads: false,
        }
    }
}
