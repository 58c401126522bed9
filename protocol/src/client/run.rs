use serde::Serialize;
use serde_json::{Number, Value};

use super::Part;
use crate::Status;
use crate::reason::InterruptReason;

/// What a client knows of one run.
///
/// Serializes to the JSON of the npm client, absent fields left out.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Run {
    /// The run's id.
    pub run_id: String,
    /// The kind of agent that executes it.
    pub agent_type: String,
    /// The tool call it belongs to; none or empty for an unbound run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_tool_call_id: Option<String>,
    /// The preview of its input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_preview: Option<Value>,
    /// Its place among the runs of its tool call.
    pub order: i64,
    /// How to show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display: Option<Value>,
    /// How far it is; a client sees no `starting`, which shows as running.
    pub status: Status,
    /// What it has emitted, put together.
    pub parts: Vec<Part>,
    /// Where to connect to for the run itself.
    pub sub_agent: SubAgent,
    /// What a completed run says of its result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Why it ended otherwise, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Why it is `interrupted`, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<InterruptReason>,
    /// Whether an `interrupted` run goes on unwatched; none if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_still_running: Option<bool>,
    /// The latest progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// The milestones reached, by their number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub milestones: Vec<Milestone>,
}

/// The address of a run below its parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SubAgent {
    /// The kind of agent.
    pub agent: String,
    /// The name of the instance, which is the run id.
    pub name: String,
}

/// The latest progress of a run.
///
/// Numbers are kept as the sender wrote them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Progress {
    /// How much is done; not clamped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fraction: Option<Number>,
    /// What is being done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The phase of the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The milestone that the progress is of, if it is of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub milestone: Option<String>,
    /// Anything else; a milestone's data is in [`Milestone::data`] instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// When, in epoch milliseconds: the sender's time if the frame carries it, else the time at
    /// which the frame was applied.
    pub at: Number,
}

/// A milestone that a run reached.
///
/// Numbers are kept as the sender wrote them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Milestone {
    /// Its name.
    pub name: String,
    /// Its number among the milestones of the run; 0 if the sender gave none.
    pub sequence: Number,
    /// When, in epoch milliseconds; see [`Progress::at`].
    pub at: Number,
    /// What was reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}
