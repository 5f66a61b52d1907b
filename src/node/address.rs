//! Addresses: which of their bits are free for a tag, and how one is kept in two parts.
//!
//! # How it works
//!
//! User space addresses fit 48 bits. So the upper sixteen bits of a word of the map hold bits of a
//! key's hash ([`TAG_BITS`]), and six bytes hold a whole address. On Android (arm64) the allocator
//! writes a tag of its own into the top byte of each address and checks it when the memory is
//! freed. There the map's tag is the eight bits from 48 to 55, the top byte stays as the allocator
//! gave it, and an address takes eight bytes. `--cfg wheelhouse_top_byte` asks for this layout on
//! any target, so that tests and sanitizers can run on it.
//!
//! # Invariant
//!
//! 1. Every address that is kept in parts or tagged comes from an allocation that [`allocate`] has
//!    accepted. Its bits from 48 on are zero, but for the top byte where that is the allocator's.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ptr::{self, NonNull};

/// Whether the top byte of an address belongs to the allocator.
pub(crate) const TOP_BYTE: bool = cfg!(any(
    wheelhouse_top_byte,
    all(target_os = "android", target_arch = "aarch64")
));

/// The first bit of a tag in a word.
pub(crate) const TAG_SHIFT: u32 = 48;

/// How many bits a tag has.
pub(crate) const TAG_BITS: u32 = if TOP_BYTE { 8 } else { 16 };

/// The bits of a tag in a word.
const TAG_IN_WORD: u64 = ((1 << TAG_BITS) - 1) << TAG_SHIFT;

/// The upper part of an address.
#[cfg(not(any(
    wheelhouse_top_byte,
    all(target_os = "android", target_arch = "aarch64")
)))]
pub(super) use {crate::sync::AtomicU16 as AtomicHigh, std::primitive::u16 as High};
#[cfg(any(
    wheelhouse_top_byte,
    all(target_os = "android", target_arch = "aarch64")
))]
pub(super) use {crate::sync::AtomicU32 as AtomicHigh, std::primitive::u32 as High};

/// An address in two parts.
pub(super) type Parts = (u32, High);

#[inline]
pub(super) fn parts(at: *mut u8) -> Parts {
    let at = at.expose_provenance() as u64;
    (at as u32, (at >> 32) as High)
}

#[inline]
pub(super) fn whole((low, high): Parts) -> *mut u8 {
    let at = u64::from(low) | u64::from(high) << 32;
    ptr::with_exposed_provenance_mut(at as usize)
}

/// Allocates memory whose addresses leave room for the map's tags.
pub(crate) fn allocate(layout: Layout, zeroed: bool) -> Result<NonNull<u8>, Refused> {
    assert_ne!(layout.size(), 0, "nothing to allocate");
    let allocate = if zeroed { alloc_zeroed } else { alloc };
    // SAFETY: not zero-sized.
    let Some(at) = NonNull::new(unsafe { allocate(layout) }) else {
        return Err(Refused { layout, at: None });
    };
    let address = at.addr().get() as u64;
    let fits = is_taggable(address, layout.size() as u64);
    #[cfg(test)]
    let fits = fits && !tests::refuses(layout);
    if fits {
        return Ok(at);
    }
    // SAFETY: allocated above with this layout; no pointer to it exists.
    unsafe { dealloc(at.as_ptr(), layout) };
    let at = Some(address);
    Err(Refused { layout, at })
}

/// Memory that the allocator did not give, or gave at an address that does not fit the tags.
#[derive(Debug)]
pub(crate) struct Refused {
    layout: Layout,
    /// The address, if that was the reason.
    at: Option<u64>,
}

impl Refused {
    /// Panics because of the address, or ends the process because there is no memory.
    #[cold]
    pub(crate) fn fail(self) -> ! {
        if self.at.is_none() {
            self.abort();
        }
        panic!("{self}")
    }

    /// Ends the process, where a panic would leave a change half made.
    #[cold]
    pub(crate) fn abort(self) -> ! {
        handle_alloc_error(self.layout)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.layout.size();
        match self.at {
            None => write!(f, "the allocator refused {size} bytes"),
            Some(at) => write!(
                f,
                "the allocator returned {size} bytes at {at:#x}, but wheelhouse keeps hash bits in \
                 bits {TAG_SHIFT} to {} of an address, so these bits must be zero",
                TAG_SHIFT + TAG_BITS - 1
            ),
        }
    }
}

/// Whether the addresses of an allocation leave room for the map's tags.
fn is_taggable(at: u64, size: u64) -> bool {
    match at.checked_add(size) {
        Some(end) => (at | end) & TAG_IN_WORD == 0 && (TOP_BYTE || end >> TAG_SHIFT == 0),
        None => false,
    }
}

/// Prefetches a cache line, where the target can.
#[inline]
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing the program can observe and never faults, whatever the
    // address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// Prefetches a cache line that is written next, where the target can. Another core that has
/// changed the line gives it up at once: a read before the write would make it a copy first.
#[inline]
pub(crate) fn prefetch_to_write<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(wheelhouse_simulated)))]
    // SAFETY: a prefetch reads nothing the program can observe and never faults, whatever the
    // address. Where a processor cannot do it, the instruction does nothing.
    unsafe {
        std::arch::asm!(
            "prefetchw byte ptr [{at}]",
            at = in(reg) at,
            options(nostack, preserves_flags, readonly),
        );
    }
    // An emulator executes no prefetch. This load, by its prefix, the simulator's plugin knows.
    #[cfg(wheelhouse_simulated)]
    // SAFETY: memory that a table or a slab has; the simulated programs free no array meanwhile.
    unsafe {
        std::arch::asm!(
            ".byte 0x3e",
            "mov {byte}, byte ptr [{at}]",
            at = in(reg) at,
            byte = out(reg_byte) _,
            options(nostack, preserves_flags, readonly),
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

#[cfg(test)]
pub(crate) mod tests;
