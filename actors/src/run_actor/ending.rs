//! How a run ends, or leaves memory. One path for every end.

use std::time::Duration;

use ghostlight_protocol::journal::Mismatch;
use ghostlight_protocol::run::Event;
use ghostlight_protocol::{Failure, InterruptReason, Interruption, NotCompleted, Outcome};
use ghostlight_storage::records::LogEntry;
use ractor::ActorRef;

use super::RunActorState;
use crate::RunError;
use crate::clock::millis;
use crate::error::check_json;
use crate::finalise::{Commit, Decided, add_end, tell_ended};
use crate::info::RawOutcome;
use crate::log::of_run;
use crate::messages::{CodeEnd, RunMsg};
use crate::registry::Returned;
use crate::shared::Dormant;
use crate::text;

/// Where the run stands on its way out.
pub(crate) enum Ending {
    /// The code works.
    Working,
    /// The run's end is decided; its commit comes when all before it is queued.
    Decided(Decided),
    /// The code is being dropped, since the run leaves memory.
    Leaving(Leaving),
    /// The commit of the end, or of leaving, is in flight.
    Committing(RawEnd),
    /// The end is durable. The actor stays until the code's task has really ended.
    Ended,
    /// Another owner has taken over, or the store has failed.
    Lost,
}

pub(crate) enum Leaving {
    Suspended(Dormant),
    Parked { mismatch: Mismatch },
}

pub(crate) enum RawEnd {
    /// Over for good.
    Hard(RawOutcome),
    /// The parent is told, and the next incarnation tries again.
    Interrupted(RawOutcome),
    /// Waits outside memory, until this time if there is one.
    Suspended { due_ms: Option<u64> },
}

/// How long a run stays in memory, at least, for each of the runs that it waits for: some ten times
/// as long as it takes to ask for that wait anew.
const STAY_PER_WAIT: Duration = Duration::from_millis(1);

/// The stop reason of an actor whose run is over for good.
pub(crate) const ENDED: &str = "ended";
/// The stop reason of an actor whose run waits outside memory.
pub(crate) const WAITING: &str = "waiting";
/// The stop reason of an actor whose run waits for the next incarnation, and holds no slot.
pub(crate) const PARKED: &str = "parked";

impl Ending {
    pub(crate) fn is_decided(&self) -> bool {
        matches!(self, Self::Decided(_) | Self::Committing(_) | Self::Ended)
    }

    /// The run is about to leave memory, and has not ended.
    pub(crate) fn is_leaving(&self) -> bool {
        match self {
            Self::Leaving(_)
            | Self::Committing(RawEnd::Suspended { .. } | RawEnd::Interrupted(_)) => true,
            Self::Working | Self::Decided(_) | Self::Committing(RawEnd::Hard(_)) => false,
            Self::Ended | Self::Lost => false,
        }
    }

    /// Nothing is committed any more.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Committing(_) | Self::Ended | Self::Lost)
    }
}

impl RunActorState {
    pub(crate) fn code_ended(&mut self, myself: &ActorRef<RunMsg>, end: CodeEnd) {
        self.code = None;
        match &self.ending {
            Ending::Ended => return myself.stop(Some(self.left.into())),
            Ending::Lost => return myself.stop(None),
            Ending::Committing(_) => return,
            Ending::Leaving(_) | Ending::Decided(_) => return self.pump(myself),
            Ending::Working => {}
        }
        let decided = match end {
            // A cancel that was requested before the code returned decides the end. The code may
            // have dispatched runs since, whose cancels have to be durable before it, too.
            _ if self.state().cancelling => {
                self.ending = Ending::Decided(Decided::Aborted);
                return self.cascade(myself);
            }
            CodeEnd::Returned(result) => match self.shared.finish() {
                Ok(()) => self.judge(result),
                Err(mismatch) => {
                    self.ending = Ending::Leaving(Leaving::Parked { mismatch });
                    return self.pump(myself);
                }
            },
            CodeEnd::Panicked(message) => {
                Decided::Failed(Failure { message, kind: Some("panic".into()), permanent: false })
            }
            // Nobody drops the code but a cancel, a suspension, a mismatch, and the whole system.
            CodeEnd::Dropped => {
                self.ending = Ending::Lost;
                return myself.stop(None);
            }
        };
        self.ending = Ending::Decided(decided);
        self.pump(myself);
    }

