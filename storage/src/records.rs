//! The records of a store. What a released version holds never changes.
//!
//! Payloads of users are JSON bytes inside these records: bincode cannot hold a JSON value, and a
//! user's type may gain fields between two versions of a program.

use std::collections::BTreeMap;

use ghostlight_protocol::journal::Call;
use ghostlight_protocol::{Interruption, RunState};
use serde::{Deserialize, Serialize};

use crate::codec::Record;
use crate::payload::Payload;

/// Small additions to a record that need no new version; unknown ones are kept.
pub type Extensions = BTreeMap<u16, Vec<u8>>;

macro_rules! record {
    ($type:ty, $kind:literal, $version:literal) => {
        impl Record for $type {
            const KIND: u8 = $kind;
            const VERSION: u8 = $version;
        }
    };
}

/// One run: everything but its log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The run's id.
    pub run_id: String,
    /// The address of the parent.
    pub parent: String,
    /// The type of the child.
    pub agent_type: String,
    /// The input, as JSON.
    pub input: Payload,
    /// A digest of the input, to notice another input under the same id.
    pub input_digest: [u8; 16],
    /// What observers are shown of the input, as JSON.
    pub input_preview: Option<Vec<u8>>,
    /// How observers show the run, as JSON.
    pub display: Option<Vec<u8>>,
    /// The run's place among its siblings.
    pub display_order: i64,
    /// The tool call that the run belongs to.
    pub parent_tool_call_id: Option<String>,
    /// Whether nobody waits for the run.
    pub detached: bool,
    /// When the run was recorded, in ms since the epoch.
    pub started_at_ms: u64,
    /// When the run ended, in ms since the epoch.
    pub completed_at_ms: Option<u64>,
    /// Execution and observation.
    pub state: RunState,
    /// The number of the current attempt, from 1.
    pub attempt: u32,
    /// How many attempts in a row, up to the last lost one, made no durable progress.
    pub futile: u32,
    /// The position of the log at which the current attempt began.
    pub attempt_began_at: u64,
    /// Why a cancel was asked for.
    pub cancel: Option<String>,
    /// When the run is due to be woken, in ms since the epoch.
    pub wake_at_ms: Option<u64>,
    /// The run's place in the queue, while it waits for a slot.
    pub queue_number: Option<u64>,
    /// How the run ended.
    pub end: Option<EndRecord>,
    /// What an interruption said, in words.
    pub interrupted_error: Option<String>,
    /// Small additions.
    pub ext: Extensions,
}
record!(RunRecord, 2, 1);

/// How a run ended; which of the fields count is up to the state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndRecord {
    /// The output, as JSON.
    pub output: Option<Payload>,
    /// What a model is told of the output.
    pub summary: String,
    /// The error's text, or the reason of a cancel.
    pub error: Option<String>,
    /// A word that callers branch on.
    pub kind: Option<String>,
    /// Whether trying again is known to be useless.
    pub permanent: bool,
}

/// The head of a run's log: who may append, and where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Which owner writes; every spawn of the run's actor is preceded by a higher one.
    pub epoch: u64,
    /// The number of the next frame.
    pub next_number: u64,
    /// The position of the next log record.
    pub position: u64,
    /// The sequence of the next milestone.
    pub next_milestone: u64,
}
record!(Head, 3, 1);

/// What one append wrote: frames, numbered from `first_number` in order, and journal entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRecord {
    /// When it was written, in ms since the epoch.
    pub at_ms: u64,
    /// The number of the first frame in it.
    pub first_number: u64,
    /// What was written, in the order queued.
    pub entries: Vec<LogEntry>,
}
record!(LogRecord, 4, 1);

