//! One commit after another: what the code has queued, and what the run itself has to record.

use ghostlight_protocol::frame::progress_body;
use ghostlight_protocol::journal::Call;
use ghostlight_protocol::planted::{Planted, planted};
use ghostlight_protocol::run::Event;
use ghostlight_protocol::{AgentKey, Failure};
use ghostlight_storage as storage;
use ractor::ActorRef;
use storage::payload::Payload;
use storage::records::{Head, LiveRecord, LogEntry, Origin, RunRecord, TimerRecord};
use storage::{Batch, Changes, Expect, Key};
use tokio::time::Instant;

use super::RunActorState;
use super::ending::{Ending, Leaving};
use crate::RunError;
use crate::finalise::{Commit, Decided, commit_all};
use crate::hub::Published;
use crate::log::{cancel_requested, of_run};
use crate::log_writer::COMMIT_BYTES_MAX;
use crate::messages::RunMsg;
use crate::probe::Seen;
use crate::shared::{Done, Dormant, Frozen};

/// What is on its way to the disk.
pub(crate) struct InFlight {
    entries: Vec<LogEntry>,
    first_number: u64,
    /// The number of the last queued entry in it.
    queued: u64,
    queued_bytes: usize,
    /// The record, if it is written: it may change again before it is durable.
    record: Option<RunRecord>,
    /// The log's head and its revision before.
    before: (Head, u64),
    ends: bool,
}

impl InFlight {
    /// The log's head as the store has it.
    pub(super) fn head_before(&self) -> Head {
        self.before.0
    }
}

impl RunActorState {
    /// Begins the next commit, if there is anything to record and none is in flight.
    pub(crate) fn pump(&mut self, myself: &ActorRef<RunMsg>) {
        if self.in_flight.is_some() || self.ending.is_over() {
            return;
        }
        let (entries, queued) = self.shared.take(COMMIT_BYTES_MAX, self.ending.is_decided());
        let queued_bytes = entries.iter().map(LogEntry::bytes).sum();
        let drained = self.shared.is_drained();
        let mut commit = Commit::new(self.shared.node.clock.now_ms());
        commit.entries = entries;
        commit.entries.extend(self.take_progress(myself, drained));
        let mut ends = false;
        // The end comes after everything that the code has queued, and after the cancels of all
        // descendants, so that a recovery finishes a cascade.
        if drained && self.cascades == 0 {
            ends = self.add_ending(&mut commit);
        }
        if commit.entries.is_empty() && !self.record_dirty && !ends {
            return;
        }
        let Commit { now_ms, mut entries, mut changes, mut parts } = commit;
        let before = (self.writer.head, self.writer.head_revision);
        let first_number = self.writer.append(&mut entries, now_ms, &mut changes, &mut parts);
        let record = std::mem::take(&mut self.record_dirty).then(|| self.record.clone());
        if let Some(record) = &record {
            let key = Key::record(self.shared.run);
            changes.expect(&key, Expect::At(self.record_revision));
            changes.put(&key, record);
            self.record_revision += 1;
        }
        self.in_flight =
            Some(InFlight { entries, first_number, queued, queued_bytes, record, before, ends });
        if planted(Planted::PublishEarly)
            && let Some(in_flight) = self.in_flight.take()
        {
            self.publish(&in_flight);
            self.in_flight = Some(in_flight);
        }
        self.send(myself, parts, changes.into_batch());
    }

    fn send(&self, myself: &ActorRef<RunMsg>, parts: Vec<Batch>, batch: Batch) {
        let (committer, actor) = (self.shared.node.committer.clone(), myself.clone());
        self.shared.node.spawn(async move {
            let result = commit_all(&committer, parts, batch).await;
            let _ = actor.cast(RunMsg::Committed(result));
        });
    }

    /// The newest progress report, if the time between two has passed.
    fn take_progress(&mut self, myself: &ActorRef<RunMsg>, drained: bool) -> Option<LogEntry> {
        let mut inner = self.shared.lock();
        let progress = inner.progress.as_ref()?;
        let complete = progress.data.fraction.is_some_and(|fraction| fraction >= 1.0);
        let interval = self.shared.node.limits.progress_interval;
        let wait = self.progress_at.map_or(interval, |at| at.elapsed());
        let last = drained && (self.ending.is_decided() || self.ending.is_leaving());
        if wait < interval && !complete && !last {
            if !std::mem::replace(&mut self.progress_timer, true) {
                let actor = myself.clone();
                self.shared.node.spawn(async move {
                    tokio::time::sleep(interval - wait).await;
                    let _ = actor.cast(RunMsg::ProgressDue);
                });
            }
            return None;
        }
        let mut data = inner.progress.take()?.data;
        self.progress_at = Some(Instant::now());
        data.at_ms = Some(self.shared.node.clock.now_ms());
        Some(LogEntry::Progress { body: Payload::Inline(progress_body(&data).into_bytes()) })
    }

