use serde_json::{Map, Value};

/// Makes a tool's input an object, and says whether that changed it.
///
/// An object is kept, and a text that holds a JSON object is parsed. Everything else becomes `{}`,
/// because models accept nothing but objects: missing, `null`, lists, numbers, flags, other text.
pub fn normalize_input(input: Option<Value>) -> (Map<String, Value>, bool) {
    match input {
        Some(Value::Object(object)) => (object, false),
        Some(Value::String(text)) => (serde_json::from_str(&text).unwrap_or_default(), true),
        _ => (Map::new(), true),
    }
}
