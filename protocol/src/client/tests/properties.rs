//! What holds for any streams of frames.

use proptest::prelude::*;

use super::subscription::received;
use super::*;
use crate::client::{Received, Run, Subscription};

/// One event of one of three runs; repeated ends, milestones and `started` included.
fn any_event() -> impl Strategy<Value = (usize, FrameEvent)> {
    let body = prop_oneof![
        (0u64..4, 0u64..4).prop_map(|(number, at)| match milestone(0, "m", number, at).event {
            FrameEvent::Chunk { body, .. } => body,
            _ => unreachable!(),
        }),
        prop::sample::select(vec![
            r#"{"type":"text-start"}"#,
            r#"{"type":"text-delta","delta":"a"}"#,
            r#"{"type":"text-end"}"#,
            r#"{"type":"data-x","id":"i","data":1}"#,
            r#"{"type":"tool-input-available","toolCallId":"c","toolName":"t","input":{}}"#,
            r#"{"type":"tool-output-available","toolCallId":"c","output":[]}"#,
            r#"{"type":"data-agent-progress","transient":true,"data":{"fraction":0.5,"at":2}}"#,
            "{not json",
        ])
        .prop_map(str::to_owned),
    ];
    let event = prop_oneof![
        8 => body.prop_map(|body| FrameEvent::Chunk { run_id: String::new(), body }),
        3 => Just(started(None, "", 0).event),
        1 => Just(finished(0, "done").event),
        1 => Just(failed(0, "boom").event),
        1 => Just(interrupted(0, "lost", Some(InterruptReason::NoProgress), None).event),
    ];
    (0usize..3, event)
}

/// Streams of three runs, interleaved; each numbers its frames from 0.
fn any_stream() -> impl Strategy<Value = Vec<Frame>> {
    prop::collection::vec(any_event(), 0..60).prop_map(|events| {
        let mut numbers = [0; 3];
        let frames = events.into_iter().map(|(run, mut event)| {
            match &mut event {
                FrameEvent::Started { run_id, .. }
                | FrameEvent::Chunk { run_id, .. }
                | FrameEvent::Finished { run_id, .. }
                | FrameEvent::Error { run_id, .. }
                | FrameEvent::Aborted { run_id, .. }
                | FrameEvent::Interrupted { run_id, .. } => *run_id = format!("run-{run}"),
            }
            numbers[run] += 1;
            frame(if run == 0 { None } else { Some("call") }, numbers[run] - 1, event)
        });
        frames.collect()
    })
}

fn without_frames_of_unknown_runs(frames: Vec<Frame>) -> Vec<Frame> {
    let mut known = Vec::new();
    frames
        .into_iter()
        .filter(|frame| {
            let run_id = frame.event.run_id().to_owned();
            if matches!(frame.event, FrameEvent::Started { .. }) {
                known.push(run_id);
                return true;
            }
            known.contains(&run_id)
        })
        .collect()
}

proptest! {
    #[test]
    fn applying_changes_no_earlier_state(frames in any_stream()) {
        let mut states = vec![State::new()];
        let mut images = vec![serde_json::to_value(&states[0]).unwrap()];
        for frame in &frames {
            let last = &states[states.len() - 1];
            let next = apply(last, frame, NOW_MS);
            prop_assert_eq!(&apply(last, frame, NOW_MS), &next);
            images.push(serde_json::to_value(&next).unwrap());
            states.push(next);
        }
        for (state, image) in states.iter().zip(&images) {
            prop_assert_eq!(&serde_json::to_value(state).unwrap(), image);
        }
        prop_assert_eq!(&after(&frames), &states[states.len() - 1], "in place is the same");
    }

    #[test]
    fn a_prefix_received_twice_counts_once(frames in any_stream(), cut in 0usize..60) {
        let frames = without_frames_of_unknown_runs(frames);
        let cut = cut.min(frames.len());
        let replay = frames[..cut].iter().cloned().map(|frame| Frame { replay: true, ..frame });
        let mut twice = Subscription::new();
        received(&mut twice, &frames[..cut]);
        let received_again = received(&mut twice, &replay.collect::<Vec<_>>());
        prop_assert!(received_again.iter().all(|frame| *frame == Received::Repeated));
        received(&mut twice, &frames[cut..]);
        prop_assert_eq!(twice.state(), &after(&frames));
    }

    #[test]
    fn a_hard_end_stands(frames in any_stream()) {
        let mut state = State::new();
        let mut ended: Vec<(String, Value)> = Vec::new();
        let end = |run: &Run| json!([run.status, run.summary, run.error, run.reason]);
        for frame in &frames {
            state.apply(frame, NOW_MS);
            for (run_id, was) in &ended {
                prop_assert_eq!(&end(state.run(run_id).unwrap()), was);
            }
            let run_id = frame.event.run_id();
            if let Some(run) = state.run(run_id)
                && run.status.is_hard()
                && ended.iter().all(|(known, _)| known != run_id)
            {
                ended.push((run_id.to_owned(), end(run)));
            }
        }
    }
}
