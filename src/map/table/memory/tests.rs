use super::*;

type Memory = TableMemory<u8, u8>;

#[test]
fn arrays_of_any_size_are_aligned_and_empty() {
    for groups in [1, ALIGNED_HERE - 1, ALIGNED_HERE, 2 * ALIGNED_HERE] {
        let array = Memory::allocate(groups).expect("memory for an array");
        let reserved = Memory::reserve(groups).expect("memory for an array");
        for at in [array, reserved] {
            assert_eq!(at.addr() % ALIGN, 0, "{groups} groups");
        }
        for number in 0..groups {
            // SAFETY: both have so many groups, which this test owns.
            let group = unsafe {
                Memory::clear(reserved.add(number));
                &*array.add(number)
            };
            assert_eq!(group.free_words().count(), WORDS);
        }
        for at in [array, reserved] {
            // SAFETY: as above; no reader is left.
            unsafe { Memory::new(at, groups).free() };
        }
    }
}
