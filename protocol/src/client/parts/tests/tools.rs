//! The rows that concern tool calls.

use super::*;
use crate::client::normalize_input;

/// A tool part of call `c` and tool `search` with more fields.
fn tool(state: &str, more: Value) -> Value {
    let mut part = json!({
        "type": "tool-search", "toolCallId": "c", "toolName": "search", "state": state
    });
    part.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    part
}

/// A chunk of call `c` and tool `search` with more fields.
fn tool_chunk(kind: &str, more: Value) -> Value {
    let mut chunk = json!({ "type": kind, "toolCallId": "c", "toolName": "search" });
    chunk.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    chunk
}

#[test]
fn rows_263_to_265_tool_input_and_output() {
    let available = tool("input-available", json!({ "input": { "q": "x" } }));
    check(
        263,
        json!([]),
        json!([tool_chunk("tool-input-available", json!({ "input": { "q": "x" } }))]),
        json!([available]),
    );
    let output = json!({ "type": "tool-output-available", "toolCallId": "c", "output": [1] });
    check(
        264,
        json!([available]),
        json!([output]),
        json!([tool("output-available", json!({ "input": { "q": "x" }, "output": [1] }))]),
    );
    check_unchanged(265, json!([]), json!([output]));
}

#[test]
fn rows_266_to_297_malformed_input_becomes_an_empty_object() {
    let shapes = [
        (266, Some(json!(null))),
        (270, None),
        (274, Some(json!(""))),
        (278, Some(json!([{ "q": "x" }]))),
        (282, Some(json!([]))),
        (286, Some(json!(7))),
        (290, Some(json!(true))),
        (294, Some(json!("not an object"))),
    ];
    for (row, input) in shapes {
        let with_input = |kind, mut more: Value| {
            if let Some(input) = &input {
                more["input"] = input.clone();
            }
            json!([tool_chunk(kind, more)])
        };
        let streaming = || json!([tool("input-streaming", json!({}))]);
        let chunks = with_input("tool-input-available", json!({}));
        let after = json!([tool("input-available", json!({ "input": {} }))]);
        check(row, json!([]), chunks.clone(), after.clone());
        check(row + 1, streaming(), chunks, after);

        let chunks = with_input("tool-input-error", json!({ "errorText": "bad" }));
        let after = json!([tool("output-error", json!({ "input": {}, "errorText": "bad" }))]);
        check(row + 2, json!([]), chunks.clone(), after.clone());
        check(row + 3, streaming(), chunks, after);
    }
}

#[test]
fn rows_298_and_299_well_formed_input_is_kept_or_parsed() {
    let after = json!([tool("input-available", json!({ "input": { "q": { "a": [1, null] } } }))]);
    for (row, input) in
        [(298, json!({ "q": { "a": [1, null] } })), (299, json!("{\"q\": {\"a\": [1, null]}}"))]
    {
        let chunk = tool_chunk("tool-input-available", json!({ "input": input }));
        check(row, json!([]), json!([chunk]), after.clone());
    }
}

#[test]
fn rows_315_to_323_the_life_of_a_tool_call() {
    let start = tool_chunk("tool-input-start", json!({}));
    let delta = json!({ "type": "tool-input-delta", "toolCallId": "c", "input": { "q": "" } });
    let available = tool_chunk("tool-input-available", json!({ "input": { "q": "x" } }));
    let output = json!({ "type": "tool-output-available", "toolCallId": "c", "output": null });
    let input_error =
        tool_chunk("tool-input-error", json!({ "input": { "q": 1 }, "errorText": "bad" }));
    let output_error =
        json!({ "type": "tool-output-error", "toolCallId": "c", "errorText": "nope" });
    let streaming = tool("input-streaming", json!({}));
    let ready = tool("input-available", json!({ "input": { "q": "x" } }));
    let failed = tool("output-error", json!({ "input": { "q": 1 }, "errorText": "bad" }));

    check(315, json!([]), json!([start]), json!([streaming]));
    check(
        316,
        json!([streaming]),
        json!([delta]),
        json!([tool("input-streaming", json!({ "input": { "q": "" } }))]),
    );
    check(317, json!([streaming]), json!([available]), json!([ready]));
    check(318, json!([]), json!([available]), json!([ready]));
    check(
        319,
        json!([]),
        json!([start, delta, available, output]),
        json!([tool("output-available", json!({ "input": { "q": "x" }, "output": null }))]),
    );
    check(320, json!([]), json!([start, input_error]), json!([failed]));
    check(321, json!([]), json!([input_error]), json!([failed]));
    check(
        322,
        json!([ready]),
        json!([output_error]),
        json!([tool("output-error", json!({ "input": { "q": "x" }, "errorText": "nope" }))]),
    );
    check_unchanged(323, json!([]), json!([output_error]));
}

