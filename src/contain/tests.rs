use super::*;

#[test]
fn a_panic_whose_payload_panics_ends_here() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("told to panic in the drop of a payload");
        }
    }
    assert_eq!(contain(|| 1), Some(1));
    assert_eq!(contain(|| -> u8 { std::panic::panic_any(Bomb) }), None);
}
