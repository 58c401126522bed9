//! Building a system: kinds of agents, store, clock, seed, limits.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

use ghostlight_protocol::{AgentPath, Limits};
use ghostlight_storage as storage;
use ghostlight_supervisor::{Config, ExitNotice, Supervisor};
use storage::{
    Backend, Committer, CommitterHandle, CommitterOptions, Durability, FolderLock, MemoryStore,
    SledStore, Store,
};

use super::{Inner, System, recover};
use crate::agents::path_of;
use crate::clock::{Clock, VirtualClock, WallClock};
use crate::node::{Node, NodeParts, Supervisors};
use crate::probe::Probe;
use crate::registry::Kinds;
use crate::{Agent, Child, StartError, timers};

enum StoreChoice {
    Sled(PathBuf),
    Locked(FolderLock),
    Memory(MemoryStore),
    /// Started on a thread of its own.
    Custom(Box<dyn FnOnce(CommitterOptions) -> (Committer, CommitterHandle) + Send>),
    /// Run by a task of the system's runtime.
    Backend(Box<dyn FnOnce(CommitterOptions) -> (Committer, CommitterHandle) + Send>),
}

/// Collects what a system is made of; see [`System::open`].
#[must_use = "a builder does nothing until `start` is awaited"]
pub struct SystemBuilder {
    store: StoreChoice,
    durability: Durability,
    kinds: Kinds,
    error: Option<StartError>,
    clock: Option<Arc<dyn Clock>>,
    seed: Option<u64>,
    limits: Limits,
    park_unregistered: bool,
    resume_only: Option<AgentPath>,
    probe: Option<Arc<dyn Probe>>,
}

impl SystemBuilder {
    fn new(store: StoreChoice) -> Self {
        Self {
            store,
            durability: Durability::PowerLoss,
            kinds: Kinds::default(),
            error: None,
            clock: None,
            seed: None,
            limits: Limits::default(),
            park_unregistered: false,
            resume_only: None,
            probe: None,
        }
    }

    pub(super) fn open(path: PathBuf) -> Self {
        Self::new(StoreChoice::Sled(path))
    }

    pub(super) fn in_memory() -> Self {
        Self::new(StoreChoice::Memory(MemoryStore::new()))
    }

    pub(super) fn on_store(store: impl Store) -> Self {
        Self::new(StoreChoice::Custom(Box::new(move |options| Committer::start(store, options))))
    }

    /// Builds on a folder whose lock the caller holds already.
    pub fn on_locked_folder(lock: FolderLock) -> Self {
        Self::new(StoreChoice::Locked(lock))
    }

    /// Builds on a backend with a latency of its own, which a task of the runtime awaits: for
    /// simulations. The wall clock follows the runtime's time unless another one is set.
    pub fn on_backend(backend: impl Backend) -> Self {
        Self::new(StoreChoice::Backend(Box::new(move |options| {
            Committer::with_backend_options(backend, options)
        })))
    }

    /// Builds on a memory store that the caller keeps, to open it again later.
    pub fn on_memory_store(store: MemoryStore) -> Self {
        Self::new(StoreChoice::Memory(store))
    }

    /// Registers a kind of agent that is a parent only.
    pub fn agent<A: Agent>(mut self, agent: A) -> Self {
        let added = self.kinds.add_agent(agent);
        self.error = self.error.or(added.err());
        self
    }

    /// Registers a kind of agent that executes runs, and may be a parent, too.
    pub fn child<C: Child>(mut self, child: C) -> Self {
        let added = self.kinds.add_child(child);
        self.error = self.error.or(added.err());
        self
    }

    /// What an acknowledged commit survives; [`Durability::PowerLoss`] by default.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets the wall clock; the machine's by default.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Sets the seed of everything that chance decides: fresh ids, and the jitter of backoffs. By
    /// default it is taken from the operating system. Every start on the same data makes other ones of
    /// the same seed.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets the limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Starts although the store has live runs of types that are not registered, or not as children, or
    /// owes deliveries to such types: they are left alone, and go on once their type is registered again. They can be cancelled and
    /// cleared, and what is above them too.
    pub fn park_unregistered(mut self) -> Self {
        self.park_unregistered = true;
        self
    }

    /// Goes on with the runs of one agent, and of those below it, alone. The runs of all others rest:
    /// they are neither resumed nor taken from a queue, and what is dispatched to an agent that queues
    /// is queued, until a system starts that goes on with them. What is dispatched to another of them is
    /// executed here, and goes on here like any other run. Those that rest are shown, tailed, cancelled and
    /// cleared as ever; one that was being executed is entered once more by a cancel, to come to its
    /// end. Whoever waits for one is told [`Error::Resting`](crate::Error::Resting); a run that does
    /// waits until a system starts that goes on with both.
    pub fn resume_only(mut self, agent: AgentPath) -> Self {
        self.resume_only = Some(agent);
        self
    }

    /// Sets who is told what the system does, as it happens: for tests and simulations.
    pub fn probe(mut self, probe: Arc<dyn Probe>) -> Self {
        self.probe = Some(probe);
        self
    }

    pub(crate) fn kinds(mut self, kinds: Kinds) -> Self {
        self.kinds = kinds;
        self
    }

