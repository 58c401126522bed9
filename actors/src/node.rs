//! One system's parts, as its actors see them.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ghostlight_protocol::{AgentPath, Limits, RunId, RunKey};
use ghostlight_storage as storage;
use ghostlight_storage::Committer;
use ghostlight_supervisor::Supervisor;
use ractor::{ActorId, ActorRef, MessagingErr};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Error;
use crate::agent_actor::AgentArgs;
use crate::agents::Agents;
use crate::clock::Clock;
use crate::hub::Hub;
use crate::lanes;
use crate::messages::{AgentMsg, RunMsg};
use crate::probe::{BeforeCode, Probe, Seen};
use crate::registry::Kinds;
use crate::timers::Timers;
use crate::waits::Waits;

/// Everything that the actors of one system share. There is one a system, and no global state.
pub(crate) struct Node {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: Limits,
    pub(crate) committer: Committer,
    pub(crate) kinds: Kinds,
    pub(crate) incarnation: u64,
    pub(crate) hub: Hub,
    pub(crate) live: LiveRuns,
    pub(crate) agents: Agents,
    pub(crate) timers: Timers,
    pub(crate) waits: Waits,
    pub(crate) purge: Notify,
    runnable: Arc<Semaphore>,
    pub(crate) supervisors: OnceLock<Supervisors>,
    /// Why the store accepts no writes any more.
    failure: OnceLock<storage::Error>,
    /// No new work is taken.
    pub(crate) draining: AtomicBool,
    seed: Mutex<fastrand::Rng>,
    tasks: TaskTracker,
    kill: CancellationToken,
    probe: Option<Arc<dyn Probe>>,
}

/// A place among the runs that execute at once; `None` where none is needed.
pub(crate) type Permit = Option<Arc<OwnedSemaphorePermit>>;

/// Two supervisors, side by side: a parent's death never touches a child.
pub(crate) struct Supervisors {
    pub(crate) runs: Supervisor,
    pub(crate) agents: Supervisor,
}

pub(crate) struct NodeParts {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: Limits,
    pub(crate) committer: Committer,
    pub(crate) kinds: Kinds,
    pub(crate) incarnation: u64,
    pub(crate) seed: u64,
    pub(crate) probe: Option<Arc<dyn Probe>>,
}

impl Node {
    pub(crate) fn new(parts: NodeParts) -> Self {
        let NodeParts { clock, limits, committer, kinds, incarnation, seed, probe } = parts;
        Self {
            clock,
            hub: Hub::new(limits.unread_frames_max),
            runnable: Arc::new(Semaphore::new(
                limits.runnable_runs_max.clamp(1, Semaphore::MAX_PERMITS),
            )),
            limits,
            committer,
            kinds,
            incarnation,
            live: LiveRuns::default(),
            agents: Agents::default(),
            timers: Timers::default(),
            waits: Waits::default(),
            purge: Notify::new(),
            supervisors: OnceLock::new(),
            failure: OnceLock::new(),
            draining: AtomicBool::new(false),
            seed: Mutex::new(fastrand::Rng::with_seed(seed)),
            tasks: TaskTracker::new(),
            kill: CancellationToken::new(),
            probe,
        }
    }