/// One entry of a run's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogEntry {
    /// Frame 0; what it says is in the run's record.
    Started,
    /// A chunk of output, as JSON.
    Chunk {
        /// Where it came from.
        origin: Origin,
        /// One JSON value.
        body: Payload,
    },
    /// A progress report, as JSON.
    Progress {
        /// One JSON value.
        body: Payload,
    },
    /// A milestone.
    Milestone {
        /// Where it came from.
        origin: Origin,
        /// Its name.
        name: String,
        /// Its place among the run's milestones, from 0.
        sequence: u64,
        /// When it was reached, in ms since the epoch.
        at_ms: u64,
        /// Its data, as JSON.
        data: Option<Payload>,
    },
    /// A step is tried again: its earlier events are superseded.
    Mark {
        /// The step's key.
        step: String,
        /// Which try follows, from 2.
        attempt: u32,
    },
    /// The end of a completed run.
    Finished {
        /// What a model is told of the output.
        summary: String,
    },
    /// The end of a failed run.
    Failed {
        /// The error's text.
        error: String,
    },
    /// The end of a cancelled run.
    Aborted {
        /// Why.
        reason: Option<String>,
    },
    /// The parent stopped watching.
    Interrupted {
        /// Why, for machines.
        interruption: Interruption,
        /// Why, in words.
        error: String,
    },
    /// Journal: a call completed.
    Completed {
        /// The call.
        call: StoredCall,
        /// Its result, as JSON.
        result: Payload,
    },
    /// Journal: a step failed for good, and the code was told so.
    StepFailed {
        /// The step's key.
        step: String,
        /// The error's text.
        message: String,
        /// A word that callers branch on.
        kind: Option<String>,
        /// Whether trying again is known to be useless.
        permanent: bool,
    },
    /// Journal: a sleep is due at this time, in ms since the epoch.
    SleepSet {
        /// Which sleep, from 0; or the limit of a wait, by `journal::limit_of`.
        ordinal: u64,
        /// When it is due.
        due_ms: u64,
    },
    /// Journal: so many tries of a step have failed.
    Tried {
        /// The step's key.
        step: String,
        /// How many.
        tries: u32,
    },
    /// Journal: the run's state changed.
    State {
        /// The state's key.
        key: String,
        /// The new value, as JSON; none when it was removed.
        value: Option<Payload>,
    },
}

impl LogEntry {
    /// Whether observers see the entry, so that it takes a number.
    pub fn is_frame(&self) -> bool {
        match self {
            Self::Started | Self::Chunk { .. } | Self::Progress { .. } | Self::Milestone { .. } => {
                true
            }
            Self::Mark { .. }
            | Self::Finished { .. }
            | Self::Failed { .. }
            | Self::Aborted { .. }
            | Self::Interrupted { .. } => true,
            Self::Completed { .. }
            | Self::StepFailed { .. }
            | Self::SleepSet { .. }
            | Self::Tried { .. }
            | Self::State { .. } => false,
        }
    }

    /// Whether the entry is the end of the run for good.
    pub fn is_hard_end(&self) -> bool {
        matches!(self, Self::Finished { .. } | Self::Failed { .. } | Self::Aborted { .. })
    }
}

impl LogEntry {
    /// The payload of the entry, if it is of a kind that has one.
    pub fn payload_mut(&mut self) -> Option<&mut Payload> {
        match self {
            Self::Chunk { body, .. } | Self::Progress { body } => Some(body),
            Self::Milestone { data, .. } => data.as_mut(),
            Self::Completed { result, .. } => Some(result),
            Self::State { value, .. } => value.as_mut(),
            _ => None,
        }
    }

    /// About how many bytes the entry takes with its payload, and never less.
    pub fn bytes(&self) -> usize {
        let (text, payload) = match self {
            Self::Chunk { origin, body } => (origin.bytes(), body.len()),
            Self::Progress { body } => (0, body.len()),
            Self::Milestone { origin, name, data, .. } => {
                (origin.bytes() + name.len(), data.as_ref().map_or(0, Payload::len))
            }
            Self::Completed { call: StoredCall::Step(key), result } => (key.len(), result.len()),
            Self::Completed { call: StoredCall::Sleep(_) | StoredCall::Wait(_), result } => {
                (0, result.len())
            }
            Self::State { key, value } => (key.len(), value.as_ref().map_or(0, Payload::len)),
            Self::StepFailed { step, message, kind, .. } => {
                (step.len() + message.len() + kind.as_ref().map_or(0, String::len), 0)
            }
            Self::Mark { step, .. } | Self::Tried { step, .. } => (step.len(), 0),
            Self::Finished { summary: text }
            | Self::Failed { error: text }
            | Self::Interrupted { error: text, .. } => (text.len(), 0),
            Self::Aborted { reason } => (reason.as_ref().map_or(0, String::len), 0),
            Self::Started | Self::SleepSet { .. } => (0, 0),
        };
        // The tags, numbers and lengths of any entry take less than 64.
        (64 + text).saturating_add(usize::try_from(payload).unwrap_or(usize::MAX))
    }
}

