//! The settings, as a program's first bytes choose them, with their clock and alarm.

use super::{Heard, Item, Script};
use crate::hostile::Hostile;
use std::cell::Cell;
use std::panic::panic_any;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;
use wheelhouse::expiry::{accessing, creating, jittered, never, writing};
use wheelhouse::{Alarm, Cache, CacheBuilder, EvictionPolicy, MaintenanceTask, ManualTicker};
use wheelhouse::{Scheduler, Ticker};

/// An initial capacity above this is refused.
const MOST_INITIAL: usize = 1 << 36;

/// A clock whose readings sometimes panic.
#[derive(Clone)]
pub(super) struct Clock {
    pub(super) time: ManualTicker,
    /// Readings until the next panic; 0 for never.
    pub(super) fuse: Arc<AtomicU32>,
}

pub(super) struct Fails;

impl Ticker for Clock {
    fn nanos(&self) -> u64 {
        let left = self.fuse.load(SeqCst);
        if left > 0 {
            self.fuse.store(left - 1, SeqCst);
            if left == 1 {
                EXPECTED.set(true);
                panic_any(Fails);
            }
        }
        self.time.nanos()
    }
}

thread_local! {
    pub(super) static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// The fuzzer's hook ends the process at every panic; panics that are part of a program must not.
pub(super) fn allow_expected_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.payload().is::<Fails>() {
                others(info);
            }
        }));
    });
}

/// Stores the task to run, and its time.
#[derive(Clone, Default)]
pub(super) struct Bell(pub(super) Arc<Mutex<Option<(Duration, MaintenanceTask)>>>);

impl Alarm for Bell {
    fn set(&self, after: Duration, task: MaintenanceTask) {
        *self.0.lock().unwrap() = Some((after, task));
    }
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Who {
    Nobody,
    Bell,
    /// A thread of the cache's own, or one that it shares with other caches.
    Thread,
    Shared,
}

/// The settings that the program chose.
pub(super) struct Settings {
    pub(super) name: Option<&'static str>,
    pub(super) room: usize,
    pub(super) max: Option<u64>,
    pub(super) weighs: bool,
    pub(super) listens: bool,
    pub(super) counts: bool,
    pub(super) hashing: u8,
    pub(super) resolution: Option<Duration>,
    /// Whether entries may expire other than by `insert_with_ttl` and `set_expiry`.
    pub(super) lives_end: bool,
    pub(super) who: Who,
    /// The scheduler, to share with another cache.
    pub(super) scheduler: Option<Scheduler>,
    pub(super) fuse: u32,
}

pub(super) fn length(byte: u8) -> Duration {
    match byte {
        0 => Duration::ZERO,
        255 => Duration::MAX,
        _ => Duration::from_nanos(1 << (byte % 63)) + Duration::from_nanos(u64::from(byte >> 6)),
    }
}

/// The weight of a value, if there is a weigher. It depends on the value's number, so that the
/// model knows it, too.
pub(super) fn weight(item: &Item) -> u32 {
    match item.0 >> 16 {
        0 => 1,
        1 => 1_000,
        2 => u32::MAX,
        _ => 0,
    }
}

/// Settings, and a builder that has them.
pub(super) fn settle(
    script: &mut Script<'_>,
    clock: &Clock,
    heard: &Heard,
    bell: &Bell,
) -> (Settings, CacheBuilder<u16, Item, Hostile>) {
    let hashing = script.any();
    let mut builder = Cache::builder().hasher(Hostile(hashing));
    let name = [None, Some("fuzz"), Some(""), Some("NUL \0 inside")][usize::from(script.any() % 4)];
    if let Some(name) = name {
        builder = builder.name(name);
    }
    let room = [0, 1, 100, 5_000, MOST_INITIAL + 1, usize::MAX][usize::from(script.any() % 6)];
    builder = builder.initial_capacity(room);
    let bounds = [0, 1, 40, 600, 5_000, u32::MAX.into(), u64::MAX];
    let max = bounds.get(usize::from(script.any() % 12)).copied();
    if let Some(max) = max {
        builder = builder.max_capacity(max);
    }
    let which = script.any();
    // A weigher or an eviction policy without a bound is refused.
    let weighs = which & 1 != 0 && max.is_some();
    let (listens, counts) = (which & 2 != 0, which & 4 != 0);
    if weighs {
        builder = builder.weigher(|_, item| weight(item));
    }
    if listens {
        let heard = Arc::clone(heard);
        builder = builder.removal_listener(move |&key, item: &Item, cause| {
            heard.lock().unwrap().push((key, item.0, cause));
        });
    }
    if counts {
        builder = builder.record_stats();
    }
    if which & 8 != 0 && max.is_some() {
        builder = builder.eviction_policy(EvictionPolicy::Lru);
    }
    let life = length(script.any());
    let given = move |key: &u16, _: &Item| (!key.is_multiple_of(3)).then_some(life);
    builder = match which >> 4 & 7 {
        0 => builder.expire_after(creating(given)),
        1 => builder.expire_after(writing(given)),
        2 => builder.expire_after(accessing(given)),
        3 => builder.expire_after(jittered(writing(given), 0.5)),
        4 => builder.expire_after(never()),
        _ => builder,
    };
    let (live, idle) = (script.any(), script.any());
    if live % 2 == 1 {
        builder = builder.time_to_live(length(live));
    }
    if idle % 2 == 1 {
        builder = builder.time_to_idle(length(idle));
    }
    let resolution = script.any();
    let resolution = (!resolution.is_multiple_of(4)).then(|| length(resolution));
    if let Some(width) = resolution {
        builder = builder.expiry_resolution(width);
    }
    let (when, who) = (script.any(), script.any());
    let fuse = if when & 1 == 0 { 0 } else { u32::from(when) };
    if when & 2 == 0 || fuse > 0 {
        builder = builder.ticker(clock.clone());
    }
    let (who, scheduler) = match who {
        250.. if fuse == 0 => (Who::Shared, Some(Scheduler::background())),
        246.. if fuse == 0 => (Who::Thread, Some(Scheduler::background())),
        0..=99 => (Who::Bell, Some(Scheduler::custom(bell.clone()))),
        100..=199 => (Who::Nobody, Some(Scheduler::disabled())),
        _ if when & 2 == 0 || fuse > 0 => (Who::Nobody, None),
        _ => (Who::Thread, None),
    };
    if let Some(scheduler) = &scheduler {
        builder = builder.scheduler(scheduler.clone());
    }
    let settings = Settings {
        name,
        room,
        max,
        weighs,
        listens,
        counts,
        hashing,
        resolution,
        lives_end: max.is_some() || which >> 4 & 7 < 4 || live % 2 == 1 || idle % 2 == 1,
        who,
        scheduler: scheduler.filter(|_| who == Who::Shared),
        fuse,
    };
    (settings, builder)
}

impl Settings {
    /// The settings that the builder has to refuse.
    pub(super) fn refused(&self) -> Vec<&'static str> {
        let mut refused = Vec::new();
        let width = self
            .resolution
            .map(|width| width.as_nanos().next_power_of_two());
        if width.is_some_and(|width| !(1 << 16..=1 << 43).contains(&width)) {
            refused.push("expiry_resolution");
        }
        if self.room > MOST_INITIAL {
            refused.push("initial_capacity");
        }
        if self.name.is_some_and(|name| name.contains('\0')) {
            refused.push("name");
        }
        refused
    }
}