    pub(crate) fn take_kinds(&mut self) -> Kinds {
        std::mem::take(&mut self.kinds)
    }

    pub(crate) fn take_error(&mut self) -> Option<StartError> {
        self.error.take()
    }

    /// Starts the system. Starting is recovering: what an earlier process has left behind goes on
    /// in the background, and the start does not wait for any of it.
    ///
    /// # Errors
    /// Kinds that cannot be registered; a limit that no system can work with; a store that cannot be opened, above all
    /// [`Locked`](storage::Error::Locked); live runs of a type that is not registered, or not as a
    /// child.
    ///
    /// # Cancel safety
    /// Dropped, the store is closed again.
    pub async fn start(self) -> Result<System, StartError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        self.limits.validate()?;
        let in_runtime = matches!(self.store, StoreChoice::Memory(_) | StoreChoice::Backend(_));
        let options = options(&self.limits);
        let (committer, handle) = open(self.store, self.durability, options).await?;
        let incarnation = recover::next_incarnation(&committer).await?;
        let work = recover::find_work(&committer, &self.kinds, self.park_unregistered).await?;
        let clock = self.clock.unwrap_or_else(|| match in_runtime {
            // In memory, time is the runtime's, so that a test that pauses it pauses all.
            true => Arc::new(VirtualClock::starting_at(VIRTUAL_EPOCH_MS)),
            false => Arc::new(WallClock),
        });
        #[expect(clippy::disallowed_methods, reason = "the seed itself, where none was given")]
        let seed = self.seed.unwrap_or_else(|| fastrand::Rng::new().u64(..));
        // The ids of an earlier life are no fresh ones.
        let seed = seed.wrapping_add(incarnation.wrapping_mul(ODD));
        let node = Arc::new(Node::new(NodeParts {
            clock,
            limits: self.limits,
            committer,
            kinds: self.kinds,
            incarnation,
            seed,
            resume_only: self.resume_only,
            probe: self.probe,
        }));
        let inner = Inner { node: Arc::clone(&node), committer: Mutex::new(Some(handle)) };
        let system = System { inner: Arc::new(inner) };
        supervise(&node, seed).await?;
        node.spawn(Arc::clone(&node).watch_supervisors());
        node.spawn(Arc::clone(&node).watch_store());
        node.spawn(timers::run(Arc::clone(&node)));
        node.spawn(recover::sweep(Arc::clone(&node)));
        node.spawn(recover::recover(Arc::clone(&node), work));
        tracing::info!(incarnation, "system started");
        Ok(system)
    }
}

/// What a system in memory takes for the time at its start: 2026-01-01.
const VIRTUAL_EPOCH_MS: u64 = 1_767_225_600_000;

/// Opens the store of a folder, or makes it, for tools that add nothing to it.
pub(crate) async fn open_spare(
    lock: FolderLock,
) -> Result<(Committer, CommitterHandle), StartError> {
    let opened = tokio::task::spawn_blocking(|| SledStore::open_spare(lock, Durability::default()));
    let store = opened.await.map_err(|error| StartError::System(error.to_string()))??;
    Ok(Committer::start(store, CommitterOptions::default()))
}

fn options(limits: &Limits) -> CommitterOptions {
    let mut options = CommitterOptions::default();
    options.queue_bytes_max = limits.commit_queue_bytes_max;
    options
}

async fn open(
    store: StoreChoice,
    durability: Durability,
    options: CommitterOptions,
) -> Result<(Committer, CommitterHandle), StartError> {
    let opened = match store {
        StoreChoice::Memory(store) => return Ok(Committer::inline_options(store, options)),
        StoreChoice::Custom(start) | StoreChoice::Backend(start) => return Ok(start(options)),
        StoreChoice::Sled(path) => {
            tokio::task::spawn_blocking(move || SledStore::open(path, durability)).await
        }
        StoreChoice::Locked(lock) => {
            tokio::task::spawn_blocking(move || SledStore::open_locked(lock, durability)).await
        }
    };
    let store = opened.map_err(|error| StartError::System(error.to_string()))??;
    Ok(Committer::start(store, options))
}

/// Keeps seeds apart that differ by the number of a start: the golden ratio, as splitmix64 uses it.
const ODD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Starts the two supervisors, side by side: a parent's death never touches a child.
async fn supervise(node: &Arc<Node>, seed: u64) -> Result<(), StartError> {
    let weak: Weak<Node> = Arc::downgrade(node);
    let runs = Config::new(seed).on_exit({
        let weak = weak.clone();
        move |notice: ExitNotice| {
            if let Some(node) = weak.upgrade() {
                node.exited(&notice);
                node.run_exited(&notice);
            }
        }
    });
    let agents = Config::new(seed.rotate_left(32)).on_exit(move |notice: ExitNotice| {
        if let (Some(node), Some(path)) = (weak.upgrade(), path_of(&notice)) {
            node.exited(&notice);
            node.agents.down(&path, &notice);
        }
    });
    let failed = |error: ghostlight_supervisor::Error| StartError::System(error.to_string());
    let runs = Supervisor::start(runs, None).await.map_err(failed)?;
    let agents = Supervisor::start(agents, None).await.map_err(failed)?;
    // The cell is empty: a node is supervised once.
    let _ = node.supervisors.set(Supervisors { runs, agents });
    Ok(())
}
