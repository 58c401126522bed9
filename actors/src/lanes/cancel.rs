//! Cancels a run that nobody executes: the request and the end are one commit.

use std::sync::Arc;

use ghostlight_protocol::{Phase, RunId, RunKey};

use super::{LaneEnd, Stored};
use crate::Error;
use crate::agent_actor::AgentArgs;
use crate::finalise::{Cancelled, cancel_unowned, tell_ended};
use crate::frames::FrameMaker;
use crate::hub::Published;
use crate::log_writer::LogWriter;
use crate::messages::Reply;

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
    let (node, run) = (&args.node, RunKey::new(&args.path, run_id));
    let Some(stored) = Stored::read(args, run_id).await? else { return Ok(LaneEnd::FREE) };
    if matches!(stored.record.state.phase, Phase::Ended(_)) {
        return Ok(LaneEnd::FREE);
    }
    // As the queue was counted.
    let was_queued =
        stored.record.queue_number.is_some() && node.kinds.executes(&stored.record.agent_type);
    // What it has dispatched goes first, so that a recovery finishes a cascade.
    let path = args.path.child(&stored.record.agent_type, run_id)?;
    crate::cascade::cancel_live(node, &path, reason).await?;
    let writer = stored.writer(node.incarnation, run);
    abort(args, stored, writer, reason).await?;
    Ok(LaneEnd { queued: -isize::from(was_queued), ..LaneEnd::FREE })
}

/// Commits the request and the end of a run whose code is not being executed, and tells everybody.
pub(super) async fn abort(
    args: &AgentArgs,
    stored: Stored,
    writer: LogWriter,
    reason: &str,
) -> Result<(), Error> {
    let (node, run) = (&args.node, writer.run());
    let owes_finish = node.owes_finish(&args.path);
    let now_ms = node.clock.now_ms();
    let committer = &node.committer;
    let Cancelled { record, outcome, first, entries } =
        cancel_unowned(committer, owes_finish, &args.path, stored, writer, reason, now_ms).await?;
    if node.hub.is_tailed(run) {
        let frames = FrameMaker::new(&record);
        for (number, entry) in (first..).zip(&entries) {
            if let Some(frame) = frames.frame(number, entry) {
                node.hub.publish(run, Published::Frame(Arc::new(frame)));
            }
        }
    }
    tell_ended(node, &args.path, &record, &outcome);
    Ok(())
}
