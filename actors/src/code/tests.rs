use std::sync::Arc;
use std::task::Waker;

use ghostlight_protocol::journal::Outside;

use super::Watch;

/// A watch, and the wakers that the poll and what the code shares with its actor hold.
fn watch() -> (Watch, [Waker; 2]) {
    let watch = Watch::new();
    let wakers = [(); 2].map(|()| Waker::from(Arc::clone(&watch.waker)));
    (watch, wakers)
}

#[test]
fn nobody_else_may_wake_the_code_if_all_its_wakers_are_known() {
    let (watch, wakers) = watch();
    assert_eq!(watch.outside(|| 0), Outside::Nothing);
    let held = wakers[0].clone();
    assert_eq!(watch.outside(|| 0), Outside::MayWake);
    assert_eq!(watch.outside(|| 1), Outside::Nothing);
    drop(held);
}

#[test]
fn code_that_is_woken_between_its_poll_and_the_count_is_not_judged() {
    let (watch, wakers) = watch();
    let outside = wakers[0].clone();
    assert!(!watch.is_woken(), "as the poll has left it");
    // Wakes, and drops its clone.
    outside.wake();
    assert_eq!(watch.outside(|| 0), Outside::MayWake);
}
