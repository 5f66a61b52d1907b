use super::*;
use std::cell::Cell;

thread_local! {
    /// Whether this thread's allocations count as out of range.
    pub(crate) static REFUSES: Cell<bool> = const { Cell::new(false) };
}

/// Whether a test wants this allocation to be refused. A cache line is not: it may be an
/// overflow group, and a move that needs one cannot stop half-way.
pub(super) fn refuses(layout: Layout) -> bool {
    REFUSES.get() && layout.size() > 64
}

#[test]
fn an_address_survives_its_two_parts() {
    let top = if TOP_BYTE { 0xb4_u64 << 56 } else { 0 };
    for address in [8, 0x7fff_ffff_fff8, 0x1234_5678] {
        // Cut to 32 bits where a pointer has no more.
        let address = (address | top) as usize;
        let at = ptr::without_provenance_mut::<u8>(address);
        assert_eq!(whole(parts(at)).addr(), address);
    }
}

#[test]
fn an_address_with_bits_in_the_tag_is_refused() {
    assert!(is_taggable(0x7fff_ffff_0000, 0xff));
    assert!(!is_taggable(1 << 48, 8) && !is_taggable(1 << 55, 8));
    assert!(!is_taggable((1 << 48) - 8, 16), "the end counts, too");
    assert!(!is_taggable(u64::MAX, 8));
    assert_eq!(is_taggable(0xb4 << 56 | 0x1000, 8), TOP_BYTE);
}
