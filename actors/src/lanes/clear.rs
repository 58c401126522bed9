//! Clears a run: a tombstone hides it at once, and its keys go in slices.

use ghostlight_protocol::planted::{Planted, planted};
use ghostlight_protocol::{AgentKey, AgentPath, End, Phase, RunId, RunKey};
use ghostlight_storage as storage;
use storage::records::{PurgeRecord, RegistryRecord, TombstoneRecord};
use storage::{Changes, Expect, Key, codec};

use super::cancel::try_cancel;
use super::{CLEARED, LaneEnd, Stored, each, valid_id};
use crate::Error;
use crate::agent_actor::AgentArgs;
use crate::finalise::FINISH;
use crate::hub::Published;
use crate::messages::{AgentMsg, Reply, RunRequest};

pub(super) async fn clear(args: &AgentArgs, run_id: &RunId, reply: Reply<bool>) -> LaneEnd {
    match try_clear(args, run_id).await {
        Ok((cleared, end)) => {
            let _ = reply.send(Ok(cleared));
            end
        }
        Err(error) => {
            let _ = reply.send(Err(error));
            LaneEnd::UNCHANGED
        }
    }
}

async fn try_clear(args: &AgentArgs, run_id: &RunId) -> Result<(bool, LaneEnd), Error> {
    let (node, run) = (&args.node, RunKey::new(&args.path, run_id));
    let Some(mut stored) = Stored::read(args, run_id).await? else {
        return Ok((false, LaneEnd::FREE));
    };
    let mut end = LaneEnd::FREE;
    if !matches!(stored.record.state.phase, Phase::Ended(_)) {
        end = try_cancel(args, run_id, CLEARED).await?;
        let Some(cancelled) = Stored::read(args, run_id).await? else {
            return Ok((false, end));
        };
        stored = cancelled;
    }
    clear_descendants(args, run_id, &stored.record.agent_type).await?;
    bury(&node.committer, &args.path, run, &stored, node.clock.now_ms()).await?;
    tracing::info!(%run_id, agent = %stored.record.agent_type, parent = %args.path, "run cleared");
    node.hub.publish(run, Published::Cleared);
    node.call_waiting(run);
    node.purge.notify_one();
    Ok((true, end))
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

/// Clears what the run has dispatched itself: nothing else would ever find it again.
async fn clear_descendants(
    args: &AgentArgs,
    run_id: &RunId,
    agent_type: &str,
) -> Result<(), Error> {
    let Ok(path) = args.path.child(agent_type, run_id) else { return Ok(()) };
    for child in children(&args.node.committer, &path).await? {
        args.node
            .ask_inside(&path, |reply| AgentMsg::Run(child.clone(), RunRequest::Clear(reply)))
            .await?;
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