#[test]
fn rows_324_to_326_preliminary_output() {
    let ready = json!([tool("input-available", json!({ "input": {} }))]);
    let output = |output, more: Value| {
        let mut chunk =
            json!({ "type": "tool-output-available", "toolCallId": "c", "output": output });
        chunk.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        chunk
    };
    let after = |output, more: Value| {
        let mut part = tool("output-available", json!({ "input": {}, "output": output }));
        part.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!([part])
    };
    let first = output(1, json!({ "preliminary": true }));
    let last = output(2, json!({ "preliminary": false }));
    check(324, ready.clone(), json!([first]), after(1, json!({ "preliminary": true })));
    check(325, ready.clone(), json!([first, last]), after(2, json!({ "preliminary": false })));
    check(326, ready, json!([output(1, json!({}))]), after(1, json!({})));
}

#[test]
fn rows_327_to_338_what_describes_a_tool_call_is_kept() {
    let streaming = || json!([tool("input-streaming", json!({}))]);
    let metadata = json!({ "providerMetadata": { "p": { "id": 1 } } });
    let kept = json!({ "callProviderMetadata": { "p": { "id": 1 } } });
    let joined = |base: Value, more: &Value| {
        let mut base = base;
        base.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        base
    };
    let ready =
        |more: &Value| json!([tool("input-available", joined(json!({ "input": {} }), more))]);
    let available = |more: &Value| {
        json!([tool_chunk("tool-input-available", joined(json!({ "input": {} }), more))])
    };

    check(327, json!([]), available(&metadata), ready(&kept));
    check(328, streaming(), available(&metadata), ready(&kept));
    check(
        329,
        json!([]),
        json!([tool_chunk("tool-input-start", metadata.clone())]),
        json!([tool("input-streaming", kept.clone())]),
    );
    let error = json!({ "input": {}, "errorText": "bad" });
    for (row, before) in [(330, json!([])), (331, streaming())] {
        check(
            row,
            before,
            json!([tool_chunk("tool-input-error", joined(error.clone(), &metadata))]),
            json!([tool("output-error", joined(error.clone(), &kept))]),
        );
    }
    check(332, json!([]), available(&json!({ "providerMetadata": null })), ready(&json!({})));

    let executed = json!({ "providerExecuted": true });
    let title = json!({ "title": "Search" });
    check(333, json!([]), available(&executed), ready(&executed));
    check(334, streaming(), available(&executed), ready(&executed));
    check(335, json!([]), available(&title), ready(&title));
    check(336, streaming(), available(&title), ready(&title));
    let both = joined(executed.clone(), &title);
    check(
        337,
        json!([]),
        json!([tool_chunk("tool-input-start", both.clone())]),
        json!([tool("input-streaming", both.clone())]),
    );
    check(338, json!([]), available(&joined(both.clone(), &metadata)), ready(&joined(both, &kept)));
}

