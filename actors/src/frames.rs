//! Frames out of log entries: the same ones live and in every replay.

use ghostlight_protocol::RunKey;
use ghostlight_protocol::frame::{
    AttemptMark, Frame, FrameEvent, MilestoneData, attempt_body, milestone_body,
};
use ghostlight_protocol::limits::TEXT_BYTES_MAX;
use ghostlight_storage as storage;
use serde_json::Value;
use storage::Committer;
use storage::payload::Payload;
use storage::records::{LogEntry, RunRecord};

use crate::info::parse_json;

/// What the frames of a run say beside their entries.
#[derive(Debug, Clone)]
pub(crate) struct FrameMaker {
    run_id: String,
    agent_type: String,
    parent_tool_call_id: Option<String>,
    input_preview: Option<Value>,
    display: Option<Value>,
    order: i64,
}

impl FrameMaker {
    pub(crate) fn new(record: &RunRecord) -> Self {
        Self {
            run_id: record.run_id.clone(),
            agent_type: record.agent_type.clone(),
            parent_tool_call_id: record.parent_tool_call_id.clone(),
            input_preview: record.input_preview.as_deref().map(parse_json),
            display: record.display.as_deref().map(parse_json),
            order: record.display_order,
        }
    }

    /// The frame of an entry whose payload is inline; `None` for journal entries.
    pub(crate) fn frame(&self, sequence: u64, entry: &LogEntry) -> Option<Frame> {
        let run_id = self.run_id.clone();
        let event = match entry {
            LogEntry::Started => FrameEvent::Started {
                run_id,
                agent_type: self.agent_type.clone(),
                input_preview: self.input_preview.clone(),
                order: self.order,
                display: self.display.clone(),
            },
            LogEntry::Chunk { body, .. } | LogEntry::Progress { body } => {
                FrameEvent::Chunk { run_id, body: text(body) }
            }
            LogEntry::Milestone { name, sequence, at_ms, data, .. } => {
                let data = MilestoneData {
                    name: name.clone(),
                    sequence: *sequence,
                    at_ms: *at_ms,
                    fraction: None,
                    message: None,
                    phase: None,
                    data: data.as_ref().map(|data| parse_json(text(data).as_bytes())),
                };
                FrameEvent::Chunk { run_id, body: milestone_body(&data) }
            }
            LogEntry::Mark { step, attempt } => {
                let mark = AttemptMark { step: step.clone(), attempt: u64::from(*attempt) };
                FrameEvent::Chunk { run_id, body: attempt_body(&mark) }
            }
            LogEntry::Finished { summary } => {
                FrameEvent::Finished { run_id, summary: summary.clone() }
            }
            LogEntry::Failed { error } => FrameEvent::Error { run_id, error: error.clone() },
            LogEntry::Aborted { reason } => FrameEvent::Aborted { run_id, reason: reason.clone() },
            LogEntry::Interrupted { interruption, error } => FrameEvent::Interrupted {
                run_id,
                error: error.clone(),
                reason: interruption.reason,
                child_still_running: interruption.child_still_running,
            },
            LogEntry::Completed { .. }
            | LogEntry::StepFailed { .. }
            | LogEntry::SleepSet { .. }
            | LogEntry::Tried { .. }
            | LogEntry::State { .. } => return None,
        };
        let parent_tool_call_id = self.parent_tool_call_id.clone();
        let event = event.cut_texts(TEXT_BYTES_MAX);
        Some(Frame { parent_tool_call_id, sequence, replay: false, event })
    }
}

fn text(payload: &Payload) -> String {
    match payload {
        Payload::Inline(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        // Callers load parts first.
        Payload::Parts { .. } => String::new(),
    }
}

/// Replaces a payload in parts by its bytes.
pub(crate) async fn load(
    entry: &mut LogEntry,
    committer: &Committer,
    run: RunKey,
) -> Result<(), storage::Error> {
    if let Some(payload) = entry.payload_mut()
        && matches!(payload, Payload::Parts { .. })
    {
        *payload = Payload::Inline(payload.clone().read(committer, run).await?);
    }
    Ok(())
}
