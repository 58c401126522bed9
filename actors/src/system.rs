//! The actor system of one process.

mod builder;
mod recover;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ghostlight_protocol::{AgentPath, RunId, RunKey};
use ghostlight_storage as storage;
use ghostlight_supervisor::{ExitNotice, ExitReason};
use storage::CommitterHandle;

pub use self::builder::SystemBuilder;
pub(crate) use self::builder::open_spare;

use crate::agent_ref::AgentRef;
use crate::messages::{AgentMsg, RunExit};
use crate::node::Node;
use crate::run_actor::ending::{ENDED, PARKED, WAITING};
use crate::{Agent, AgentHandle, Error};

/// The actor system of one process. Cheap to clone.
///
/// Several systems live in one process without seeing each other. When the last clone is dropped,
/// the system stops where it stands, as if the process had been killed: what is durable stays, and
/// the next system on the same store goes on. [`System::shutdown`] lets running work come to an end
/// first.
#[derive(Clone)]
pub struct System {
    inner: Arc<Inner>,
}

struct Inner {
    node: Arc<Node>,
    committer: std::sync::Mutex<Option<CommitterHandle>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Handles keep the node alive, but not the store open.
        self.node.committer.fence();
        self.node.stop_now();
    }
}

impl System {
    /// Builds a system on the folder `path`, created if it is missing: the sled store, every commit
    /// synced before it is acknowledged.
    pub fn open(path: impl Into<std::path::PathBuf>) -> SystemBuilder {
        SystemBuilder::open(path.into())
    }

    /// Builds a system whose store is gone with it: for tests and experiments.
    pub fn in_memory() -> SystemBuilder {
        SystemBuilder::in_memory()
    }

    /// Builds a system on any store.
    pub fn on_store(store: impl storage::Store) -> SystemBuilder {
        SystemBuilder::on_store(store)
    }

    /// The agent of type `A` with this name; it need not exist yet.
    ///
    /// # Errors
    /// An invalid name, and [`Error::UnknownType`].
    pub fn agent<A: Agent>(&self, name: &str) -> Result<AgentHandle<A>, Error> {
        let path = AgentPath::root(A::TYPE, name)?;
        self.inner.node.kinds.get(A::TYPE)?;
        Ok(AgentHandle::outside(Arc::clone(&self.inner.node), path))
    }

    /// The agent at an address, without its type.
    ///
    /// # Errors
    /// [`Error::UnknownType`].
    pub fn agent_at(&self, path: &AgentPath) -> Result<AgentRef, Error> {
        self.inner.node.kinds.get(path.agent_type())?;
        Ok(AgentRef::new(Arc::clone(&self.inner.node), path.clone()))
    }

    /// The registered agent types, in the order of their names.
    pub fn agent_types(&self) -> Vec<String> {
        self.inner.node.kinds.names()
    }

    /// The settings of a registered agent type.
    ///
    /// # Errors
    /// [`Error::UnknownType`].
    pub fn agent_settings(&self, agent_type: &str) -> Result<crate::AgentSettings, Error> {
        Ok(self.inner.node.kinds.get(agent_type)?.settings.clone())
    }

