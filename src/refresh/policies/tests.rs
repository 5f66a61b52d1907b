use super::*;

const LIFETIME: Duration = Duration::from_secs(1_000);

fn draw(policy: &Ready, took: Duration) -> Duration {
    let moment = Refresh::<u8, u8>::by_times(policy, (Some(LIFETIME), Some(took)));
    moment.flatten().expect("there is a deadline")
}

#[test]
fn early_is_exponential_before_the_deadline_and_cut_at_half() {
    let (policy, took) = (early(2.0), Duration::from_secs(5));
    let before: Vec<f64> = (0..20_000)
        .map(|_| {
            let moment = draw(&policy, took);
            assert!(moment <= LIFETIME && moment >= LIFETIME / 2, "{moment:?}");
            (LIFETIME - moment).as_secs_f64()
        })
        .collect();
    let count = before.len() as f64;
    let mean = before.iter().sum::<f64>() / count;
    assert!((9.5..10.5).contains(&mean), "the mean is {mean}, not 10");
    // Of an exponential distribution a share of e^-1 lies above the mean.
    let above = before.iter().filter(|&&time| time > 10.0).count() as f64 / count;
    assert!(
        (0.35..0.39).contains(&above),
        "{above} of 1/e lie above the mean"
    );
    assert_eq!(draw(&early(1e300), took), LIFETIME / 2);
    assert_eq!(draw(&early(0.0), took), LIFETIME);
}

#[test]
fn early_takes_the_last_load_time_for_values_that_were_not_loaded() {
    let policy = early(1e9);
    let moment = |lifetime| {
        Refresh::<u8, u8>::refresh_after_create(&policy, &1, &1, Instant::now(), lifetime)
    };
    assert_eq!(
        moment(Some(LIFETIME)),
        Some(LIFETIME),
        "no load was seen yet"
    );
    draw(&policy, Duration::from_secs(5));
    assert_eq!(moment(Some(LIFETIME)), Some(LIFETIME / 2));
    assert_eq!(moment(None), None);
}

#[test]
fn shares_are_exact_at_their_ends() {
    let at = Instant::now();
    let of = |policy: Ready| {
        Refresh::<u8, u8>::refresh_after_create(&policy, &1, &1, at, Some(LIFETIME))
    };
    assert_eq!(of(fraction(1.0)), Some(LIFETIME));
    assert_eq!(of(fraction(0.0)), Some(Duration::ZERO));
    let jittered = jittered(after(LIFETIME), 0.5);
    for _ in 0..1_000 {
        let moment = Refresh::<u8, u8>::refresh_after_create(&jittered, &1, &1, at, None);
        assert!(moment.is_some_and(|moment| moment <= LIFETIME && moment >= LIFETIME / 2));
    }
}
