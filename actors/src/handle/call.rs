//! The futures that dispatch.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ghostlight_protocol::{Outcome, RunKey};

use super::awaited::Awaited;
use super::run::Run;
use super::{AgentHandle, DispatchId, Position, dispatch_options, prepare};
use crate::agent_ref::{AgentRef, DispatchOptions};
use crate::lanes::{Stored, joins};
use crate::messages::{AgentMsg, RunRequest, StartRun};
use crate::registry::BoxFuture;
use crate::shared::{Frozen, Shared};
use crate::{Agent, Child, Error};

/// What every dispatch is made of, until it is polled.
pub(super) struct Dispatch<A: Agent, C: Child> {
    agent: AgentHandle<A>,
    input: Option<C::Input>,
    pub(super) options: DispatchOptions,
    /// The positions of the dispatch and of the wait, inside a run.
    positions: Option<(DispatchId, Position)>,
}

/// A dispatch that was checked.
struct Prepared {
    agent: AgentRef,
    /// The run whose code was given the handle, if it was.
    inside: Option<Arc<Shared>>,
    /// The run whose code dispatches, if it is one.
    dispatcher: Option<Arc<Shared>>,
    start: StartRun,
    position: Option<Position>,
}

impl<A: Agent, C: Child> Dispatch<A, C> {
    fn new(agent: AgentHandle<A>, input: C::Input) -> Self {
        let options = DispatchOptions::default();
        let user = agent.user();
        let positions =
            user.map(|run| (DispatchId::take(&run, agent.path()), Position::take(&run)));
        Self { agent, input: Some(input), options, positions }
    }

    /// The future that `begin` makes of the dispatch once it is checked.
    fn begin<T: Send + 'static>(
        &mut self,
        begin: impl FnOnce(Prepared) -> BoxFuture<Result<T, Error>>,
    ) -> BoxFuture<Result<T, Error>> {
        let AgentHandle { agent, inside, .. } = self.agent.clone();
        let dispatcher = self.positions.as_ref().map(|(_, position)| position.run());
        // Code of a run that has ended or left memory has blocked its thread meanwhile, could not be
        // dropped, and must have no effect any more.
        let is_over = dispatcher.as_ref().is_some_and(|run| run.frozen().is_some());
        let Some(input) = self.input.take().filter(|_| !is_over) else {
            return Box::pin(std::future::pending());
        };
        let (id, position) = self.positions.take().unzip();
        match prepare::<C>(&agent, id, &input, std::mem::take(&mut self.options)) {
            Ok(start) => begin(Prepared { agent, inside, dispatcher, start, position }),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}

/// A dispatch that waits for its outcome; see [`AgentHandle::run`].
#[must_use = "a run is not dispatched unless this is awaited"]
pub struct RunCall<A: Agent, C: Child> {
    dispatch: Dispatch<A, C>,
    cancel_on_drop: bool,
    future: Option<BoxFuture<Result<Outcome<C::Output>, Error>>>,
}

impl<A: Agent, C: Child> Unpin for RunCall<A, C> {}

dispatch_options!(RunCall);

impl<A: Agent, C: Child> RunCall<A, C> {
    pub(crate) fn new(agent: AgentHandle<A>, input: C::Input) -> Self {
        Self { dispatch: Dispatch::new(agent, input), cancel_on_drop: false, future: None }
    }

    /// Cancels the run when this future is dropped before the run has ended; never one that has the
    /// id and that this dispatch would not have joined. Inside a run, that is when its code drops the
    /// future or ends: a run that leaves memory, and is entered again later, cancels nothing.
    pub fn cancel_on_drop(mut self) -> Self {
        self.cancel_on_drop = true;
        self
    }
}

impl<A: Agent, C: Child> Future for RunCall<A, C> {
    type Output = Result<Outcome<C::Output>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { dispatch, cancel_on_drop, future } = &mut *self;
        let future = future.get_or_insert_with(|| {
            dispatch.begin(|prepared| Box::pin(outcome_of::<C>(prepared, *cancel_on_drop)))
        });
        future.as_mut().poll(cx)
    }
}

async fn outcome_of<C: Child>(
    prepared: Prepared,
    cancel_on_drop: bool,
) -> Result<Outcome<C::Output>, Error> {
    let Prepared { agent, dispatcher, start, position, .. } = prepared;
    let is_inside = dispatcher.is_some();
    let waiter = position.as_ref().and_then(Position::waiter);
    let mut guard = cancel_on_drop.then(|| CancelOnDrop::new(&agent, &start, dispatcher));
    let dispatched = async {
        let started = match agent.dispatch(&start, is_inside).await {
            // An earlier entry may have dispatched it, and is told what it would have been told in
            // memory.
            Err(Error::Cleared(_)) if waiter.is_some() => {
                return agent.outcome_of_cleared(&start.run_id).await;
            }
            started => started?,
        };
        match started.outcome {
            Some(outcome) => Ok(outcome),
            None => agent.outcome(&start.run_id, waiter.as_ref()).await,
        }
    };
    let outcome = match position {
        Some(position) => {
            position.recorded_outcome(Awaited::run(&agent.path, &start), dispatched).await
        }
        None => dispatched.await,
    };
    // A refused dispatch has no run; the one that has the id is somebody else's.
    if let Some(guard) = &mut guard {
        guard.disarm();
    }
    read_output::<C>(start.run_id.as_str(), outcome?)
}

