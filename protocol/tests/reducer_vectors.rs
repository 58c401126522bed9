//! The client reducer agrees with the npm client, and is pure.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::path::PathBuf;

use ghostlight_protocol::client::{State, apply};
use ghostlight_protocol::frame::Frame;
use serde_json::Value;

/// Later than any time in the vectors, as the clock of the client that made them was.
const NOW_MS: u64 = 1_796_000_000_000;

fn vectors() -> (PathBuf, Vec<Value>) {
    let path = std::env::var_os("GHOSTLIGHT_REDUCER_VECTORS").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/reducer.jsonl")),
        PathBuf::from,
    );
    let text = std::fs::read_to_string(&path).unwrap();
    (path, text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn frames(case: &Value) -> Vec<Frame> {
    let frames = case["frames"].as_array().unwrap();
    frames.iter().map(|frame| Frame::parse(&frame.to_string()).unwrap()).collect()
}

/// The state as JSON, without what the vectors leave out.
fn comparable(state: &State) -> Value {
    let mut json = serde_json::to_value(state).unwrap();
    for run in json["runsById"].as_object_mut().unwrap().values_mut() {
        if let Some(progress) = run.get_mut("progress").and_then(Value::as_object_mut) {
            progress.remove("at").unwrap();
            progress.remove("milestone");
        }
    }
    json
}

/// Fails naming the seed and the run that differs.
fn check(case: &Value, state: &State) {
    let seed = &case["seed"];
    let (ours, theirs) = (comparable(state), &case["state"]);
    for (run_id, run) in theirs["runsById"].as_object().unwrap() {
        assert_eq!(&ours["runsById"][run_id], run, "seed {seed}, run {run_id}");
    }
    assert_eq!(&ours, theirs, "seed {seed}");
}

#[test]
fn agrees_with_every_vector() {
    let (path, cases) = vectors();
    assert!(!cases.is_empty(), "no vectors in {}", path.display());
    for case in cases {
        let mut state = State::new();
        for frame in frames(&case) {
            state.apply(&frame, NOW_MS);
        }
        check(&case, &state);
    }
}

#[test]
fn agrees_when_applied_purely_and_twice() {
    for case in vectors().1 {
        let mut state = State::new();
        for frame in frames(&case) {
            let before = serde_json::to_value(&state).unwrap();
            let once = apply(&state, &frame, NOW_MS);
            let twice = apply(&state, &frame, NOW_MS);
            let after = serde_json::to_value(&state).unwrap();
            assert_eq!(after, before, "seed {}: the state was changed", case["seed"]);
            assert_eq!(once, twice, "seed {}", case["seed"]);
            state = once;
        }
        check(&case, &state);
    }
}

#[test]
fn frames_of_the_vectors_are_written_as_they_were_read() {
    for case in vectors().1 {
        for frame in case["frames"].as_array().unwrap() {
            let written = Frame::parse(&frame.to_string()).unwrap().to_json();
            assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), *frame);
        }
    }
}
