//! The handle of one run.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ghostlight_protocol::{Outcome, RunId};

use super::awaited::Awaited;
use super::call::read_output;
use super::recorded::{Position, RecordedMilestone};
use crate::agent_ref::{AgentRef, milestone_timeout};
use crate::info::{Inspection, Milestone};
use crate::place;
use crate::shared::Shared;
use crate::tail::{After, Tail};
use crate::{Child, Error};

/// How long [`Run::milestone`] waits.
const MILESTONE_WAIT: Duration = Duration::from_secs(60);

/// The handle of a run. Cheap to clone; dropping it does nothing to the run.
pub struct Run<C> {
    agent: AgentRef,
    inside: Option<Arc<Shared>>,
    run_id: RunId,
    already_existed: bool,
    kind: PhantomData<fn() -> C>,
}

impl<C> Clone for Run<C> {
    fn clone(&self) -> Self {
        Self {
            agent: self.agent.clone(),
            inside: self.inside.clone(),
            run_id: self.run_id.clone(),
            already_existed: self.already_existed,
            kind: PhantomData,
        }
    }
}

impl<C> std::fmt::Debug for Run<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run")
            .field("parent", &self.agent.path)
            .field("run_id", &self.run_id)
            .finish_non_exhaustive()
    }
}

impl<C: Child> Run<C> {
    pub(crate) fn new(
        agent: AgentRef,
        inside: Option<Arc<Shared>>,
        run_id: RunId,
        already_existed: bool,
    ) -> Self {
        Self { agent, inside, run_id, already_existed, kind: PhantomData }
    }

    /// The position of a wait in the run whose code asks for it, if that is one.
    fn position(&self) -> Option<Position> {
        let user = place::current(&self.agent.node);
        user.as_ref().or(self.inside.as_ref()).map(Position::take)
    }

    /// The run's id.
    pub fn id(&self) -> &str {
        self.run_id.as_str()
    }

    /// Whether the id had been dispatched before this handle was made.
    pub fn already_existed(&self) -> bool {
        self.already_existed
    }

    /// Waits for the run's end. Inside a run, the outcome is recorded.
    ///
    /// # Errors
    /// [`Error::Json`] when the output does not fit the type, [`Error::Cleared`] when nothing is left
    /// of a run that had not been aborted, [`Error::Resting`] outside of runs when this system does
    /// not go on with it, failures of the store, a stopped system.
    ///
    /// # Cancel safety
    /// Dropping the future does nothing to the run.
    pub fn outcome(&self) -> impl Future<Output = Result<Outcome<C::Output>, Error>> + Send {
        let position = self.position();
        async move {
            let waiter = position.as_ref().and_then(Position::waiter);
            let wait = self.agent.outcome(&self.run_id, waiter.as_ref());
            let outcome = match position {
                Some(position) => {
                    let of = Awaited::outcome(&self.agent.path, &self.run_id, C::TYPE);
                    position.recorded_outcome(of, wait).await?
                }
                None => wait.await?,
            };
            read_output::<C>(self.id(), outcome)
        }
    }

    /// Waits for a milestone by its name, at most 60 s; one that was reached before counts. Inside a
    /// run, what comes of it is recorded, and the limit begins once: neither a suspension nor a
    /// crash extends it.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::NoMilestone`] when the run ends without it, [`Error::Resting`]
    /// outside of runs when this system does not go on with it, failures of the store.
    ///
    /// # Cancel safety
    /// Reads only.
    pub fn milestone(&self, name: &str) -> impl Future<Output = Result<Milestone, Error>> + Send {
        self.milestone_within(name, MILESTONE_WAIT)
    }

    /// Like [`Run::milestone`], with another limit.
    ///
    /// # Errors
    /// As [`Run::milestone`].
    ///
    /// # Cancel safety
    /// Reads only.
    pub fn milestone_within(
        &self,
        name: &str,
        within: Duration,
    ) -> impl Future<Output = Result<Milestone, Error>> + Send {
        let position = self.position();
        let limit = position.as_ref().and_then(Position::limit);
        async move {
            let waiter = position.as_ref().and_then(Position::waiter).zip(limit);
            let wait = self.agent.milestone(&self.run_id, name, within, waiter);
            let Some(position) = position else { return wait.await };
            let of = Awaited::milestone(&self.agent.path, &self.run_id, C::TYPE, name);
            let recorded = position.recorded(of, async {
                match wait.await {
                    Ok(milestone) => Ok(RecordedMilestone::Reached(milestone)),
                    // Both decide what the code does next.
                    Err(Error::NoMilestone { status, .. }) => Ok(RecordedMilestone::Ended(status)),
                    Err(Error::Timeout { .. }) => Ok(RecordedMilestone::Timeout),
                    Err(error) => Err(error),
                }
            });
            match recorded.await? {
                RecordedMilestone::Reached(milestone) => Ok(milestone),
                RecordedMilestone::Ended(status) => {
                    let (run_id, milestone) = (self.run_id.to_string(), name.to_owned());
                    Err(Error::NoMilestone { run_id, milestone, status })
                }
                RecordedMilestone::Timeout => Err(milestone_timeout(&self.run_id, name, within)),
            }
        }
    }

    /// The run's frames, from a point on: replay, then live, without gap or repeat. The code of a run
    /// may read it in a step only: outside one its first item is [`Error::TailOutsideStep`], since
    /// nothing records what it shows, nor when.
    pub fn tail(&self, after: After) -> Tail {
        self.agent.tail_known(&self.run_id, after)
    }

    /// Asks for the run to be cancelled; durable when it returns, and idempotent.
    ///
    /// # Errors
    /// Failures of the store, a stopped system.
    ///
    /// # Cancel safety
    /// Dropped before it returned, the request may or may not have been recorded.
    pub async fn cancel(&self, reason: &str) -> Result<(), Error> {
        self.agent.cancel(self.id(), reason).await
    }

    /// The run as it stands; `None` once it was cleared.
    ///
    /// # Errors
    /// Failures of the store, a stopped system.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn inspect(&self) -> Result<Option<Inspection>, Error> {
        self.agent.inspect(self.id()).await
    }
}
