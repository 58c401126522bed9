//! Brings a run back: from the queue, from a sleep, after a backoff, after a lost process.

use std::time::Duration;

use ghostlight_protocol::planted::{Planted, planted};
use ghostlight_protocol::run::{Event, Phase};
use ghostlight_protocol::{AgentKey, Failure, InterruptReason, NextAttempt, RunId, RunKey};
use ghostlight_storage as storage;
use storage::records::{LiveRecord, RunRecord, TimerRecord};
use storage::{Changes, Expect, Key};

use super::cancel::try_cancel;
use super::{
    Cancelled, Cause, Entering, LaneEnd, Owned, Stored, not_entered, outcome, spawn,
    unless_cancelled,
};
use crate::agent_actor::AgentArgs;
use crate::clock::millis;
use crate::code::caught;
use crate::finalise::{Decided, commit_all, tell_ended};
use crate::hub::Published;
use crate::log::of_record;
use crate::past::{Past, Signals};
use crate::place::Permit;
use crate::{Error, RunError};

/// Gives a queued run its slot.
pub(super) async fn admit(args: &AgentArgs, run_id: &RunId) -> Result<LaneEnd, Error> {
    let run = RunKey::new(&args.path, run_id);
    let Some(mut stored) = Stored::read(args, run_id).await? else { return Ok(LaneEnd::FREE) };
    let permit = args.node.permit_now();
    // As in a dispatch.
    let hook = args.kind.hooks.start.is_some() || permit.is_none();
    let Ok(state) = stored.record.state.apply(Event::Admitted { hook }) else {
        // Cancelled meanwhile.
        return Ok(LaneEnd::FREE);
    };
    stored.record.state = state;
    let begun = (!hook).then(|| args.node.turns.token());
    let mut changes = Changes::new();
    if let Some(number) = stored.record.queue_number.take() {
        changes.delete(&Key::queue(AgentKey::from(&args.path), number, run));
    }
    let mut writer = stored.writer(args.node.incarnation, run);
    take_over(args, run, &stored.record, stored.record_revision, &mut changes);
    if planted(Planted::LoseAdmitted) {
        changes.delete(&Key::live(AgentKey::from(&args.path), run));
    }
    writer.put_head(&mut changes);
    commit_all(&args.node.committer, Vec::new(), changes.into_batch()).await?;
    let owned = Owned {
        record: stored.record,
        record_revision: stored.record_revision + 1,
        writer,
        past: Past::default(),
        permit,
        lost: false,
        begun,
    };
    Ok(LaneEnd { queued: -1, ..LaneEnd::enter(Entering::Owned(Box::new(owned))) })
}

/// Tells of what the run's actor had recorded when it was lost, and may not have told of any more.
async fn tell_recorded(args: &AgentArgs, run: RunKey, stored: &Stored) -> Result<(), Error> {
    let (node, record) = (&args.node, &stored.record);
    if let Some(last) = stored.head.next_number.checked_sub(1) {
        node.hub.publish(run, Published::Stored(last));
    }
    match record.state.phase {
        Phase::Ended(_) => {
            if let Some(end) = outcome(&node.committer, run, record).await? {
                tell_ended(node, &args.path, record, &end);
            }
        }
        Phase::Suspended => {
            if let Some(due_ms) = record.wake_at_ms {
                node.timers.set(due_ms);
            }
            node.live.set_lost(run, false);
        }
        Phase::Starting | Phase::Running if is_parked_here(args, run, record).await? => {
            if let Some(end) = outcome(&node.committer, run, record).await? {
                node.hub.ended(run, &end);
            }
            node.call_waiting(run);
            node.live.set_lost(run, false);
        }
        Phase::Starting | Phase::Running => {
            for milestone in Signals::read(&node.committer, run).await?.milestones {
                node.call_waiting_for(run, &milestone.name);
            }
        }
        Phase::Queued | Phase::BackingOff => {}
    }
    Ok(())
}

/// Adds what every new owner writes: the record, and the live row with our incarnation.
fn take_over(
    args: &AgentArgs,
    run: RunKey,
    record: &RunRecord,
    record_revision: u64,
    changes: &mut Changes,
) {
    changes.expect(&Key::record(run), Expect::At(record_revision));
    changes.put(&Key::record(run), record);
    let live = LiveRecord {
        parent: record.parent.clone(),
        run_id: record.run_id.clone(),
        agent_type: record.agent_type.clone(),
        waiting: record.state.phase == Phase::BackingOff,
        incarnation: args.node.incarnation,
    };
    changes.put(&Key::live(AgentKey::from(&args.path), run), &live);
}