    /// Runs a task that ends with the system: then it yields `None`.
    pub(crate) fn spawn<F>(&self, future: F) -> JoinHandle<Option<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let kill = self.kill.clone();
        self.tasks.spawn(async move {
            // Biased, so that chance has no say.
            tokio::select! {
                biased;
                () = kill.cancelled() => None,
                output = future => Some(output),
            }
        })
    }

    pub(crate) fn cancel_tasks(&self) {
        self.kill.cancel();
        self.runnable.close();
    }

    /// Waits until every task of the system is gone.
    pub(crate) async fn tasks_ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Waits until the store fails, and tells everybody who waits for anything.
    pub(crate) async fn watch_store(self: Arc<Self>) {
        let error = self.committer.failed().await;
        if !matches!(error, storage::Error::Closed) {
            tracing::error!(%error, "the store has failed: nothing goes on until the next start");
            // The cell is empty: the store fails once.
            let _ = self.failure.set(error);
            self.runnable.close();
            self.hub.close();
        }
    }

    /// Waits for a place for a run of `parent`. What a run dispatches goes with it: it may wait for
    /// that, and if both took a place, runs that wait could hold them all.
    pub(crate) async fn permit(&self, parent: &AgentPath) -> Result<Permit, Error> {
        if parent.parent().is_some() {
            return Ok(None);
        }
        let permit = Arc::clone(&self.runnable).acquire_owned().await;
        permit.map(|permit| Some(Arc::new(permit))).map_err(|_| self.gone())
    }

    /// As [`Node::permit`], if that does not have to wait.
    pub(crate) fn permit_now(&self, parent: &AgentPath) -> Option<Permit> {
        if parent.parent().is_some() {
            return Some(None);
        }
        let permit = Arc::clone(&self.runnable).try_acquire_owned().ok()?;
        Some(Some(Arc::new(permit)))
    }

    /// Why the store accepts no writes any more, if it does not.
    pub(crate) fn failure(&self) -> Option<&storage::Error> {
        self.failure.get()
    }

    /// Why whoever waited is told nothing.
    pub(crate) fn gone(&self) -> Error {
        self.failure.get().map_or(Error::Stopped, |error| error.clone().into())
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// A fresh run id: 12 letters and digits.
    pub(crate) fn fresh_run_id(&self) -> String {
        let mut seed = self.seed.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::repeat_with(|| seed.alphanumeric()).take(12).collect()
    }

    /// Whether the end of a run of `parent` is owed to a finish hook.
    pub(crate) fn owes_finish(&self, parent: &AgentPath) -> bool {
        self.kinds.get(parent.agent_type()).is_ok_and(|kind| kind.hooks.finish.is_some())
    }

    /// Tells the parent that it owes itself a finish hook; its rows say so, too.
    pub(crate) fn owed(self: &Arc<Self>, parent: &AgentPath, run: &RunId) {
        self.send(parent, AgentMsg::Owed(run.clone()));
    }

    /// Sends a message to an agent, bringing it into memory if need be.
    pub(crate) fn send(self: &Arc<Self>, agent: &AgentPath, message: AgentMsg) {
        let (node, agent, mut message) = (Arc::clone(self), agent.clone(), message);
        self.spawn(async move {
            // What cannot be delivered now is found in the store by the next start of the agent.
            while let Ok(actor) = node.agent(&agent).await {
                match actor.cast(message) {
                    Err(MessagingErr::SendErr(unsent)) => message = unsent,
                    _ => return,
                }
                // It has just ended, and its end is told to us in a moment.
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        });
    }

    /// Brings an agent that is leaving memory back, if it has left something undone: what was in
    /// its mailbox when it stopped is lost, but for what the store has of it.
    pub(crate) fn bring_back_if_needed(self: &Arc<Self>, args: AgentArgs, leaving: ActorId) {
        let node = Arc::clone(self);
        self.spawn(async move {
            while node.agents.get(&args.path).is_some_and(|actor| actor.get_id() == leaving) {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            let needed = match lanes::look_around(&args).await {
                Ok(found) => found.needs_agent(node.clock.now_ms()),
                // Whoever asks for the agent next is told of it.
                Err(_) => false,
            };
            if needed {
                let _ = node.agent(&args.path).await;
            }
        });
    }

    /// Tells the probe, if there is one. `false` when the system has just crashed.
    pub(crate) fn seen(&self, seen: Seen<'_>) -> bool {
        self.probe.as_ref().is_none_or(|probe| probe.see(seen))
    }

    /// What the probe puts before a run's code.
    pub(crate) fn before_code(&self, run: &AgentPath) -> Option<BeforeCode> {
        self.probe.as_ref()?.before_code(run)
    }
}

/// The runs whose actors are alive. The store is the authority; this is for finding them.
#[derive(Default)]
pub(crate) struct LiveRuns {
    runs: Mutex<HashMap<RunKey, LiveRun>>,
    removed: Notify,
}

struct LiveRun {
    actor: ActorRef<RunMsg>,
    parent: AgentPath,
    run_id: RunId,
    /// Its end is durable, but its code has not returned.
    stopping: bool,
}

impl LiveRuns {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<RunKey, LiveRun>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, parent: &AgentPath, run_id: &RunId, actor: ActorRef<RunMsg>) {
        let run = RunKey::new(parent, run_id);
        let (parent, run_id) = (parent.clone(), run_id.clone());
        self.lock().insert(run, LiveRun { actor, parent, run_id, stopping: false });
    }

    /// The run has ended, but its code has not returned.
    pub(crate) fn stopping(&self, run: RunKey) {
        if let Some(live) = self.lock().get_mut(&run) {
            live.stopping = true;
        }
    }

    pub(crate) fn is_stopping(&self, run: RunKey) -> bool {
        self.lock().get(&run).is_some_and(|live| live.stopping)
    }

    /// The runs of an agent, in the order of their ids.
    pub(crate) fn of(&self, parent: &AgentPath) -> Vec<RunId> {
        let of_parent = |live: &&LiveRun| live.parent == *parent;
        let mut ids: Vec<_> =
            self.lock().values().filter(of_parent).map(|live| live.run_id.clone()).collect();
        ids.sort();
        ids
    }

    pub(crate) fn remove(&self, run: RunKey) {
        self.lock().remove(&run);
        self.removed.notify_waiters();
    }

    /// Waits until no run is being executed.
    pub(crate) async fn emptied(&self) {
        loop {
            let removed = self.removed.notified();
            if self.len() == 0 {
                return;
            }
            removed.await;
        }
    }

    pub(crate) fn get(&self, run: RunKey) -> Option<ActorRef<RunMsg>> {
        self.lock().get(&run).map(|live| live.actor.clone())
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }
}
