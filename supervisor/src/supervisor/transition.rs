//! How children start and end.

use std::time::Duration;

use ractor::ActorId;
use tokio::time::{Instant, sleep_until};

use super::actor::{Report, StopMode};
use super::child::{Phase, Starting};
use super::job::Job;
use super::state::State;
use super::sweep::Mode;
use crate::exit::{Escalated, ExitNotice, ExitReason, guarded};
use crate::restart::{Decision, End, RestartPolicy};
use crate::strategy::Place;

impl State {
    /// Starts a child.
    pub(super) fn launch(&mut self, place: Place) {
        let Some(child) = self.children.get_mut(&place) else { return };
        child.start += 1;
        child.stopping = None;
        let reporter = self.reporter(place);
        let supervisor = self.myself.get_cell();
        self.note_start();
        if let Some(child) = self.children.get_mut(&place) {
            child.phase = Phase::Starting(Starting::begin(&child.spec, supervisor, reporter));
        }
    }

    /// Stops whatever a child is doing. One that is not alive ends at once, if it is not to live on.
    pub(super) fn stop(&mut self, place: Place, mode: StopMode) {
        let reporter = self.reporter(place);
        let closing = matches!(self.mode, Mode::Closing { .. });
        let Some(child) = self.children.get_mut(&place) else { return };
        match child.phase {
            Phase::Starting(_) | Phase::Alive(_) => child.stop(mode, &reporter),
            Phase::Idle | Phase::BackingOff { .. } => {
                if closing || child.removing {
                    self.end(place, None, ExitReason::Cancelled, Duration::ZERO);
                }
            }
        }
    }

    /// Takes note of a start that gave no child.
    pub(super) fn end_start(&mut self, place: Place, reason: ExitReason) {
        self.end(place, None, reason, Duration::ZERO);
    }

    /// Takes note of a child whose task has ended.
    pub(super) fn end_alive(&mut self, place: Place) {
        let Some(child) = self.children.get_mut(&place) else { return };
        if let Phase::Alive(alive) = std::mem::replace(&mut child.phase, Phase::Idle) {
            let (actor, reason, ran) = alive.outcome();
            self.unregister(actor);
            self.end(place, Some(actor), reason, ran);
        }
    }

    /// Decides what follows, gives notice, and only then acts.
    fn end(&mut self, place: Place, actor: Option<ActorId>, reason: ExitReason, ran: Duration) {
        let Some((decision, swept)) = self.decide(place, &reason, ran) else { return };
        self.notify(place, actor, &reason, decision);
        self.answer_adder(place, &reason, decision);
        match decision {
            Decision::Restart { .. } if swept => {}
            Decision::Restart { after } => match self.strategy.restarted_from(place) {
                Some(first) => self.begin_sweep(first, deadline(after)),
                None => self.back_off(place, after),
            },
            Decision::Remove => self.forget(place, &reason),
            Decision::Escalate => {
                let Some(child) = self.children.get_mut(&place) else { return };
                // It is not given up in the sense of the boot, which fails with us.
                child.booting = false;
                let escalated = Escalated { child: child.spec.id.clone(), reason };
                self.forget(place, &escalated.reason);
                self.begin_close(Some(escalated));
            }
        }
    }

    /// Decides what follows the end of a child, and says whether it is due to a sweep.
    fn decide(
        &mut self,
        place: Place,
        reason: &ExitReason,
        ran: Duration,
    ) -> Option<(Decision, bool)> {
        let now = self.epoch.elapsed();
        let swept = self.mode.stops(place);
        let closing = matches!(self.mode, Mode::Closing { .. });
        let child = self.children.get_mut(&place)?;
        if closing || child.removing {
            return Some((Decision::Remove, false));
        }
        if let Some(due) = swept {
            // It ends because another one has failed, which is not counted against it.
            let decision = match child.spec.rule.policy {
                RestartPolicy::Permanent | RestartPolicy::Transient => {
                    Decision::Restart { after: due.saturating_duration_since(Instant::now()) }
                }
                RestartPolicy::Temporary => Decision::Remove,
            };
            return Some((decision, true));
        }
        let end = End { kind: reason.kind(), ran, now, draw: child.rng.u64(..) };
        let (decision, history) = child.spec.rule.decide(std::mem::take(&mut child.history), end);
        child.history = history;
        Some((decision, false))
    }

    fn notify(
        &self,
        place: Place,
        actor: Option<ActorId>,
        reason: &ExitReason,
        decision: Decision,
    ) {
        let Some(child) = self.children.get(&place) else { return };
        let id = &child.spec.id;
        match (reason, decision) {
            // Nothing has ended, and nothing has been given up.
            (ExitReason::Cancelled, Decision::Restart { .. }) => return,
            (_, Decision::Escalate) => tracing::error!(child = %id, %reason, "child given up"),
            (ExitReason::Normal(_) | ExitReason::Restart | ExitReason::Cancelled, _) => {
                tracing::debug!(child = %id, %reason, ?decision, "child ended");
            }
            _ => tracing::warn!(child = %id, %reason, ?decision, "child ended"),
        }
        if let Some(on_exit) = &self.on_exit {
            let notice = ExitNotice { id: id.clone(), actor, reason: reason.clone(), decision };
            if guarded(|| on_exit(notice)).is_none() {
                tracing::error!(child = %id, "exit callback panicked");
            }
        }
    }

    fn back_off(&mut self, place: Place, after: Duration) {
        if after.is_zero() {
            self.launch(place);
            return;
        }
        let reporter = self.reporter(place);
        let Some(child) = self.children.get_mut(&place) else { return };
        let until = deadline(after);
        let timer = Job::spawn(async move {
            sleep_until(until).await;
            reporter.report(Report::BackoffOver);
        });
        child.phase = Phase::BackingOff { _timer: timer };
    }

    /// Ends all children in order without hearing from them: the mailbox is closed by now.
    pub(super) async fn stop_unheard(&mut self) {
        if self.children.is_empty() {
            return;
        }
        self.begin_close(None);
        while let Some(place) = self.children.keys().next_back().copied() {
            self.stop(place, StopMode::Drain);
            let Some(child) = self.children.get_mut(&place) else { continue };
            match std::mem::replace(&mut child.phase, Phase::Idle) {
                Phase::Idle | Phase::BackingOff { .. } => {}
                Phase::Starting(starting) => {
                    // Whatever it links from now on is refused by ractor.
                    starting.cancelled().await;
                    self.end_start(place, ExitReason::Cancelled);
                }
                Phase::Alive(mut alive) => {
                    alive.task_ended().await;
                    let (actor, reason, ran) = alive.outcome();
                    self.end(place, Some(actor), reason, ran);
                }
            }
        }
    }
}

/// The point in time after a wait; far away if the clock cannot express it.
fn deadline(after: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(after).unwrap_or_else(|| now + Duration::from_secs(86_400 * 365 * 30))
}
