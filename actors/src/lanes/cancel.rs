//! Cancels a run that nobody executes: the request and the end are one commit.

use std::sync::Arc;

use ghostlight_protocol::run::Event;
use ghostlight_protocol::{End, Phase, RunId, RunKey};
use ghostlight_storage::records::RunRecord;
use ghostlight_storage::{Expect, Key};

use super::{LaneEnd, Stored};
use crate::Error;
use crate::agent_actor::AgentArgs;
use crate::finalise::{Commit, Decided, add_end, commit_all, tell_ended};
use crate::frames::FrameMaker;
use crate::hub::Published;
use crate::log_writer::LogWriter;
use crate::messages::Reply;
use crate::text;

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
    let record = &stored.record;
    if matches!(record.state.phase, Phase::Ended(_)) {
        return Ok(LaneEnd::FREE);
    }
    let was_queued = record.queue_number.is_some();
    // What it has dispatched goes first, so that a recovery finishes a cascade.
    let path = args.path.child(&record.agent_type, run_id)?;
    crate::cascade::cancel_live(node, &path, reason).await?;
    let writer = stored.writer(args, run);
    abort(args, stored.record, stored.record_revision, writer, reason).await?;
    Ok(LaneEnd { queued: -isize::from(was_queued), ..LaneEnd::FREE })
}

/// Commits the request and the end of a run whose code is not being executed, and tells everybody.
pub(super) async fn abort(
    args: &AgentArgs,
    mut record: RunRecord,
    record_revision: u64,
    mut writer: LogWriter,
    reason: &str,
) -> Result<(), Error> {
    let (node, run) = (&args.node, writer.run());
    record.cancel = Some(text::cut(reason, text::REASON_BYTES_MAX));
    if let Ok(state) = record.state.apply(Event::CancelRequested) {
        record.state = state;
    }
    let mut commit = Commit::new(node.clock.now_ms());
    let outcome =
        add_end(node, &args.path, Decided::Aborted, &mut record, &mut writer, &mut commit);
    debug_assert_eq!(record.state.phase, Phase::Ended(End::Aborted));
    let Commit { now_ms, mut entries, mut changes, mut parts } = commit;
    let first = writer.append(&mut entries, now_ms, &mut changes, &mut parts);
    changes.expect(&Key::record(run), Expect::At(record_revision));
    changes.put(&Key::record(run), &record);
    commit_all(&node.committer, parts, changes.into_batch()).await?;
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
