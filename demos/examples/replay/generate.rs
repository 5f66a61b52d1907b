//! Made-up requests for a try without any trace: keys by popularity, the n-th most popular about
//! 1/n as often as the first.

use crate::mixed::share;
use wheelhouse_examples::trace::{Op, Request};

const KEYS: f64 = 20_000.0;

pub(crate) fn requests(count: u64) -> impl Iterator<Item = Result<Request, String>> {
    (0..count).map(|n| {
        let key = KEYS.powf(share(n, 1)) as u64;
        Ok(Request {
            key,
            op: Op::Access,
            at: None,
            ttl: None,
        })
    })
}
