//! One system's parts, as its actors see them.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ghostlight_protocol::{AgentKey, AgentPath, Limits, RunId, RunKey};
use ghostlight_storage as storage;
use ghostlight_storage::records::LiveRecord;
use ghostlight_storage::{Committer, Key, codec};
use ghostlight_supervisor::Supervisor;
use ractor::{ActorId, MessagingErr};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Error;
use crate::agent_actor::AgentArgs;
use crate::agents::{Agents, Asker, OpenTails};
use crate::clock::Clock;
use crate::hub::Hub;
use crate::lanes;
use crate::live_runs::LiveRuns;
use crate::messages::AgentMsg;
use crate::probe::{At, BeforeCode, Probe, Seen};
use crate::registry::Kinds;
use crate::timers::Timers;
use crate::waits::Waits;

/// The target of what is logged when a supervisor has ended.
pub(crate) const SUPERVISION: &str = "ghostlight_actors::supervision";

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
    pub(crate) open_tails: OpenTails,
    pub(crate) timers: Timers,
    pub(crate) waits: Waits,
    pub(crate) purge: Notify,
    pub(crate) runnable: Arc<Semaphore>,
    pub(crate) supervisors: OnceLock<Supervisors>,
    /// Why the store accepts no writes any more.
    failure: OnceLock<storage::Error>,
    /// No new work is taken.
    pub(crate) draining: AtomicBool,
    seed: Mutex<fastrand::Rng>,
    /// The turns that are due or at work.
    pub(crate) turns: TaskTracker,
    tasks: TaskTracker,
    kill: CancellationToken,
    resume_only: Option<AgentPath>,
    probe: Option<Arc<dyn Probe>>,
}

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
    pub(crate) resume_only: Option<AgentPath>,
    pub(crate) probe: Option<Arc<dyn Probe>>,
}

/// Tells the probe of a task that panics: user code never makes it that far.
struct Panics(Option<Arc<dyn Probe>>);

impl Drop for Panics {
    fn drop(&mut self) {
        if let (Some(probe), true) = (&self.0, std::thread::panicking()) {
            probe.see(Seen::Panicked { place: "a task of the system" });
        }
    }
}

impl Node {
    pub(crate) fn new(parts: NodeParts) -> Self {
        let NodeParts { clock, limits, committer, kinds, incarnation, seed, resume_only, probe } =
            parts;
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
            open_tails: OpenTails::default(),
            timers: Timers::default(),
            waits: Waits::default(),
            purge: Notify::new(),
            supervisors: OnceLock::new(),
            failure: OnceLock::new(),
            draining: AtomicBool::new(false),
            seed: Mutex::new(fastrand::Rng::with_seed(seed)),
            turns: TaskTracker::new(),
            tasks: TaskTracker::new(),
            kill: CancellationToken::new(),
            resume_only,
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
        let panics = Panics(self.probe.clone());
        self.tasks.spawn(async move {
            let _panics = panics;
            // Biased, so that chance has no say.
            tokio::select! {
                biased;
                () = kill.cancelled() => None,
                output = future => Some(output),
            }
        })
    }

    /// Tells the probe of an actor of the system that did not end as it should.
    pub(crate) fn exited(&self, notice: &ghostlight_supervisor::ExitNotice) {
        use ghostlight_supervisor::ExitReason::{Failed, StartFailed};
        if let (Failed(_) | StartFailed(_), None) = (&notice.reason, self.failure()) {
            self.seen(Seen::Panicked { place: notice.id.as_str() });
        }
    }

    pub(crate) fn cancel_tasks(&self) {
        self.kill.cancel();
        self.runnable.close();
    }

    /// Whether the system has stopped: tasks end where they stand.
    pub(crate) fn is_stopped(&self) -> bool {
        self.kill.is_cancelled()
    }

