//! What is told of runs: registry rows, inspections, progress.

use ghostlight_protocol::frame::ProgressData;
use ghostlight_protocol::{
    AgentPath, Failure, InterruptReason, NotCompleted, Outcome, Phase, Status,
};
use ghostlight_storage as storage;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use storage::records::{EndRecord, RunRecord};

/// A run as its parent's registry has it. The field names in JSON are those of the contract, 2.8.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunInfo {
    /// The run's id.
    pub run_id: String,
    /// The address of the parent.
    pub parent: AgentAddress,
    /// The child's type.
    pub agent_type: String,
    /// What observers see.
    pub status: Status,
    /// What the child says; never `interrupted`.
    pub execution: Status,
    /// The tool call that the run belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_tool_call_id: Option<String>,
    /// What observers are shown of the input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_preview: Option<Value>,
    /// How observers show the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display: Option<Value>,
    /// The run's position among its siblings.
    pub display_order: i64,
    /// When it was recorded, in ms since the epoch.
    pub started_at: u64,
    /// When it ended, in ms since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<u64>,
    /// The number of the current attempt, from 1.
    pub attempt: u32,
    /// Whether the run waits outside memory: for a sleep, or for other runs.
    pub suspended: bool,
    /// Whether the run waits for a slot of its parent.
    pub queued: bool,
    /// Whether the run is being cancelled: a cancel was asked for, and it has not ended.
    pub cancelling: bool,
    /// What a model is told of the output of a completed run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Why the run did not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Why the run was interrupted, for machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<InterruptReason>,
    /// Whether the child of an interrupted run still works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_still_running: Option<bool>,
}

/// An address, written as its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentAddress(pub AgentPath);

impl Serialize for AgentAddress {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.as_str())
    }
}

impl<'de> Deserialize<'de> for AgentAddress {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// A run as it stands: its registry row, its output, and its signals so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    /// The registry row.
    #[serde(flatten)]
    pub run: RunInfo,
    /// The output of a completed run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The newest progress report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Value>,
    /// The milestones, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub milestones: Vec<Milestone>,
    /// The run's position in its parent's queue, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<usize>,
    /// The number of the next frame.
    pub next_sequence: u64,
}

/// A milestone that a run has reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Milestone {
    /// Its name.
    pub name: String,
    /// Its position among the run's milestones, from 0.
    pub sequence: u64,
    /// When it was reached, in ms since the epoch.
    pub at: u64,
    /// Its data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

/// A progress report: ephemeral, at most one in 200 ms reaches observers, the newest one always.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Progress {
    pub(crate) data: ProgressData,
}

impl Progress {
    /// So much of the work is done, from 0 to 1. A report of 1 or more is never held back.
    pub fn fraction(fraction: f64) -> Self {
        Self { data: ProgressData { fraction: Some(fraction), ..ProgressData::default() } }
    }

    /// `done` of `total` parts are done; no parts at all are all of them.
    pub fn of(done: u64, total: u64) -> Self {
        Self::fraction(if total == 0 { 1.0 } else { done as f64 / total as f64 })
    }

    /// Adds words for people.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.data.message = Some(message.into());
        self
    }

    /// Names the part of the work that is going on.
    #[must_use]
    pub fn phase(mut self, phase: impl Into<String>) -> Self {
        self.data.phase = Some(phase.into());
        self
    }

    /// Adds data for programs.
    #[must_use]
    pub fn data(mut self, data: Value) -> Self {
        self.data.data = Some(data);
        self
    }
}

pub(crate) fn parse_json(bytes: &[u8]) -> Value {
    // What is not JSON is shown as text: observers lose nothing.
    serde_json::from_slice(bytes)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(bytes).into_owned()))
}

/// The registry row of a record.
pub(crate) fn run_info(record: &RunRecord) -> Result<RunInfo, storage::Error> {
    let parent = record.parent.parse().map_err(|error| storage::Error::Corrupt {
        key: format!("record of run {:?}", record.run_id),
        why: format!("its parent: {error}"),
    })?;
    let status = record.state.status();
    let interruption = record.state.interrupted.filter(|_| status == Status::Interrupted);
    let end = record.end.as_ref();
    let error = match status {
        Status::Interrupted => record.interrupted_error.clone(),
        Status::Error | Status::Aborted => end.and_then(|end| end.error.clone()),
        Status::Starting | Status::Running | Status::Completed => None,
    };
    Ok(RunInfo {
        run_id: record.run_id.clone(),
        parent: AgentAddress(parent),
        agent_type: record.agent_type.clone(),
        status,
        execution: record.state.execution(),
        parent_tool_call_id: record.parent_tool_call_id.clone(),
        input_preview: record.input_preview.as_deref().map(parse_json),
        display: record.display.as_deref().map(parse_json),
        display_order: record.display_order,
        started_at: record.started_at_ms,
        completed_at: record.completed_at_ms,
        attempt: record.attempt,
        suspended: record.state.phase == Phase::Suspended,
        queued: record.state.phase == Phase::Queued,
        cancelling: record.state.cancelling && !record.state.execution().is_terminal(),
        summary: end.filter(|_| status == Status::Completed).map(|end| end.summary.clone()),
        error,
        reason: interruption.and_then(|i| i.reason),
        child_still_running: interruption.and_then(|i| i.child_still_running),
    })
}

/// Why a record that ended, or was interrupted, did not complete; `None` for every other one.
pub(crate) fn not_completed(record: &RunRecord) -> Option<NotCompleted> {
    let end = record.end.clone().unwrap_or_default();
    Some(match record.state.status() {
        Status::Starting | Status::Running | Status::Completed => return None,
        Status::Error => NotCompleted::Error(failure(end)),
        Status::Aborted => NotCompleted::Aborted { reason: end.error.unwrap_or_default() },
        Status::Interrupted => NotCompleted::Interrupted {
            error: record.interrupted_error.clone().unwrap_or_default(),
            reason: record.state.interrupted.and_then(|i| i.reason),
            child_still_running: record.state.interrupted.and_then(|i| i.child_still_running),
        },
    })
}

fn failure(end: EndRecord) -> Failure {
    Failure { message: end.error.unwrap_or_default(), kind: end.kind, permanent: end.permanent }
}

/// The outcome of a run whose output is JSON.
pub(crate) type RawOutcome = Outcome<Vec<u8>>;
