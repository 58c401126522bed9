//! The one way in which a run ends, whoever ends it: its actor, or its parent when it has none.

use std::sync::Arc;

use ghostlight_protocol::planted::{Planted, planted};
use ghostlight_protocol::run::Event;
use ghostlight_protocol::{
    AgentKey, AgentPath, End, Failure, NotCompleted, Outcome, Phase, RunKey, limits,
};
use ghostlight_storage as storage;
use storage::payload::RECORD_INLINE_BYTES_MAX;
use storage::records::{EndRecord, LogEntry, OwedRecord, RunRecord};
use storage::{Batch, Changes, Expect, Key, Operation};

use crate::info::RawOutcome;
use crate::lanes::Stored;
use crate::log::{cancel_requested, of_record};
use crate::log_writer::LogWriter;
use crate::node::Node;
use crate::registry::Returned;
use crate::text;

/// How a run is about to end.
#[derive(Debug)]
pub(crate) enum Decided {
    Completed(Returned),
    Failed(Failure),
    /// For the reason that the record has.
    Aborted,
}

/// Adds everything that the end of a run changes, but for the record itself and the log, which the
/// caller writes with the entries that come before. `owes_finish` says whether the parent has a
/// finish hook to be told. Returns how the run ends, for when it is durable.
pub(crate) fn add_end(
    owes_finish: bool,
    parent: &AgentPath,
    decided: Decided,
    record: &mut RunRecord,
    writer: &mut LogWriter,
    commit: &mut Commit,
) -> RawOutcome {
    let mut end = EndRecord::default();
    let (kind, entry, outcome) = match decided {
        Decided::Completed(Returned { output, summary }) => {
            end.summary = text::cut(&summary, limits::TEXT_BYTES_MAX);
            end.output = Some(writer.store(
                output.clone(),
                RECORD_INLINE_BYTES_MAX,
                &mut commit.changes,
                &mut commit.parts,
            ));
            let entry = LogEntry::Finished { summary: end.summary.clone() };
            (End::Completed, entry, Outcome::Completed(output))
        }
        Decided::Failed(failure) => {
            let failure = text::cut_failure(failure);
            end.error = Some(failure.message.clone());
            end.kind.clone_from(&failure.kind);
            end.permanent = failure.permanent;
            let entry = LogEntry::Failed { error: failure.message.clone() };
            (End::Error, entry, Outcome::NotCompleted(NotCompleted::Error(failure)))
        }
        Decided::Aborted => {
            let reason = record.cancel.clone().unwrap_or_default();
            end.error = Some(reason.clone());
            let entry = LogEntry::Aborted { reason: Some(reason.clone()) };
            (End::Aborted, entry, Outcome::NotCompleted(NotCompleted::Aborted { reason }))
        }
    };
    // The phases in which a run is not executed take a cancel for an end; all others need both.
    if let Phase::Ended(_) = record.state.phase {
        debug_assert_eq!(kind, End::Aborted, "only a cancel ends a run that is not executed");
    } else {
        if record.state.phase == Phase::Starting {
            record.state = record.state.apply(Event::Started).unwrap_or(record.state);
        }
        record.state = record.state.apply(Event::Ended(kind)).unwrap_or(record.state);
    }
    let (agent, run) = (AgentKey::from(parent), writer.run());
    if !planted(Planted::KeepLive) {
        commit.changes.delete(&Key::live(agent, run));
    }
    if let Some(due_ms) = record.wake_at_ms.take() {
        commit.changes.delete(&Key::timer(due_ms, run));
    }
    if let Some(number) = record.queue_number.take() {
        commit.changes.delete(&Key::queue(agent, number, run));
    }
    if owes_finish && !planted(Planted::OweNothing) {
        commit.changes.put(&Key::owed(agent, run, FINISH), &owed(record, commit.now_ms));
    }
    record.end = Some(end);
    record.completed_at_ms = Some(commit.now_ms);
    commit.entries.push(entry);
    outcome
}

/// The slot of the finish hook.
pub(crate) const FINISH: u8 = 0;

