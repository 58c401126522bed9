//! Rows 1 to 9 and 40 of the conformance table, and what the reducer corrects.

use serde_json::{Value, json};

use super::{State, apply};
use crate::frame::{Frame, FrameEvent, MilestoneData, ProgressData, milestone_body, progress_body};
use crate::{InterruptReason, Status};

mod properties;
mod subscription;

const NOW_MS: u64 = 1_790_000_000_000;

fn frame(parent: Option<&str>, sequence: u64, event: FrameEvent) -> Frame {
    Frame { parent_tool_call_id: parent.map(str::to_owned), sequence, replay: false, event }
}

fn started(parent: Option<&str>, run_id: &str, order: i64) -> Frame {
    let event = FrameEvent::Started {
        run_id: run_id.to_owned(),
        agent_type: "Researcher".to_owned(),
        input_preview: None,
        order,
        display: None,
    };
    frame(parent, 0, event)
}

/// A frame of run `r` under no tool call.
fn of_r(sequence: u64, event: FrameEvent) -> Frame {
    frame(None, sequence, event)
}

fn chunk(sequence: u64, body: impl ToString) -> Frame {
    of_r(sequence, FrameEvent::Chunk { run_id: "r".to_owned(), body: body.to_string() })
}

fn delta(sequence: u64, text: &str) -> Frame {
    chunk(sequence, json!({ "type": "text-delta", "id": "t", "delta": text }))
}

fn finished(sequence: u64, summary: &str) -> Frame {
    of_r(sequence, FrameEvent::Finished { run_id: "r".to_owned(), summary: summary.to_owned() })
}

fn failed(sequence: u64, error: &str) -> Frame {
    of_r(sequence, FrameEvent::Error { run_id: "r".to_owned(), error: error.to_owned() })
}

fn aborted(sequence: u64, reason: Option<&str>) -> Frame {
    let reason = reason.map(str::to_owned);
    of_r(sequence, FrameEvent::Aborted { run_id: "r".to_owned(), reason })
}

fn interrupted(
    sequence: u64,
    error: &str,
    reason: Option<InterruptReason>,
    child_still_running: Option<bool>,
) -> Frame {
    let (run_id, error) = ("r".to_owned(), error.to_owned());
    of_r(sequence, FrameEvent::Interrupted { run_id, error, reason, child_still_running })
}

fn milestone(sequence: u64, name: &str, number: u64, at_ms: u64) -> Frame {
    let data = MilestoneData {
        name: name.to_owned(),
        sequence: number,
        at_ms,
        fraction: None,
        message: None,
        phase: Some(format!("phase-{number}")),
        data: None,
    };
    chunk(sequence, milestone_body(&data))
}

fn after(frames: &[Frame]) -> State {
    let mut state = State::new();
    for frame in frames {
        state.apply(frame, NOW_MS);
    }
    state
}

/// Run `r` after `started` and the given frames, as JSON.
fn run_after(frames: &[Frame]) -> Value {
    let mut all = vec![started(None, "r", 0)];
    all.extend_from_slice(frames);
    serde_json::to_value(after(&all).run("r").unwrap()).unwrap()
}

fn ids<'a>(runs: &[&'a super::Run]) -> Vec<&'a str> {
    runs.iter().map(|run| run.run_id.as_str()).collect()
}

#[test]
fn row_1_runs_of_a_tool_call_are_in_display_order() {
    let state = after(&[started(Some("call"), "b", 1), started(Some("call"), "a", 0)]);
    assert_eq!(ids(&state.runs_for_tool_call("call")), ["a", "b"]);
    assert_eq!(ids(&state.runs_by_tool_call_id()["call"]), ["a", "b"]);
}

#[test]
fn runs_of_one_order_are_by_id() {
    let state = after(&["b", "B", "a-1", "a", "a1"].map(|id| started(Some("call"), id, -3)));
    assert_eq!(ids(&state.runs_for_tool_call("call")), ["a", "a-1", "a1", "b", "B"]);
}

