//! Dispatch: one commit, and only then anything else.

use std::sync::Arc;

use ghostlight_protocol::planted::{Planted, planted};
use ghostlight_protocol::run::{Event, Phase};
use ghostlight_protocol::{AgentKey, RunId, RunKey, RunState};
use ghostlight_storage as storage;
use storage::payload::RECORD_INLINE_BYTES_MAX;
use storage::records::{
    Extensions, Head, LiveRecord, LogEntry, QueuedRecord, RegistryRecord, RunRecord,
};
use storage::{Batch, Changes, Expect, Key};

use super::cancel::abort;
use super::resume::is_parked_here;
use super::{
    Cancelled, Entering, LaneEnd, Owned, Stored, is_cleared, not_entered, outcome, spawn,
    unless_cancelled,
};
use crate::Error;
use crate::agent_actor::AgentArgs;
use crate::code::{caught, guarded};
use crate::finalise::{Decided, commit_all};
use crate::frames::FrameMaker;
use crate::hub::Published;
use crate::info::run_info;
use crate::log::of_record;
use crate::log_writer::LogWriter;
use crate::messages::{Reply, StartRun, Started};
use crate::past::Past;

/// Records a new run, which enters its code next, or joins the run that has the id.
pub(super) async fn start(
    args: &AgentArgs,
    start: &StartRun,
    reply: Reply<Started>,
    held: bool,
) -> LaneEnd {
    // Who waits for many runs joins all of them whenever it is entered again: no commit for that.
    if held && matches!(known(args, start).await, Ok(true)) {
        start_existing(args, start, false, reply).await;
        return LaneEnd::slot(held);
    }
    // Lost while it waits for a place, it has not begun its first attempt.
    let begins = args.kind.hooks.start.is_none() && start.permit.is_some();
    let phase = if begins { Phase::Running } else { Phase::Starting };
    let begun = begins.then(|| args.node.turns.token());
    let (record, writer) = match record(args, start, phase, None).await {
        Ok(Recorded::New(new)) => *new,
        Ok(Recorded::Taken) => {
            start_existing(args, start, false, reply).await;
            return LaneEnd::slot(held);
        }
        Err(error) => {
            let _ = reply.send(Err(error));
            return LaneEnd::slot(held);
        }
    };
    let _ = reply.send(Ok(Started { already_existed: false, outcome: None }));
    let permit = start.permit.clone();
    let past = Past::default();
    let owned = Owned { record, record_revision: 1, writer, past, permit, lost: false, begun };
    LaneEnd::enter(Entering::Owned(Box::new(owned)))
}

/// Calls the start hook, shows frame 0, and hands a run that is recorded to its actor. A cancel that
/// comes before ends the run, and its code is not entered.
pub(super) async fn enter(
    args: &AgentArgs,
    run_id: &RunId,
    mut owned: Owned,
    cancelled: Cancelled,
) -> LaneEnd {
    if owned.record.state.phase == Phase::Starting {
        // The hook may dispatch and await runs, which need places of their own.
        owned.permit = None;
    }
    let ready = async {
        if owned.record.state.phase == Phase::Starting
            && let Err(failure) = start_hook(args, &owned.record).await
        {
            if args.node.is_draining() {
                // What it has asked for may have been refused for that alone.
                return Ok(None);
            }
            // It only has to be ended, which needs no place.
            return Ok(Some((Some(Decided::Failed(failure)), None)));
        }
        let permit = match &owned.permit {
            Some(permit) if !args.node.is_draining() => Some(Arc::clone(permit)),
            _ => args.node.permit().await?,
        };
        Ok(Some((None, permit)))
    };
    let Some(ready) = unless_cancelled(args, cancelled, ready).await else {
        return LaneEnd::UNCHANGED;
    };
    // Nobody is shown a run whose hook is still to be called.
    if !matches!(ready, Ok(Ok(None))) {
        show_start(args, &owned);
    }
    let handed = match ready {
        Err((reason, reply)) => {
            return cancel_entering(args, run_id, owned, &reason, reply).await;
        }
        Ok(Ok(Some((decided, permit)))) => {
            owned.permit = permit;
            hand_over(args, run_id, owned, decided).await
        }
        Ok(Ok(None)) => Err(Error::Stopped),
        Ok(Err(error)) => {
            unbegin(args, owned).await;
            Err(error)
        }
    };
    handed.unwrap_or_else(|error| not_entered(args, run_id, &error))
}

