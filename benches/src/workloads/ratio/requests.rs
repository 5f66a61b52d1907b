//! What is asked of a cache, and when: all keys of a trace, or requests for values that expire, in
//! virtual time, with lifetimes from a second to an hour by a hash of the key, and hot keys that
//! live briefly.

use std::{
    collections::HashSet,
    fs::File,
    path::{Path, PathBuf},
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use rand_distr::{Distribution, Zipf};

use wheelhouse_examples::trace;

use crate::keys;

/// A sequence of requests. Times are nanoseconds.
pub(super) struct Requests {
    pub(super) keys: Vec<u64>,
    /// When each request comes; ascending.
    pub(super) times: Vec<u64>,
    /// How long the value of a key lives, from the request that missed it; `u64::MAX` for ever.
    pub(super) life: fn(u64) -> u64,
}

impl Requests {
    /// Requests for values that live for ever.
    pub(super) fn without_deadlines(keys: Vec<u64>) -> Self {
        Self {
            times: (0..keys.len() as u64).collect(),
            keys,
            life: |_| u64::MAX,
        }
    }

    /// Key, time and, for a value that is made now, deadline.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let pairs = self.keys.iter().zip(&self.times);
        pairs.map(|(&key, &at)| (key, at, at.saturating_add((self.life)(key))))
    }

    /// Whether any value has a deadline.
    pub(super) fn expire(&self) -> bool {
        self.keys.iter().any(|&key| (self.life)(key) != u64::MAX)
    }
}

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;
/// The hot keys of [`short_lived`] are those below this.
const HOT: u64 = 500;

/// From a second to an hour, uniform in its logarithm, by the key.
fn log_uniform(key: u64) -> u64 {
    let share = keys::key(key) as f64 / u64::MAX as f64;
    (3600_f64.powf(share) * SECOND as f64) as u64
}

/// A trace at its own times, from the first request on.
pub(super) fn of_trace(trace: Trace) -> Option<Requests> {
    let times = trace.times?;
    let first = *times.first()?;
    // Stamps of traces may go back a little.
    let ascending = times.into_iter().scan(first, |latest, at| {
        *latest = at.max(*latest);
        Some((*latest - first).as_nanos() as u64)
    });
    Some(Requests {
        times: ascending.collect(),
        keys: trace.keys,
        life: log_uniform,
    })
}

/// Keys by Zipf's law, a thousand requests a second.
pub(super) fn zipf(requests: usize) -> Requests {
    let ranks = keys::zipf_ranks(200_000, requests, 0);
    Requests {
        times: (0..requests as u64).map(|n| n * SECOND / 1_000).collect(),
        keys: ranks.into_iter().map(u64::from).collect(),
        life: log_uniform,
    }
}

/// Every second request is for one of 500 keys whose values live for half a second; the others are
/// for 10,000 keys by Zipf's law, whose values live for an hour. 5,000 requests a second.
pub(super) fn short_lived(requests: usize) -> Requests {
    let zipf = Zipf::new(10_000.0, keys::SKEW).expect("both are positive");
    let mut random = StdRng::seed_from_u64(0x5EED_3001);
    let mut draw = |n: usize| match n % 2 {
        0 => random.random_range(0..HOT),
        _ => HOT + zipf.sample(&mut random) as u64,
    };
    Requests {
        keys: (0..requests).map(&mut draw).collect(),
        times: (0..requests as u64).map(|n| n * SECOND / 5_000).collect(),
        life: |key| if key < HOT { SECOND / 2 } else { 3600 * SECOND },
    }
}

/// One trace, read.
pub(super) struct Trace {
    /// The keys, in the order in which they are asked for.
    pub(super) keys: Vec<u64>,
    /// When each is asked for, if the trace says so, from an origin of the trace's own.
    pub(super) times: Option<Vec<Duration>>,
    /// How many keys are different.
    pub(super) distinct: usize,
}

/// Names and places of the traces among `named`, files or folders; without any, of those of the
/// default folder.
pub(super) fn find(named: &[PathBuf]) -> Result<Vec<(String, PathBuf)>, String> {
    let files = trace::files(named)?.into_iter();
    Ok(files.map(|path| (name_of(&path), path)).collect())
}

/// The file's name without endings, and with the folder before it where the file alone would not
/// tell what it is.
fn name_of(path: &Path) -> String {
    let text = |name: &std::ffi::OsStr| name.to_string_lossy().into_owned();
    let file = path.file_name().map(text).unwrap_or_default();
    let stem = file.split('.').next().unwrap_or_default();
    let folder = path.parent().and_then(Path::file_name).map(text);
    match (stem, folder.as_deref()) {
        ("cloudPhysicsIO-us", _) => "cloudphysics".to_owned(),
        (stem, Some("lirs")) => format!("lirs-{stem}"),
        (stem, _) => stem.to_owned(),
    }
}

impl Trace {
    /// Reads a file, plain or compressed.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let file = File::open(path).map_err(|error| error.to_string())?;
        let (mut keys, mut times) = (Vec::new(), Vec::new());
        for request in trace::requests(file, None)? {
            let request = request?;
            keys.push(request.key);
            times.extend(request.at);
        }
        Ok(Self {
            distinct: keys.iter().collect::<HashSet<_>>().len(),
            times: (times.len() == keys.len()).then_some(times),
            keys,
        })
    }
}