#[test]
fn row_2_a_delta_makes_a_text_part() {
    let run = run_after(&[delta(1, "hi")]);
    assert_eq!(run["parts"], json!([{ "type": "text", "text": "hi", "state": "streaming" }]));
}

#[test]
fn row_3_applying_is_pure() {
    let before = after(&[started(None, "r", 0), delta(1, "a")]);
    let json = serde_json::to_value(&before).unwrap();
    let once = apply(&before, &delta(2, "b"), NOW_MS);
    let again = apply(&before, &delta(2, "b"), NOW_MS);
    assert_eq!(once, again);
    assert_eq!(serde_json::to_value(&before).unwrap(), json);
    assert_eq!(once.run("r").unwrap().parts[0].text(), Some("ab"));
}

#[test]
fn row_4_progress_replaces_progress_and_is_no_part() {
    let first = json!({ "type": "data-agent-progress", "transient": true,
        "data": { "fraction": 0.25, "phase": "read", "message": "m", "data": { "rows": 1 } } });
    let run = run_after(&[chunk(1, &first)]);
    assert_eq!(run["parts"], json!([]));
    assert_eq!(
        run["progress"],
        json!({ "fraction": 0.25, "message": "m", "phase": "read", "data": { "rows": 1 }, "at": NOW_MS })
    );
    let second =
        json!({ "type": "data-agent-progress", "transient": true, "data": { "fraction": 1 } });
    let run = run_after(&[chunk(1, &first), chunk(2, &second)]);
    assert_eq!(run["progress"], json!({ "fraction": 1, "at": NOW_MS }));
}

#[test]
fn row_5_milestones_are_told_apart_by_number() {
    let run = run_after(&[
        milestone(1, "first", 0, NOW_MS),
        milestone(2, "second", 1, NOW_MS + 1),
        milestone(3, "first", 0, NOW_MS),
    ]);
    assert_eq!(
        run["milestones"],
        json!([
            { "name": "first", "sequence": 0, "at": NOW_MS },
            { "name": "second", "sequence": 1, "at": NOW_MS + 1 },
        ])
    );
    assert_eq!(
        run["progress"],
        json!({ "phase": "phase-1", "milestone": "second", "at": NOW_MS + 1 })
    );
    assert_eq!(run["parts"].as_array().unwrap().len(), 2, "the repeated milestone adds no part");
}

#[test]
fn milestones_are_listed_by_number_whatever_their_arrival() {
    let run = run_after(&[milestone(1, "b", 7, NOW_MS), milestone(2, "a", 3, NOW_MS)]);
    let names: Vec<_> = run["milestones"].as_array().unwrap().iter().map(|m| &m["name"]).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(run["parts"][0]["data"]["name"], "b", "parts are in order of arrival");
}

#[test]
fn a_milestone_takes_the_progress_unless_it_is_older() {
    let progress = |at_ms| {
        let data = ProgressData {
            message: Some("m".to_owned()),
            at_ms: Some(at_ms),
            ..ProgressData::default()
        };
        chunk(1, progress_body(&data))
    };
    let taken = json!({ "phase": "phase-0", "milestone": "done", "at": 500 });
    for at_ms in [499, 500] {
        let run = run_after(&[progress(at_ms), milestone(2, "done", 0, 500)]);
        assert_eq!(run["progress"], taken, "progress of {at_ms}");
    }
    let run = run_after(&[progress(501), milestone(2, "done", 0, 500)]);
    assert_eq!(run["progress"], json!({ "message": "m", "at": 501 }));
    assert_eq!(run["milestones"].as_array().unwrap().len(), 1);
}