/// Records that a run whose record was born `running` is not entered, so that no attempt is lost with
/// it. If that fails, one is, as in a process that dies here.
async fn unbegin(args: &AgentArgs, mut owned: Owned) {
    if owned.lost || owned.record.state.phase != Phase::Running {
        return;
    }
    owned.record.state.phase = Phase::Starting;
    if let Err(error) = write_record(args, &owned).await {
        of_record!(warn, owned.record, %error, "a run that was not entered loses an attempt");
    }
}

async fn write_record(args: &AgentArgs, owned: &Owned) -> Result<(), storage::Error> {
    let (key, mut changes) = (Key::record(owned.writer.run()), Changes::new());
    changes.expect(&key, Expect::At(owned.record_revision));
    changes.put(&key, &owned.record);
    args.node.committer.commit(changes.into_batch()).await
}

async fn hand_over(
    args: &AgentArgs,
    run_id: &RunId,
    mut owned: Owned,
    decided: Option<Decided>,
) -> Result<LaneEnd, Error> {
    if decided.is_none() && owned.lost {
        confirm(args, &mut owned).await?;
    }
    spawn(args, run_id, owned, decided).await
}

/// Records that the start hook is done, before the code is entered. Usually the run's actor does that
/// meanwhile; but then code that takes the process down at once is never seen to be entered, and
/// would be entered again for ever.
async fn confirm(args: &AgentArgs, owned: &mut Owned) -> Result<(), Error> {
    let Ok(state) = owned.record.state.apply(Event::Started) else { return Ok(()) };
    owned.record.state = state;
    write_record(args, owned).await?;
    owned.record_revision += 1;
    Ok(())
}

fn show_start(args: &AgentArgs, owned: &Owned) {
    let run = owned.writer.run();
    if args.node.hub.is_tailed(run)
        && let Some(frame) = FrameMaker::new(&owned.record).frame(0, &LogEntry::Started)
    {
        args.node.hub.publish(run, Published::Frame(Arc::new(frame)));
    }
}

async fn cancel_entering(
    args: &AgentArgs,
    run_id: &RunId,
    owned: Owned,
    reason: &str,
    reply: Reply<()>,
) -> LaneEnd {
    let cancelled = async {
        // It may have been executed before, and what it has dispatched goes first.
        let path = args.path.child(&owned.record.agent_type, run_id)?;
        crate::cascade::cancel_live(&args.node, &path, reason).await?;
        let (record, writer) = (owned.record.clone(), owned.writer.clone());
        let (record_revision, head) = (owned.record_revision, writer.head);
        let stored = Stored { record, record_revision, head, head_revision: writer.head_revision };
        abort(&args.node, &args.path, stored, writer, reason).await
    };
    match cancelled.await {
        Ok(()) => {
            let _ = reply.send(Ok(()));
            LaneEnd::FREE
        }
        Err(error) => {
            of_record!(error, owned.record, %error, "run was not cancelled");
            let _ = reply.send(Err(error.clone()));
            // As if nobody had asked: whoever goes on with it is the owner that it has.
            LaneEnd {
                not_cancelled: Some(error),
                ..LaneEnd::enter(Entering::Owned(Box::new(owned)))
            }
        }
    }
}