    pub(crate) fn committed(
        &mut self,
        myself: &ActorRef<RunMsg>,
        result: Result<(), storage::Error>,
    ) {
        let Some(done) = self.in_flight.take() else { return };
        match result {
            Ok(()) => {}
            Err(error @ storage::Error::TooLarge { .. }) if !self.refused => {
                return self.refused(myself, &done, &error);
            }
            Err(error) => {
                (self.writer.head, self.writer.head_revision) = done.before;
                return self.lost(myself, &error);
            }
        }
        let (node, run) = (&self.shared.node, &self.shared.path);
        if !done.entries.iter().all(|entry| node.seen(Seen::Durable { run, entry })) {
            return self.lost(myself, &storage::Error::Closed);
        }
        self.publish(&done);
        let told = done.entries.into_iter().filter_map(self::done).collect();
        self.shared.durable(done.queued, done.queued_bytes, told);
        if let Some(record) = done.record {
            if record.state.cancelling && !self.stored.state.cancelling {
                cancel_requested!(record);
            }
            self.stored = record;
        }
        if self.stored.state.cancelling {
            self.cancel_is_durable(myself);
        }
        if done.ends {
            return self.ended(myself);
        }
        self.pump(myself);
        // The code may have stood still before the due time of its sleep was durable.
        if self.in_flight.is_none() {
            self.dormant(myself);
        }
    }

    fn publish(&mut self, done: &InFlight) {
        let tailed = self.shared.node.hub.is_tailed(self.shared.run);
        let frames = done.entries.iter().filter(|entry| entry.is_frame());
        for (number, entry) in (done.first_number..).zip(frames) {
            self.signals.note(entry);
            if let LogEntry::Milestone { name, .. } = entry {
                self.shared.node.call_waiting_for(self.shared.run, name);
            }
            if tailed && let Some(frame) = self.frames.frame(number, entry) {
                let published = Published::Frame(std::sync::Arc::new(frame));
                self.shared.node.hub.publish(self.shared.run, published);
            }
        }
    }

    /// The commit is over a limit of the store, as it would be in every attempt: that is how the run
    /// fails. What the code has queued since is for nobody.
    fn refused(&mut self, myself: &ActorRef<RunMsg>, done: &InFlight, error: &storage::Error) {
        of_run!(
            error,
            self.shared,
            %error,
            "run fails: what it has to record is over a limit of the store"
        );
        self.refused = true;
        self.shared.discard();
        (self.writer.head, self.writer.head_revision) = done.before;
        self.record_revision -= u64::from(done.record.is_some());
        self.record = self.stored.clone();
        self.record_dirty = false;
        let failure = || RunError::new(error.to_string()).kind("too-large").permanent().failure;
        let cancelling = self.record.state.cancelling;
        let decided = if cancelling { Decided::Aborted } else { Decided::Failed(failure()) };
        self.ending = Ending::Decided(decided);
        self.abort_code();
        self.pump(myself);
    }

    /// Somebody else owns the run now, or the store has failed: this life is over, and nothing
    /// that was in flight is told to anybody.
    fn lost(&mut self, myself: &ActorRef<RunMsg>, error: &storage::Error) {
        of_run!(warn, self.shared, %error, "the run's actor stops: its commit was refused");
        self.ending = Ending::Lost;
        // What the code still does while it is dropped is for nobody.
        self.shared.stop(Frozen::Left);
        self.lost_to = Some(error.clone().into());
        let replies = std::mem::take(&mut self.cancel_replies);
        if self.code.is_none() {
            // Dropped unanswered: the parent decides again once this actor is gone.
            return myself.stop(None);
        }
        // Nobody knows how long the code takes to be gone: it may block its thread.
        for reply in replies {
            let _ = reply.send(Err(error.clone().into()));
        }
        self.abort_code();
    }

    /// Lets the run wait outside memory: one commit.
    pub(crate) fn add_leaving(&mut self, leaving: &Leaving, changes: &mut Changes) -> bool {
        match leaving {
            Leaving::Suspended(Dormant { due_ms, waits, .. }) => {
                if !self.apply(Event::Suspended) {
                    return false;
                }
                self.record.wake_at_ms = *due_ms;
                if let Some(due_ms) = due_ms.filter(|_| !planted(Planted::LoseTimer)) {
                    let timer = TimerRecord {
                        parent: self.record.parent.clone(),
                        run_id: self.record.run_id.clone(),
                    };
                    changes.put(&Key::timer(due_ms, self.shared.run), &timer);
                }
                // What waits for other runs is entered again by the next process, and looks itself.
                changes.put(&self.live_key(), &self.live_record(*waits == 0));
                true
            }
            Leaving::Parked { .. } => true,
        }
    }

    pub(crate) fn live_key(&self) -> Key {
        Key::live(AgentKey::from(&self.shared.parent), self.shared.run)
    }

    pub(crate) fn live_record(&self, waiting: bool) -> LiveRecord {
        LiveRecord {
            parent: self.record.parent.clone(),
            run_id: self.record.run_id.clone(),
            agent_type: self.record.agent_type.clone(),
            waiting,
            incarnation: self.shared.node.incarnation,
        }
    }
}

/// What the code is told once an entry is durable.
pub(crate) fn done(entry: LogEntry) -> Option<Done> {
    match entry {
        LogEntry::Completed { call, result: Payload::Inline(bytes) } => {
            Some(Done::Call(call.into(), Ok(bytes)))
        }
        LogEntry::StepFailed { step, message, kind, permanent } => {
            Some(Done::Call(Call::Step(step), Err(Failure { message, kind, permanent })))
        }
        LogEntry::Milestone { origin: Origin::Code, .. } | LogEntry::State { .. } => {
            Some(Done::Act)
        }
        _ => None,
    }
}
