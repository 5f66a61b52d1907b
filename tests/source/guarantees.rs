//! Each guarantee of README.md is numbered, and TESTING.md has a row for it that begins with its
//! words.

use std::fs;
use std::path::Path;

/// The numbered guarantees of a text, as `P1. Exact deadlines`.
fn guarantees(text: &str) -> Vec<&str> {
    text.split("**")
        .filter_map(|bold| {
            let number = bold.strip_prefix('P')?.split_once(". ")?.0;
            number.parse::<u32>().ok()?;
            Some(bold.trim_end_matches('.'))
        })
        .collect()
}

#[test]
fn each_guarantee_has_a_row_that_begins_with_its_words() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| fs::read_to_string(root.join(name)).expect("a page of the repository");
    let (readme, testing) = (read("README.md"), read("TESTING.md"));
    let promised = guarantees(&readme);
    for (position, guarantee) in promised.iter().enumerate() {
        assert!(
            guarantee.starts_with(&format!("P{}. ", position + 1)),
            "{guarantee} is the guarantee number {}",
            position + 1
        );
        assert!(
            testing.contains(&format!("| **{guarantee}**")),
            "TESTING.md has no row for {guarantee}"
        );
    }
    assert_eq!(guarantees(&testing), promised, "and no other rows");
    assert!(promised.len() >= 9, "{promised:?}");
}
