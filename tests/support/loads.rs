//! Leases, tasks and writes of a few keys in any order, on one thread, compared with their expected
//! results. The programs are plain bytes, from a fuzzer or random.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::hash::{BuildHasherDefault, Hasher};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use wheelhouse::compute::Op;
use wheelhouse::{Cache, Filled, Lease, Leased};

const KEYS: u8 = 3;

/// All keys collide.
#[derive(Clone, Copy, Debug, Default)]
pub struct Colliding;

impl Hasher for Colliding {
    fn finish(&self) -> u64 {
        7
    }

    fn write(&mut self, _: &[u8]) {}
}

type Hashing = BuildHasherDefault<Colliding>;

/// The expected value of a key, and how often it was written.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    entry: Option<u32>,
    writes: u32,
}

impl Known {
    fn write(&mut self, entry: Option<u32>) {
        self.entry = entry;
        self.writes += 1;
    }
}

type Model = Rc<RefCell<[Known; KEYS as usize]>>;

/// The future of a load, which becomes ready when the program says so.
struct Init {
    model: Model,
    key: u8,
    value: u32,
    state: Rc<State>,
}

#[derive(Default)]
struct State {
    ready: Cell<bool>,
    /// The key's count of writes when the run began.
    began: Cell<Option<u32>>,
    done: Cell<bool>,
}

impl Future for Init {
    type Output = u32;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<u32> {
        let writes = self.model.borrow()[usize::from(self.key)].writes;
        let began = self.state.began.get().unwrap_or(writes);
        self.state.began.set(Some(began));
        if self.state.ready.get() {
            self.state.done.set(true);
            Poll::Ready(self.value)
        } else {
            Poll::Pending
        }
    }
}

struct Task<'a> {
    key: u8,
    value: u32,
    state: Rc<State>,
    polled: bool,
    future: Pin<Box<dyn Future<Output = u32> + 'a>>,
}

struct Held {
    key: u8,
    /// The key's count of writes when it was taken.
    began: u32,
    lease: Lease<u8, u32, Hashing>,
}

/// Runs a program.
pub fn run(program: &[u8]) {
    let cache: Cache<u8, u32, Hashing> = Cache::builder().hasher(Hashing::default()).build();
    let model = Model::default();
    let (mut tasks, mut leases) = (Vec::<Task<'_>>::new(), Vec::<Held>::new());
    let mut next = 0;
    for pair in program.chunks_exact(2) {
        let (what, which) = (pair[0] % 14, pair[1]);
        let key = which % KEYS;
        let known = |key: u8| model.borrow()[usize::from(key)];
        let write = |key: u8, entry| model.borrow_mut()[usize::from(key)].write(entry);
        next += 1;
        match what {
            0 => match cache.lease_timeout(key, Duration::ZERO) {
                Leased::Found(value) => assert_eq!(known(key).entry, Some(value)),
                Leased::Lease(lease) => {
                    assert_eq!(known(key).entry, None);
                    let began = known(key).writes;
                    leases.push(Held { key, began, lease });
                }
                Leased::Busy => assert!(
                    leases.iter().any(|held| held.key == key)
                        || tasks.iter().any(|task| task.key == key && task.polled),
                    "a load is left behind"
                ),
            },
            1 if !leases.is_empty() => {
                let held = leases.remove(usize::from(which) % leases.len());
                let now = known(held.key);
                assert_eq!(held.lease.is_current(), now.writes == held.began);
                let expected = match now.entry {
                    _ if now.writes == held.began => Filled::Stored,
                    Some(current) => Filled::Lost {
                        current,
                        yours: next,
                    },
                    None => Filled::Revoked(next),
                };
                assert_eq!(held.lease.fill(next), expected);
                if expected == Filled::Stored {
                    write(held.key, Some(next));
                }
            }
            2 if !leases.is_empty() => {
                leases.remove(usize::from(which) % leases.len());
            }
            3 | 4 => {
                let state = Rc::new(State::default());
                let init = Init {
                    model: Rc::clone(&model),
                    key,
                    value: next,
                    state: Rc::clone(&state),
                };
                tasks.push(Task {
                    key,
                    value: next,
                    state,
                    polled: false,
                    future: Box::pin(cache.get_with_async(key, init)),
                });
            }
            5..=7 if !tasks.is_empty() => {
                let at = usize::from(which) % tasks.len();
                let task = &mut tasks[at];
                task.state.ready.set(what != 5);
                let before = known(task.key);
                let first = !std::mem::replace(&mut task.polled, true);
                let polled = task
                    .future
                    .as_mut()
                    .poll(&mut Context::from_waker(Waker::noop()));
                if let Poll::Ready(value) = polled {
                    let task = tasks.remove(at);
                    if task.state.done.get() {
                        if task.state.began.get() == Some(before.writes) {
                            assert_eq!(value, task.value);
                            write(task.key, Some(value));
                        } else {
                            assert_eq!(value, before.entry.unwrap_or(task.value));
                        }
                    } else if first {
                        assert_eq!(Some(value), before.entry);
                    }
                }
            }
            8 if !tasks.is_empty() => {
                tasks.remove(usize::from(which) % tasks.len());
            }
            9 => {
                cache.insert(key, next);
                write(key, Some(next));
            }
            10 => {
                cache.invalidate(&key);
                write(key, None);
            }
            11 => {
                assert_eq!(cache.remove(&key), known(key).entry);
                write(key, None);
            }
            12 => {
                let there = known(key).entry;
                if which & 64 == 0 {
                    let done = cache.replace_if(&key, next, |_| which & 32 == 0).is_ok();
                    assert_eq!(done, there.is_some() && which & 32 == 0);
                    if done {
                        write(key, Some(next));
                    }
                } else {
                    let taken = cache.remove_if(&key, |_| which & 32 == 0);
                    assert_eq!(taken, there.filter(|_| which & 32 == 0));
                    if taken.is_some() {
                        write(key, None);
                    }
                }
            }
            13 => {
                let mut ran = false;
                let result = cache.entry(key).and_try_compute_if_nobody_else(|seen| {
                    ran = true;
                    assert_eq!(seen.map(|seen| seen.into_value()), known(key).entry);
                    Ok::<_, ()>(if which & 32 == 0 {
                        Op::Put(next)
                    } else {
                        Op::Remove
                    })
                });
                assert!(result.is_ok());
                if ran {
                    write(key, (which & 32 == 0).then_some(next));
                }
            }
            _ => (),
        }
        for key in 0..KEYS {
            let known = known(key);
            assert_eq!(cache.get(&key), known.entry);
            // One queue: leases and futures that have begun and were not revoked.
            let held = leases
                .iter()
                .filter(|held| held.key == key && held.began == known.writes);
            let running = tasks
                .iter()
                .filter(|task| task.key == key && task.state.began.get() == Some(known.writes));
            assert!(
                held.count() + running.count() <= 1,
                "two loads of key {key}"
            );
        }
    }
    drop((tasks, leases));
    for key in 0..KEYS {
        cache.invalidate(&key);
        let leased = cache.lease_timeout(key, Duration::ZERO);
        assert!(matches!(leased, Leased::Lease(_)), "a load is left behind");
    }
}
