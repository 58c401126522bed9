//! `ghostlight cancel`.

use std::path::Path;
use std::process::ExitCode;

use ghostlight::AgentPath;

use super::find::find;
use super::{Early, Out, end};
use crate::access::{Access, Folder};
use crate::args::CancelArgs;
use crate::batch::TERM_GRACE;
use crate::fatal::Fatal;
use crate::launch::{self, Cancelled, LaunchDir};
use crate::sweep::{launches, launches_of};

/// How much of an id a cancel needs: a slip of the finger should end nothing.
const BEGINNING_MIN: usize = 8;

/// Cancels a run: durably, and its command with it.
pub(crate) async fn cancel(args: CancelArgs) -> Result<ExitCode, Fatal> {
    let place = &args.run.place;
    let folder = Folder::open(&place.data)?;
    let cancelled = folder.with(async |access| request(access, &args).await).await;
    let (parent, run_id, direct) = match cancelled {
        Ok(run) => run,
        Err(early) => return end(Err(early)),
    };
    if direct {
        // Nobody watches the command; the next owner finds the request, and the command ended.
        stop_launches(&place.data, &parent, &run_id).await?;
    }
    let mut out = Out::new();
    let said = match place.json {
        true => out.line(serde_json::json!({ "runId": run_id, "cancelRequested": true })),
        false => out.line(format!("{run_id}: cancel requested")),
    };
    end(said.and_then(|()| out.flush()).map(|()| ExitCode::SUCCESS))
}

/// Makes the request durable; returns the run, and whether nobody owns the folder.
async fn request(access: &Access, args: &CancelArgs) -> Result<(AgentPath, String, bool), Early> {
    let (parent, run_id) = find(access, &args.run, BEGINNING_MIN).await?;
    access.cancel(&parent, &run_id, &args.reason).await?;
    Ok((parent, run_id, matches!(access, Access::Direct(_))))
}

async fn stop_launches(data: &Path, parent: &AgentPath, run_id: &str) -> Result<(), Fatal> {
    let folder = launches_of(&std::path::absolute(data)?, &parent.name());
    for (of, path) in launches(folder).await {
        if of != run_id {
            continue;
        }
        if let Cancelled::OutOfReach = launch::cancel(&LaunchDir::plan(&path)?, TERM_GRACE).await? {
            return Err(Fatal::new("the command runs in another pid namespace, out of reach"));
        }
    }
    Ok(())
}
