//! Cancels what a cancelled run has dispatched and awaits.

use std::sync::Arc;

use ghostlight_protocol::planted::{Planted, planted};
use ghostlight_protocol::{AgentPath, RunId, RunKey};
use ghostlight_storage as storage;
use storage::records::RunRecord;
use storage::{Committer, Key, codec};

use crate::Error;
use crate::lanes::cancel_unregistered;
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
    for id in list::unfinished(&node.committer, parent).await? {
        let cancelled = match cancel_awaited(node, parent, &id, reason).await {
            // Trying again reads the same: a child that cannot be read keeps nobody from ending.
            Err(Error::Storage(
                error @ (storage::Error::Corrupt { .. } | storage::Error::TooNew { .. }),
            )) => {
                tracing::error!(run_id = id, agent = %parent, %error, "a child was not cancelled");
                Ok(())
            }
            cancelled => cancelled,
        };
        result = result.and(cancelled);
    }
    result
}

async fn cancel_awaited(
    node: &Arc<Node>,
    parent: &AgentPath,
    id: &str,
    reason: &str,
) -> Result<(), Error> {
    let run_id = RunId::new(id)?;
    if !is_awaited(&node.committer, parent, &run_id).await? {
        return Ok(());
    }
    if !node.kinds.contains(parent.agent_type()) {
        return Box::pin(cancel_unregistered(node, parent, &run_id, reason)).await;
    }
    node.ask_inside(parent, |reply| {
        AgentMsg::Run(run_id.clone(), RunRequest::Cancel(reason.to_owned(), reply))
    })
    .await
}

/// The live and queued runs of `parent` that somebody waits for.
pub(crate) async fn awaited(
    committer: &Committer,
    parent: &AgentPath,
) -> Result<Vec<RunId>, Error> {
    let mut awaited = Vec::new();
    for id in list::unfinished(committer, parent).await? {
        let run_id = RunId::new(&id)?;
        if is_awaited(committer, parent, &run_id).await? {
            awaited.push(run_id);
        }
    }
    Ok(awaited)
}

/// Nobody waits for a detached run; it goes on.
async fn is_awaited(
    committer: &Committer,
    parent: &AgentPath,
    run_id: &RunId,
) -> Result<bool, Error> {
    let key = Key::record(RunKey::new(parent, run_id));
    let Some(read) = committer.get(key.clone().into_bytes()).await? else { return Ok(false) };
    Ok(!codec::decode::<RunRecord>(&key, &read.value)?.detached)
}
