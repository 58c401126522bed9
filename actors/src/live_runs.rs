//! The runs whose actors are alive.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use ghostlight_protocol::{AgentPath, RunId, RunKey};
use ractor::ActorRef;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::messages::RunMsg;
use crate::shared::Shared;

/// The runs whose actors are alive. The store is the authority; this is for finding them.
#[derive(Default)]
pub(crate) struct LiveRuns {
    runs: Mutex<Runs>,
    removed: Notify,
}

#[derive(Default)]
struct Runs {
    live: HashMap<RunKey, LiveRun>,
    /// The same by parent, in the order of their ids.
    children: HashMap<AgentPath, BTreeSet<RunId>>,
    /// The runs whose actors were lost, until that is recorded.
    lost: BTreeSet<RunKey>,
    /// The runs that cannot be entered before the next start of the system.
    left: BTreeSet<RunKey>,
}

struct LiveRun {
    actor: ActorRef<RunMsg>,
    parent: AgentPath,
    run_id: RunId,
    /// What has become of it is durable: it has ended, or waits outside memory.
    over: bool,
    /// Its end is durable, but its code has not returned.
    stopping: bool,
    /// It waits for the next incarnation, durably, and its actor is on its way out.
    parked: bool,
    code: Option<CodeTask>,
}

/// The task of a run's code.
#[derive(Clone)]
pub(crate) struct CodeTask {
    pub(crate) task: AbortHandle,
    /// Weak, since it leads to the node, which holds this.
    pub(crate) shared: Weak<Shared>,
    /// The task has ended, and so has every blocking call that it made.
    pub(crate) gone: CancellationToken,
}

impl CodeTask {
    /// Drops code whose actor was lost.
    pub(crate) fn leave(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.leave();
        }
        self.task.abort();
    }
}

impl LiveRuns {
    fn lock(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, parent: &AgentPath, run_id: &RunId, actor: ActorRef<RunMsg>) {
        let run = RunKey::new(parent, run_id);
        let (parent, run_id) = (parent.clone(), run_id.clone());
        let mut runs = self.lock();
        runs.children.entry(parent.clone()).or_default().insert(run_id.clone());
        let live = LiveRun {
            actor,
            parent,
            run_id,
            over: false,
            stopping: false,
            parked: false,
            code: None,
        };
        runs.live.insert(run, live);
    }

    /// The run has ended, or waits outside memory from here on.
    pub(crate) fn over(&self, run: RunKey) {
        if let Some(live) = self.lock().live.get_mut(&run) {
            live.over = true;
        }
    }

    /// The run's code is entered.
    pub(crate) fn entered(&self, run: RunKey, code: CodeTask) {
        if let Some(live) = self.lock().live.get_mut(&run) {
            live.code = Some(code);
        }
    }

    /// The run's code, if it was entered and is not known to be gone.
    pub(crate) fn code(&self, run: RunKey) -> Option<CodeTask> {
        let code = self.lock().live.get(&run)?.code.clone()?;
        (!code.gone.is_cancelled()).then_some(code)
    }

    /// The run has ended, but its code has not returned.
    pub(crate) fn stopping(&self, run: RunKey) {
        if let Some(live) = self.lock().live.get_mut(&run) {
            live.stopping = true;
        }
    }

    /// The run waits for the next incarnation, and whoever waited for it is about to be told.
    pub(crate) fn parked(&self, run: RunKey) {
        if let Some(live) = self.lock().live.get_mut(&run) {
            live.parked = true;
        }
    }

    /// Whether the run has an actor that will still tell of its end.
    pub(crate) fn is_executed(&self, run: RunKey) -> bool {
        self.lock().live.get(&run).is_some_and(|live| !live.parked)
    }

    pub(crate) fn is_stopping(&self, run: RunKey) -> bool {
        self.lock().live.get(&run).is_some_and(|live| live.stopping)
    }

    /// The runs of an agent, in the order of their ids. Costs as much as there are of those.
    pub(crate) fn of(&self, parent: &AgentPath) -> Vec<RunId> {
        self.lock().children.get(parent).into_iter().flatten().cloned().collect()
    }

    /// A run's actor has ended; `lost`: without telling anybody why.
    pub(crate) fn remove(&self, run: RunKey, lost: bool) {
        let mut runs = self.lock();
        if lost {
            runs.lost.insert(run);
        }
        if let Some(LiveRun { parent, run_id, .. }) = runs.live.remove(&run)
            && let Some(children) = runs.children.get_mut(&parent)
        {
            children.remove(&run_id);
            if children.is_empty() {
                runs.children.remove(&parent);
            }
        }
        drop(runs);
        self.removed.notify_waiters();
    }

    /// Whether the run's actor was lost, and that is not recorded yet.
    pub(crate) fn is_lost(&self, run: RunKey) -> bool {
        self.lock().lost.contains(&run)
    }

    pub(crate) fn set_lost(&self, run: RunKey, is_lost: bool) {
        let mut runs = self.lock();
        match is_lost {
            true => runs.lost.insert(run),
            false => runs.lost.remove(&run),
        };
    }

    /// The run cannot be entered before the next start of the system, or is not to be any more.
    pub(crate) fn set_left(&self, run: RunKey, is_left: bool) {
        let mut runs = self.lock();
        match is_left {
            true => runs.left.insert(run),
            false => runs.left.remove(&run),
        };
    }

    /// Whether it makes no sense to bring the run's agent into memory for it.
    pub(crate) fn is_left(&self, run: RunKey) -> bool {
        self.lock().left.contains(&run)
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
        self.lock().live.get(&run).map(|live| live.actor.clone())
    }

    /// How many runs are executed, and would be entered again if the system stopped now.
    pub(crate) fn unfinished(&self) -> usize {
        self.lock().live.values().filter(|live| !live.over).count()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().live.len()
    }
}

#[cfg(test)]
mod tests;
