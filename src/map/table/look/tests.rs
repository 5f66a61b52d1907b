use super::*;

/// Cut to 32 bits where a pointer has no more.
const AT: usize = 0x7fff_1234_5640_u64 as usize;
/// The largest array that lies within half of the address space.
const LARGEST: u32 = if MAX_LOG < usize::BITS - 7 {
    MAX_LOG
} else {
    usize::BITS - 7
};

fn array(log: u32) -> Array<u8, u8> {
    Array::new(std::ptr::without_provenance_mut(AT), log)
}

#[test]
fn a_word_encodes_address_size_and_mark() {
    for log in 0..=MAX_LOG {
        let array = array(log);
        let resizing = array.resizing();
        assert!(!array.is_resizing() && resizing.is_resizing());
        for array in [array, resizing, Array(resizing.0)] {
            assert_eq!(array.at().addr(), AT);
            assert_eq!((array.log(), array.groups()), (log, 1 << log));
        }
    }
}

#[test]
fn a_hash_belongs_to_the_group_of_its_lowest_bits() {
    for log in 0..=LARGEST {
        let array = array(log).resizing();
        for hash in [0, 1, 5, 0x1234_5678, 0xFFFF_FFFF_FFFF, u64::MAX] {
            let index = array.index(hash);
            assert_eq!(u64::from(index), hash % (1 << log));
            let offset = array.address(hash).addr() - array.at().addr();
            assert_eq!(offset, index as usize * size_of::<Group<u8, u8>>());
        }
    }
}

#[test]
fn a_visit_covers_every_position_once() {
    for log in 0..8 {
        let array = array(log);
        let (mut at, mut seen) = (0u64, vec![0; 1 << log]);
        while at < 1 << 32 {
            let (index, next) = array.visit(at as u32);
            seen[index as usize] += 1;
            assert!(next > at);
            // Everything in the interval belongs to this group, at both of its ends.
            for probe in [at as u32, (next - 1) as u32] {
                assert_eq!(array.index(u64::from(probe.reverse_bits())), index);
                assert_eq!(position_of(u64::from(probe.reverse_bits())), probe);
            }
            at = next;
        }
        assert_eq!(at, 1 << 32);
        assert!(seen.iter().all(|&n| n == 1), "log {log}: {seen:?}");
    }
}

#[test]
fn a_visit_goes_on_where_another_array_left_it() {
    // The end of a group is the beginning of one in an array of any size, or lies within one
    // that begins there.
    for (from, to) in [(2, 3), (3, 2), (5, 1)] {
        let mut at = 0u64;
        while at < 1 << 32 {
            let (_, next) = array(from).visit(at as u32);
            if next < 1 << 32 && to >= from {
                let (_, after) = array(to).visit(next as u32);
                assert_eq!(after - next, 1 << (32 - to));
            }
            at = next;
        }
    }
}
