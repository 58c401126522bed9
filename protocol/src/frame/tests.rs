use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Checks that a frame is written as `json`, byte for byte, and read back from it.
fn check(json: &str, parent: Option<&str>, sequence: u64, replay: bool, event: FrameEvent) {
    let frame = Frame { parent_tool_call_id: parent.map(str::to_owned), sequence, replay, event };
    assert_eq!(frame.to_json(), json);
    assert_eq!(Frame::parse(json).unwrap(), frame);
}

fn started(input_preview: Option<Value>, display: Option<Value>) -> FrameEvent {
    FrameEvent::Started {
        run_id: "r1".into(),
        agent_type: "Researcher".into(),
        input_preview,
        order: 0,
        display,
    }
}

fn malformed(text: &str) -> bool {
    matches!(Frame::parse(text), Err(FrameError::Malformed(_)))
}

#[test]
fn the_envelope_as_the_contract_shows_it() {
    check(
        r#"{"type":"agent-tool-event","parentToolCallId":"call_1","sequence":3,"replay":true,"event":{"kind":"chunk","runId":"r1","body":"{\"type\":\"text-delta\",\"delta\":\"hi\"}"}}"#,
        Some("call_1"),
        3,
        true,
        FrameEvent::Chunk {
            run_id: "r1".into(),
            body: r#"{"type":"text-delta","delta":"hi"}"#.into(),
        },
    );
}

