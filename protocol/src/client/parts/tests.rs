//! Rows 250 to 361 of the conformance table; each check names its row.

use serde_json::{Value, json};

use super::{Part, apply_chunk};

mod tools;

fn parts(parts: Value) -> Vec<Part> {
    serde_json::from_value(parts).unwrap()
}

/// Checks that `chunks`, applied to the parts `before`, are all known and give `after`.
fn check(row: u32, before: Value, chunks: Value, after: Value) {
    let mut built = parts(before);
    for chunk in chunks.as_array().unwrap() {
        assert!(apply_chunk(&mut built, chunk.clone()), "row {row}: {chunk} is not known");
    }
    assert_eq!(serde_json::to_value(&built).unwrap(), after, "row {row}");
}

/// Checks that `chunks` leave the parts `before` as they are.
fn check_unchanged(row: u32, before: Value, chunks: Value) {
    check(row, before.clone(), chunks, before);
}

/// Checks that a chunk is of no known type and changes nothing.
fn check_unknown(row: u32, chunk: Value) {
    let before = parts(json!([{ "type": "text", "text": "a", "state": "streaming" }]));
    let mut built = before.clone();
    assert!(!apply_chunk(&mut built, chunk.clone()), "row {row}: {chunk} is known");
    assert_eq!(built, before, "row {row}");
}

#[test]
fn rows_250_to_255_text() {
    let start = json!({ "type": "text-start", "id": "t" });
    let delta = |delta| json!({ "type": "text-delta", "id": "t", "delta": delta });
    let end = json!({ "type": "text-end", "id": "t" });
    let text = |text, state| json!([{ "type": "text", "text": text, "state": state }]);

    check(250, json!([]), json!([start]), text("", "streaming"));
    check(251, text("Hel", "streaming"), json!([delta("lo")]), text("Hello", "streaming"));
    check(252, json!([]), json!([delta("late")]), text("late", "streaming"));
    check(253, json!([]), json!([delta("late"), end]), text("late", "done"));
    check(254, text("", "streaming"), json!([end]), text("", "done"));
    let chunks = json!([start, delta("Hel"), delta("lo"), end]);
    check(255, json!([]), chunks, text("Hello", "done"));
}

#[test]
fn deltas_go_to_the_last_part_of_their_kind_wherever_it_is() {
    check(
        251,
        json!([
            { "type": "text", "text": "a", "state": "done" },
            { "type": "text", "text": "b", "state": "done" },
            { "type": "reasoning", "text": "c", "state": "streaming" },
        ]),
        json!([
            { "type": "text-delta", "id": "another", "delta": "!" },
            { "type": "text-delta" },
            { "type": "text-delta", "delta": null },
            { "type": "text-delta", "delta": 5 },
        ]),
        json!([
            { "type": "text", "text": "a", "state": "done" },
            { "type": "text", "text": "b!5", "state": "done" },
            { "type": "reasoning", "text": "c", "state": "streaming" },
        ]),
    );
    check(254, json!([]), json!([{ "type": "text-end" }, { "type": "reasoning-end" }]), json!([]));
}

#[test]
fn rows_256_to_259_reasoning() {
    let start = json!({ "type": "reasoning-start", "id": "g" });
    let delta = json!({ "type": "reasoning-delta", "id": "g", "delta": "hm" });
    let end = json!({ "type": "reasoning-end", "id": "g" });
    let reasoning = |text, state| json!([{ "type": "reasoning", "text": text, "state": state }]);

    check(256, json!([]), json!([start]), reasoning("", "streaming"));
    check(257, reasoning("o", "streaming"), json!([delta]), reasoning("ohm", "streaming"));
    check(258, reasoning("o", "streaming"), json!([end]), reasoning("o", "done"));
    check(259, json!([]), json!([delta]), reasoning("hm", "streaming"));
}

#[test]
fn reasoning_merges_metadata_key_by_key() {
    check(
        258,
        json!([]),
        json!([
            { "type": "reasoning-start", "providerMetadata": { "ignored": true } },
            { "type": "reasoning-delta", "delta": "a", "providerMetadata": { "x": { "n": 1 }, "y": 1 } },
            { "type": "reasoning-delta", "delta": "b", "providerMetadata": { "x": { "m": 2 } } },
            { "type": "reasoning-delta", "delta": "c", "providerMetadata": null },
            { "type": "reasoning-end", "providerMetadata": { "signature": "s" } },
        ]),
        json!([{
            "type": "reasoning", "text": "abc", "state": "done",
            "providerMetadata": { "x": { "m": 2 }, "y": 1, "signature": "s" }
        }]),
    );
    check(
        259,
        json!([]),
        json!([{ "type": "reasoning-delta", "delta": "a", "providerMetadata": { "x": 1 } }]),
        json!([{
            "type": "reasoning", "text": "a", "state": "streaming", "providerMetadata": { "x": 1 }
        }]),
    );
}