pub(super) fn read_output<C: Child>(
    run_id: &str,
    outcome: crate::info::RawOutcome,
) -> Result<Outcome<C::Output>, Error> {
    outcome.try_map(|output| {
        serde_json::from_slice(&output).map_err(|error| Error::Json {
            run_id: run_id.to_owned(),
            what: "output",
            why: error.to_string(),
        })
    })
}

struct CancelOnDrop {
    agent: AgentRef,
    start: StartRun,
    /// The run whose code waits, if it is one.
    dispatcher: Option<Arc<Shared>>,
    armed: bool,
}

impl CancelOnDrop {
    fn new(agent: &AgentRef, start: &StartRun, dispatcher: Option<Arc<Shared>>) -> Self {
        Self { agent: agent.clone(), start: start.clone(), dispatcher, armed: true }
    }

    fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let goes_on = |run: &Arc<Shared>| match run.frozen() {
            Some(Frozen::Suspended | Frozen::Left) => true,
            Some(Frozen::Ended) | None => false,
        };
        if self.armed && !self.dispatcher.as_ref().is_some_and(goes_on) {
            let (agent, start) = (self.agent.clone(), self.start.clone());
            self.agent.node.spawn(async move {
                if let Err(error) = cancel_dispatched(&agent, &start).await {
                    let run_id = &start.run_id;
                    tracing::warn!(%run_id, agent = %agent.path, %error, "run was not cancelled");
                }
            });
        }
    }
}

/// Cancels the run of a dispatch that was dropped, perhaps before it was answered: if it was refused,
/// the run that has the id is somebody else's.
async fn cancel_dispatched(agent: &AgentRef, start: &StartRun) -> Result<(), Error> {
    let AgentRef { node, path, .. } = agent;
    let run_id = &start.run_id;
    // Requests for a run are decided in their order, and the dispatch came first.
    let inspect = |reply| AgentMsg::Run(run_id.clone(), RunRequest::Inspect(reply));
    node.ask_inside(path, inspect).await?;
    let stored = Stored::read_key(&node.committer, RunKey::new(path, run_id)).await?;
    if stored.is_none_or(|stored| joins(&stored.record, start, false).is_err()) {
        return Ok(());
    }
    let cancel = |reply| {
        let reason = "whoever waited for the run went away".to_owned();
        AgentMsg::Run(run_id.clone(), RunRequest::Cancel(reason, reply))
    };
    node.ask_inside(path, cancel).await
}

/// A dispatch that returns the run's handle; see [`AgentHandle::start`].
#[must_use = "a run is not dispatched unless this is awaited"]
pub struct Start<A: Agent, C: Child> {
    dispatch: Dispatch<A, C>,
    future: Option<BoxFuture<Result<Run<C>, Error>>>,
}

impl<A: Agent, C: Child> Unpin for Start<A, C> {}

dispatch_options!(Start);

impl<A: Agent, C: Child> Start<A, C> {
    pub(crate) fn new(agent: AgentHandle<A>, input: C::Input) -> Self {
        Self { dispatch: Dispatch::new(agent, input), future: None }
    }

    /// Lets the run go on by itself: it is not cancelled with the run that dispatches it.
    pub fn detached(mut self) -> Self {
        self.dispatch.options.detached = true;
        self
    }
}

impl<A: Agent, C: Child> Future for Start<A, C> {
    type Output = Result<Run<C>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { dispatch, future } = &mut *self;
        let future =
            future.get_or_insert_with(|| dispatch.begin(|prepared| Box::pin(handle_of(prepared))));
        future.as_mut().poll(cx)
    }
}

async fn handle_of<C: Child>(prepared: Prepared) -> Result<Run<C>, Error> {
    let Prepared { agent, inside, dispatcher, start, position } = prepared;
    let dispatched = async {
        let started = agent.dispatch(&start, dispatcher.is_some()).await?;
        Ok(started.already_existed)
    };
    let already_existed = match position {
        Some(position) => {
            position.recorded(Awaited::start(&agent.path, &start), dispatched).await?
        }
        None => dispatched.await?,
    };
    Ok(Run::new(agent, inside, start.run_id, already_existed))
}

#[expect(dead_code, reason = "documents that handles may be shared between tasks")]
fn handles_are_send<A: Agent, C: Child>(call: RunCall<A, C>, run: Arc<Run<C>>) -> impl Send
where
    C::Input: Send,
{
    (call, run)
}
