//! The futures that dispatch.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ghostlight_protocol::{Outcome, RunId};

use super::run::Run;
use super::{AgentHandle, DispatchId, Place, dispatch_options, prepare};
use crate::agent_ref::{AgentRef, DispatchOptions};
use crate::messages::{AgentMsg, RunRequest};
use crate::registry::BoxFuture;
use crate::shared::{Frozen, Shared};
use crate::{Agent, Child, Error};

/// A dispatch that waits for its outcome; see [`AgentHandle::run`].
#[must_use = "a run is not dispatched unless this is awaited"]
pub struct RunCall<A: Agent, C: Child> {
    agent: AgentHandle<A>,
    input: Option<C::Input>,
    pub(crate) options: DispatchOptions,
    cancel_on_drop: bool,
    /// The places of the dispatch and of the wait, inside a run.
    inside: Option<(DispatchId, Place)>,
    future: Option<BoxFuture<Result<Outcome<C::Output>, Error>>>,
}

impl<A: Agent, C: Child> Unpin for RunCall<A, C> {}

dispatch_options!(RunCall);

impl<A: Agent, C: Child> RunCall<A, C> {
    pub(crate) fn new(agent: AgentHandle<A>, input: C::Input) -> Self {
        let options = DispatchOptions::default();
        let places = |shared| (DispatchId::take(shared), Place::take(shared));
        let inside = agent.inside.as_ref().map(places);
        let cancel_on_drop = false;
        Self { agent, input: Some(input), options, cancel_on_drop, inside, future: None }
    }

    /// Cancels the run when this future is dropped before the run has ended. Inside a run, that is
    /// when its code drops the future or ends: a run that leaves memory, and is entered again
    /// later, cancels nothing.
    pub fn cancel_on_drop(mut self) -> Self {
        self.cancel_on_drop = true;
        self
    }

    fn begin(&mut self) -> BoxFuture<Result<Outcome<C::Output>, Error>> {
        let Some(input) = self.input.take() else {
            return Box::pin(std::future::pending());
        };
        if is_over(self.agent.inside.as_ref()) {
            return Box::pin(std::future::pending());
        }
        let agent = self.agent.agent.clone();
        let (id, place) = self.inside.take().unzip();
        let options = std::mem::take(&mut self.options);
        let start = match prepare::<C>(&agent, id, &input, options) {
            Ok(start) => start,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        drop(input);
        let run_id = start.run_id.to_string();
        let dispatcher = self.agent.inside.clone();
        let mut guard =
            self.cancel_on_drop.then(|| CancelOnDrop::new(&agent, &start.run_id, dispatcher));
        let waiter = place.as_ref().and_then(Place::waiter);
        Box::pin(async move {
            let dispatched = async {
                let started = agent.dispatch(&start).await?;
                match started.outcome {
                    Some(outcome) => Ok(outcome),
                    None => agent.outcome(&start.run_id, waiter.as_ref()).await,
                }
            };
            let outcome = match place {
                Some(place) => place.recorded_outcome(dispatched).await,
                None => dispatched.await,
            };
            // A refused dispatch has no run; the one that has the id is somebody else's.
            if let Some(guard) = &mut guard {
                guard.disarm();
            }
            read_output::<C>(&run_id, outcome?)
        })
    }
}

/// Whether the code that dispatches belongs to a run that has ended or left memory: it blocked its
/// thread meanwhile, could not be dropped, and must have no effect any more.
fn is_over(dispatcher: Option<&Arc<Shared>>) -> bool {
    dispatcher.is_some_and(|run| run.frozen().is_some())
}

/// Inside a run, a stop of the whole system is no result that the code should see: it is about to
/// be dropped, and is entered again by the next system.
pub(super) async fn unless_stopped<T>(result: Result<T, Error>) -> Result<T, Error> {
    match result {
        Err(Error::Stopped) => std::future::pending().await,
        result => result,
    }
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

impl<A: Agent, C: Child> Future for RunCall<A, C> {
    type Output = Result<Outcome<C::Output>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.future.is_none() {
            self.future = Some(self.begin());
        }
        match &mut self.future {
            Some(future) => future.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

struct CancelOnDrop {
    agent: AgentRef,
    run_id: RunId,
    /// The run whose code waits, if it is one.
    dispatcher: Option<Arc<Shared>>,
    armed: bool,
}

impl CancelOnDrop {
    fn new(agent: &AgentRef, run_id: &RunId, dispatcher: Option<Arc<Shared>>) -> Self {
        Self { agent: agent.clone(), run_id: run_id.clone(), dispatcher, armed: true }
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
            let (node, path, run_id) =
                (Arc::clone(&self.agent.node), self.agent.path.clone(), self.run_id.clone());
            self.agent.node.spawn(async move {
                let reason = "whoever waited for the run went away";
                let cancel = |reply| {
                    AgentMsg::Run(run_id.clone(), RunRequest::Cancel(reason.to_owned(), reply))
                };
                if let Err(error) = node.ask_inside(&path, cancel).await {
                    tracing::warn!(%run_id, agent = %path, %error, "run was not cancelled");
                }
            });
        }
    }
}

/// A dispatch that returns the run's handle; see [`AgentHandle::start`].
#[must_use = "a run is not dispatched unless this is awaited"]
pub struct Start<A: Agent, C: Child> {
    agent: AgentHandle<A>,
    input: Option<C::Input>,
    pub(crate) options: DispatchOptions,
    /// The places of the dispatch and of the wait for it, inside a run.
    places: Option<(DispatchId, Place)>,
    future: Option<BoxFuture<Result<Run<C>, Error>>>,
    kind: PhantomData<fn() -> C>,
}

impl<A: Agent, C: Child> Unpin for Start<A, C> {}

dispatch_options!(Start);

impl<A: Agent, C: Child> Start<A, C> {
    pub(crate) fn new(agent: AgentHandle<A>, input: C::Input) -> Self {
        let options = DispatchOptions::default();
        let places = |shared| (DispatchId::take(shared), Place::take(shared));
        let places = agent.inside.as_ref().map(places);
        Self { agent, input: Some(input), options, places, future: None, kind: PhantomData }
    }

    /// Lets the run go on by itself: it is not cancelled with the run that dispatches it.
    pub fn detached(mut self) -> Self {
        self.options.detached = true;
        self
    }

    fn begin(&mut self) -> BoxFuture<Result<Run<C>, Error>> {
        let Some(input) = self.input.take() else {
            return Box::pin(std::future::pending());
        };
        let AgentHandle { agent, inside, .. } = self.agent.clone();
        if is_over(inside.as_ref()) {
            return Box::pin(std::future::pending());
        }
        let options = std::mem::take(&mut self.options);
        let (id, place) = self.places.take().unzip();
        let start = match prepare::<C>(&agent, id, &input, options) {
            Ok(start) => start,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        Box::pin(async move {
            let dispatched =
                async { agent.dispatch(&start).await.map(|started| started.already_existed) };
            let already_existed = match place {
                Some(place) => place.recorded(dispatched).await?,
                None => dispatched.await?,
            };
            Ok(Run::new(agent, inside, start.run_id, already_existed))
        })
    }
}

impl<A: Agent, C: Child> Future for Start<A, C> {
    type Output = Result<Run<C>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.future.is_none() {
            self.future = Some(self.begin());
        }
        match &mut self.future {
            Some(future) => future.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

#[expect(dead_code, reason = "documents that handles may be shared between tasks")]
fn handles_are_send<A: Agent, C: Child>(call: RunCall<A, C>, run: Arc<Run<C>>) -> impl Send
where
    C::Input: Send,
{
    (call, run)
}
