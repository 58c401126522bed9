use std::sync::Arc;

use serde_json::{Map, Number, Value};

use super::parts::apply_object;
use super::{Milestone, Progress, Run, State, SubAgent};
use crate::Status;
use crate::frame::{Frame, FrameEvent, MILESTONE_PART, PROGRESS_PART};

impl State {
    /// Applies one frame in place.
    ///
    /// A frame of a run that has not started changes nothing, nor does `started` after an end, an
    /// end after a hard end, or a body that is not a chunk. Chunks count in any status. Frames are
    /// taken as new: telling repeated ones apart is for [`SeenFrames`](super::SeenFrames).
    ///
    /// `now_ms` stands in for the time that a progress or milestone frame does not carry.
    pub fn apply(&mut self, frame: &Frame, now_ms: u64) {
        let run_id = frame.event.run_id();
        match &frame.event {
            FrameEvent::Started { agent_type, input_preview, order, display, .. } => {
                let known = self.runs.get_mut(run_id);
                if known.as_ref().is_some_and(|run| run.status != Status::Running) {
                    return;
                }
                let mut run = Run {
                    run_id: run_id.to_owned(),
                    agent_type: agent_type.clone(),
                    parent_tool_call_id: frame.parent_tool_call_id.clone(),
                    input_preview: input_preview.clone(),
                    order: *order,
                    display: display.clone(),
                    status: Status::Running,
                    parts: Vec::new(),
                    sub_agent: SubAgent { agent: agent_type.clone(), name: run_id.to_owned() },
                    summary: None,
                    error: None,
                    reason: None,
                    child_still_running: None,
                    progress: None,
                    milestones: Vec::new(),
                };
                match known {
                    None => {
                        self.runs.insert(run_id.to_owned(), Arc::new(run));
                    }
                    Some(known) => {
                        let known = Arc::make_mut(known);
                        run.parts = std::mem::take(&mut known.parts);
                        run.progress = known.progress.take();
                        run.milestones = std::mem::take(&mut known.milestones);
                        *known = run;
                    }
                }
            }
            FrameEvent::Chunk { body, .. } => {
                if let Some(run) = self.runs.get_mut(run_id)
                    && let Ok(Value::Object(chunk)) = serde_json::from_str(body)
                {
                    Arc::make_mut(run).apply_chunk(chunk, now_ms);
                }
            }
            FrameEvent::Finished { summary, .. } => self.end(run_id, |run| {
                run.status = Status::Completed;
                run.summary = Some(summary.clone());
            }),
            FrameEvent::Error { error, .. } => self.end(run_id, |run| {
                run.status = Status::Error;
                run.error = Some(error.clone());
            }),
            FrameEvent::Aborted { reason, .. } => self.end(run_id, |run| {
                run.status = Status::Aborted;
                run.error = reason.clone();
            }),
            FrameEvent::Interrupted { error, reason, child_still_running, .. } => {
                self.end(run_id, |run| {
                    run.status = Status::Interrupted;
                    run.error = Some(error.clone());
                    run.reason = *reason;
                    run.child_still_running = *child_still_running;
                });
            }
        }
    }

    /// Ends a run that has not hard-ended, the cause of an earlier soft end forgotten.
    fn end(&mut self, run_id: &str, end: impl FnOnce(&mut Run)) {
        if let Some(run) = self.runs.get_mut(run_id)
            && !run.status.is_hard()
        {
            let run = Arc::make_mut(run);
            run.error = None;
            run.reason = None;
            run.child_still_running = None;
            end(run);
        }
    }
}

impl Run {
    fn apply_chunk(&mut self, chunk: Map<String, Value>, now_ms: u64) {
        match chunk.get("type").and_then(Value::as_str) {
            Some(PROGRESS_PART) => self.progress = Some(read_progress(&chunk, now_ms)),
            Some(MILESTONE_PART) => {
                if let Some(milestone) = read_milestone(&chunk, now_ms)
                    && !self.reach(milestone, &chunk)
                {
                    return;
                }
            }
            Some(_) | None => {}
        }
        apply_object(&mut self.parts, chunk);
    }

    /// Adds a milestone and takes its progress unless that is older than what there is.
    ///
    /// Returns false if a milestone of that number is known already.
    fn reach(&mut self, milestone: Milestone, chunk: &Map<String, Value>) -> bool {
        let sequence = value_of(&milestone.sequence);
        if self.milestones.iter().any(|known| value_of(&known.sequence) == sequence) {
            return false;
        }
        let is_older = |progress: &Progress| value_of(&milestone.at) < value_of(&progress.at);
        if !self.progress.as_ref().is_some_and(is_older) {
            self.progress = Some(Progress {
                milestone: Some(milestone.name.clone()),
                data: None,
                at: milestone.at.clone(),
                ..read_progress(chunk, 0)
            });
        }
        let place = self.milestones.partition_point(|known| value_of(&known.sequence) < sequence);
        self.milestones.insert(place, milestone);
        true
    }
}

fn read_progress(chunk: &Map<String, Value>, now_ms: u64) -> Progress {
    Progress {
        fraction: number(datum(chunk, "fraction")),
        message: text(datum(chunk, "message")),
        phase: text(datum(chunk, "phase")),
        milestone: None,
        data: datum(chunk, "data").cloned(),
        at: number(datum(chunk, "at")).unwrap_or_else(|| now_ms.into()),
    }
}

/// Reads a milestone; none without a name, which leaves an ordinary data part.
fn read_milestone(chunk: &Map<String, Value>, now_ms: u64) -> Option<Milestone> {
    Some(Milestone {
        name: text(datum(chunk, "name"))?,
        sequence: number(datum(chunk, "sequence")).unwrap_or_else(|| 0.into()),
        at: number(datum(chunk, "at")).unwrap_or_else(|| now_ms.into()),
        data: datum(chunk, "data").cloned(),
    })
}

/// A field of the chunk's `data`; none if that is not an object.
fn datum<'a>(chunk: &'a Map<String, Value>, field: &str) -> Option<&'a Value> {
    chunk.get("data")?.as_object()?.get(field)
}

fn number(value: Option<&Value>) -> Option<Number> {
    match value {
        Some(Value::Number(number)) => Some(number.clone()),
        _ => None,
    }
}

fn text(value: Option<&Value>) -> Option<String> {
    value.and_then(Value::as_str).map(str::to_owned)
}

/// The number as a double, which is what numbers on the wire are; every one has such a value.
fn value_of(number: &Number) -> f64 {
    number.as_f64().unwrap_or(f64::NAN)
}