#[test]
fn rows_343_to_351_a_tool_call_never_goes_back() {
    let start = tool_chunk("tool-input-start", json!({}));
    let delta = json!({ "type": "tool-input-delta", "toolCallId": "c", "input": { "q": "late" } });
    let available = tool_chunk("tool-input-available", json!({ "input": { "q": "late" } }));
    let error = tool_chunk("tool-input-error", json!({ "input": {}, "errorText": "late" }));
    let ready = json!([tool("input-available", json!({ "input": { "q": "x" } }))]);
    let streaming = json!([tool("input-streaming", json!({}))]);
    let requested = json!([tool(
        "approval-requested",
        json!({ "input": { "q": "x" }, "approval": { "id": "a" } })
    )]);

    check_unchanged(343, ready.clone(), json!([start]));
    check_unchanged(344, streaming.clone(), json!([start]));
    for state in ["output-available", "output-error", "output-denied"] {
        let resolved = json!([tool(state, json!({ "input": { "q": "x" } }))]);
        check_unchanged(345, resolved.clone(), json!([delta]));
        check_unchanged(347, resolved.clone(), json!([available]));
        check_unchanged(349, resolved.clone(), json!([start, delta, available]));
        check_unchanged(350, resolved, json!([error]));
    }
    check_unchanged(345, ready.clone(), json!([delta]));
    check(
        346,
        streaming,
        json!([delta, { "type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "{" }]),
        json!([tool("input-streaming", json!({ "input": { "q": "late" } }))]),
    );
    check_unchanged(348, requested.clone(), json!([available]));
    for in_flight in [ready, requested, json!([tool("approval-responded", json!({ "input": {} }))])]
    {
        let mut after = in_flight.clone();
        after[0]["state"] = json!("output-error");
        after[0]["input"] = json!({});
        after[0]["errorText"] = json!("late");
        check(351, in_flight, json!([error]), after);
    }
}

#[test]
fn an_input_that_comes_after_the_request_to_approve_it_fills_in() {
    let available =
        tool_chunk("tool-input-available", json!({ "input": "{\"q\":1}", "title": "T" }));
    for state in ["approval-requested", "approval-responded"] {
        check(
            348,
            json!([tool(state, json!({}))]),
            json!([available]),
            json!([tool(state, json!({ "input": { "q": 1 }, "title": "T" }))]),
        );
    }
}

#[test]
fn rows_352_to_358_approval() {
    let request = json!({ "type": "tool-approval-request", "toolCallId": "c", "approvalId": "a" });
    let denied = json!({ "type": "tool-output-denied", "toolCallId": "c" });
    let ready = json!([tool("input-available", json!({ "input": {} }))]);
    let in_state = |state| json!([tool(state, json!({ "input": {} }))]);

    check(
        352,
        ready.clone(),
        json!([request]),
        json!([tool("approval-requested", json!({ "input": {}, "approval": { "id": "a" } }))]),
    );
    check(
        352,
        ready.clone(),
        json!([{
            "type": "tool-approval-request", "toolCallId": "c", "approvalId": "a",
            "approvalDescriptor": { "risk": "low" }
        }]),
        json!([tool(
            "approval-requested",
            json!({ "input": {}, "approval": { "id": "a", "descriptor": { "risk": "low" } } })
        )]),
    );
    check_unchanged(353, json!([]), json!([request]));
    check_unchanged(354, in_state("approval-responded"), json!([request]));
    check_unchanged(355, in_state("output-available"), json!([request]));
    check_unchanged(355, in_state("output-error"), json!([request]));
    check_unchanged(355, in_state("output-denied"), json!([request]));
    check(356, ready, json!([denied]), in_state("output-denied"));
    check(356, in_state("approval-requested"), json!([denied]), in_state("output-denied"));
    check_unchanged(357, in_state("approval-responded"), json!([denied]));
    check_unchanged(358, in_state("output-available"), json!([denied]));
    check_unchanged(358, in_state("output-error"), json!([denied]));
}

#[test]
fn rows_359_to_361_input_normalisation() {
    let check = |row: u32, input: Option<Value>, expected: Value, expected_changed: bool| {
        let (normalized, changed) = normalize_input(input);
        assert_eq!(Value::Object(normalized), expected, "row {row}");
        assert_eq!(changed, expected_changed, "row {row}");
    };
    check(359, Some(json!({ "q": null })), json!({ "q": null }), false);
    check(359, Some(json!({})), json!({}), false);
    check(360, Some(json!(" {\"q\": 1} ")), json!({ "q": 1 }), true);
    for malformed in [
        None,
        Some(json!(null)),
        Some(json!("")),
        Some(json!("plain")),
        Some(json!("{broken")),
        Some(json!("[1]")),
        Some(json!("\"text\"")),
        Some(json!([])),
        Some(json!([{ "q": 1 }])),
        Some(json!(7)),
        Some(json!(true)),
    ] {
        check(361, malformed, json!({}), true);
    }
}

#[test]
fn a_chunk_without_a_call_id_finds_no_call() {
    let anonymous = json!([
        { "type": "tool-input-start" },
        { "type": "tool-input-start", "toolCallId": null, "toolName": null },
        { "type": "tool-input-start", "toolCallId": "", "toolName": "search" },
        { "type": "tool-input-start", "toolCallId": "" , "toolName": "search" },
        { "type": "tool-output-available", "toolCallId": "", "output": 1 },
        { "type": "tool-output-denied" },
    ]);
    let search = json!({
        "type": "tool-search", "toolCallId": "", "toolName": "search", "state": "input-streaming"
    });
    check(
        315,
        json!([]),
        anonymous,
        json!([
            { "type": "tool-undefined", "state": "input-streaming" },
            { "type": "tool-null", "toolCallId": null, "toolName": null, "state": "input-streaming" },
            search,
            search,
        ]),
    );
}

#[test]
fn a_call_id_used_twice_means_the_last_part() {
    let other = json!({ "type": "tool-other", "toolCallId": "c", "toolName": "other", "state": "input-available", "input": {} });
    check(
        264,
        json!([tool("input-available", json!({ "input": {} })), other]),
        json!([{ "type": "tool-output-denied", "toolCallId": "c" }]),
        json!([
            tool("input-available", json!({ "input": {} })),
            { "type": "tool-other", "toolCallId": "c", "toolName": "other", "state": "output-denied", "input": {} },
        ]),
    );
}

#[test]
fn row_314_mixed() {
    check(
        314,
        json!([]),
        json!([
            { "type": "text-start" },
            { "type": "text-delta", "delta": "a" },
            { "type": "reasoning-start" },
            tool_chunk("tool-input-available", json!({ "input": {} })),
            { "type": "file", "mediaType": "m", "url": "u" },
            { "type": "text-end" },
        ]),
        json!([
            { "type": "text", "text": "a", "state": "done" },
            { "type": "reasoning", "text": "", "state": "streaming" },
            tool("input-available", json!({ "input": {} })),
            { "type": "file", "mediaType": "m", "url": "u" },
        ]),
    );
}
