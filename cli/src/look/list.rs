//! `ghostlight runs`.

use std::process::ExitCode;

use ghostlight::{AgentPath, RunFilter, RunInfo};

use super::{Early, Out, end, one_line};
use crate::access::{Access, Folder};
use crate::args::RunsArgs;
use crate::fatal::Fatal;

/// Lists runs, oldest first within a batch.
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
    let mut header = !args.place.json;
    let mut printed = false;
    for parent in parents(access, args.batch.as_deref()).await? {
        let mut after = None;
        loop {
            let page = match access.list(&parent, &filter, after.as_ref()).await {
                // What was printed cannot be taken back: then it is not begun anew.
                Err(fatal) if printed => return Err(Fatal { owner_is_gone: false, ..fatal }.into()),
                page => page?,
            };
            for run in &page.runs {
                printed = true;
                if args.place.json {
                    out.line(serde_json::to_string(run).map_err(Fatal::from)?)?;
                    continue;
                }
                if std::mem::take(&mut header) {
                    out.line(format!("{:<36} {:<11} {:>9}  INPUT", "RUN", "STATUS", "SECONDS"))?;
                }
                out.line(row(run))?;
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn row(run: &RunInfo) -> String {
    let seconds = match run.completed_at {
        Some(end) => format!("{:.1}", end.saturating_sub(run.started_at) as f64 / 1000.0),
        None => "-".to_owned(),
    };
    let status = match () {
        () if run.queued => "queued",
        () if run.suspended && !run.status.is_hard() => "suspended",
        () => run.status.as_str(),
    };
    let input = match &run.input_preview {
        Some(serde_json::Value::String(text)) => one_line(text, 60),
        Some(value) => one_line(&value.to_string(), 60),
        None => String::new(),
    };
    let error = match &run.error {
        Some(error) => format!("  ({})", one_line(error, 80)),
        None => String::new(),
    };
    format!("{:<36} {status:<11} {seconds:>9}  {input}{error}", run.run_id)
}
