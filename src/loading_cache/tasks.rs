//! The methods for tasks.

use super::LoadingCache;
use super::error::LoadError;
use super::refreshing::answer;
use super::run::{drive, made, result, until_panic};
use super::source::{Futures, Source, panicked, put};
use super::wait::{Lateness, Wait};
use crate::contain::contain;
use crate::load::{Load, Ticket, Verdict};
use crate::loading::{ByRef, Dropped, LoadRequest, Loading, Right, Role, Seeker, fallible};
use equivalent::Equivalent;
use std::borrow::ToOwned;
use std::future::{poll_fn, ready};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

impl<K, V, E, S> LoadingCache<K, V, E, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    E: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// As [`get`](Self::get), for tasks.
    ///
    /// A [`Loader`](crate::Loader) runs within the first poll. The future of an
    /// [`AsyncLoader`](crate::AsyncLoader) is shared by all calls that wait for the key: each that
    /// is polled drives it. If all of them are dropped, it goes to the
    /// [`spawner`](crate::LoadingBuilder::spawner).
    ///
    /// # Errors
    ///
    /// As `get`. For an async loader, a panic of other user code (the expiry policy, the weigher)
    /// is a [`LoadError::Panicked`], too.
    ///
    /// # Panics
    ///
    /// As `get`.
    ///
    /// ```
    /// use wheelhouse::{Cache, async_loader_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let load = async_loader_fn(|key: &u32| {
    ///     let key = *key;
    ///     async move { Ok::<u32, ()>(key * 2) }
    /// });
    /// let cache = Cache::builder().loading(load).spawner(|task| { tokio::spawn(task); }).build();
    /// assert_eq!(cache.get_async(&4).await.unwrap(), 8);
    /// # }
    /// ```
    pub async fn get_async<Q>(&self, key: &Q) -> Result<V, LoadError<E>>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        if let Some(value) = self.get_if_present(key) {
            return Ok(value);
        }
        match &self.inner.source {
            Source::Blocking(loader) => {
                let ask = LoadRequest::value(fallible::<LoadError<E>>());
                let seeker = Seeker::new(&self.cache, ByRef::new(key), ask, None);
                let load = async { self.run_loader(key, |key| loader.load(key)) };
                Loading::of_future(seeker, load, made, result).await
            }
            Source::Async(loader) => self.load_driven(loader, key).await,
        }
    }

    /// As [`get_all`](Self::get_all), for tasks. The loader's future belongs to this call: if the
    /// call is dropped, calls that wait for its keys load them anew.
    ///
    /// # Errors
    ///
    /// As `get_all`.
    ///
    /// # Panics
    ///
    /// As `get_all`.
    ///
    /// ```
    /// use wheelhouse::{Cache, loader_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cache = Cache::builder().loading(loader_fn(|key: &u32| Ok::<u32, ()>(key * 2))).build();
    /// assert_eq!(cache.get_all_async([1, 2]).await.unwrap(), [Some(2), Some(4)]);
    /// # }
    /// ```
    pub async fn get_all_async(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<V>>, LoadError<E>> {
        let keys: Vec<K> = keys.into_iter().collect();
        let stale = self.stale_among(&keys);
        let store = |(value, took)| put(value, took);
        let values = match &self.inner.source {
            Source::Blocking(loader) => {
                let load = |keys: Vec<K>| ready(self.timed(|| loader.load_many(&keys)));
                self.cache.get_all_as_async(keys, load, store).await
            }
            Source::Async(loader) => {
                let load = |keys: Vec<K>| {
                    let began = self.now();
                    let future = contain(|| Arc::clone(loader).load_many(keys));
                    async move {
                        let made = until_panic(future).await;
                        self.judged(made, began)
                    }
                };
                self.cache.get_all_as_async(keys, load, store).await
            }
        };
        stale.iter().for_each(|key| self.reload(key));
        values.map_err(|error| (*error).clone())
    }

    /// Loads an absent key by a shared future.
    ///
    /// A call whose own load is overdue has timed out. One that waits for the load of another call
    /// goes on once, with the newer load.
    pub(super) async fn load_driven<Q>(
        &self,
        loader: &Arc<dyn Futures<K, V, E>>,
        key: &Q,
    ) -> Result<V, LoadError<E>>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let hash = self.cache.core.hash(key);
        let mut ticket = None;
        let mut offered: Option<Arc<Load<K, V>>> = None;
        let mut went_on = false;
        loop {
            let step = self.step(loader, (hash, key), &mut ticket, offered.take());
            let (mut wait, leads) = match step {
                Ok(value) => return Ok(value),
                Err(part) => part,
            };
            match poll_fn(|cx| wait.poll(cx)).await {
                Verdict::Ended(outcome) => {
                    return answer(&outcome).map(|value| {
                        value.unwrap_or_else(|| unreachable!("it accepts values and errors only"))
                    });
                }
                Verdict::Retry => match wait.lateness() {
                    Lateness::InTime => (),
                    Lateness::Overdue if leads => return Err(LoadError::TimedOut),
                    _ if went_on => return Err(LoadError::TimedOut),
                    _ => went_on = true,
                },
                Verdict::Leads => offered = Some(Arc::clone(wait.load())),
            }
        }
    }

    /// A call's part in the load of an absent key: its value, or its wait, and whether it leads.
    fn step<Q>(
        &self,
        loader: &Arc<dyn Futures<K, V, E>>,
        (hash, key): (u64, &Q),
        ticket: &mut Option<Ticket>,
        offered: Option<Arc<Load<K, V>>>,
    ) -> Result<V, (Wait<K, V, S>, bool)>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let core = &self.cache.core;
        let want = fallible::<LoadError<E>>();
        let ask = LoadRequest::value(want);
        let begun = offered
            .and_then(|load| core.loads().accept_lead(&load, &ask))
            .unwrap_or_else(|| core.loads().begin(&mut ByRef::new(key), hash, &ask, ticket));
        match begun {
            Role::Found(got) => Ok(got.value),
            Role::Lead(lead, _) => {
                let right = Right::of(
                    lead,
                    core.downgrade(),
                    None,
                    panicked::<E>,
                    Dropped::PassesOn,
                );
                let load = Arc::clone(right.load());
                let place = *ticket.get_or_insert_with(Ticket::draw);
                load.join(place, want, 0);
                core.loads().watch_quietly(&load, core.loads().clock());
                let future = drive(Arc::clone(loader), right);
                let attached = self.inner.drives.start(&load, future);
                Err((self.wait_for(load, place, Some(attached)), true))
            }
            Role::Joined(load) => {
                let Some(place) = *ticket else {
                    unreachable!("a call that waits has a ticket");
                };
                Err((self.wait_for(load, place, None), false))
            }
            Role::Busy => unreachable!("it waits"),
        }
    }
}