#[test]
fn odd_signals_are_read_as_far_as_they_make_sense() {
    let of =
        |kind: &str, data: Value| run_after(&[chunk(1, json!({ "type": kind, "data": data }))]);
    for data in [
        json!(null),
        json!(7),
        json!([1]),
        json!({ "fraction": "0.5", "message": 1, "phase": null }),
    ] {
        let run = of("data-agent-progress", data.clone());
        assert_eq!(run["progress"], json!({ "at": NOW_MS }), "for {data}");
        assert_eq!(run["parts"].as_array().unwrap().len(), 1, "not transient, so a part as well");
    }
    let run = of("data-agent-progress", json!({ "data": null, "at": 1.5 }));
    assert_eq!(run["progress"], json!({ "data": null, "at": 1.5 }));

    let run =
        of("data-agent-milestone", json!({ "name": "n", "sequence": "2", "at": null, "data": 0 }));
    assert_eq!(run["milestones"], json!([{ "name": "n", "sequence": 0, "at": NOW_MS, "data": 0 }]));
    for data in [json!(null), json!({}), json!({ "name": 7, "sequence": 1 })] {
        let run = of("data-agent-milestone", data.clone());
        assert_eq!(run.get("milestones"), None, "for {data}");
        assert_eq!(run["parts"], json!([{ "type": "data-agent-milestone", "data": data }]));
    }
}

#[test]
fn row_6_a_run_without_a_tool_call_is_unbound() {
    let state = after(&[started(None, "r", 0), started(Some(""), "s", 0)]);
    assert_eq!(ids(&state.unbound_runs()), ["r", "s"]);
    assert!(state.runs_by_tool_call_id().is_empty());
    assert!(state.runs_for_tool_call("").is_empty());
}

#[test]
fn rows_7_to_9_interrupted() {
    let run = run_after(&[interrupted(1, "lost sight", None, None)]);
    assert_eq!((&run["status"], &run["error"]), (&json!("interrupted"), &json!("lost sight")));
    assert_eq!((run.get("reason"), run.get("childStillRunning")), (None, None));

    let run = run_after(&[interrupted(1, "e", Some(InterruptReason::NoProgress), Some(true))]);
    assert_eq!((&run["reason"], &run["childStillRunning"]), (&json!("no-progress"), &json!(true)));

    let run = run_after(&[interrupted(1, "e", Some(InterruptReason::WindowExceeded), Some(false))]);
    assert_eq!(
        (&run["reason"], &run["childStillRunning"]),
        (&json!("window-exceeded"), &json!(false))
    );
}

#[test]
fn a_hard_end_repairs_interrupted_and_clears_its_cause() {
    let soft = interrupted(1, "lost sight", Some(InterruptReason::NoProgress), Some(true));
    for (end, status, error) in [
        (finished(2, "done"), "completed", None),
        (failed(2, "boom"), "error", Some("boom")),
        (aborted(2, Some("stop")), "aborted", Some("stop")),
        (aborted(2, None), "aborted", None),
    ] {
        let run = run_after(&[soft.clone(), end]);
        assert_eq!(run["status"], status);
        assert_eq!(run.get("error").and_then(Value::as_str), error, "for {status}");
        assert_eq!((run.get("reason"), run.get("childStillRunning")), (None, None), "for {status}");
    }
}

#[test]
fn a_later_interruption_replaces_an_earlier_one_whole() {
    let run = run_after(&[
        interrupted(1, "first", Some(InterruptReason::NoProgress), Some(true)),
        interrupted(2, "second", None, None),
    ]);
    assert_eq!(run["error"], "second");
    assert_eq!((run.get("reason"), run.get("childStillRunning")), (None, None));
}

#[test]
fn nothing_ends_a_run_twice() {
    let soft = interrupted(9, "late", Some(InterruptReason::NoProgress), Some(true));
    let ends = [finished(2, "done"), failed(2, "boom"), aborted(2, Some("stop"))];
    for first in &ends {
        let ended = after(&[started(None, "r", 0), first.clone()]);
        for second in ends.iter().chain([&soft]) {
            assert_eq!(apply(&ended, second, NOW_MS), ended, "{second:?} after {first:?}");
        }
    }
}

