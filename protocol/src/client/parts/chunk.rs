use serde_json::{Map, Value};

/// The fields of a chunk, taken out one by one.
pub(super) struct Chunk(Map<String, Value>);

impl Chunk {
    /// Splits a chunk into its type and the rest; none if the type is not a text.
    pub(super) fn new(mut fields: Map<String, Value>) -> Option<(String, Self)> {
        match fields.remove("type") {
            Some(Value::String(kind)) => Some((kind, Self(fields))),
            _ => None,
        }
    }

    pub(super) fn get(&self, field: &str) -> Option<&Value> {
        self.0.get(field)
    }

    /// A field, `null` included.
    pub(super) fn take(&mut self, field: &str) -> Option<Value> {
        self.0.remove(field)
    }

    /// A field, unless it is `null`.
    pub(super) fn take_given(&mut self, field: &str) -> Option<Value> {
        self.take(field).filter(|value| !value.is_null())
    }

    /// A field as text to append: nothing gives nothing, other JSON is written out.
    pub(super) fn take_text(&mut self, field: &str) -> String {
        match self.take_given(field) {
            None => String::new(),
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
        }
    }
}

/// Whether a value counts as set, as JavaScript has it: all but `null`, false, zero and `""`.
pub(super) fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(_) | Value::Object(_) => true,
    }
}

/// Whether two ids are the same. A list or an object is never the same as another.
pub(super) fn is_same(id: &Value, other: &Value) -> bool {
    match (id, other) {
        (Value::String(id), Value::String(other)) => id == other,
        (Value::Number(id), Value::Number(other)) => id.as_f64() == other.as_f64(),
        (Value::Bool(id), Value::Bool(other)) => id == other,
        _ => false,
    }
}
