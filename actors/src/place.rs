//! Places among the runs that a system executes at once.
//!
//! Code has a place whenever it is polled, and while it stands still for anything but another run.
//! While it waits for another run it has none: else runs that wait could hold all the places that the
//! others need, and none would ever end. Such a wait is noticed where the code is polled, whatever
//! handle it waits by.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use tokio::sync::OwnedSemaphorePermit;

use crate::Error;
use crate::node::Node;
use crate::registry::BoxFuture;
use crate::shared::Shared;

/// A place that was found; `None` for what is to find one itself.
pub(crate) type Permit = Option<Arc<OwnedSemaphorePermit>>;

tokio::task_local! {
    /// The run whose code is being polled.
    static RUN: Arc<Shared>;
}

/// Polls something as the code of a run.
pub(crate) fn as_run<T>(shared: &Arc<Shared>, poll: impl FnOnce() -> T) -> T {
    RUN.sync_scope(Arc::clone(shared), poll)
}

/// The run of this system whose code asks.
pub(crate) fn current(node: &Arc<Node>) -> Option<Arc<Shared>> {
    RUN.try_with(|run| Arc::ptr_eq(&run.node, node).then(|| Arc::clone(run))).ok().flatten()
}

/// Whether the code of a run of this system asks. It never waits for the place of another one before
/// that is recorded: woken by it, it could not be polled without a place of its own.
pub(crate) fn is_run(node: &Arc<Node>) -> bool {
    current(node).is_some()
}

/// What the code of a run is told. A stop of the system is nothing that it should see: whatever it
/// did about it could be recorded, and it is about to be dropped, and entered again by the next
/// system.
pub(crate) async fn unless_stopped<T>(
    node: &Arc<Node>,
    told: Result<T, Error>,
) -> Result<T, Error> {
    match told {
        Err(Error::Stopped) if is_run(node) => std::future::pending().await,
        told => told,
    }
}

/// Whether the code of a run of this system asks, outside of its steps: then nothing records what it
/// is told, unless whoever tells it does.
pub(crate) fn is_between_steps(node: &Arc<Node>) -> bool {
    current(node).is_some_and(|run| run.lock().current_step.is_none())
}

/// While it lives, the code that has made it waits for another run. Made outside of runs, it does
/// nothing.
pub(crate) struct Awaiting {
    run: Option<Arc<Shared>>,
}

impl Awaiting {
    pub(crate) fn begin(node: &Arc<Node>) -> Self {
        let run = current(node);
        if let Some(run) = &run {
            run.awaiting.fetch_add(1, Ordering::Relaxed);
        }
        Self { run }
    }
}

impl Drop for Awaiting {
    fn drop(&mut self) {
        if let Some(run) = &self.run {
            run.awaiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// While it lives, the run whose code has made it stays in memory: what the code asks an agent for
/// would be put off until it is entered again.
pub(crate) struct Asking(Option<Arc<Shared>>);

/// Begins an [`Asking`], which does nothing outside of runs.
pub(crate) fn asking(node: &Arc<Node>) -> Asking {
    let run = current(node);
    if let Some(run) = &run {
        run.lock().waits += 1;
    }
    Asking(run)
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(run) = &self.0 {
            run.lock().waits -= 1;
        }
    }
}

/// The place of a run's code.
pub(crate) enum CodePlace {
    Held { _permit: Permit },
    Given,
    Wanted(BoxFuture<Permit>),
}

impl CodePlace {
    pub(crate) fn new(permit: Permit) -> Self {
        match permit {
            Some(_) => Self::Held { _permit: permit },
            None => Self::Given,
        }
    }

    /// Waits for a place, if the code has none.
    pub(crate) fn poll(&mut self, shared: &Arc<Shared>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match self {
                Self::Held { .. } => return Poll::Ready(()),
                Self::Given => *self = Self::Wanted(Box::pin(wanted(Arc::clone(shared)))),
                Self::Wanted(place) => {
                    *self = Self::Held { _permit: ready!(place.as_mut().poll(cx)) };
                }
            }
        }
    }

    /// Gives the place away if the code, which stands still, waits for another run.
    pub(crate) fn stands_still(&mut self, shared: &Shared) {
        if shared.awaiting.load(Ordering::Relaxed) > 0 {
            *self = Self::Given;
        }
    }
}

async fn wanted(shared: Arc<Shared>) -> Permit {
    tokio::select! {
        biased;
        // Its grace time has begun, and does not wait.
        () = shared.cancelled.cancelled() => None,
        // An error: the system stops, or can record nothing any more.
        permit = shared.node.free_place() => permit.ok().flatten(),
    }
}

impl Node {
    async fn free_place(&self) -> Result<Permit, Error> {
        let permit = Arc::clone(&self.runnable).acquire_owned().await;
        permit.map(|permit| Some(Arc::new(permit))).map_err(|_| self.gone())
    }

    /// Waits for a place for a run that is to be entered. None is while the system drains.
    pub(crate) async fn permit(&self) -> Result<Permit, Error> {
        let permit = self.free_place().await?;
        match self.is_draining() {
            true => Err(self.gone()),
            false => Ok(permit),
        }
    }

    /// As [`Node::permit`], if there is a place at once.
    pub(crate) fn permit_now(&self) -> Permit {
        let permit = Arc::clone(&self.runnable).try_acquire_owned().ok();
        permit.filter(|_| !self.is_draining()).map(Arc::new)
    }
}
