use super::*;
use std::collections::HashSet;

#[test]
fn each_group_belongs_to_one_unit() {
    for (from, to) in [(3, 4), (4, 3)] {
        let made = Table::<u8, u8>::new((5 << from) as usize);
        let (mut table, mut state) = made.expect("memory for a small table");
        assert!(table.begin(&mut state, to).is_ok(), "there is memory");
        let resize = Resize::of(&table, table.array()).expect("it has begun");
        assert_eq!(resize.units(), 8);
        for array in [resize.from, resize.to] {
            let numbers = (0..8).flat_map(|unit| {
                let number = resize.numbers(array, unit);
                number.inspect(move |number| assert_eq!(number % 8, unit))
            });
            let all: HashSet<u64> = numbers.collect();
            assert_eq!(all.len(), array.groups() as usize);
        }
        table.take_apart(&mut state, |_| ());
    }
}
