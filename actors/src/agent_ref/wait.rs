//! Waiting for what becomes of a run.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ghostlight_protocol::frame::{Frame, FrameEvent, ReservedBody};
use ghostlight_protocol::{Phase, RunId, Status};

use super::AgentRef;
use crate::Error;
use crate::hub::Leave;
use crate::info::{Milestone, RawOutcome};
use crate::lanes::{self, Stored, outcome};
use crate::messages::RunRequest;
use crate::place::{self, Awaiting};
use crate::probe::Answer;
use crate::shared::Shared;
use crate::sleep::TimeLimit;
use crate::tail::{After, Stage};
use crate::waits::Waiting;

impl AgentRef {
    /// How a run ended of which nothing is left.
    pub(crate) async fn outcome_of_cleared(&self, run_id: &RunId) -> Result<RawOutcome, Error> {
        lanes::outcome_of_cleared(&self.node.committer, self.run_key(run_id), run_id).await
    }

    /// Waits for a run's end; `waiter` is the run that does, if its wait is recorded.
    pub(crate) async fn outcome(
        &self,
        run_id: &RunId,
        waiter: Option<&Arc<Shared>>,
    ) -> Result<RawOutcome, Error> {
        let outcome = self.end_of(run_id, waiter).await?;
        self.answered(run_id, Answer::Outcome(&outcome));
        Ok(outcome)
    }

    async fn end_of(
        &self,
        run_id: &RunId,
        waiter: Option<&Arc<Shared>>,
    ) -> Result<RawOutcome, Error> {
        let run = self.run_key(run_id);
        let mut waiting = waiter.map(|shared| Waiting::register(shared, run, None));
        let _awaiting = Awaiting::begin(&self.node);
        let _leave = Leave::new(&self.node, run);
        // Before the record is read, so that no end falls between the two.
        let end = self.node.hub.outcome(run);
        let mut goes_on = None;
        loop {
            let Some(stored) = Stored::read_key(&self.node.committer, run).await? else {
                return self.outcome_of_cleared(run_id).await;
            };
            let outcome = outcome(&self.node.committer, run, &stored.record).await?;
            match outcome {
                Some(outcome) if outcome.status().is_hard() => return Ok(outcome),
                // Parked: nobody comes to another end of it as long as this process lives.
                Some(outcome) if goes_on == Some(false) => return Ok(outcome),
                _ if goes_on.is_some() || self.node.live.is_executed(run) => break,
                // Nobody executes it: if it cannot be brought back, its end would never come.
                _ => {
                    let recover = |reply| RunRequest::Recover(Some(reply));
                    goes_on = Some(self.ask(run_id, recover).await?);
                }
            }
        }
        if let Some(waiting) = &mut waiting {
            waiting.settle();
        }
        let end = tokio::select! {
            biased;
            end = end => end.unwrap_or_else(|_| Err(self.node.gone())),
            error = self.resting(run_id) => Err(error),
        };
        place::unless_stopped(&self.node, end).await
    }

    /// Ready if this system does not go on with the run, which somebody from outside waits for. A run
    /// that does goes on with a later system, as it does after a stop: what it would be told is about
    /// this one, and could be recorded.
    async fn resting(&self, run_id: &RunId) -> Error {
        if !self.node.rests(&self.path) || place::is_run(&self.node) {
            return std::future::pending().await;
        }
        match self.is_left(run_id).await {
            Ok(true) => Error::Resting(run_id.to_string()),
            Err(error) => error,
            // Its end is told, or its being cleared.
            Ok(false) => std::future::pending().await,
        }
    }

    async fn is_left(&self, run_id: &RunId) -> Result<bool, Error> {
        if self.ask(run_id, |reply| RunRequest::Recover(Some(reply))).await? {
            return Ok(false);
        }
        // It may have been cancelled since it was read.
        let run = self.run_key(run_id);
        let stored = Stored::read_key(&self.node.committer, run).await?;
        let is_live = stored.is_some_and(|s| !matches!(s.record.state.phase, Phase::Ended(_)));
        Ok(is_live && !self.node.live.is_executed(run))
    }

