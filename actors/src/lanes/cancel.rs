//! Cancels a run that nobody executes: the request and the end are one commit.

use std::sync::Arc;

use ghostlight_protocol::run::Event;
use ghostlight_protocol::{AgentPath, Phase, RunId, RunKey};
use ghostlight_storage as storage;
use storage::records::RunRecord;
use storage::{Changes, Expect, Key};

use super::{Cause, LaneEnd, Stored};
use crate::Error;
use crate::agent_actor::AgentArgs;
use crate::cascade::cancel_live;
use crate::finalise::{Cancelled, cancel_unowned, tell_ended};
use crate::frames::FrameMaker;
use crate::hub::Published;
use crate::log::cancel_requested;
use crate::log_writer::LogWriter;
use crate::messages::Reply;
use crate::node::Node;
use crate::text;

pub(super) async fn cancel(
    args: &AgentArgs,
    run_id: &RunId,
    reason: String,
    reply: Reply<()>,
) -> LaneEnd {
    let rests = args.node.rests(&args.path);
    let cancelled = match rests {
        true => try_cancel_resting(args, run_id, &reason).await,
        false => try_cancel(args, run_id, &reason).await,
    };
    match cancelled {
        Ok(end) => {
            let _ = reply.send(Ok(()));
            end
        }
        Err(error) => {
            let _ = reply.send(Err(error.clone()));
            LaneEnd { not_cancelled: rests.then_some(error), ..LaneEnd::UNCHANGED }
        }
    }
}

/// What a run that rests has begun may be at work: its code is entered once more, to come to its end.
/// Without its code it ends at once, as it would in an agent that does not rest.
async fn try_cancel_resting(
    args: &AgentArgs,
    run_id: &RunId,
    reason: &str,
) -> Result<LaneEnd, Error> {
    match Stored::read(args, run_id).await? {
        Some(stored)
            if !ends_by_cancel(stored.record.state.phase)
                && args.node.kinds.executes(&stored.record.agent_type) =>
        {
            let run = RunKey::new(&args.path, run_id);
            request_cancel(&args.node.committer, run, stored, reason).await?;
            super::resume::resume(args, run_id, Cause::Orphaned, None).await
        }
        _ => try_cancel(args, run_id, reason).await,
    }
}

/// Whether a cancel is the end of a run in this phase, if nobody executes it: no code of it is entered.
pub(crate) fn ends_by_cancel(phase: Phase) -> bool {
    match phase {
        Phase::Queued | Phase::Suspended | Phase::BackingOff => true,
        Phase::Starting | Phase::Running | Phase::Ended(_) => false,
    }
}

/// Records that a run is to be cancelled, for whoever executes it next. An ended run is left alone.
pub(crate) async fn request_cancel(
    committer: &storage::Committer,
    run: RunKey,
    mut stored: Stored,
    reason: &str,
) -> Result<RunRecord, storage::Error> {
    if let Ok(state) = stored.record.state.apply(Event::CancelRequested)
        && !stored.record.state.cancelling
    {
        stored.record.state = state;
        stored.record.cancel = Some(text::cut(reason, text::REASON_BYTES_MAX));
        let mut changes = Changes::new();
        changes.expect(&Key::record(run), Expect::At(stored.record_revision));
        changes.put(&Key::record(run), &stored.record);
        committer.commit(changes.into_batch()).await?;
        cancel_requested!(stored.record);
    }
    Ok(stored.record)
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