/// Runs the start hook; an error or a panic is how the run fails.
async fn start_hook(
    args: &AgentArgs,
    record: &RunRecord,
) -> Result<(), ghostlight_protocol::Failure> {
    let Some(hook) = &args.kind.hooks.start else { return Ok(()) };
    let info = run_info(record).map_err(|error| crate::RunError::from(error).failure)?;
    let cx = crate::AgentContext::new(Arc::clone(&args.node), args.path.clone());
    let result = match caught(|| hook(cx, info)) {
        Ok(body) => guarded(body).await,
        Err(panic) => Err(panic),
    };
    let result = result.unwrap_or_else(|panic| Err(crate::RunError::new(panic).kind("panic")));
    result.map_err(|error| {
        let mut failure = error.failure;
        failure.message = format!("start hook: {}", failure.message);
        failure
    })
}

/// Refuses, or queues, a run beyond the cap; joins the run that has the id.
pub(super) async fn start_at_cap(
    args: &AgentArgs,
    start: &StartRun,
    reply: Reply<Started>,
    cap: usize,
    number: Option<u64>,
) -> LaneEnd {
    let joined = LaneEnd { queued: -isize::from(number.is_some()), ..LaneEnd::UNCHANGED };
    let Some(number) = number else {
        match known(args, start).await {
            Ok(true) => start_existing(args, start, false, reply).await,
            Ok(false) => _ = reply.send(Err(Error::CapExceeded { limit: cap })),
            Err(error) => _ = reply.send(Err(error)),
        }
        return joined;
    };
    match record(args, start, Phase::Queued, Some(number)).await {
        Ok(Recorded::New(_)) => {
            let _ = reply.send(Ok(Started { already_existed: false, outcome: None }));
            LaneEnd::UNCHANGED
        }
        Ok(Recorded::Taken) => {
            start_existing(args, start, false, reply).await;
            joined
        }
        Err(error) => {
            let _ = reply.send(Err(error));
            joined
        }
    }
}

async fn known(args: &AgentArgs, start: &StartRun) -> Result<bool, Error> {
    let run = RunKey::new(&args.path, &start.run_id);
    Ok(Stored::read_key(&args.node.committer, run).await?.is_some()
        || is_cleared(&args.node.committer, run).await?)
}

enum Recorded {
    New(Box<(RunRecord, LogWriter)>),
    /// The id is in use, or was.
    Taken,
}

