//! Which node of a cluster has which key: the slots of the cluster specification.

use std::sync::atomic::AtomicUsize;

pub(crate) const SLOTS: u16 = 16_384;

/// The slots of one primary: first, last, address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Range {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) address: String,
}

/// Which node has which slot.
pub(crate) struct Slots {
    /// Sorted.
    pub(crate) ranges: Vec<Range>,
    /// Which node the next check asks. Relaxed: it guards nothing.
    pub(crate) turn: AtomicUsize,
}

impl Slots {
    /// The address of the node that has this key; `None` if no node has its slot.
    pub(crate) fn address_of(&self, key: &[u8]) -> Option<&str> {
        let slot = slot(key);
        let begun = self.ranges.partition_point(|range| range.first <= slot);
        let range = self.ranges[..begun].last()?;
        (slot <= range.last).then_some(&range.address)
    }
}

/// The slot of a key: of the bytes between the first `{` and the next `}`, if there are any, else
/// of the whole key.
fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// CRC-16/XMODEM: polynomial 0x1021, no reflection, initial value 0.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            (crc << 1) ^ (if crc & 0x8000 == 0 { 0 } else { 0x1021 })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"{user1000}.following"), slot(b"{user1000}.followers"));
        assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        assert_ne!(slot(b"foo{}{bar}"), slot(b"bar"));
        assert_eq!(slot(b""), 0);
    }

    #[test]
    fn each_slot_has_the_node_of_its_range() {
        let range = |first, last, address: &str| Range {
            first,
            last,
            address: address.into(),
        };
        let of_foo = |first, last| {
            let slots = Slots {
                ranges: vec![range(0, 100, "a:1"), range(first, last, "b:2")],
                turn: AtomicUsize::new(0),
            };
            assert_eq!(slots.address_of(b""), Some("a:1"));
            slots.address_of(b"foo").map(str::to_string)
        };
        assert_eq!(of_foo(12_182, 12_182).as_deref(), Some("b:2"));
        assert_eq!(of_foo(101, 16_383).as_deref(), Some("b:2"));
        assert_eq!(of_foo(101, 12_181), None);
        assert_eq!(of_foo(12_183, 16_383), None);
    }
}
