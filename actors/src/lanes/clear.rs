//! Clears a run: a tombstone hides it at once, and its keys go in slices.

use std::sync::Arc;

use ghostlight_protocol::planted::{Planted, planted};
use ghostlight_protocol::{AgentKey, AgentPath, End, Phase, RunId, RunKey};
use ghostlight_storage as storage;
use storage::records::{PurgeRecord, RegistryRecord, TombstoneRecord};
use storage::{Changes, Expect, Key, codec};

use super::cancel::{cancel_unregistered, try_cancel};
use super::{CLEARED, LaneEnd, Stored, each, valid_id};
use crate::Error;
use crate::agent_actor::AgentArgs;
use crate::finalise::FINISH;
use crate::hub::Published;
use crate::log::of_record;
use crate::messages::{AgentMsg, Reply, RunRequest};
use crate::node::Node;

pub(super) async fn clear(args: &AgentArgs, run_id: &RunId, reply: Reply<bool>) -> LaneEnd {
    let mut end = LaneEnd::UNCHANGED;
    let cleared = try_clear(args, run_id, &mut end).await;
    let _ = reply.send(cleared);
    end
}

/// `end` tells how far it came: a run that was cancelled holds no slot, whether it can be cleared or not.
async fn try_clear(args: &AgentArgs, run_id: &RunId, end: &mut LaneEnd) -> Result<bool, Error> {
    let Some(mut stored) = Stored::read(args, run_id).await? else {
        *end = LaneEnd::FREE;
        return Ok(false);
    };
    if let Phase::Ended(_) = stored.record.state.phase {
        *end = LaneEnd::FREE;
    } else {
        *end = try_cancel(args, run_id, CLEARED).await?;
        let Some(cancelled) = Stored::read(args, run_id).await? else { return Ok(false) };
        stored = cancelled;
    }
    clear_ended(&args.node, &args.path, run_id, &stored).await?;
    Ok(true)
}

/// Clears a run of an agent whose type is not registered; see [`cancel_unregistered`].
async fn clear_unregistered(
    node: &Arc<Node>,
    parent: &AgentPath,
    run_id: &RunId,
) -> Result<(), Error> {
    cancel_unregistered(node, parent, run_id, CLEARED).await?;
    match Stored::read_key(&node.committer, RunKey::new(parent, run_id)).await? {
        Some(stored) => clear_ended(node, parent, run_id, &stored).await,
        None => Ok(()),
    }
}

async fn clear_ended(
    node: &Arc<Node>,
    parent: &AgentPath,
    run_id: &RunId,
    stored: &Stored,
) -> Result<(), Error> {
    let run = RunKey::new(parent, run_id);
    if let Ok(path) = parent.child(&stored.record.agent_type, run_id) {
        clear_children(node, &path).await?;
    }
    bury(&node.committer, parent, run, stored, node.clock.now_ms()).await?;
    of_record!(info, stored.record, "run cleared");
    node.hub.publish(run, Published::Cleared);
    node.call_waiting(run);
    node.purge.notify_one();
    Ok(())
}

/// Hides an ended run for good; its keys go later, by [`purge`].
pub(crate) async fn bury(
    committer: &storage::Committer,
    parent: &AgentPath,
    run: RunKey,
    stored: &Stored,
    cleared_at_ms: u64,
) -> Result<(), storage::Error> {
    let agent = AgentKey::from(parent);
    let mut changes = Changes::new();
    changes.expect(&Key::record(run), Expect::At(stored.record_revision));
    if !planted(Planted::NoTombstone) {
        let aborted = stored.record.state.phase == Phase::Ended(End::Aborted);
        changes.put(&Key::tombstone(run), &TombstoneRecord { cleared_at_ms, aborted });
    }
    changes.put(&Key::purge(run), &PurgeRecord { cleared_at_ms });
    changes.delete(&Key::registry(agent, stored.record.started_at_ms, run));
    changes.delete(&Key::owed(agent, run, FINISH));
    committer.commit(changes.into_batch()).await
}

/// The ids of all runs in an agent's registry.
pub(crate) async fn children(
    committer: &storage::Committer,
    parent: &AgentPath,
) -> Result<Vec<RunId>, storage::Error> {
    let mut children = Vec::new();
    each(committer, Key::registry_of(AgentKey::from(parent)), |key, value| {
        let row: RegistryRecord = codec::decode(key, value)?;
        children.push(valid_id(key, &row.run_id)?);
        Ok(())
    })
    .await?;
    Ok(children)
}

/// Clears what a run has dispatched itself: nothing else would ever find it again.
async fn clear_children(node: &Arc<Node>, parent: &AgentPath) -> Result<(), Error> {
    for child in children(&node.committer, parent).await? {
        if node.kinds.contains(parent.agent_type()) {
            let clear = |reply| AgentMsg::Run(child.clone(), RunRequest::Clear(reply, None));
            node.ask_inside(parent, clear).await?;
        } else {
            Box::pin(clear_unregistered(node, parent, &child)).await?;
        }
    }
    Ok(())
}

/// Removes the keys of cleared runs, in slices, until none are left.
pub(crate) async fn purge(committer: &storage::Committer) -> Result<(), storage::Error> {
    let mut cleared = Vec::new();
    each(committer, Key::purges(), |key, _| {
        cleared.extend(key.trailing_run());
        Ok(())
    })
    .await?;
    for run in cleared {
        storage::payload::delete_range(committer, &Key::log(run)).await?;
        storage::payload::delete_range(committer, &Key::parts_of(run)).await?;
        let mut changes = Changes::new();
        changes.delete(&Key::record(run));
        changes.delete(&Key::head(run));
        changes.delete(&Key::purge(run));
        committer.commit(changes.into_batch()).await?;
    }
    Ok(())
}
