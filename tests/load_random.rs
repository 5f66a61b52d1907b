//! Random programs of leases, tasks and writes; the fuzz target `load` runs others.

#[path = "support/loads.rs"]
mod loads;

#[test]
fn random_programs() {
    let mut luck = 0x9E37_79B9_7F4A_7C15_u64;
    let mut byte = || {
        luck ^= luck << 13;
        luck ^= luck >> 7;
        luck ^= luck << 17;
        (luck >> 32) as u8
    };
    for _ in 0..3_000 {
        let program: Vec<u8> = (0..120).map(|_| byte()).collect();
        if let Err(panic) = std::panic::catch_unwind(|| loads::run(&program)) {
            println!("{program:?}");
            std::panic::resume_unwind(panic);
        }
    }
}
