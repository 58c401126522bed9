//! Frames: the events of runs as observers are sent them.
//!
//! A frame is one JSON object in one text message. Its shape is fixed by the clients that read it:
//!
//! ```json
//! {"type":"agent-tool-event","parentToolCallId":"call_1","sequence":3,"replay":true,
//!  "event":{"kind":"chunk","runId":"r1","body":"{\"type\":\"text-delta\",\"delta\":\"hi\"}"}}
//! ```
//!
//! What is absent is left out, never `null`, and `replay` is there only when it is true. Reading is
//! strict about what a frame must have and ignores fields it does not know.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::reason::InterruptReason;
use crate::text::cut_with_marker;

mod body;
mod wire;

#[cfg(test)]
mod tests;

pub use body::{
    ATTEMPT_PART, AttemptMark, MILESTONE_PART, MilestoneData, PROGRESS_PART, ProgressData,
    ReservedBody, attempt_body, milestone_body, progress_body,
};
pub use wire::{FRAME_TYPE, FrameError};

/// One event of one run, with its place in the run's number line.
///
/// The number of an event is the same live and in every replay; `(parent tool call, run id,
/// sequence)` therefore identifies a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// The tool call of the parent that the run belongs to; none for an unbound run.
    pub parent_tool_call_id: Option<String>,
    /// The number of the event in its run, from 0 for `started`.
    pub sequence: u64,
    /// Whether the frame is sent to one observer to catch up, rather than live to all.
    pub replay: bool,
    /// What happened.
    pub event: FrameEvent,
}

/// What a frame says of its run.
///
/// Run ids are plain text here: a client must be able to name a run that this system would not
/// have made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum FrameEvent {
    /// The run was dispatched.
    Started {
        /// The run.
        run_id: String,
        /// The kind of agent that executes it.
        agent_type: String,
        /// The preview of its input, any JSON; an explicit `null` is kept apart from none.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "wire::given"
        )]
        input_preview: Option<Value>,
        /// Its place among the runs of the same tool call.
        order: i64,
        /// How clients should show it, carried opaquely.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "wire::given"
        )]
        display: Option<Value>,
    },
    /// The run emitted something: a chunk, progress, a milestone or a mark.
    Chunk {
        /// The run.
        run_id: String,
        /// A text that should hold one JSON object with a string `type`.
        body: String,
    },
    /// The run completed.
    Finished {
        /// The run.
        run_id: String,
        /// What it has to say of its result; empty if nothing.
        summary: String,
    },
    /// The run failed.
    Error {
        /// The run.
        run_id: String,
        /// Why.
        error: String,
    },
    /// The run was cancelled.
    Aborted {
        /// The run.
        run_id: String,
        /// Why, if it was said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The parent stopped watching the run; a real end may still follow.
    Interrupted {
        /// The run.
        run_id: String,
        /// Why, for people.
        error: String,
        /// Why, for programs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<InterruptReason>,
        /// Whether the child goes on; none if that is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        child_still_running: Option<bool>,
    },
}

impl FrameEvent {
    /// The run that the event belongs to.
    pub fn run_id(&self) -> &str {
        match self {
            Self::Started { run_id, .. }
            | Self::Chunk { run_id, .. }
            | Self::Finished { run_id, .. }
            | Self::Error { run_id, .. }
            | Self::Aborted { run_id, .. }
            | Self::Interrupted { run_id, .. } => run_id,
        }
    }

    /// Whether the event ends the run for good: nothing but chunks can follow it.
    pub fn is_hard_end(&self) -> bool {
        match self {
            Self::Finished { .. } | Self::Error { .. } | Self::Aborted { .. } => true,
            Self::Started { .. } | Self::Chunk { .. } | Self::Interrupted { .. } => false,
        }
    }

    /// Cuts summary, error and reason texts to `bytes_max` bytes each, with a marker.
    ///
    /// Chunk bodies and previews have limits of their own, checked where they are made, and are
    /// left alone.
    ///
    /// # Examples
    ///
    /// ```
    /// use ghostlight_protocol::frame::FrameEvent;
    /// use ghostlight_protocol::limits::TEXT_BYTES_MAX;
    ///
    /// let long = FrameEvent::Error { run_id: "r1".into(), error: "x".repeat(1 << 20) };
    /// let FrameEvent::Error { error, .. } = long.cut_texts(TEXT_BYTES_MAX) else { unreachable!() };
    /// assert_eq!(error.len(), TEXT_BYTES_MAX);
    /// ```
    #[must_use]
    pub fn cut_texts(mut self, bytes_max: usize) -> Self {
        let text = match &mut self {
            Self::Started { .. } | Self::Chunk { .. } | Self::Aborted { reason: None, .. } => None,
            Self::Finished { summary: text, .. }
            | Self::Error { error: text, .. }
            | Self::Aborted { reason: Some(text), .. }
            | Self::Interrupted { error: text, .. } => Some(text),
        };
        if let Some(text) = text
            && text.len() > bytes_max
        {
            *text = cut_with_marker(text, bytes_max).into_owned();
        }
        self
    }
}