    fn judge(&self, result: Result<Returned, RunError>) -> Decided {
        let returned = match result {
            Ok(returned) => returned,
            Err(error) => return Decided::Failed(error.failure),
        };
        let limit = self.shared.node.limits.output_bytes_max;
        match check_json("the run's output", &returned.output, limit) {
            Ok(()) => Decided::Completed(returned),
            Err(error) => Decided::Failed(error.failure),
        }
    }

    /// The code waits for timers and other runs alone: leave memory if that lasts.
    pub(crate) fn dormant(&mut self, myself: &ActorRef<RunMsg>) {
        let Some(dormant) = self.dormancy() else { return };
        // How long timers take is known. Other runs may end at any time, and blocking calls as well.
        if dormant.waits == 0 && self.shared.blocking.is_empty() {
            return self.suspend(myself, dormant);
        }
        if std::mem::replace(&mut self.dormant_timer, true) {
            return;
        }
        let (actor, after) = (myself.clone(), self.suspend_after(dormant));
        self.shared.node.spawn(async move {
            tokio::time::sleep(after).await;
            let _ = actor.cast(RunMsg::StillDormant(dormant));
        });
    }

    /// The code was dormant a while ago: leave memory if it has done nothing since.
    pub(crate) fn still_dormant(&mut self, myself: &ActorRef<RunMsg>, before: Dormant) {
        self.dormant_timer = false;
        match self.dormancy() {
            Some(dormant) if dormant == before && self.shared.blocking.is_empty() => {
                self.suspend(myself, dormant);
            }
            Some(_) => self.dormant(myself),
            None => {}
        }
    }

    /// How the code waits, if the run may leave memory to wait.
    fn dormancy(&self) -> Option<Dormant> {
        if !matches!(self.ending, Ending::Working)
            || self.in_flight.is_some()
            || self.record_dirty
            || self.state().cancelling
        {
            return None;
        }
        let dormant = self.shared.dormant()?;
        let node = &self.shared.node;
        let left_ms = dormant.due_ms.map(|due_ms| due_ms.saturating_sub(node.clock.now_ms()));
        // Its code is about to be woken, or holds the wait and does not poll it.
        let called = node.waits.is_called(self.shared.run);
        (!called && left_ms.is_none_or(|left_ms| left_ms > millis(node.limits.suspend_after)))
            .then_some(dormant)
    }

    /// How long the code is dormant before the run leaves memory. Entered again, it asks for every
    /// one of its waits, so that a run that waits for many others stays for longer.
    fn suspend_after(&self, dormant: Dormant) -> Duration {
        let waits = u32::try_from(dormant.waits).unwrap_or(u32::MAX);
        self.shared.node.limits.suspend_after.max(STAY_PER_WAIT.saturating_mul(waits))
    }

    fn suspend(&mut self, myself: &ActorRef<RunMsg>, dormant: Dormant) {
        if self.shared.freeze(dormant) {
            self.leave(myself, Leaving::Suspended(dormant));
        }
    }

    /// The code asks for something else than the log has: the run waits for better code.
    pub(crate) fn mismatch(&mut self, myself: &ActorRef<RunMsg>, mismatch: Mismatch) {
        if !matches!(self.ending, Ending::Working) {
            return;
        }
        if self.state().cancelling {
            of_run!(
                warn,
                self.shared,
                %mismatch,
                "the code of a cancelled run is dropped: it does not fit its journal"
            );
            return self.grace_over(myself);
        }
        self.leave(myself, Leaving::Parked { mismatch });
    }