/// Waits for the place of a run, and enters it again. A cancel that comes before ends the run, and
/// its code is not entered.
pub(super) async fn enter_again(
    args: &AgentArgs,
    run_id: &RunId,
    cause: Cause,
    cancelled: Cancelled,
) -> LaneEnd {
    match unless_cancelled(args, cancelled, args.node.permit()).await {
        None => LaneEnd::UNCHANGED,
        Some(Ok(Ok(permit))) => resume(args, run_id, cause, permit)
            .await
            .unwrap_or_else(|error| not_entered(args, run_id, &error)),
        Some(Ok(Err(error))) => not_entered(args, run_id, &error),
        Some(Err((reason, reply))) => match try_cancel(args, run_id, &reason).await {
            Ok(end) => {
                let _ = reply.send(Ok(()));
                end
            }
            Err(error) => {
                tracing::error!(%run_id, agent = %args.path, %error, "run was not cancelled");
                let _ = reply.send(Err(error.clone()));
                let entering = LaneEnd::enter(Entering::Again(cause));
                LaneEnd { not_cancelled: Some(error), ..entering }
            }
        },
    }
}

/// Enters a run again, or lets it wait for a place if it has none.
pub(super) async fn resume(
    args: &AgentArgs,
    run_id: &RunId,
    cause: Cause,
    permit: Permit,
) -> Result<LaneEnd, Error> {
    match try_resume(args, run_id, cause, permit.clone()).await {
        // What its lost actor had on its way to the disk came first. That was one commit, so that
        // nothing else can come between now.
        Err(Error::Storage(storage::Error::Conflict { .. })) => {
            try_resume(args, run_id, cause, permit).await
        }
        resumed => resumed,
    }
}

async fn try_resume(
    args: &AgentArgs,
    run_id: &RunId,
    cause: Cause,
    permit: Permit,
) -> Result<LaneEnd, Error> {
    let (node, run) = (&args.node, RunKey::new(&args.path, run_id));
    let Some(mut stored) = Stored::read(args, run_id).await? else { return Ok(LaneEnd::FREE) };
    let now_ms = node.clock.now_ms();
    let is_due = |due: u64| due <= now_ms;
    let due_ms = stored.record.wake_at_ms;
    if node.live.is_lost(run) {
        tell_recorded(args, run, &stored).await?;
    }
    let mut decided = None;
    let mut past = None;
    match stored.record.state.phase {
        Phase::Ended(_) => return Ok(LaneEnd::FREE),
        Phase::Queued => return Ok(LaneEnd::UNCHANGED),
        Phase::BackingOff if !due_ms.is_none_or(is_due) => return Ok(LaneEnd::UNCHANGED),
        Phase::Suspended if !due_ms.is_some_and(is_due) && !is_called(args, run).await? => {
            return Ok(LaneEnd::UNCHANGED);
        }
        Phase::Suspended | Phase::BackingOff => {
            // Before anything is written: a run of an unknown type is left alone.
            node.kinds.child(&stored.record.agent_type)?;
            stored.record.state = applied(&stored.record, Event::Woken)?;
            stored.record.attempt += u32::from(planted(Planted::WakeAsAttempt));
        }
        // A timer of an earlier wait.
        Phase::Starting | Phase::Running if cause == Cause::Woken => return Ok(LaneEnd::UNCHANGED),
        Phase::Starting | Phase::Running => {
            if is_parked_here(args, run, &stored.record).await? {
                node.live.set_left(run, true);
                return Ok(LaneEnd::FREE);
            }
            let began_here = began_here(args, run).await?;
            let read = Past::read(&node.committer, run, stored.head.position).await?;
            // What this process has begun, and has not given an actor, was not entered: its parent was
            // lost on the way. No attempt is lost with it.
            let cancelling = stored.record.state.cancelling;
            let is_entered =
                stored.record.state.phase == Phase::Running && !is_parked(&stored.record);
            if cancelling && !is_entered {
                // Nobody executed it when the cancel came.
                decided = Some(Decided::Aborted);
            } else if !began_here || node.live.is_lost(run) {
                decided = lose_attempt(args, &mut stored, read.progress_end, now_ms)?;
            }
            stored.record.state = stored.record.state.entered_again();
            past = Some(read);
        }
    }
    let permit = match stored.record.state.phase {
        Phase::BackingOff => return back_off(args, run, stored).await,
        // It needs none, or not yet; the grace time of a cancelled run waits for nothing.
        _ if decided.is_some() || stored.record.state.cancelling => None,
        Phase::Starting => None,
        _ => match permit.or_else(|| node.permit_now()) {
            None => return Ok(LaneEnd::enter(Entering::Again(cause))),
            permit => permit,
        },
    };
    let mut changes = Changes::new();
    if let Some(due_ms) = stored.record.wake_at_ms.take() {
        changes.delete(&Key::timer(due_ms, run));
    }
    let mut writer = stored.writer(args.node.incarnation, run);
    take_over(args, run, &stored.record, stored.record_revision, &mut changes);
    writer.put_head(&mut changes);
    commit_all(&node.committer, Vec::new(), changes.into_batch()).await?;
    // If its parent is lost before the end is recorded, the end is decided again.
    node.live.set_lost(run, decided.is_some());
    node.live.set_left(run, false);
    // Its code is about to register what it waits for anew.
    node.waits.release(run);
    let revision = stored.record_revision + 1;
    let past = match past {
        Some(past) => past,
        None => Past::read(&node.committer, run, stored.head.position).await?,
    };
    of_record!(info, stored.record, "run resumed");
    let record = stored.record;
    let is_ready = decided.is_some()
        || record.state.phase != Phase::Starting
        || planted(Planted::SkipStartHook);
    let owned =
        Owned { record, record_revision: revision, writer, past, permit, lost: true, begun: None };
    match is_ready {
        true => spawn(args, run_id, owned, decided).await,
        false => Ok(LaneEnd::enter(Entering::Owned(Box::new(owned)))),
    }
}