    /// The addresses of all agents that have runs.
    ///
    /// # Errors
    /// Failures of the store.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn agents(&self) -> Result<Vec<AgentPath>, Error> {
        crate::list::parents(&self.inner.node.committer).await
    }

    /// At most `limit` addresses of agents that have runs, after `after`: a page for those who may not
    /// hold them all. Fewer than `limit` are the last ones. The order is always the same, and is not
    /// that of the addresses; `after` need not have runs any more.
    ///
    /// # Errors
    /// Failures of the store.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn agents_after(
        &self,
        after: Option<&AgentPath>,
        limit: usize,
    ) -> Result<Vec<AgentPath>, Error> {
        crate::list::parents_after(&self.inner.node.committer, after, limit).await
    }

    /// The addresses of the agents in memory.
    pub fn agents_in_memory(&self) -> Vec<AgentPath> {
        self.inner.node.agents.ids().into_iter().map(|(path, _)| path).collect()
    }

    /// How many runs are being executed in this process.
    pub fn live_runs(&self) -> usize {
        self.inner.node.live.len()
    }

    /// Why the store accepts no writes any more; `None` while it does. After a failure nothing goes
    /// on, and everybody who waits is told so: start the system again on the same data. A part of the
    /// system that has ended by a bug of ours is such a failure, too.
    pub fn failure(&self) -> Option<storage::Error> {
        self.inner.node.failure().cloned()
    }

    /// What the store has done since the system started.
    pub fn commits(&self) -> storage::CommitterStats {
        self.inner.node.committer.stats()
    }

    /// Stops the system: takes no new work, waits for the runs that are being executed, and for the
    /// hooks and turns that are due, at most as long as the limits say (10 s), and closes the store.
    /// Runs that have not ended by then go on with the next system, as after a crash, and so do
    /// deliveries that are still owed.
    ///
    /// Returns how many runs were still being executed when that time was over, and were dropped where
    /// they stood: 0 if all that was at work has come to rest. A run whose end is being recorded at
    /// that moment counts, whichever comes first. Not counted is what is not in memory, and goes on all
    /// the same: runs that wait for a slot, a sleep or other runs, those whose code was not entered yet,
    /// and those that have left memory meanwhile, as a run does after 1 s whose child is not entered any
    /// more. Nor is a run that has ended, and whose code is still to be gone.
    ///
    /// Code that blocks a worker thread cannot be dropped: it is waited for beyond that limit, since
    /// the store is closed when nothing of the system is left. Use `step_blocking` for such code.
    ///
    /// # Cancel safety
    /// Dropped, the system may go on draining; calling it again is fine.
    pub async fn shutdown(self) -> usize {
        self.drain().await;
        let node = &self.inner.node;
        let left = node.live.unfinished();
        node.stop().await;
        if let Err(error) = self.close_store().await {
            tracing::error!(%error, "the store was not closed in order");
        }
        left
    }

    /// The first part of [`System::shutdown`]: takes no new work, and waits for what is being executed
    /// and due, at most as long. The store stays open, so that runs are still shown, tailed and
    /// cancelled: for whoever serves them, and has to stop that before the store is closed.
    ///
    /// # Cancel safety
    /// Dropped, the system goes on draining; calling it again is fine.
    pub async fn drain(&self) {
        let node = &self.inner.node;
        node.draining.store(true, Ordering::Release);
        let drained = async {
            node.live.emptied().await;
            node.turns.close();
            node.turns.wait().await;
            // What was on its way to its code when the system began to drain.
            node.live.emptied().await;
        };
        // Whoever stops the system counts what is left.
        tokio::select! {
            () = node.stopped() => {}
            _ = tokio::time::timeout(node.limits.shutdown_drain, drained) => {}
        }
    }

    async fn close_store(&self) -> Result<(), storage::Error> {
        let handle = {
            let mut committer =
                self.inner.committer.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            committer.take()
        };
        match handle {
            Some(handle) => handle.shutdown().await,
            None => Ok(()),
        }
    }

    /// Stops the system where it stands, as a SIGKILL of the process would: nothing more is
    /// written. Returns when all its actors and tasks are gone and the store is closed.
    ///
    /// # Cancel safety
    /// Dropped, some actors may go on for a moment; nothing more is written all the same.
    pub async fn crash(self) {
        let node = &self.inner.node;
        node.committer.fence();
        node.stop().await;
        // Whatever the store has to say of its end: nobody relies on it after a crash.
        let _ = self.close_store().await;
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.inner.node
    }
}

impl Node {
    /// Drops every task and actor of the system where it stands.
    pub(crate) fn stop_now(&self) {
        self.draining.store(true, Ordering::Release);
        self.cancel_tasks();
        self.hub.close();
        if let Some(supervisors) = self.supervisors.get() {
            // Killing a supervisor kills its children.
            supervisors.agents.cell().kill();
            supervisors.runs.cell().kill();
        }
    }

    /// As [`Node::stop_now`]; returns when all are gone.
    pub(crate) async fn stop(&self) {
        self.stop_now();
        if let Some(supervisors) = self.supervisors.get() {
            supervisors.agents.ended().await;
            supervisors.runs.ended().await;
        }
        self.tasks_ended().await;
    }

    /// A run's actor has ended: its parent decides what follows.
    pub(crate) fn run_exited(self: &Arc<Self>, notice: &ExitNotice) {
        let Ok(path) = notice.id.as_str().parse::<AgentPath>() else { return };
        let Some((parent, run_id)) = path.parent() else { return };
        let exit = match &notice.reason {
            ExitReason::Normal(Some(reason)) if reason == ENDED => RunExit::Ended,
            ExitReason::Normal(Some(reason)) if reason == WAITING => RunExit::Waiting,
            ExitReason::Normal(Some(reason)) if reason == PARKED => RunExit::Parked,
            reason => {
                tracing::warn!(agent = %parent, %run_id, %reason, "a run's actor is gone");
                RunExit::Lost
            }
        };
        let run = RunKey::new(&parent, &run_id);
        let node = Arc::clone(self);
        let gone = move || {
            node.waits.exited(run);
            node.live.remove(run, exit == RunExit::Lost);
            node.tell_parent(&parent, run_id, run, exit);
        };
        match self.live.code(run).filter(|_| exit == RunExit::Lost) {
            None => gone(),
            // The actor has crashed, and the code outlives it. Nobody enters the run again before it is
            // gone.
            Some(code) => {
                code.leave();
                self.spawn(async move {
                    code.gone.cancelled().await;
                    gone();
                });
            }
        }
    }

    fn tell_parent(
        self: &Arc<Self>,
        parent: &AgentPath,
        run_id: RunId,
        run: RunKey,
        exit: RunExit,
    ) {
        let message = AgentMsg::Exited(run_id, exit);
        match self.agents.get(parent) {
            Some(actor) => {
                // If it is just going, its next life looks at the store.
                let _ = actor.cast(message);
            }
            None => {
                let capped = self
                    .kinds
                    .get(parent.agent_type())
                    .is_ok_and(|kind| kind.settings.max_concurrent_runs.is_some());
                // The slot may be somebody else's turn; a lost run is found by the next life.
                if capped || exit == RunExit::Lost || self.waits.is_called(run) {
                    self.send(parent, message);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
