use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

mod chunk;
mod input;
mod tool;

#[cfg(test)]
mod tests;

use chunk::{Chunk, is_same, is_truthy};
pub use input::normalize_input;

/// One part of what a run emitted: a JSON object with a `type`.
///
/// The fields are those that clients show; which there are depends on the type, and foreign senders
/// may put anything in them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Part(Map<String, Value>);

impl Part {
    /// The part's type, such as `text`, `tool-search` or `data-custom`; empty if it has none.
    pub fn kind(&self) -> &str {
        self.get("type").and_then(Value::as_str).unwrap_or_default()
    }

    /// The text of a text or reasoning part.
    pub fn text(&self) -> Option<&str> {
        self.get("text").and_then(Value::as_str)
    }

    /// The state of a text, reasoning or tool part.
    pub fn state(&self) -> Option<&str> {
        self.get("state").and_then(Value::as_str)
    }

    /// Any field.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.0.get(field)
    }

    fn new(kind: impl Into<String>) -> Self {
        Self(Map::from_iter([("type".to_owned(), Value::String(kind.into()))]))
    }

    /// Sets a field to what a chunk has for it, which may be nothing.
    fn set(&mut self, field: &str, value: Option<Value>) {
        match value {
            Some(value) => {
                self.0.insert(field.to_owned(), value);
            }
            None => {
                self.0.shift_remove(field);
            }
        }
    }

    /// Sets a field if there is a value for it.
    fn set_given(&mut self, field: &str, value: Option<Value>) {
        if value.is_some() {
            self.set(field, value);
        }
    }

    fn with(mut self, field: &str, value: Option<Value>) -> Self {
        self.set_given(field, value);
        self
    }
}

impl From<Map<String, Value>> for Part {
    fn from(fields: Map<String, Value>) -> Self {
        Self(fields)
    }
}

/// Applies a chunk to the parts of its run, and says whether its type is one that makes parts.
///
/// Whatever the chunk holds, this does not fail: what is not an object with a text for `type` is of
/// no known type and changes nothing. "Last" below means that the parts are searched from the end.
///
/// | type | effect |
/// |---|---|
/// | `text-start`, `reasoning-start` | adds an empty streaming part |
/// | `text-delta`, `reasoning-delta` | appends to the last part of that kind, or adds one |
/// | `text-end`, `reasoning-end` | the last part of that kind is done |
/// | `file`, `source-url`, `source-document`, `start-step`, `step-start` | adds a part |
/// | `tool-…` | adds a tool part or moves the last one of that call on, never back |
/// | `data-…` | adds a part, or gives the last one of the same type and id new data; none if `transient` |
pub fn apply_chunk(parts: &mut Vec<Part>, chunk: Value) -> bool {
    match chunk {
        Value::Object(chunk) => apply_object(parts, chunk),
        _ => false,
    }
}

pub(super) fn apply_object(parts: &mut Vec<Part>, fields: Map<String, Value>) -> bool {
    let Some((kind, mut chunk)) = Chunk::new(fields) else { return false };
    match kind.as_str() {
        "text-start" => open(parts, "text", String::new(), None),
        "text-delta" => append(parts, "text", chunk.take_text("delta"), None),
        "text-end" => close(parts, "text", None),
        "reasoning-start" => open(parts, "reasoning", String::new(), None),
        "reasoning-delta" => {
            let metadata = chunk.take_given("providerMetadata");
            append(parts, "reasoning", chunk.take_text("delta"), metadata);
        }
        "reasoning-end" => close(parts, "reasoning", chunk.take_given("providerMetadata")),
        "file" => copy(parts, kind, chunk, &["mediaType", "url"]),
        "source-url" => copy(parts, kind, chunk, &["sourceId", "url", "title", "providerMetadata"]),
        "source-document" => {
            let fields = ["sourceId", "mediaType", "title", "filename", "providerMetadata"];
            copy(parts, kind, chunk, &fields);
        }
        "start-step" | "step-start" => parts.push(Part::new("step-start")),
        _ if kind.starts_with("data-") => data(parts, kind, chunk),
        _ => return tool::apply(parts, &kind, chunk),
    }
    true
}

fn open(parts: &mut Vec<Part>, kind: &str, text: String, metadata: Option<Value>) {
    parts.push(
        Part::new(kind)
            .with("text", Some(Value::String(text)))
            .with("state", Some(Value::from("streaming")))
            .with("providerMetadata", metadata),
    );
}

fn append(parts: &mut Vec<Part>, kind: &str, delta: String, metadata: Option<Value>) {
    let Some(part) = last(parts, kind) else { return open(parts, kind, delta, metadata) };
    if let Some(Value::String(text)) = part.0.get_mut("text") {
        text.push_str(&delta);
    }
    merge_metadata(part, metadata);
}

fn close(parts: &mut [Part], kind: &str, metadata: Option<Value>) {
    if let Some(part) = last(parts, kind) {
        part.set("state", Some(Value::from("done")));
        merge_metadata(part, metadata);
    }
}

fn copy(parts: &mut Vec<Part>, kind: String, mut chunk: Chunk, fields: &[&str]) {
    let copied = fields.iter().fold(Part::new(kind), |part, field| {
        let value = chunk.take(field);
        part.with(field, value)
    });
    parts.push(copied);
}

fn data(parts: &mut Vec<Part>, kind: String, mut chunk: Chunk) {
    if chunk.get("transient").is_some_and(is_truthy) {
        return;
    }
    let id = chunk.take_given("id");
    let data = chunk.take("data");
    let known = id.as_ref().and_then(|asked| {
        let is_asked = |part: &&mut Part| {
            part.kind() == kind && part.get("id").is_some_and(|id| is_same(id, asked))
        };
        parts.iter_mut().rev().find(is_asked)
    });
    match known {
        Some(part) => part.set("data", data),
        None => parts.push(Part::new(kind).with("id", id).with("data", data)),
    }
}

fn last<'a>(parts: &'a mut [Part], kind: &str) -> Option<&'a mut Part> {
    parts.iter_mut().rev().find(|part| part.kind() == kind)
}

/// Adds metadata to what the part has, the newer winning key by key.
fn merge_metadata(part: &mut Part, metadata: Option<Value>) {
    let Some(metadata) = metadata else { return };
    let mut merged = match part.0.shift_remove("providerMetadata") {
        Some(Value::Object(known)) => known,
        _ => Map::new(),
    };
    if let Value::Object(metadata) = metadata {
        merged.extend(metadata);
    }
    part.set("providerMetadata", Some(Value::Object(merged)));
}