#[test]
fn the_event_kinds_as_the_contract_shows_them() {
    let check = |json, sequence, event| check(json, Some("call_1"), sequence, false, event);
    let run_id = || "r1".to_owned();
    check(
        r#"{"type":"agent-tool-event","parentToolCallId":"call_1","sequence":0,"event":{"kind":"started","runId":"r1","agentType":"Researcher","inputPreview":"{\"query\":\"x\"}","order":0,"display":{"name":"Researcher"}}}"#,
        0,
        started(Some(json!(r#"{"query":"x"}"#)), Some(json!({ "name": "Researcher" }))),
    );
    check(
        r#"{"type":"agent-tool-event","parentToolCallId":"call_1","sequence":5,"event":{"kind":"finished","runId":"r1","summary":"…"}}"#,
        5,
        FrameEvent::Finished { run_id: run_id(), summary: "…".into() },
    );
    check(
        r#"{"type":"agent-tool-event","parentToolCallId":"call_1","sequence":5,"event":{"kind":"error","runId":"r1","error":"…"}}"#,
        5,
        FrameEvent::Error { run_id: run_id(), error: "…".into() },
    );
    check(
        r#"{"type":"agent-tool-event","parentToolCallId":"call_1","sequence":5,"event":{"kind":"aborted","runId":"r1","reason":"user stopped"}}"#,
        5,
        FrameEvent::Aborted { run_id: run_id(), reason: Some("user stopped".into()) },
    );
    check(
        r#"{"type":"agent-tool-event","parentToolCallId":"call_1","sequence":5,"event":{"kind":"interrupted","runId":"r1","error":"…","reason":"no-progress","childStillRunning":true}}"#,
        5,
        FrameEvent::Interrupted {
            run_id: run_id(),
            error: "…".into(),
            reason: Some(InterruptReason::NoProgress),
            child_still_running: Some(true),
        },
    );
}

#[test]
fn what_is_absent_is_left_out() {
    check(
        r#"{"type":"agent-tool-event","sequence":0,"event":{"kind":"started","runId":"r1","agentType":"Researcher","order":0}}"#,
        None,
        0,
        false,
        started(None, None),
    );
    check(
        r#"{"type":"agent-tool-event","sequence":1,"event":{"kind":"aborted","runId":"r1"}}"#,
        None,
        1,
        false,
        FrameEvent::Aborted { run_id: "r1".into(), reason: None },
    );
    check(
        r#"{"type":"agent-tool-event","sequence":1,"event":{"kind":"interrupted","runId":"r1","error":""}}"#,
        None,
        1,
        false,
        FrameEvent::Interrupted {
            run_id: "r1".into(),
            error: String::new(),
            reason: None,
            child_still_running: None,
        },
    );
}

#[test]
fn a_null_preview_is_kept_and_other_nulls_are_absent() {
    check(
        r#"{"type":"agent-tool-event","sequence":0,"event":{"kind":"started","runId":"r1","agentType":"Researcher","inputPreview":null,"order":0}}"#,
        None,
        0,
        false,
        started(Some(Value::Null), None),
    );
    let frame = Frame::parse(
        r#"{"type":"agent-tool-event","parentToolCallId":null,"sequence":1,"event":{"kind":"interrupted","runId":"r1","error":"e","reason":null,"childStillRunning":null}}"#,
    )
    .unwrap();
    assert_eq!(frame.parent_tool_call_id, None);
    assert_eq!(
        frame.event,
        FrameEvent::Interrupted {
            run_id: "r1".into(),
            error: "e".into(),
            reason: None,
            child_still_running: None,
        }
    );
}

#[test]
fn unknown_fields_and_another_order_are_accepted() {
    let frame = Frame::parse(
        r#" {"event":{"body":"b","unstoredId":"u","runId":"r","kind":"chunk"},"later":[1],"replay":false,"sequence":1790000000000,"type":"agent-tool-event"} "#,
    )
    .unwrap();
    assert_eq!(frame.sequence, 1_790_000_000_000);
    assert!(!frame.replay);
    assert_eq!(frame.event, FrameEvent::Chunk { run_id: "r".into(), body: "b".into() });
}

#[test]
fn nonsense_is_refused() {
    let with_event = |event: Value| {
        json!({ "type": "agent-tool-event", "sequence": 1, "event": event }).to_string()
    };
    for event in [
        json!({ "kind": "chunk", "runId": "r" }),
        json!({ "kind": "chunk", "runId": "r", "body": { "type": "text-start" } }),
        json!({ "kind": "chunk", "runId": 7, "body": "" }),
        json!({ "kind": "chunk", "body": "" }),
        json!({ "kind": "started", "runId": "r", "agentType": "A" }),
        json!({ "kind": "started", "runId": "r", "agentType": "A", "order": 0.5 }),
        json!({ "kind": "finished", "runId": "r" }),
        json!({ "kind": "error", "runId": "r", "error": null }),
        json!({ "kind": "interrupted", "runId": "r", "error": "e", "reason": "gave-up" }),
        json!({ "kind": "interrupted", "runId": "r", "error": "e", "childStillRunning": "yes" }),
        json!({ "kind": "paused", "runId": "r" }),
        json!({ "runId": "r" }),
        json!("chunk"),
        json!(null),
    ] {
        let text = with_event(event);
        assert!(malformed(&text), "accepted {text}");
    }
    let chunk = json!({ "kind": "chunk", "runId": "r", "body": "" });
    for (field, value) in [
        ("sequence", json!(-1)),
        ("sequence", json!(1.5)),
        ("sequence", json!("1")),
        ("sequence", json!(null)),
        ("replay", json!("true")),
        ("replay", json!(null)),
        ("parentToolCallId", json!(7)),
    ] {
        let mut frame = json!({ "type": "agent-tool-event", "sequence": 1, "event": chunk });
        frame[field] = value;
        assert!(malformed(&frame.to_string()), "accepted {frame}");
    }
}

#[test]
fn other_traffic_is_told_from_malformed_frames() {
    for text in ["", "{", "not json", "{\"type\":\"agent-tool-event\"} trailing"] {
        assert!(matches!(Frame::parse(text), Err(FrameError::NotJson(_))), "for {text:?}");
    }
    for text in ["7", "null", "[]", "{}", r#"{"type":7}"#, r#"{"type":"rpc","sequence":1}"#] {
        assert!(matches!(Frame::parse(text), Err(FrameError::Foreign)), "for {text:?}");
    }
    assert!(malformed(r#"{"type":"agent-tool-event"}"#));
}

#[test]
fn texts_are_cut_and_the_rest_is_left_alone() {
    let long = "x".repeat(100);
    let run_id = || "r".to_owned();
    let cut = |event: FrameEvent| serde_json::to_value(event.cut_texts(40)).unwrap();
    let expected = format!("{}… [cut, 100 bytes in all]", "x".repeat(13));

    assert_eq!(
        cut(FrameEvent::Finished { run_id: run_id(), summary: long.clone() })["summary"],
        expected
    );
    assert_eq!(cut(FrameEvent::Error { run_id: run_id(), error: long.clone() })["error"], expected);
    assert_eq!(
        cut(FrameEvent::Aborted { run_id: run_id(), reason: Some(long.clone()) })["reason"],
        expected
    );
    let interrupted = FrameEvent::Interrupted {
        run_id: run_id(),
        error: long.clone(),
        reason: None,
        child_still_running: None,
    };
    assert_eq!(cut(interrupted)["error"], expected);
    assert_eq!(cut(FrameEvent::Chunk { run_id: run_id(), body: long.clone() })["body"], long);
}

#[test]
fn hard_ends_are_three() {
    let run_id = || "r".to_owned();
    assert!(FrameEvent::Finished { run_id: run_id(), summary: String::new() }.is_hard_end());
    assert!(FrameEvent::Error { run_id: run_id(), error: String::new() }.is_hard_end());
    assert!(FrameEvent::Aborted { run_id: run_id(), reason: None }.is_hard_end());
    assert!(!started(None, None).is_hard_end());
    assert!(!FrameEvent::Chunk { run_id: run_id(), body: String::new() }.is_hard_end());
}

#[test]
fn reserved_bodies_as_the_contract_shows_them() {
    let progress = ProgressData {
        fraction: Some(0.6),
        message: Some("…".into()),
        phase: Some("reading".into()),
        data: Some(json!({})),
        at_ms: Some(1_760_000_000_000),
    };
    let body = progress_body(&progress);
    assert_eq!(
        body,
        r#"{"type":"data-agent-progress","transient":true,"data":{"fraction":0.6,"message":"…","phase":"reading","data":{},"at":1760000000000}}"#
    );
    assert_eq!(ReservedBody::parse(&body), Some(ReservedBody::Progress(progress)));

    let milestone = MilestoneData {
        name: "sources-gathered".into(),
        sequence: 0,
        at_ms: 1_760_000_000_000,
        fraction: Some(0.9),
        message: Some("…".into()),
        phase: Some("…".into()),
        data: Some(json!({})),
    };
    let body = milestone_body(&milestone);
    assert_eq!(
        body,
        r#"{"type":"data-agent-milestone","data":{"name":"sources-gathered","sequence":0,"at":1760000000000,"fraction":0.9,"message":"…","phase":"…","data":{}}}"#
    );
    assert_eq!(ReservedBody::parse(&body), Some(ReservedBody::Milestone(milestone)));

    let mark = AttemptMark { step: "part/3".into(), attempt: 2 };
    let body = attempt_body(&mark);
    assert_eq!(body, r#"{"type":"data-agent-attempt","data":{"step":"part/3","attempt":2}}"#);
    assert_eq!(ReservedBody::parse(&body), Some(ReservedBody::Attempt(mark)));
}

#[test]
fn absent_members_of_reserved_bodies_are_left_out() {
    assert_eq!(
        progress_body(&ProgressData::default()),
        r#"{"type":"data-agent-progress","transient":true,"data":{}}"#
    );
    for (fraction, written) in [
        (1.0, r#"{"fraction":1}"#),
        (0.0, r#"{"fraction":0}"#),
        (-0.5, r#"{"fraction":-0.5}"#),
        (1e300, r#"{"fraction":1e+300}"#),
        (f64::NAN, "{}"),
        (f64::INFINITY, "{}"),
    ] {
        let data = ProgressData { fraction: Some(fraction), ..ProgressData::default() };
        assert_eq!(serde_json::to_string(&data).unwrap(), written);
    }
}

#[test]
fn ordinary_and_foreign_bodies_are_not_reserved() {
    for body in [
        "",
        "{not json",
        "7",
        r#"{"type":"text-start","id":"t1"}"#,
        r#"{"type":"data-custom","data":{"name":"x"}}"#,
        r#"{"type":"data-agent-milestone","data":{"name":"no number"}}"#,
        r#"{"type":"data-agent-attempt"}"#,
    ] {
        assert_eq!(ReservedBody::parse(body), None, "for {body}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((".*", inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn any_event() -> impl Strategy<Value = FrameEvent> {
    let text = ".*";
    prop_oneof![
        (text, text, prop::option::of(any_json()), any::<i64>(), prop::option::of(any_json()))
            .prop_map(|(run_id, agent_type, input_preview, order, display)| {
                FrameEvent::Started { run_id, agent_type, input_preview, order, display }
            }),
        (text, text).prop_map(|(run_id, body)| FrameEvent::Chunk { run_id, body }),
        (text, text).prop_map(|(run_id, summary)| FrameEvent::Finished { run_id, summary }),
        (text, text).prop_map(|(run_id, error)| FrameEvent::Error { run_id, error }),
        (text, prop::option::of(text))
            .prop_map(|(run_id, reason)| FrameEvent::Aborted { run_id, reason }),
        (
            text,
            text,
            prop::option::of(prop::sample::select(&InterruptReason::ALL[..])),
            prop::option::of(any::<bool>())
        )
            .prop_map(|(run_id, error, reason, child_still_running)| {
                FrameEvent::Interrupted { run_id, error, reason, child_still_running }
            }),
    ]
}

proptest! {
    #[test]
    fn every_frame_reads_back_as_it_was_written(
        parent_tool_call_id in prop::option::of(".*"),
        sequence: u64,
        replay: bool,
        event in any_event(),
    ) {
        let frame = Frame { parent_tool_call_id, sequence, replay, event };
        let json = frame.to_json();
        prop_assert_eq!(Frame::parse(&json).unwrap(), frame);
        prop_assert!(!json.contains("\"replay\":false"));
    }

    #[test]
    fn no_text_makes_reading_panic(text in ".*") {
        let _ = Frame::parse(&text);
        let _ = ReservedBody::parse(&text);
    }
}
