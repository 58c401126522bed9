use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{Frame, FrameEvent};

/// The `type` of every frame.
pub const FRAME_TYPE: &str = "agent-tool-event";

/// Why a text is not a frame.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The text is not JSON.
    #[error("the message is not JSON")]
    NotJson(#[source] serde_json::Error),
    /// The text is JSON, but says nothing of runs; other traffic shares the connection.
    #[error("the message is not an {FRAME_TYPE}")]
    Foreign,
    /// The text claims to be a frame, and is not a well-formed one.
    #[error("malformed {FRAME_TYPE}")]
    Malformed(#[source] serde_json::Error),
}

impl Frame {
    /// Reads a frame from a text message.
    ///
    /// A field that should be a text, number or flag of its kind must be one; a `null` counts as
    /// absent where a field is optional. Unknown fields are ignored.
    ///
    /// # Errors
    ///
    /// As the variants of [`FrameError`] say; the same text always fails alike.
    pub fn parse(text: &str) -> Result<Self, FrameError> {
        serde_json::from_str(text).map_err(|error| {
            // Telling the cases apart costs a second pass, paid only by what is no frame.
            match serde_json::from_str::<Value>(text) {
                Err(error) => FrameError::NotJson(error),
                Ok(value) if value.get("type").and_then(Value::as_str) == Some(FRAME_TYPE) => {
                    FrameError::Malformed(error)
                }
                Ok(_) => FrameError::Foreign,
            }
        })
    }

    /// Writes the frame as a text message.
    ///
    /// Equal frames give equal texts, so live and replayed frames differ in `replay` alone.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a frame has text keys only and nothing that fails")
    }
}

#[derive(Serialize, Deserialize)]
enum Type {
    #[serde(rename = "agent-tool-event")]
    AgentToolEvent,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FrameRef<'a> {
    r#type: Type,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_tool_call_id: Option<&'a str>,
    sequence: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replay: bool,
    event: &'a FrameEvent,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FrameOwned {
    #[serde(rename = "type")]
    _type: Type,
    #[serde(default)]
    parent_tool_call_id: Option<String>,
    sequence: u64,
    #[serde(default)]
    replay: bool,
    event: FrameEvent,
}

impl Serialize for Frame {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        FrameRef {
            r#type: Type::AgentToolEvent,
            parent_tool_call_id: self.parent_tool_call_id.as_deref(),
            sequence: self.sequence,
            replay: self.replay,
            event: &self.event,
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Frame {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let FrameOwned {
            _type: Type::AgentToolEvent,
            parent_tool_call_id,
            sequence,
            replay,
            event,
        } = FrameOwned::deserialize(deserializer)?;
        Ok(Self { parent_tool_call_id, sequence, replay, event })
    }
}

/// Keeps an explicit `null` apart from an absent field.
pub(super) fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}
