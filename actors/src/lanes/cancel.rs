//! Cancels a run that nobody executes: the request and the end are one commit.

use std::sync::Arc;

use ghostlight_protocol::{AgentPath, Phase, RunId, RunKey};
use ghostlight_storage as storage;

use super::{LaneEnd, Stored};
use crate::Error;
use crate::agent_actor::AgentArgs;
use crate::cascade::cancel_live;
use crate::finalise::{Cancelled, cancel_unowned, tell_ended};
use crate::frames::FrameMaker;
use crate::hub::Published;
use crate::log_writer::LogWriter;
use crate::messages::Reply;
use crate::node::Node;

pub(super) async fn cancel(
    args: &AgentArgs,
    run_id: &RunId,
    reason: String,
    reply: Reply<()>,
) -> LaneEnd {
    match try_cancel(args, run_id, &reason).await {
        Ok(end) => {
            let _ = reply.send(Ok(()));
            end
        }
        Err(error) => {
            let _ = reply.send(Err(error));
            LaneEnd::UNCHANGED
        }
    }
}

pub(super) async fn try_cancel(
    args: &AgentArgs,
    run_id: &RunId,
    reason: &str,
) -> Result<LaneEnd, Error> {
    let Some(stored) = Stored::read(args, run_id).await? else { return Ok(LaneEnd::FREE) };
    // As the queue was counted.
    let was_queued =
        stored.record.queue_number.is_some() && args.node.kinds.executes(&stored.record.agent_type);
    cancel_stored(&args.node, &args.path, run_id, stored, reason).await?;
    Ok(LaneEnd { queued: -isize::from(was_queued), ..LaneEnd::FREE })
}

/// Cancels a run that nobody executes, unless it has ended. What it has dispatched goes first, so
/// that a recovery finishes a cascade.
async fn cancel_stored(
    node: &Arc<Node>,
    parent: &AgentPath,
    run_id: &RunId,
    stored: Stored,
    reason: &str,
) -> Result<(), Error> {
    if matches!(stored.record.state.phase, Phase::Ended(_)) {
        return Ok(());
    }
    let path = parent.child(&stored.record.agent_type, run_id)?;
    cancel_live(node, &path, reason).await?;
    let writer = stored.writer(node.incarnation, RunKey::new(parent, run_id));
    abort(node, parent, stored, writer, reason).await
}

/// Cancels a run of an agent whose type is not registered. Such an agent has no actor, so that nobody
/// executes its runs, and nobody else writes to them but another cancel.
pub(crate) async fn cancel_unregistered(
    node: &Arc<Node>,
    parent: &AgentPath,
    run_id: &RunId,
    reason: &str,
) -> Result<(), Error> {
    let run = RunKey::new(parent, run_id);
    loop {
        let Some(stored) = Stored::read_key(&node.committer, run).await? else { return Ok(()) };
        match cancel_stored(node, parent, run_id, stored, reason).await {
            Err(Error::Storage(storage::Error::Conflict { .. })) => {}
            cancelled => return cancelled,
        }
    }
}

/// Commits the request and the end of a run whose code is not being executed, and tells everybody.
pub(super) async fn abort(
    node: &Arc<Node>,
    parent: &AgentPath,
    stored: Stored,
    writer: LogWriter,
    reason: &str,
) -> Result<(), Error> {
    let run = writer.run();
    let owes_finish = node.owes_finish(parent);
    let now_ms = node.clock.now_ms();
    let committer = &node.committer;
    let Cancelled { record, outcome, first, entries } =
        cancel_unowned(committer, owes_finish, parent, stored, writer, reason, now_ms).await?;
    if node.hub.is_tailed(run) {
        let frames = FrameMaker::new(&record);
        for (number, entry) in (first..).zip(&entries) {
            if let Some(frame) = frames.frame(number, entry) {
                node.hub.publish(run, Published::Frame(Arc::new(frame)));
            }
        }
    }
    tell_ended(node, parent, &record, &outcome);
    Ok(())
}
