use serde_json::Value;

use super::chunk::{Chunk, is_same, is_truthy};
use super::{Part, normalize_input};

const INPUT_STREAMING: &str = "input-streaming";
const INPUT_AVAILABLE: &str = "input-available";
const APPROVAL_REQUESTED: &str = "approval-requested";
const APPROVAL_RESPONDED: &str = "approval-responded";
const OUTPUT_AVAILABLE: &str = "output-available";
const OUTPUT_ERROR: &str = "output-error";
const OUTPUT_DENIED: &str = "output-denied";

/// Applies a chunk of a tool call, and says whether its type is known.
pub(super) fn apply(parts: &mut Vec<Part>, kind: &str, chunk: Chunk) -> bool {
    match kind {
        "tool-input-start" => input_start(parts, chunk),
        "tool-input-delta" => input_delta(parts, chunk),
        "tool-input-available" => input_available(parts, chunk),
        "tool-input-error" => input_error(parts, chunk),
        "tool-approval-request" => approval_request(parts, chunk),
        "tool-output-denied" => output_denied(parts, chunk),
        "tool-output-available" => output_available(parts, chunk),
        "tool-output-error" => output_error(parts, chunk),
        _ => return false,
    }
    true
}

fn input_start(parts: &mut Vec<Part>, mut chunk: Chunk) {
    if find(parts, &chunk).is_none() {
        let mut part = new_part(&mut chunk, INPUT_STREAMING);
        describe(&mut part, &mut chunk);
        set_title(&mut part, &mut chunk);
        parts.push(part);
    }
}

fn input_delta(parts: &mut [Part], mut chunk: Chunk) {
    if let Some(part) = find(parts, &chunk)
        && part.state() == Some(INPUT_STREAMING)
    {
        part.set_given("input", chunk.take("input"));
    }
}

fn input_available(parts: &mut Vec<Part>, mut chunk: Chunk) {
    match find(parts, &chunk) {
        Some(part) => match part.state() {
            Some(INPUT_STREAMING) => {
                set_state(part, INPUT_AVAILABLE);
                set_input(part, &mut chunk);
                describe(part, &mut chunk);
                set_title(part, &mut chunk);
            }
            // The input may come after the request to approve it. It must not take the request
            // back, nor replace an input that somebody may be judging.
            Some(APPROVAL_REQUESTED | APPROVAL_RESPONDED) if part.get("input").is_none() => {
                set_input(part, &mut chunk);
                describe(part, &mut chunk);
                set_title(part, &mut chunk);
            }
            _ => {}
        },
        None => {
            let mut part = new_part(&mut chunk, INPUT_AVAILABLE);
            set_input(&mut part, &mut chunk);
            describe(&mut part, &mut chunk);
            set_title(&mut part, &mut chunk);
            parts.push(part);
        }
    }
}

fn input_error(parts: &mut Vec<Part>, mut chunk: Chunk) {
    let part = match find(parts, &chunk) {
        Some(part) if is_settled(part) => return,
        Some(part) => {
            set_state(part, OUTPUT_ERROR);
            part
        }
        None => {
            let part = new_part(&mut chunk, OUTPUT_ERROR);
            parts.push_mut(part)
        }
    };
    set_input(part, &mut chunk);
    part.set("errorText", chunk.take("errorText"));
    describe(part, &mut chunk);
}

fn approval_request(parts: &mut [Part], mut chunk: Chunk) {
    if let Some(part) = find(parts, &chunk)
        && !is_decided(part)
    {
        let mut approval = serde_json::Map::new();
        if let Some(id) = chunk.take("approvalId") {
            approval.insert("id".to_owned(), id);
        }
        if let Some(descriptor) = chunk.take("approvalDescriptor") {
            approval.insert("descriptor".to_owned(), descriptor);
        }
        set_state(part, APPROVAL_REQUESTED);
        part.set("approval", Some(Value::Object(approval)));
    }
}

fn output_denied(parts: &mut [Part], chunk: Chunk) {
    if let Some(part) = find(parts, &chunk)
        && !is_decided(part)
    {
        set_state(part, OUTPUT_DENIED);
    }
}

fn output_available(parts: &mut [Part], mut chunk: Chunk) {
    if let Some(part) = find(parts, &chunk) {
        set_state(part, OUTPUT_AVAILABLE);
        part.set("output", chunk.take("output"));
        part.set_given("preliminary", chunk.take("preliminary"));
    }
}

fn output_error(parts: &mut [Part], mut chunk: Chunk) {
    if let Some(part) = find(parts, &chunk) {
        set_state(part, OUTPUT_ERROR);
        part.set("errorText", chunk.take("errorText"));
    }
}

/// The last part of the chunk's tool call; none also where the chunk names no call.
fn find<'a>(parts: &'a mut [Part], chunk: &Chunk) -> Option<&'a mut Part> {
    let asked = chunk.get("toolCallId").filter(|id| is_truthy(id))?;
    let is_asked = |part: &&mut Part| part.get("toolCallId").is_some_and(|id| is_same(id, asked));
    parts.iter_mut().rev().find(is_asked)
}

fn new_part(chunk: &mut Chunk, state: &str) -> Part {
    let name = chunk.take("toolName");
    let kind = match &name {
        Some(Value::String(name)) => format!("tool-{name}"),
        Some(other) => format!("tool-{other}"),
        // What a missing name looks like in the client that others read these parts with.
        None => "tool-undefined".to_owned(),
    };
    Part::new(kind)
        .with("toolCallId", chunk.take("toolCallId"))
        .with("toolName", name)
        .with("state", Some(Value::from(state)))
}

fn set_state(part: &mut Part, state: &str) {
    part.set("state", Some(Value::from(state)));
}

fn set_input(part: &mut Part, chunk: &mut Chunk) {
    let (input, _) = normalize_input(chunk.take("input"));
    part.set("input", Some(Value::Object(input)));
}

fn describe(part: &mut Part, chunk: &mut Chunk) {
    part.set_given("providerExecuted", chunk.take_given("providerExecuted"));
    part.set_given("callProviderMetadata", chunk.take_given("providerMetadata"));
}

fn set_title(part: &mut Part, chunk: &mut Chunk) {
    part.set_given("title", chunk.take_given("title"));
}

fn is_settled(part: &Part) -> bool {
    matches!(part.state(), Some(OUTPUT_AVAILABLE | OUTPUT_ERROR | OUTPUT_DENIED))
}

/// Whether nothing is to be approved any more.
fn is_decided(part: &Part) -> bool {
    is_settled(part) || part.state() == Some(APPROVAL_RESPONDED)
}
