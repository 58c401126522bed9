//! `ghostlight clear`.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use ghostlight::{Cursor, RunFilter, Status};

use super::list::parents;
use super::{Early, Out, end};
use crate::access::{Access, Folder, any_run};
use crate::args::ClearArgs;
use crate::batch::Made;
use crate::fatal::{Fatal, absolute};
use crate::sweep::{launches_of, sweep};

/// Removes ended runs.
pub(crate) async fn clear(args: ClearArgs) -> Result<ExitCode, Fatal> {
    let folder = Folder::open(&args.place.data)?;
    let cleared = folder.with(async |access| remove(access, &args).await).await;
    let said = cleared.and_then(|cleared| {
        let mut out = Out::default();
        match args.place.json {
            true => out.line(serde_json::json!({ "cleared": cleared })),
            false if cleared == 1 => out.line("1 run was removed"),
            false => out.line(format!("{cleared} runs were removed")),
        }
        out.print()?;
        Ok(ExitCode::SUCCESS)
    });
    end(said)
}

async fn remove(access: &Access, args: &ClearArgs) -> Result<usize, Early> {
    let live = args.status.iter().find(|status| !status.is_terminal());
    if let Some(status) = live {
        let hint = "cancel such runs first, with `ghostlight cancel`";
        return Err(Fatal::new(format!("a {status} run is not removed; {hint}")).into());
    }
    let started_before = match args.older_than {
        Some(age) => {
            #[expect(clippy::disallowed_methods, reason = "an age is meant by the wall clock")]
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(Fatal::from)?;
            u64::try_from(now.saturating_sub(age).as_millis()).ok()
        }
        None => None,
    };
    let mut filter =
        RunFilter { status: args.status.clone(), started_before, ..RunFilter::default() };
    if filter.status.is_empty() {
        filter.status = Status::ALL.into_iter().filter(|status| status.is_hard()).collect();
    }
    let data = absolute(&args.place.data)?;
    let mut cleared = 0;
    for parent in parents(access, &data, args.batch.as_deref()).await? {
        let removed = access.clear(&parent, &filter).await?;
        cleared += removed;
        // An owner removes the files itself: it may dispatch at any time.
        if matches!(access, Access::Owner(_)) {
            continue;
        }
        let folder = launches_of(&data, &parent.name());
        sweep(folder, async |run_id| match access.inspect(&parent, &run_id).await {
            Ok(Some(run)) => run.run.status.is_hard(),
            Ok(None) => true,
            Err(_) => false,
        })
        .await;
        // A batch that never had a run may still have inputs.
        let (batch, all) = (&parent, &RunFilter::default());
        let page =
            |after: Option<Cursor>| async move { access.page(batch, all, after.as_ref(), 1).await };
        if removed > 0 && !any_run(page).await? {
            Made::forget(&data, &parent.name()).await;
        }
    }
    Ok(cleared)
}