/// Makes the one commit of a dispatch.
async fn record(
    args: &AgentArgs,
    start: &StartRun,
    phase: Phase,
    queue_number: Option<u64>,
) -> Result<Recorded, Error> {
    let node = &args.node;
    let (agent, run) = (AgentKey::from(&args.path), RunKey::new(&args.path, &start.run_id));
    let now_ms = node.clock.now_ms();
    let (mut changes, mut parts) = (Changes::new(), Vec::new());
    // The incarnation makes the numbers of orphaned payloads of an earlier try of this id others.
    let head = Head { epoch: node.incarnation, ..Head::default() };
    let mut writer = LogWriter::new(run, node.incarnation, head, 0);
    let input = writer.store(
        start.input.as_ref().clone(),
        RECORD_INLINE_BYTES_MAX,
        &mut changes,
        &mut parts,
    );
    let parent = args.path.as_str().to_owned();
    let run_id = start.run_id.as_str().to_owned();
    let agent_type = start.agent_type.to_owned();
    let record = RunRecord {
        run_id: run_id.clone(),
        parent: parent.clone(),
        agent_type: agent_type.clone(),
        input,
        input_digest: start.input_digest,
        input_preview: start.input_preview.clone(),
        display: start.display.clone(),
        display_order: start.display_order,
        parent_tool_call_id: start.parent_tool_call_id.clone(),
        detached: start.detached,
        started_at_ms: now_ms,
        completed_at_ms: None,
        state: RunState::new(phase),
        attempt: 1,
        futile: 0,
        // Frame 0 is no progress.
        attempt_began_at: 1,
        cancel: None,
        wake_at_ms: None,
        queue_number,
        end: None,
        interrupted_error: None,
        ext: Extensions::new(),
    };
    changes.expect(&Key::record(run), Expect::Absent);
    changes.expect(&Key::tombstone(run), Expect::Absent);
    changes.put(&Key::record(run), &record);
    let registry = RegistryRecord { parent: parent.clone(), run_id: run_id.clone() };
    changes.put(&Key::registry(agent, now_ms, run), &registry);
    match queue_number {
        Some(number) => {
            let queued = QueuedRecord { parent, run_id, agent_type };
            changes.put(&Key::queue(agent, number, run), &queued);
        }
        None => {
            let incarnation = node.incarnation;
            let live = LiveRecord { parent, run_id, agent_type, waiting: false, incarnation };
            if !planted(Planted::ForgetLive) {
                changes.put(&Key::live(agent, run), &live);
            }
        }
    }
    writer.append(&mut [LogEntry::Started], now_ms, &mut changes, &mut parts);
    if !parts.is_empty() {
        // Parts are there before the commit that finds the id taken. Under the numbers of the run
        // that has it they would replace its own, and their intents would outlive them.
        if known(args, start).await? {
            return Ok(Recorded::Taken);
        }
        let (record, tombstone) = (Key::record(run), Key::tombstone(run));
        let unless_taken = |part: Batch| {
            part.expect(record.as_bytes(), Expect::Absent)
                .expect(tombstone.as_bytes(), Expect::Absent)
        };
        parts = parts.into_iter().map(unless_taken).collect();
    }
    match commit_all(&node.committer, parts, changes.into_batch()).await {
        Ok(()) => {
            of_record!(info, record, "run dispatched");
            Ok(Recorded::New(Box::new((record, writer))))
        }
        Err(storage::Error::Conflict { .. }) => Ok(Recorded::Taken),
        Err(error) => Err(error.into()),
    }
}

/// Joins the run that has the id, if it is the same run. `executed`: whether somebody executes it, or
/// is about to.
pub(crate) async fn start_existing(
    args: &AgentArgs,
    start: &StartRun,
    executed: bool,
    reply: Reply<Started>,
) {
    let _ = reply.send(join(args, start, executed).await);
}

async fn join(args: &AgentArgs, start: &StartRun, executed: bool) -> Result<Started, Error> {
    let run = RunKey::new(&args.path, &start.run_id);
    let committer = &args.node.committer;
    let Some(stored) = Stored::read_key(committer, run).await? else {
        return Err(Error::Cleared(start.run_id.to_string()));
    };
    joins(&stored.record, start, args.node.live.is_stopping(run))?;
    let ended = outcome(committer, run, &stored.record).await?;
    // Only a parked run comes to no other end as long as this process lives. Any other interrupted run
    // goes on, or is about to: in its code, or outside memory.
    let is_over = stored.record.state.status().is_hard()
        || !executed && is_parked_here(args, run, &stored.record).await?;
    let outcome = ended.filter(|_| is_over);
    Ok(Started { already_existed: true, outcome })
}

/// Whether a dispatch joins the run that has its id; asked wherever that run is. `stopping`: whether
/// its code has not returned although it has ended.
pub(crate) fn joins(record: &RunRecord, start: &StartRun, stopping: bool) -> Result<(), Error> {
    let run_id = || start.run_id.to_string();
    if record.agent_type != start.agent_type {
        let (asked, actual) = (start.agent_type.to_owned(), record.agent_type.clone());
        return Err(Error::WrongType { run_id: run_id(), actual, asked });
    }
    if record.input_digest != start.input_digest {
        return Err(Error::DifferentInput { run_id: run_id() });
    }
    if record.detached != start.detached {
        let was = if record.detached { "detached" } else { "awaited" };
        return Err(Error::DifferentMode { run_id: run_id(), was });
    }
    if record.state.status().is_hard() && stopping {
        return Err(Error::StillStopping(run_id()));
    }
    Ok(())
}
