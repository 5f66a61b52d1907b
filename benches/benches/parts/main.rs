//! The parts of the cache one by one, by criterion: map, wheel, read buffers, write batches, size
//! policy, each without the others. They are private, and reached under `cfg(wheelhouse_parts)`
//! only.

#[cfg(wheelhouse_parts)]
mod all;

#[cfg(wheelhouse_parts)]
criterion::criterion_main!(all::benches);

#[cfg(not(wheelhouse_parts))]
fn main() {
    eprintln!(
        "skipped: the private parts need --cfg wheelhouse_parts, which .cargo/config.toml sets; \
         add it to your RUSTFLAGS"
    );
}
