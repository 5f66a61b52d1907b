use super::*;

#[test]
fn a_manual_ticker_wraps_and_is_shared_by_its_clones() {
    let ticker = ManualTicker::starting_at(u64::MAX);
    let shared: Box<dyn Ticker> = Box::new(Arc::new(ticker.clone()));
    ticker.advance(Duration::from_nanos(1));
    assert_eq!(shared.nanos(), 0);
    ticker.advance(Duration::from_nanos(u64::MAX) + Duration::from_nanos(4));
    assert_eq!(shared.nanos(), 3);
    ticker.set_nanos(2);
    assert_eq!(shared.nanos(), 2);
}
