use super::RemovalCause::{self, Size};

#[test]
fn causes_are_numbered_densely_and_named_in_lower_case() {
    let expected = [
        ("expired", true),
        ("explicit", false),
        ("replaced", false),
        ("size", true),
    ];
    assert_eq!(RemovalCause::ALL.len(), expected.len());
    for (number, (cause, (name, evicted))) in RemovalCause::ALL.iter().zip(expected).enumerate() {
        assert_eq!(*cause as usize, number);
        assert_eq!(cause.as_str(), name);
        assert_eq!(cause.to_string(), name);
        assert_eq!(cause.was_evicted(), evicted);
    }
    assert_eq!(format!("{Size:>6}"), "  size", "pads in tables");
}
