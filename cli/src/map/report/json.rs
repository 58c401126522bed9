//! One JSON object a line, on standard output.

use std::io::{BufWriter, Stdout, Write};

use serde_json::{Value, json};

use super::{Event, Input, Print, Totals};
use crate::batch::EXACT_INPUT;

pub(super) struct Json {
    out: BufWriter<Stdout>,
}

impl Json {
    pub(super) fn new() -> Self {
        Self { out: BufWriter::new(std::io::stdout()) }
    }

    fn line(&mut self, value: &Value) -> std::io::Result<()> {
        writeln!(self.out, "{value}")
    }
}

fn add_exact(value: &mut Value, input: &Input) {
    if let Some(base64) = input.base64() {
        value[EXACT_INPUT] = json!(base64);
    }
}

impl Print for Json {
    fn event(&mut self, event: &Event) -> std::io::Result<()> {
        let value = match event {
            Event::Began { run_id, input } => {
                let mut value = json!({
                    "type": "started", "runId": **run_id, "agentType": "Command", "input": **input,
                });
                add_exact(&mut value, input);
                value
            }
            Event::Line { run_id, input, sequence, chunk } => {
                let mut value: Value = serde_json::from_str(&chunk.encode())?;
                let mut line = json!({
                    "type": "output", "runId": **run_id, "input": **input, "sequence": sequence,
                });
                if let (Some(line), Some(data)) =
                    (line.as_object_mut(), value["data"].as_object_mut())
                {
                    line.append(data);
                }
                line
            }
            Event::Ended { run_id, input, end, before } => {
                let mut value = json!({
                    "type": "ended", "runId": **run_id, "agentType": "Command", "input": **input,
                    "status": end.status, "before": before,
                });
                add_exact(&mut value, input);
                if let Some(error) = &end.error {
                    value["error"] = json!(error);
                }
                value
            }
            Event::Inputs(_) => return Ok(()),
            Event::Note(text) => json!({ "type": "note", "text": text }),
            Event::Unreadable(error) => json!({ "type": "unreadable", "error": error }),
            Event::Read(notes) => {
                json!({
                    "type": "read", "blank": notes.blank, "unreadable": notes.unreadable,
                    "brokenLinks": notes.broken_links, "linkedFolders": notes.linked_folders,
                })
            }
        };
        self.line(&value)
    }

    fn idle(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }

    fn end(&mut self, totals: &Totals) -> std::io::Result<()> {
        let value = json!({
            "type": "summary",
            "completed": totals.completed,
            "before": totals.before,
            "failed": totals.failed,
            "cancelled": totals.cancelled,
            "unreadable": totals.unreadable,
            "stopped": totals.stopped,
            "seconds": totals.elapsed.as_secs_f64(),
        });
        self.line(&value)?;
        self.out.flush()
    }
}