fn owed(record: &RunRecord, now_ms: u64) -> OwedRecord {
    OwedRecord {
        parent: record.parent.clone(),
        run_id: record.run_id.clone(),
        tries: 0,
        due_ms: now_ms,
    }
}

/// Tells everybody who waits for the run that it has ended. Only once that is durable.
pub(crate) fn tell_ended(
    node: &Arc<Node>,
    parent: &AgentPath,
    record: &RunRecord,
    outcome: &RawOutcome,
) {
    let run = match ghostlight_protocol::RunId::new(&record.run_id) {
        Ok(run_id) => {
            if node.owes_finish(parent) {
                node.owed(parent, &run_id);
            }
            RunKey::new(parent, &run_id)
        }
        Err(_) => return,
    };
    of_record!(info, record, status = %outcome.status(), "run ended");
    node.waits.release(run);
    node.live.set_lost(run, false);
    node.live.set_left(run, false);
    node.hub.ended(run, outcome);
    node.call_waiting(run);
}

/// A cancel that ended a run, durably.
pub(crate) struct Cancelled {
    pub(crate) record: RunRecord,
    pub(crate) outcome: RawOutcome,
    /// The number of the first of the frames.
    pub(crate) first: u64,
    pub(crate) entries: Vec<LogEntry>,
}

/// Cancels a run that nobody executes: the request and the end are one commit.
pub(crate) async fn cancel_unowned(
    committer: &storage::Committer,
    owes_finish: bool,
    parent: &AgentPath,
    stored: Stored,
    mut writer: LogWriter,
    reason: &str,
    now_ms: u64,
) -> Result<Cancelled, storage::Error> {
    let run = writer.run();
    let mut record = stored.record;
    record.cancel = Some(text::cut(reason, text::REASON_BYTES_MAX));
    if let Ok(state) = record.state.apply(Event::CancelRequested) {
        record.state = state;
    }
    let mut commit = Commit::new(now_ms);
    let outcome =
        add_end(owes_finish, parent, Decided::Aborted, &mut record, &mut writer, &mut commit);
    debug_assert_eq!(record.state.phase, Phase::Ended(End::Aborted));
    let Commit { now_ms, mut entries, mut changes, mut parts } = commit;
    let first = writer.append(&mut entries, now_ms, &mut changes, &mut parts);
    changes.expect(&Key::record(run), Expect::At(stored.record_revision));
    changes.put(&Key::record(run), &record);
    commit_all(committer, parts, changes.into_batch()).await?;
    cancel_requested!(record);
    Ok(Cancelled { record, outcome, first, entries })
}

/// One commit under construction.
pub(crate) struct Commit {
    pub(crate) now_ms: u64,
    pub(crate) entries: Vec<LogEntry>,
    pub(crate) changes: Changes,
    /// Batches that have to be committed before the changes.
    pub(crate) parts: Vec<Batch>,
}

impl Commit {
    pub(crate) fn new(now_ms: u64) -> Self {
        Self { now_ms, entries: Vec::new(), changes: Changes::new(), parts: Vec::new() }
    }
}

/// Commits a batch after the parts that it refers to; usually with one sync for all.
pub(crate) async fn commit_all(
    committer: &storage::Committer,
    parts: Vec<Batch>,
    batch: Batch,
) -> Result<(), storage::Error> {
    let mut pending = Vec::with_capacity(parts.len());
    if planted(Planted::PartsLast) {
        let parts = parts.into_iter().map(|mut part| {
            part.operations.retain(|operation| !matches!(operation, Operation::Expect(..)));
            part
        });
        pending.extend([batch].into_iter().chain(parts).map(|batch| committer.enqueue(batch)));
        for batch in pending {
            batch.await?;
        }
        return Ok(());
    }
    for part in parts {
        let permit = committer.reserve(part.bytes()).await?;
        pending.push(committer.enqueue_reserved(permit, part));
    }
    committer.commit(batch).await?;
    for part in pending {
        // Parts were enqueued first, and have no expectation that could fail them alone.
        part.await?;
    }
    Ok(())
}