#[test]
fn rows_260_to_262_files_and_sources() {
    check(
        260,
        json!([]),
        json!([{ "type": "file", "mediaType": "image/png", "url": "data:,x", "other": 1 }]),
        json!([{ "type": "file", "mediaType": "image/png", "url": "data:,x" }]),
    );
    let source = json!({
        "type": "source-url", "sourceId": "s", "url": "http://localhost/a", "title": "A",
        "providerMetadata": { "p": 1 }
    });
    check(261, json!([]), json!([source]), json!([source]));
    let document = json!({
        "type": "source-document", "sourceId": "s", "mediaType": "text/plain", "title": "A",
        "filename": "a.txt", "providerMetadata": { "p": 1 }
    });
    check(262, json!([]), json!([document]), json!([document]));
    check(
        262,
        json!([]),
        json!([{ "type": "source-document", "sourceId": null }]),
        json!([{ "type": "source-document", "sourceId": null }]),
    );
}

#[test]
fn rows_300_and_301_steps() {
    check(300, json!([]), json!([{ "type": "start-step" }]), json!([{ "type": "step-start" }]));
    check(301, json!([]), json!([{ "type": "step-start" }]), json!([{ "type": "step-start" }]));
}

#[test]
fn rows_302_to_312_data() {
    let data = |v| json!({ "type": "data-x", "data": { "v": v } });
    let with_id = |kind, id, v| json!({ "type": kind, "id": id, "data": { "v": v } });

    check(302, json!([]), json!([data(1)]), json!([data(1)]));
    check(303, json!([]), json!([with_id("data-x", "i", 1)]), json!([with_id("data-x", "i", 1)]));
    check(
        304,
        json!([with_id("data-x", "i", 1), data(5)]),
        json!([with_id("data-x", "i", 2)]),
        json!([with_id("data-x", "i", 2), data(5)]),
    );
    for (row, other) in [(305, with_id("data-x", "j", 2)), (306, with_id("data-y", "i", 2))] {
        let first = with_id("data-x", "i", 1);
        check(row, json!([first]), json!([other]), json!([first, other]));
    }
    check(307, json!([]), json!([data(1), data(1)]), json!([data(1), data(1)]));
    check_unchanged(308, json!([]), json!([{ "type": "data-x", "transient": true, "data": 1 }]));
    check_unchanged(
        309,
        json!([with_id("data-x", "i", 1)]),
        json!([{ "type": "data-x", "id": "i", "transient": true, "data": 2 }]),
    );
    check(310, json!([]), json!([{ "type": "data-x" }]), json!([{ "type": "data-x" }]));
    check(
        310,
        json!([with_id("data-x", "i", 1)]),
        json!([{ "type": "data-x", "id": "i" }]),
        json!([{ "type": "data-x", "id": "i" }]),
    );
    check_unknown(311, json!({ "type": "dat-x", "data": 1 }));
    let text = json!({ "type": "text", "text": "a", "state": "done" });
    check(312, json!([text]), json!([data(1)]), json!([text, data(1)]));
}

#[test]
fn data_ids_are_of_any_scalar_type_and_null_is_none() {
    let with_id = |id, v| json!({ "type": "data-x", "id": id, "data": v });
    for id in [json!(0), json!(1.5), json!(""), json!(false)] {
        check(
            304,
            json!([with_id(id.clone(), 1)]),
            json!([with_id(id.clone(), 2)]),
            json!([with_id(id, 2)]),
        );
    }
    check(
        305,
        json!([with_id(json!("1"), 1)]),
        json!([with_id(json!(1), 2)]),
        json!([with_id(json!("1"), 1), with_id(json!(1), 2)]),
    );
    let without = json!({ "type": "data-x", "data": 1 });
    check(307, json!([without]), json!([with_id(json!(null), 1)]), json!([without, without]));
    // Two lists or objects are never the same, as for the client that compares them by identity.
    let listed = with_id(json!([1]), 1);
    check(305, json!([listed]), json!([listed]), json!([listed, listed]));
}

#[test]
fn transient_counts_as_set_by_what_it_holds() {
    for (transient, added) in [
        (json!(false), true),
        (json!(null), true),
        (json!(0), true),
        (json!(""), true),
        (json!(1), false),
        (json!("false"), false),
        (json!({}), false),
    ] {
        let mut built = Vec::new();
        assert!(apply_chunk(&mut built, json!({ "type": "data-x", "transient": transient })));
        assert_eq!(!built.is_empty(), added, "for {transient}");
    }
}

#[test]
fn row_313_unknown_types() {
    check_unknown(313, json!({ "type": "made-up" }));
    check_unknown(313, json!({ "type": "tool-made-up", "toolCallId": "c" }));
    check_unknown(313, json!({ "type": "" }));
    for malformed in [json!({}), json!({ "type": 7 }), json!({ "type": null }), json!([]), json!(7)]
    {
        check_unknown(313, malformed);
    }
}

#[test]
fn rows_339_to_342_chunks_that_make_no_parts() {
    for (row, kind) in
        [(339, "start"), (340, "finish"), (341, "message-metadata"), (342, "finish-step")]
    {
        check_unknown(row, json!({ "type": kind }));
    }
}