    fn leave(&mut self, myself: &ActorRef<RunMsg>, leaving: Leaving) {
        self.ending = Ending::Leaving(leaving);
        // The commit follows when the code's task has ended: two lives never overlap.
        match self.code {
            Some(_) => self.abort_code(),
            None => self.pump(myself),
        }
    }

    /// Adds the commit of the end, or of leaving, if it is time for it.
    pub(crate) fn add_ending(&mut self, commit: &mut Commit) -> bool {
        match std::mem::replace(&mut self.ending, Ending::Working) {
            Ending::Decided(decided) => {
                let parent = &self.shared.parent;
                let outcome = add_end(
                    self.shared.node.owes_finish(parent),
                    parent,
                    decided,
                    &mut self.record,
                    &mut self.writer,
                    commit,
                );
                self.record_dirty = true;
                self.ending = Ending::Committing(RawEnd::Hard(outcome));
                true
            }
            Ending::Leaving(leaving) if self.code.is_none() => {
                if !self.add_leaving(&leaving, &mut commit.changes) {
                    self.ending = Ending::Lost;
                    return false;
                }
                self.ending = Ending::Committing(match leaving {
                    Leaving::Suspended(Dormant { due_ms, .. }) => RawEnd::Suspended { due_ms },
                    Leaving::Parked { mismatch } => {
                        RawEnd::Interrupted(self.add_interruption(&mismatch, &mut commit.entries))
                    }
                });
                true
            }
            other => {
                self.ending = other;
                false
            }
        }
    }

    fn add_interruption(&mut self, mismatch: &Mismatch, entries: &mut Vec<LogEntry>) -> RawOutcome {
        let reason = Some(InterruptReason::JournalMismatch);
        let interruption = Interruption { reason, child_still_running: Some(false) };
        let error = format!("{}: {mismatch}", self.shared.path);
        let error = text::cut(&error, text::REASON_BYTES_MAX);
        self.apply(Event::Interrupted(interruption));
        self.record.interrupted_error = Some(error.clone());
        entries.push(LogEntry::Interrupted { interruption, error: error.clone() });
        Outcome::NotCompleted(NotCompleted::Interrupted {
            error,
            reason,
            child_still_running: Some(false),
        })
    }

    /// The end, or leaving, is durable.
    pub(crate) fn ended(&mut self, myself: &ActorRef<RunMsg>) {
        let Ending::Committing(end) = std::mem::replace(&mut self.ending, Ending::Ended) else {
            return;
        };
        let node = &self.shared.node.clone();
        node.live.over(self.shared.run);
        match end {
            RawEnd::Hard(outcome) => {
                self.left = ENDED;
                tell_ended(node, &self.shared.parent, &self.record, &outcome);
            }
            RawEnd::Interrupted(outcome) => {
                self.left = PARKED;
                of_run!(warn, self.shared, "run parked: its code does not fit its journal");
                // Whoever comes now finds the interruption in the store, and is told nothing more.
                node.live.parked(self.shared.run);
                node.hub.ended(self.shared.run, &outcome);
                node.call_waiting(self.shared.run);
            }
            RawEnd::Suspended { due_ms } => {
                self.left = WAITING;
                of_run!(debug, self.shared, "run suspended");
                if let Some(due_ms) = due_ms {
                    node.timers.set(due_ms);
                }
                // What it waits for goes with it, and may be executed: its place is not free.
                if node.waits.suspended(self.shared.run) {
                    node.wake(self.shared.waiter());
                }
            }
        }
        self.answer_cancels();
        if self.code.is_none() {
            myself.stop(Some(self.left.into()));
        } else {
            // Its end is recorded; what it still does is for nobody.
            self.abort_code();
            node.live.stopping(self.shared.run);
        }
    }
}
