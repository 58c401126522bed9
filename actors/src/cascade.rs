//! Cancels what a cancelled run has dispatched and awaits.

use std::sync::Arc;

use ghostlight_protocol::planted::{Planted, planted};
use ghostlight_protocol::{AgentKey, AgentPath, RunId, RunKey};
use ghostlight_storage as storage;
use storage::records::RunRecord;
use storage::{Committer, Key, codec};

use crate::Error;
use crate::lanes::{cancel_unregistered, each, valid_id};
use crate::list;
use crate::messages::{AgentMsg, RunRequest};
use crate::node::Node;
use crate::shared::Shared;

pub(crate) async fn cancel_children(shared: &Shared, reason: &str) -> Result<(), Error> {
    cancel_live(&shared.node, &shared.path, reason).await
}

/// Commits a cancel of every live or queued awaited run of `parent`, and of theirs in turn. Found
/// in the durable registry, so that it does not matter who is in memory. A run whose cancel fails
/// keeps none of the others from theirs; the first error is returned.
///
/// Goes on while the system drains: what was begun comes to its end.
pub(crate) async fn cancel_live(
    node: &Arc<Node>,
    parent: &AgentPath,
    reason: &str,
) -> Result<(), Error> {
    if node.agents.is_known(parent) {
        // What is being dispatched is found only once it is recorded.
        node.ask_inside(parent, AgentMsg::Settle).await?;
    }
    let mut result = Ok(());
    if planted(Planted::ForgetCascade) {
        return result;
    }
    let Awaited { runs, all_read } = awaited(&node.committer, parent).await?;
    for run_id in runs {
        let cancelled = match cancel_run(node, parent, &run_id, reason).await {
            Err(Error::Storage(error)) if is_unreadable(&error) => {
                not_cancelled(parent, &run_id, &error);
                Ok(())
            }
            // With a row that cannot be read the agent does not come into memory.
            Err(error @ Error::AgentDown { .. }) if !all_read => {
                not_cancelled(parent, &run_id, &error);
                Ok(())
            }
            cancelled => cancelled,
        };
        result = result.and(cancelled);
    }
    result
}

/// Trying again reads the same: a child that cannot be read keeps nobody from ending.
fn is_unreadable(error: &storage::Error) -> bool {
    matches!(error, storage::Error::Corrupt { .. } | storage::Error::TooNew { .. })
}

fn not_cancelled(parent: &AgentPath, run_id: &RunId, error: &dyn std::fmt::Display) {
    tracing::error!(agent = %parent, %run_id, %error, "a child was not cancelled");
}

async fn cancel_run(
    node: &Arc<Node>,
    parent: &AgentPath,
    run_id: &RunId,
    reason: &str,
) -> Result<(), Error> {
    if !node.kinds.contains(parent.agent_type()) {
        return Box::pin(cancel_unregistered(node, parent, run_id, reason)).await;
    }
    node.ask_inside(parent, |reply| {
        AgentMsg::Run(run_id.clone(), RunRequest::Cancel(reason.to_owned(), reply))
    })
    .await
}

/// What [`awaited`] has found.
pub(crate) struct Awaited {
    pub(crate) runs: Vec<RunId>,
    /// Whether everything could be read. What could not was logged, and is not in `runs`.
    pub(crate) all_read: bool,
}

/// The live and queued runs of `parent` that somebody waits for.
pub(crate) async fn awaited(committer: &Committer, parent: &AgentPath) -> Result<Awaited, Error> {
    let agent = AgentKey::from(parent);
    let (mut ids, mut runs, mut all_read) = (Vec::new(), Vec::new(), true);
    for (prefix, id) in [
        (Key::live_of(agent), list::live_id as fn(&Key, &[u8]) -> _),
        (Key::queue_of(agent), list::queued_id),
    ] {
        each(committer, prefix, |key, value| {
            match id(key, value).and_then(|id| valid_id(key, &id)) {
                Ok(run_id) => ids.push(run_id),
                Err(error) if is_unreadable(&error) => {
                    // It names the key; whose run that is cannot be read.
                    tracing::error!(agent = %parent, %error, "a child was not cancelled");
                    all_read = false;
                }
                Err(error) => return Err(error),
            }
            Ok(())
        })
        .await?;
    }
    for run_id in ids {
        match is_awaited(committer, parent, &run_id).await {
            Ok(true) => runs.push(run_id),
            Ok(false) => {}
            Err(error) if is_unreadable(&error) => {
                not_cancelled(parent, &run_id, &error);
                all_read = false;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Awaited { runs, all_read })
}

/// Nobody waits for a detached run; it goes on.
async fn is_awaited(
    committer: &Committer,
    parent: &AgentPath,
    run_id: &RunId,
) -> Result<bool, storage::Error> {
    let key = Key::record(RunKey::new(parent, run_id));
    let Some(read) = committer.get(key.clone().into_bytes()).await? else { return Ok(false) };
    Ok(!codec::decode::<RunRecord>(&key, &read.value)?.detached)
}
