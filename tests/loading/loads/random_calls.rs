//! Random programs of leases, tasks and writes; the fuzz target `load` runs others.

#[path = "../../support/loads.rs"]
mod programs;
use crate::support::Dice;

#[test]
fn random_loads_agree_with_the_model() {
    let mut dice = Dice::new(1);
    for _ in 0..3_000 {
        let program: Vec<u8> = (0..120).map(|_| dice.roll() as u8).collect();
        if let Err(panic) = std::panic::catch_unwind(|| programs::run(&program)) {
            println!("{program:?}");
            std::panic::resume_unwind(panic);
        }
    }
}