fn applied(record: &RunRecord, event: Event) -> Result<ghostlight_protocol::RunState, Error> {
    record.state.apply(event).map_err(|refused| {
        let key = format!("record of run {:?}", record.run_id);
        storage::Error::Corrupt { key, why: refused.to_string() }.into()
    })
}

/// The code did not fit the journal: the run waits for the next incarnation. Once that has entered it
/// again, the interruption stands, and the run is like any other.
fn is_parked(record: &RunRecord) -> bool {
    record.state.interrupted.is_some_and(|i| {
        i.reason == Some(InterruptReason::JournalMismatch) && i.child_still_running == Some(false)
    })
}

/// Whether the run is parked, and this process leaves it so.
pub(super) async fn is_parked_here(
    args: &AgentArgs,
    run: RunKey,
    record: &RunRecord,
) -> Result<bool, Error> {
    Ok(is_parked(record) && began_here(args, run).await?)
}

async fn began_here(args: &AgentArgs, run: RunKey) -> Result<bool, Error> {
    Ok(args.node.has_begun(&args.path, run).await?)
}

/// Whether a suspended run is to be entered, due or not: something has happened that it waits for,
/// or may have, since an earlier process has left it so.
async fn is_called(args: &AgentArgs, run: RunKey) -> Result<bool, Error> {
    let waits = &args.node.waits;
    if waits.is_outside(run) {
        return Ok(waits.is_called(run));
    }
    let live = args.node.live_record(&args.path, run).await?;
    let is_left = live.is_some_and(|live| !live.waiting);
    Ok(is_left && !planted(Planted::ForgetWaiting))
}

/// Counts a lost attempt, and decides about the next one. Returns how the run ends if there is none.
fn lose_attempt(
    args: &AgentArgs,
    stored: &mut Stored,
    progress_end: u64,
    now_ms: u64,
) -> Result<Option<Decided>, Error> {
    let record = &mut stored.record;
    let cancelling = record.state.cancelling;
    if is_parked(record) {
        // A bad deploy is healed by a good one: no attempt is counted.
        return Ok(None);
    }
    if record.state.phase == Phase::Starting {
        // The start hook was at work, and the code was not entered.
        return Ok(None);
    }
    let child = args.node.kinds.child(&record.agent_type)?;
    let progressed = progress_end > record.attempt_began_at;
    record.futile = if progressed { 0 } else { record.futile.saturating_add(1) };
    let policy = match caught(|| child.recovery()) {
        Ok(policy) => policy,
        Err(_) if cancelling => return Ok(Some(Decided::Aborted)),
        Err(panic) => {
            let error = RunError::new(format!("recovery policy: {panic}")).kind("panic");
            return Ok(Some(Decided::Failed(error.failure)));
        }
    };
    match policy.next(record.futile) {
        NextAttempt::GiveUp if cancelling => Ok(Some(Decided::Aborted)),
        NextAttempt::GiveUp => {
            record.futile = record.futile.saturating_sub(1);
            let message = format!("{} attempts in a row made no progress", policy.attempts_max);
            Ok(Some(Decided::Failed(Failure {
                message,
                kind: Some("attempts-exhausted".into()),
                permanent: false,
            })))
        }
        NextAttempt::Resume { after } => {
            // A cancelled run is entered to come to its end, which nothing is won by putting off.
            let after = if cancelling { Duration::ZERO } else { after };
            record.state = applied(record, Event::Lost { backoff: !after.is_zero() })?;
            if record.state.phase == Phase::BackingOff {
                record.wake_at_ms = Some(now_ms.saturating_add(millis(after)));
            }
            record.attempt = record.attempt.saturating_add(u32::from(policy.count_attempts));
            record.attempt_began_at = stored.head.position;
            Ok(None)
        }
    }
}

async fn back_off(args: &AgentArgs, run: RunKey, stored: Stored) -> Result<LaneEnd, Error> {
    let mut changes = Changes::new();
    take_over(args, run, &stored.record, stored.record_revision, &mut changes);
    stored.writer(args.node.incarnation, run).put_head(&mut changes);
    let due_ms = stored.record.wake_at_ms.unwrap_or_default();
    let timer =
        TimerRecord { parent: stored.record.parent.clone(), run_id: stored.record.run_id.clone() };
    changes.put(&Key::timer(due_ms, run), &timer);
    commit_all(&args.node.committer, Vec::new(), changes.into_batch()).await?;
    args.node.timers.set(due_ms);
    args.node.live.set_lost(run, false);
    Ok(LaneEnd { holds_slot: Some(true), ..LaneEnd::UNCHANGED })
}

#[cfg(test)]
mod tests;
