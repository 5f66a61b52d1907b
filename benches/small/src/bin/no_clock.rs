//! A default cache where there is no clock (wasm32-unknown-unknown): it is refused with a sentence,
//! and nothing panics. `ci/platforms.sh` runs it there.

use wheelhouse::{Cache, CacheBuilder};

fn main() {
    let built: Result<Cache<u64, u64>, _> = CacheBuilder::new(100).try_build();
    if cfg!(all(target_family = "wasm", target_os = "unknown")) {
        let refused = built.expect_err("a cache needs a clock").to_string();
        assert!(refused.contains("`Instant::now` panics"), "{refused}");
    } else {
        built.expect("there is a clock").insert(1, 1);
    }
}
