//! Cancels what a cancelled run has dispatched and awaits.

use std::sync::Arc;

use ghostlight_protocol::{AgentKey, AgentPath, RunId, RunKey};
use ghostlight_storage as storage;
use storage::records::{LiveRecord, QueuedRecord, RunRecord};
use storage::{Key, codec};

use crate::Error;
use crate::lanes::each;
use crate::messages::{AgentMsg, RunRequest};
use crate::node::Node;
use crate::shared::Shared;

pub(crate) async fn cancel_children(shared: &Shared, reason: &str) -> Result<(), Error> {
    cancel_live(&shared.node, &shared.path, reason).await
}

/// Commits a cancel of every live or queued awaited run of `parent`, and of theirs in turn. Found
/// in the durable registry, so that it does not matter who is in memory.
pub(crate) async fn cancel_live(
    node: &Arc<Node>,
    parent: &AgentPath,
    reason: &str,
) -> Result<(), Error> {
    if node.agents.is_known(parent) {
        // What is being dispatched is found only once it is recorded.
        node.ask(parent, AgentMsg::Settle).await?;
    }
    let agent = AgentKey::from(parent);
    let mut ids = Vec::new();
    each(&node.committer, Key::live_of(agent), |key, value| {
        ids.push(codec::decode::<LiveRecord>(key, value)?.run_id);
        Ok(())
    })
    .await?;
    each(&node.committer, Key::queue_of(agent), |key, value| {
        ids.push(codec::decode::<QueuedRecord>(key, value)?.run_id);
        Ok(())
    })
    .await?;
    for id in ids {
        let run_id = RunId::new(&id)?;
        let key = Key::record(RunKey::new(parent, &run_id));
        let Some(read) = node.committer.get(key.clone().into_bytes()).await? else { continue };
        // Nobody waits for a detached run; it goes on.
        if codec::decode::<RunRecord>(&key, &read.value)?.detached {
            continue;
        }
        node.ask(parent, |reply| {
            AgentMsg::Run(run_id.clone(), RunRequest::Cancel(reason.to_owned(), reply))
        })
        .await?;
    }
    Ok(())
}
