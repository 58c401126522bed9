//! `ghostlight runs`.

use std::process::ExitCode;

use ghostlight::{AgentPath, RunFilter, RunInfo};

use super::merge::Merged;
use super::{Early, Out, end, one_line};
use crate::access::{Access, Folder};
use crate::args::RunsArgs;
use crate::fatal::Fatal;

/// Lists runs, oldest first over all batches.
pub(crate) async fn list(args: RunsArgs) -> Result<ExitCode, Fatal> {
    let folder = Folder::open(&args.place.data)?;
    end(folder.with(async |access| print(access, &args).await).await)
}

/// The batches that are meant.
pub(super) async fn parents(access: &Access, batch: Option<&str>) -> Result<Vec<AgentPath>, Fatal> {
    match batch {
        Some(batch) => Ok(vec![AgentPath::root("Batch", batch)?]),
        None => access.agents().await,
    }
}

async fn print(access: &Access, args: &RunsArgs) -> Result<ExitCode, Early> {
    let mut out = Out::new();
    let filter = RunFilter { status: args.status.clone(), ..RunFilter::default() };
    let parents = parents(access, args.batch.as_deref()).await?;
    let with_batch = parents.len() > 1;
    let mut runs = Merged::begin(access, &filter, parents).await?;
    let mut printed = false;
    loop {
        let run = match runs.next().await {
            // What was printed cannot be taken back: then it is not begun anew.
            Err(fatal) if printed => return Err(Fatal { owner_is_gone: false, ..fatal }.into()),
            run => run?,
        };
        let Some(run) = run else { break };
        if args.place.json {
            out.line(serde_json::to_string(&run).map_err(Fatal::from)?)?;
        } else {
            if !printed {
                let batch = if with_batch { batch_column("BATCH") } else { String::new() };
                out.line(format!("{:<36} {:<11} {:>9}  {batch}INPUT", "RUN", "STATUS", "ELAPSED"))?;
            }
            out.line(row(&run, with_batch))?;
        }
        printed = true;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
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
        Some(serde_json::Value::String(text)) => one_line(text, 60),
        Some(value) => one_line(&value.to_string(), 60),
        None => String::new(),
    };
    let error = match &run.error {
        Some(error) => format!("  ({})", one_line(error, 80)),
        None => String::new(),
    };
    format!("{:<36} {status:<11} {elapsed:>9}  {batch}{input}{error}", run.run_id)
}
