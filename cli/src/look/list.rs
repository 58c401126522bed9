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
        let (mut after, mut ties) = (None, Ties::default());
        loop {
            let page = match access.list(&parent, &filter, after.as_ref()).await {
                // What was printed cannot be taken back: then it is not begun anew.
                Err(fatal) if printed => return Err(Fatal { owner_is_gone: false, ..fatal }.into()),
                page => page?,
            };
            for run in &ties.take(page.runs, page.next.is_none()) {
                printed = true;
                if args.place.json {
                    out.line(serde_json::to_string(run).map_err(Fatal::from)?)?;
                    continue;
                }
                if std::mem::take(&mut header) {
                    out.line(format!("{:<36} {:<11} {:>9}  INPUT", "RUN", "STATUS", "ELAPSED"))?;
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

/// The most runs of one ms that are put into order.
const TIES_MAX: usize = 1000;

/// Puts runs of the same ms into the order of their dispatch: the store has them by time alone.
#[derive(Default)]
struct Ties {
    /// The runs of the newest ms, of which the next page may have more.
    held: Vec<RunInfo>,
}

impl Ties {
    /// Takes a page, and returns the runs that come before all that follow.
    fn take(&mut self, page: Vec<RunInfo>, is_last: bool) -> Vec<RunInfo> {
        self.held.extend(page);
        let newest = self.held.last().map_or(0, |run| run.started_at);
        let mut ready = self.held.partition_point(|run| run.started_at < newest);
        if is_last || self.held.len() - ready > TIES_MAX {
            ready = self.held.len();
        }
        let held = self.held.split_off(ready);
        let mut ready = std::mem::replace(&mut self.held, held);
        ready.sort_by_key(|run| (run.started_at, run.display_order));
        ready
    }
}

fn row(run: &RunInfo) -> String {
    // From dispatch to end: when a command was first started is not recorded.
    let elapsed = match run.completed_at {
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
    format!("{:<36} {status:<11} {elapsed:>9}  {input}{error}", run.run_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(started_at: u64, order: i64) -> RunInfo {
        let value = serde_json::json!({
            "runId": format!("{started_at}-{order}"), "agentType": "Command", "parent": "Batch:b",
            "status": "completed", "execution": "completed", "displayOrder": order,
            "startedAt": started_at, "attempt": 1, "suspended": false, "queued": false,
            "cancelling": false,
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn runs_of_one_ms_are_in_order_over_any_pages() {
        let stored = [(1, 1), (1, 0), (2, 4), (2, 2), (2, 5), (2, 3), (3, 6)];
        for page in 1..=stored.len() {
            let (mut ties, mut listed) = (Ties::default(), Vec::new());
            for (at, runs) in stored.chunks(page).enumerate() {
                let is_last = (at + 1) * page >= stored.len();
                let runs = runs.iter().map(|(ms, order)| run(*ms, *order)).collect();
                listed.extend(ties.take(runs, is_last).into_iter().map(|run| run.display_order));
            }
            assert_eq!(listed, [0, 1, 2, 3, 4, 5, 6], "pages of {page}");
        }
    }

    #[test]
    fn not_more_than_so_many_are_held() {
        let mut ties = Ties::default();
        let page = |from: usize| (from..from + 500).map(|order| run(1, order as i64)).collect();
        assert_eq!(ties.take(page(0), false).len(), 0);
        assert_eq!(ties.take(page(500), false).len(), 0);
        assert_eq!(ties.take(page(1000), false).len(), 1500);
    }
}
