//! `ghostlight cancel`.

use std::path::Path;
use std::process::ExitCode;

use ghostlight::{AgentPath, RunInfo};

use super::find::find;
use super::{Early, Out, end, one_line};
use crate::access::{Access, Folder};
use crate::args::CancelArgs;
use crate::batch::TERM_GRACE;
use crate::fatal::{Fatal, absolute};
use crate::launch::{self, Cancelled, LaunchDir};
use crate::sweep::{launches, launches_of};

/// How much of an id a cancel needs: a slip of the finger should end nothing.
const BEGINNING_MIN: usize = 8;

/// Cancels a run: durably, and its command with it.
pub(crate) async fn cancel(args: CancelArgs) -> Result<ExitCode, Fatal> {
    let place = &args.run.place;
    let folder = Folder::open(&place.data)?;
    let cancelled = folder.with(async |access| request(access, &args).await).await;
    let asked = match cancelled {
        Ok(asked) => asked,
        Err(early) => return end(Err(early)),
    };
    if asked.direct && !asked.before {
        // Nobody watches the command; the next owner finds the request, and the command ended.
        let stopped = stop_launches(&place.data, &asked.parent, &asked.run.run_id).await;
        stopped.map_err(|fatal| {
            fatal.while_doing(
                "the cancel is recorded, and the next `ghostlight map` of its batch ends the run; \
                 its command is not stopped yet",
            )
        })?;
    }
    let mut out = Out::default();
    match place.json {
        true => out.line(serde_json::json!({
            "runId": asked.run.run_id, "cancelRequested": !asked.before, "status": asked.run.status,
        })),
        false => out.line(asked.said()),
    };
    end(out.print().map(|()| ExitCode::SUCCESS))
}

/// A cancel that was asked for, and the run as it stands then.
struct Asked {
    parent: AgentPath,
    run: RunInfo,
    /// The run had ended before.
    before: bool,
    /// Nobody owns the folder.
    direct: bool,
}

impl Asked {
    fn said(&self) -> String {
        let (id, status) = (&self.run.run_id, self.run.status);
        match &self.run.error {
            _ if !status.is_hard() && self.direct => format!(
                "{id}: cancel requested; its command is stopped, and the next `ghostlight map` of its batch ends the run"
            ),
            _ if !status.is_hard() => format!("{id}: cancel requested"),
            _ if !self.before => format!("{id}: cancelled"),
            Some(error) => format!("{id}: has ended before: {status}: {}", one_line(error, 200)),
            None => format!("{id}: has ended before: {status}"),
        }
    }
}

/// Makes the request durable, unless the run has ended.
async fn request(access: &Access, args: &CancelArgs) -> Result<Asked, Early> {
    let direct = matches!(access, Access::Direct(_));
    let (parent, run_id) = find(access, &args.run, BEGINNING_MIN).await?;
    if let Some(ended) = access.inspect(&parent, &run_id).await?
        && ended.run.status.is_hard()
    {
        return Ok(Asked { parent, run: ended.run, before: true, direct });
    }
    let run = access.cancel(&parent, &run_id, &args.reason).await?;
    Ok(Asked { parent, run, before: false, direct })
}

async fn stop_launches(data: &Path, parent: &AgentPath, run_id: &str) -> Result<(), Fatal> {
    let folder = launches_of(&absolute(data)?, &parent.name());
    for (of, path) in launches(folder).await? {
        if of != run_id {
            continue;
        }
        let dir = tokio::task::spawn_blocking(move || LaunchDir::plan(&path)).await??;
        if let Cancelled::OutOfReach = launch::cancel(&dir, TERM_GRACE).await? {
            return Err(Fatal::new("it is in another pid namespace, or another user's"));
        }
    }
    Ok(())
}
