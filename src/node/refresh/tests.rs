use super::*;

#[test]
fn a_reload_that_fails_leaves_the_lifetime_as_it_is() {
    let (moment, minute) = (RefreshMoment::new(), Duration::from_secs(60));
    assert_eq!((moment.failures(), moment.lifetime()), (0, None));
    moment.set(10, Some(minute));
    for failures in 1..100_u32 {
        moment.begin(20);
        assert_eq!(moment.at_without_reload(5), 5);
        moment.fail(19, 30);
        assert_eq!(moment.at(), 20, "another reload has begun");
        moment.fail(20, 30);
        assert_eq!(moment.failures(), failures);
        let kept = (moment.at_without_reload(5), moment.lifetime());
        assert_eq!(kept, (30, Some(minute)));
    }
    let years = Duration::from_secs(100 * 365 * 86_400);
    for given in [Duration::ZERO, Duration::from_nanos(1), years] {
        moment.set(10, Some(given));
        assert_eq!((moment.failures(), moment.lifetime()), (0, Some(given)));
    }
    moment.set(10, Some(Duration::MAX));
    assert!(
        moment.lifetime() > Some(5 * years),
        "as long as can be told"
    );
    moment.set(10, None);
    assert_eq!(moment.lifetime(), None);
}
