use super::{Engine, House};

#[test]
fn a_hit_reads_two_lines_of_the_state() {
    type State = House<u64, u64, crate::RandomState>;
    let hot = 2 * 64;
    let clock = std::mem::offset_of!(State, engine) + Engine::<u64, u64>::CLOCK;
    assert!(clock + 2 * size_of::<u64>() <= hot, "{clock}");
    assert_eq!(align_of::<State>() % hot, 0);
}