#[test]
fn chunks_count_after_an_end() {
    let run = run_after(&[
        finished(1, "done"),
        delta(2, "more"),
        milestone(3, "late", 0, NOW_MS),
        chunk(
            4,
            json!({ "type": "data-agent-progress", "transient": true, "data": { "fraction": 1 } }),
        ),
    ]);
    assert_eq!(run["status"], "completed");
    assert_eq!(run["parts"][0]["text"], "more");
    assert_eq!(run["milestones"][0]["name"], "late");
    assert_eq!(run["progress"]["fraction"], 1);
}

#[test]
fn started_again_renews_a_running_run_and_keeps_what_it_emitted() {
    let mut state =
        after(&[started(Some("call"), "r", 0), delta(1, "kept"), milestone(2, "kept", 0, NOW_MS)]);
    let event = FrameEvent::Started {
        run_id: "r".to_owned(),
        agent_type: "Writer".to_owned(),
        input_preview: Some(json!(null)),
        order: 4,
        display: Some(json!({ "name": "W" })),
    };
    state.apply(&frame(None, 3, event), NOW_MS);
    let run = serde_json::to_value(state.run("r").unwrap()).unwrap();
    assert_eq!(
        run,
        json!({
            "runId": "r", "agentType": "Writer", "inputPreview": null, "order": 4,
            "display": { "name": "W" }, "status": "running",
            "parts": [
                { "type": "text", "text": "kept", "state": "streaming" },
                { "type": "data-agent-milestone",
                  "data": { "name": "kept", "sequence": 0, "at": NOW_MS, "phase": "phase-0" } },
            ],
            "subAgent": { "agent": "Writer", "name": "r" },
            "progress": { "phase": "phase-0", "milestone": "kept", "at": NOW_MS },
            "milestones": [{ "name": "kept", "sequence": 0, "at": NOW_MS }],
        })
    );
    assert_eq!(ids(&state.unbound_runs()), ["r"]);
}

#[test]
fn started_after_any_end_is_ignored() {
    for end in [
        finished(1, "done"),
        failed(1, "boom"),
        aborted(1, None),
        interrupted(1, "lost sight", None, None),
    ] {
        let ended = after(&[started(None, "r", 0), end]);
        assert_eq!(apply(&ended, &started(Some("call"), "r", 9), NOW_MS), ended);
    }
}

#[test]
fn events_of_a_run_that_has_not_started_change_nothing() {
    for event in [
        delta(1, "lost"),
        finished(1, ""),
        failed(1, ""),
        aborted(1, None),
        interrupted(1, "", None, None),
    ] {
        assert_eq!(after(&[event]), State::new());
    }
}

#[test]
fn bodies_that_are_no_chunks_change_nothing() {
    let before = after(&[started(None, "r", 0), delta(1, "a")]);
    for body in [
        "",
        "{not json",
        "null",
        "7",
        "[]",
        "\"text-start\"",
        "{}",
        r#"{"type":7}"#,
        r#"{"type":"x"}"#,
    ] {
        assert_eq!(apply(&before, &chunk(2, body), NOW_MS), before, "for {body}");
    }
}

#[test]
fn row_40_the_four_ends_are_distinct() {
    let run = run_after(&[finished(1, "all good")]);
    assert_eq!((&run["status"], &run["summary"]), (&json!("completed"), &json!("all good")));
    let run = run_after(&[failed(1, "boom")]);
    assert_eq!((&run["status"], &run["error"]), (&json!("error"), &json!("boom")));
    let run = run_after(&[aborted(1, Some("stopped"))]);
    assert_eq!((&run["status"], &run["error"]), (&json!("aborted"), &json!("stopped")));
    let run = run_after(&[interrupted(1, "e", Some(InterruptReason::BudgetExceeded), Some(false))]);
    assert_eq!(run["status"], "interrupted");
    assert_eq!(
        (&run["reason"], &run["childStillRunning"]),
        (&json!("budget-exceeded"), &json!(false))
    );
}