    /// Waits until the system stops.
    pub(crate) async fn stopped(&self) {
        self.kill.cancelled().await;
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

    /// Waits until a supervisor ends before the system does, which takes a bug: no run or no agent
    /// can go on then. The system stops where it stands, as when its store fails.
    pub(crate) async fn watch_supervisors(self: Arc<Self>) {
        let Some(Supervisors { runs, agents }) = self.supervisors.get() else { return };
        let supervised = tokio::select! {
            biased;
            () = runs.ended() => "runs",
            () = agents.ended() => "agents",
        };
        let why = format!("the supervisor of all {supervised} has ended");
        // Of a target of its own: a program that tells of a failed store itself may filter ours out, and
        // this is a bug that has to be told whatever comes of it.
        tracing::error!(target: SUPERVISION, why, "nothing goes on until the next start");
        let _ = self.failure.set(storage::Error::Poisoned { why });
        self.committer.fence();
        self.stop_now();
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

    /// Whether the runs of an agent are left to another system, but for those of [`Node::rests_run`].
    pub(crate) fn rests(&self, agent: &AgentPath) -> bool {
        self.resume_only.as_ref().is_some_and(|only| !agent.is_within(only))
    }

    /// Whether a live run is left to another system. One that this system has begun, or entered, is
    /// not, whoever its agent is: nobody else would wake it as long as this one lives.
    pub(crate) async fn rests_run(
        &self,
        agent: &AgentPath,
        run: RunKey,
    ) -> Result<bool, storage::Error> {
        Ok(self.rests(agent) && !self.has_begun(agent, run).await?)
    }

    /// Whether a run is live, and this system has begun or entered it.
    pub(crate) async fn has_begun(
        &self,
        agent: &AgentPath,
        run: RunKey,
    ) -> Result<bool, storage::Error> {
        let live = self.live_record(agent, run).await?;
        Ok(live.is_some_and(|live| live.incarnation == self.incarnation))
    }

    /// What the index of live runs has of a run.
    pub(crate) async fn live_record(
        &self,
        agent: &AgentPath,
        run: RunKey,
    ) -> Result<Option<LiveRecord>, storage::Error> {
        let key = Key::live(AgentKey::from(agent), run);
        match self.committer.get(key.clone().into_bytes()).await? {
            Some(read) => Ok(Some(codec::decode(&key, &read.value)?)),
            None => Ok(None),
        }
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
        // From here on, before anybody learns that the run has ended, a shutdown waits for it.
        let message = AgentMsg::Owed(run.clone(), self.turns.token());
        self.send_as(Asker::Inside, parent, message);
    }

    /// Sends a message to an agent, bringing it into memory if need be.
    pub(crate) fn send(self: &Arc<Self>, agent: &AgentPath, message: AgentMsg) {
        self.send_as(Asker::Outside, agent, message);
    }

    fn send_as(self: &Arc<Self>, asker: Asker, agent: &AgentPath, message: AgentMsg) {
        let (node, agent, mut message) = (Arc::clone(self), agent.clone(), message);
        self.spawn(async move {
            // What cannot be delivered now is found in the store by the next start of the agent.
            while let Ok(actor) = node.agent_for(asker, &agent).await {
                match actor.cast(message) {
                    Err(MessagingErr::SendErr(unsent)) => message = unsent,
                    _ => return,
                }
                if node.departed(&agent, actor.get_id()).await.is_err() {
                    return;
                }
            }
        });
    }

    /// Brings an agent that is leaving memory back, if it has left something undone: what was in
    /// its mailbox when it stopped is lost, but for what the store has of it.
    pub(crate) fn bring_back_if_needed(self: &Arc<Self>, args: AgentArgs, leaving: ActorId) {
        let node = Arc::clone(self);
        self.spawn(async move {
            if node.departed(&args.path, leaving).await.is_err() {
                return;
            }
            let needed = match lanes::look_around(&args).await {
                Ok(found) => found.needs_agent(&args),
                // Whoever asks for the agent next is told of it.
                Err(_) => false,
            };
            if needed {
                let _ = node.agent(&args.path).await;
            }
        });
    }

    /// Whether code that awaits what is not recorded is told of.
    pub(crate) fn watches_code(&self) -> bool {
        cfg!(debug_assertions) || self.has_probe()
    }

    /// Whether somebody is told what happens.
    pub(crate) fn has_probe(&self) -> bool {
        self.probe.is_some()
    }

    /// Tells the probe, if there is one. `false` when the system has just crashed.
    pub(crate) fn seen(&self, seen: Seen<'_>) -> bool {
        self.probe.as_ref().is_none_or(|probe| probe.see(seen))
    }

    /// What the probe puts before a run's code.
    pub(crate) fn before_code(&self, run: &AgentPath, at: At<'_>) -> Option<BeforeCode> {
        self.probe.as_ref()?.before_code(run, at)
    }
}
