//! Rows 35 to 39 and 41: what stands behind a connection.

use super::*;
use crate::client::{Received, Subscription};
use crate::frame::FrameError;

pub(super) fn received(subscription: &mut Subscription, frames: &[Frame]) -> Vec<Received> {
    frames.iter().map(|frame| subscription.receive(frame, NOW_MS)).collect()
}

#[test]
fn rows_35_and_36_repeated_frames_are_dropped_and_others_applied() {
    let mut subscription = Subscription::new();
    let replayed = |frame: Frame| Frame { replay: true, ..frame };
    let frames = [
        started(None, "r", 0),
        delta(1, "a"),
        replayed(delta(1, "a")),
        replayed(delta(2, "b")),
        delta(3, "c"),
    ];
    use Received::{Applied, Repeated};
    assert_eq!(
        received(&mut subscription, &frames),
        [Applied, Applied, Repeated, Applied, Applied]
    );
    assert_eq!(subscription.state().run("r").unwrap().parts[0].text(), Some("abc"));
}

#[test]
fn row_37_started_with_another_number_does_not_revive() {
    let mut subscription = Subscription::new();
    let again = Frame { sequence: 9, replay: true, ..started(None, "r", 0) };
    received(&mut subscription, &[started(None, "r", 0), finished(1, "done"), again]);
    let run = subscription.state().run("r").unwrap();
    assert_eq!((run.status, run.summary.as_deref()), (Status::Completed, Some("done")));
}

#[test]
fn row_38_after_a_reset_the_same_frames_count_again() {
    let mut subscription = Subscription::new();
    let frames = [started(None, "r", 0), delta(1, "a"), finished(2, "done")];
    received(&mut subscription, &frames);
    let before = subscription.clone();
    subscription.reset_local_state();
    assert_eq!(subscription, Subscription::new());
    received(&mut subscription, &frames);
    assert_eq!(subscription, before);
}

#[test]
fn row_39_runs_are_grouped_by_tool_call() {
    let mut subscription = Subscription::new();
    let frames =
        [started(Some("call"), "a", 1), started(Some("call"), "b", 0), started(None, "c", 0)];
    received(&mut subscription, &frames);
    let state = subscription.state();
    assert_eq!(ids(&state.runs_for_tool_call("call")), ["b", "a"]);
    assert!(state.runs_for_tool_call("other").is_empty());
    assert_eq!(ids(&state.unbound_runs()), ["c"]);
}

#[test]
fn row_41_other_messages_are_errors_that_change_nothing() {
    let mut subscription = Subscription::new();
    for text in [
        "7",
        "{broken",
        r#"{"type":"cf_agent_state","state":{}}"#,
        r#"{"type":"agent-tool-event"}"#,
    ] {
        let error: Result<Received, FrameError> = subscription.receive_text(text, NOW_MS);
        assert!(error.is_err(), "accepted {text}");
        assert_eq!(subscription, Subscription::new());
    }
    let valid = started(None, "r", 0).to_json();
    assert_eq!(subscription.receive_text(&valid, NOW_MS).unwrap(), Received::Applied);
    assert!(subscription.state().run("r").is_some());
}

#[test]
fn a_frame_that_overtakes_started_is_not_spent() {
    let mut subscription = Subscription::new();
    let frames = [delta(1, "early"), started(None, "r", 0), delta(1, "early"), delta(1, "early")];
    use Received::{Applied, Repeated, UnknownRun};
    assert_eq!(received(&mut subscription, &frames), [UnknownRun, Applied, Applied, Repeated]);
    assert_eq!(subscription.state().run("r").unwrap().parts[0].text(), Some("early"));
}
