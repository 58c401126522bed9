//! `ghostlight runs`.

use std::path::Path;
use std::process::ExitCode;

use ghostlight::{AgentPath, RunFilter, RunInfo};
use serde_json::Value;

use super::merge::Merged;
use super::{Early, Out, end, one_line};
use crate::access::{Access, Folder};
use crate::args::RunsArgs;
use crate::batch::{EXACT_INPUT, Made, exact_input, no_batch};
use crate::fatal::Fatal;

/// Lists runs, oldest first over all batches.
pub(crate) async fn list(args: RunsArgs) -> Result<ExitCode, Fatal> {
    let folder = Folder::open(&args.place.data)?;
    end(print(&folder, &args).await)
}

/// The batches that are meant.
///
/// # Errors
/// There is no batch of that name.
pub(super) async fn parents(
    access: &Access,
    data: &Path,
    batch: Option<&str>,
) -> Result<Vec<AgentPath>, Fatal> {
    let agents = access.agents().await?;
    let Some(batch) = batch else { return Ok(agents) };
    let meant = AgentPath::root("Batch", batch)?;
    if !agents.contains(&meant) {
        // One that has no runs yet has a command.
        let names = Made::names(data).await?;
        if !names.iter().any(|name| name == batch) {
            return Err(no_batch(batch, &names));
        }
    }
    Ok(vec![meant])
}

async fn print(folder: &Folder, args: &RunsArgs) -> Result<ExitCode, Early> {
    let (data, batch) = (&args.place.data, args.batch.as_deref());
    let parents = folder.with(async |access| Ok(parents(access, data, batch).await?)).await?;
    let with_batch = parents.len() > 1;
    let filter = RunFilter { status: args.status.clone(), ..RunFilter::default() };
    let mut runs = Merged::new(filter, parents);
    let (mut out, mut any, mut more) = (Out::default(), false, true);
    while more {
        let gathered = async |access: &Access| {
            while !out.is_full() {
                let Some(run) = runs.next(access).await? else { return Ok(false) };
                if args.place.json {
                    out.line(json(&run)?);
                    continue;
                }
                if !std::mem::replace(&mut any, true) {
                    let batch = if with_batch { batch_column("BATCH") } else { String::new() };
                    let elapsed = "ELAPSED";
                    out.line(format!("{:<36} {:<11} {elapsed:>9}  {batch}INPUT", "RUN", "STATUS"));
                }
                out.line(row(&run, with_batch));
            }
            Ok(true)
        };
        more = folder.with(gathered).await?;
        out.print()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A run's row as JSON.
fn json(run: &RunInfo) -> Result<String, Fatal> {
    if exact_input(run).is_none() {
        return Ok(serde_json::to_string(run)?);
    }
    let mut row = serde_json::to_value(run)?;
    raise_exact_input(run, &mut row);
    Ok(row.to_string())
}

/// Gives the exact input of a run its place beside the preview.
pub(super) fn raise_exact_input(run: &RunInfo, row: &mut Value) {
    if let (Some(base64), Value::Object(fields)) = (exact_input(run), row) {
        fields.shift_remove("display");
        fields.insert(EXACT_INPUT.to_owned(), base64.into());
    }
}

fn batch_column(name: &str) -> String {
    format!("{:<16}  ", one_line(name, 16))
}

/// How a run stands, in a word.
pub(super) fn status(run: &RunInfo) -> &'static str {
    match () {
        () if run.status.is_hard() => run.status.as_str(),
        () if run.cancelling => "cancelling",
        () if run.queued => "queued",
        () if run.suspended => "suspended",
        () => run.status.as_str(),
    }
}

fn row(run: &RunInfo, with_batch: bool) -> String {
    // From dispatch to end: when a command was first started is not recorded.
    let elapsed = match run.completed_at {
        Some(end) => format!("{:.1}", end.saturating_sub(run.started_at) as f64 / 1000.0),
        None => "-".to_owned(),
    };
    let status = status(run);
    let batch = if with_batch { batch_column(&run.parent.0.name()) } else { String::new() };
    let input = match &run.input_preview {
        Some(Value::String(text)) => one_line(text, 60),
        Some(value) => one_line(&value.to_string(), 60),
        None => String::new(),
    };
    let error = match &run.error {
        Some(error) => format!("  ({})", one_line(error, 80)),
        None => String::new(),
    };
    format!("{:<36} {status:<11} {elapsed:>9}  {batch}{input}{error}", run.run_id)
}