    /// Waits for a run's milestone; `waiter` is the run that does, with the position of the time limit
    /// among its sleeps, if its wait is recorded.
    pub(crate) async fn milestone(
        &self,
        run_id: &RunId,
        name: &str,
        within: Duration,
        waiter: Option<(Arc<Shared>, u64)>,
    ) -> Result<Milestone, Error> {
        let run = self.run_key(run_id);
        let mut waiting =
            waiter.as_ref().map(|(shared, _)| Waiting::register(shared, run, Some(name)));
        let limit =
            waiter.as_ref().map(|(shared, ordinal)| TimeLimit::begin(shared, *ordinal, within));
        let mut timer = pin!(tokio::time::sleep(limit.as_ref().map_or(within, |limit| limit.left)));
        // What is found when the limit is over, by a run that was out of memory, says whether it came
        // in time. Until then the timer decides: the wall clock may have been set back.
        let is_late =
            |at: u64| limit.as_ref().is_some_and(|limit| limit.left.is_zero() && at > limit.due_ms);
        let timeout = || Err(milestone_timeout(run_id, name, within));
        let mut tail = self.tail_known(run_id, After::START);
        let mut resting = pin!(self.resting(run_id));
        let ended_without = |status| Error::NoMilestone {
            run_id: run_id.to_string(),
            milestone: name.to_owned(),
            status,
        };
        let reached = poll_fn(|cx| {
            while let Poll::Ready(frame) = tail.poll_frame(cx) {
                let found = match frame {
                    Some(Ok(frame)) => match reached(&frame, name) {
                        Ok(None) => continue,
                        Ok(Some(milestone)) if is_late(milestone.at) => timeout(),
                        Ok(Some(milestone)) => {
                            self.answered(run_id, Answer::Milestone(&milestone));
                            Ok(milestone)
                        }
                        Err(status) => Err(ended_without(status)),
                    },
                    Some(Err(Error::Stopped)) if place::is_run(&self.node) => return Poll::Pending,
                    Some(Err(error)) => Err(error),
                    None => Err(self.node.gone()),
                };
                return Poll::Ready(found);
            }
            match tail.stage() {
                // What was reached before counts, however late it is read.
                Stage::Reading => return Poll::Pending,
                Stage::Hidden => {}
                Stage::Live => {
                    if let Some(waiting) = &mut waiting {
                        waiting.settle();
                    }
                }
            }
            if let Poll::Ready(error) = resting.as_mut().poll(cx) {
                return Poll::Ready(Err(error));
            }
            timer.as_mut().poll(cx).map(|()| timeout())
        })
        .await;
        match reached {
            Err(Error::Cleared(_)) => {
                let ended = self.outcome_of_cleared(run_id).await;
                Err(ended.map_or_else(|error| error, |end| ended_without(end.status())))
            }
            reached => reached,
        }
    }
}

/// The milestone of this name, if the frame is it, or the status of a run that ends without it.
fn reached(frame: &Frame, name: &str) -> Result<Option<Milestone>, Status> {
    match &frame.event {
        FrameEvent::Chunk { body, .. } => match ReservedBody::parse(body) {
            Some(ReservedBody::Milestone(milestone)) if milestone.name == name => {
                Ok(Some(Milestone {
                    name: milestone.name,
                    sequence: milestone.sequence,
                    at: milestone.at_ms,
                    data: milestone.data,
                }))
            }
            _ => Ok(None),
        },
        FrameEvent::Started { .. } => Ok(None),
        FrameEvent::Finished { .. } => Err(Status::Completed),
        FrameEvent::Error { .. } => Err(Status::Error),
        FrameEvent::Aborted { .. } => Err(Status::Aborted),
        FrameEvent::Interrupted { .. } => Err(Status::Interrupted),
    }
}

pub(crate) fn milestone_timeout(run_id: &RunId, name: &str, within: Duration) -> Error {
    Error::Timeout { what: format!("milestone {name:?} of run {run_id:?}"), after: within }
}
