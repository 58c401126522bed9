//! `ghostlight show`.

use std::path::Path;
use std::process::ExitCode;

use ghostlight::{Agent, Inspection, Milestone};
use serde_json::{Map, Value};

use super::find::find;
use super::list::{raise_exact_input, status};
use super::{Early, Out, end, one_line};
use crate::access::{Access, Folder};
use crate::args::OneRun;
use crate::batch::{COMMAND_LOST, Command, Made};
use crate::fatal::Fatal;

/// Shows a run as it stands.
pub(crate) async fn show(args: OneRun) -> Result<ExitCode, Fatal> {
    let folder = Folder::open(&args.place.data)?;
    let shown = folder.with(async |access| show_run(access, &args).await).await;
    end(shown.and_then(|mut out| out.print()).map(|()| ExitCode::SUCCESS))
}

/// Adds what the batch of a run was made with.
async fn add_command(
    fields: &mut Map<String, Value>,
    data: &Path,
    batch: &str,
) -> Result<(), Fatal> {
    let Some(made) = Made::read(data, batch).await? else { return Ok(()) };
    fields.insert("command".to_owned(), serde_json::to_value(&made.command)?);
    fields.insert("cwd".to_owned(), serde_json::to_value(&made.cwd)?);
    Ok(())
}

/// How often the command of a run had to be started again.
fn restarts(inspection: &Inspection) -> Option<usize> {
    let is_lost = |milestone: &&Milestone| milestone.name == COMMAND_LOST;
    (inspection.run.agent_type == Command::TYPE)
        .then(|| inspection.milestones.iter().filter(is_lost).count())
}

async fn show_run(access: &Access, args: &OneRun) -> Result<Out, Early> {
    let (parent, run_id) = find(access, args, 1).await?;
    let inspection = access
        .inspect(&parent, &run_id)
        .await?
        .ok_or_else(|| Fatal::new(format!("run {run_id:?} was cleared meanwhile")))?;
    let mut out = Out::default();
    let mut value = serde_json::to_value(&inspection).map_err(Fatal::from)?;
    raise_exact_input(&inspection.run, &mut value);
    if let Value::Object(fields) = &mut value {
        let restarts = restarts(&inspection);
        if let Some(restarts) = restarts {
            fields.insert("restarts".to_owned(), restarts.into());
        }
        add_command(fields, &args.place.data, &parent.name()).await?;
        if !args.place.json {
            // As `runs` has it.
            fields.insert("status".to_owned(), status(&inspection.run).into());
            fields.shift_remove("cancelling");
            if restarts.is_some() {
                // It is about the code around the command, which is entered once whatever happens.
                fields.shift_remove("attempt");
                fields.shift_remove("milestones");
            }
            if let Some(input) = fields.shift_remove("inputPreview") {
                fields.insert("input".to_owned(), input);
            }
        }
    }
    match (&value, args.place.json) {
        (Value::Object(fields), false) => {
            for (name, field) in fields {
                out.line(format!("{name:<18} {}", one_line(&text(field), 2000)));
            }
        }
        _ => out.line(&value),
    }
    Ok(out)
}

/// A field as people read it: a list of words apart by a space.
fn text(field: &Value) -> String {
    match field {
        Value::String(text) => text.clone(),
        Value::Array(words) if words.iter().all(Value::is_string) => {
            words.iter().map(text).collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}