impl LogRecord {
    /// The frames with their numbers.
    pub fn frames(&self) -> impl Iterator<Item = (u64, &LogEntry)> {
        (self.first_number..).zip(self.entries.iter().filter(|entry| entry.is_frame()))
    }

    /// The number that follows the last frame.
    pub fn end_number(&self) -> u64 {
        self.first_number + self.entries.iter().filter(|entry| entry.is_frame()).count() as u64
    }
}

/// Where an event came from, which decides what a re-entry makes of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// From code outside steps: the same call on re-entry appends nothing.
    Code,
    /// From a step: superseded when the step is tried again.
    Step(String),
    /// Read from an outside stream, up to this offset: a re-entry reads on from there.
    Source {
        /// The stream's name.
        name: String,
        /// Where the event ends in the stream.
        end: u64,
    },
}

impl Origin {
    fn bytes(&self) -> usize {
        match self {
            Self::Code => 0,
            Self::Step(name) | Self::Source { name, .. } => name.len(),
        }
    }
}

/// A journaled call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoredCall {
    /// The step of this key.
    Step(String),
    /// The nth sleep.
    Sleep(u64),
    /// The nth wait for another run.
    Wait(u64),
}

impl StoredCall {
    /// The call as it is stored; none for an act, which is an entry itself.
    pub fn new(call: Call) -> Option<Self> {
        match call {
            Call::Step(key) => Some(Self::Step(key)),
            Call::Sleep(ordinal) => Some(Self::Sleep(ordinal)),
            Call::Wait(ordinal) => Some(Self::Wait(ordinal)),
            Call::Act(_) => None,
        }
    }
}

impl From<StoredCall> for Call {
    fn from(call: StoredCall) -> Self {
        match call {
            StoredCall::Step(key) => Self::Step(key),
            StoredCall::Sleep(ordinal) => Self::Sleep(ordinal),
            StoredCall::Wait(ordinal) => Self::Wait(ordinal),
        }
    }
}

/// A run that has begun and not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveRecord {
    /// The address of the parent.
    pub parent: String,
    /// The run's id.
    pub run_id: String,
    /// The child's type.
    pub agent_type: String,
    /// Whether a timer, and nothing else, will wake the run.
    pub waiting: bool,
    /// The incarnation that began it, or took it over.
    pub incarnation: u64,
}
record!(LiveRecord, 5, 1);

/// A run that waits for a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedRecord {
    /// The address of the parent.
    pub parent: String,
    /// The run's id.
    pub run_id: String,
    /// The child's type.
    pub agent_type: String,
}
record!(QueuedRecord, 6, 1);

/// A run in its parent's registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistryRecord {
    /// The address of the parent.
    pub parent: String,
    /// The run's id.
    pub run_id: String,
}
record!(RegistryRecord, 7, 1);

/// A durable timer: when it is due, the parent wakes the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerRecord {
    /// The address of the parent.
    pub parent: String,
    /// The run's id.
    pub run_id: String,
}
record!(TimerRecord, 8, 1);

/// A large payload whose parts are being written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntentRecord {
    /// The incarnation that writes it.
    pub incarnation: u64,
}
record!(IntentRecord, 10, 1);

/// What is left of a cleared run: its id is never used again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TombstoneRecord {
    /// When it was cleared, in ms since the epoch.
    pub cleared_at_ms: u64,
    /// Whether it had ended as aborted, as a live run does that is cleared: whoever waits for it is
    /// told so still.
    pub aborted: bool,
}
record!(TombstoneRecord, 11, 1);

/// A cleared run whose keys still have to go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeRecord {
    /// When it was cleared, in ms since the epoch.
    pub cleared_at_ms: u64,
}
record!(PurgeRecord, 12, 1);

/// How often the store has been opened by a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncarnationRecord {
    /// The current one, from 1.
    pub incarnation: u64,
}
record!(IncarnationRecord, 1, 1);

/// A delivery owed to an agent's hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwedRecord {
    /// The address of the agent.
    pub parent: String,
    /// The run that the delivery is about.
    pub run_id: String,
    /// How many tries have failed.
    pub tries: u32,
    /// When the next try is due, in ms since the epoch.
    pub due_ms: u64,
}
record!(OwedRecord, 13, 1);

#[cfg(test)]
mod tests;
