//! Tests of users' own agents: a run without a system, and a system that crashes on demand.

mod panics;
mod replay;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ghostlight_protocol::planted::{Planted, planted};
use ghostlight_protocol::{AgentPath, Limits, RunKey};
use ghostlight_storage::records::{LogEntry, StoredCall};
use ghostlight_storage::{Committer, MemoryStore};
use tokio::sync::Notify;

pub use self::panics::{PanicsTold, panics_told_to};
pub use self::replay::{ReplayError, replay_check, replay_check_fresh};
use crate::clock::VirtualClock;
pub use crate::probe::{Answer, At, BeforeCode, Probe, Seen};
use crate::registry::Kinds;
use crate::step::StepKey;
use crate::system::SystemBuilder;
use crate::{Agent, AgentHandle, Child, Error, RunError, StartError, System};

/// Executes a run of `child` without a system and without a store: everything that the code records
/// is durable at once. Sleeps take the time of the runtime, which a test may pause. Dispatching
/// children of its own needs a [`TestSystem`].
///
/// # Errors
/// What the code returns.
///
/// # Panics
/// Outside a tokio runtime.
///
/// # Cancel safety
/// Dropping it drops the run.
///
/// # Examples
/// ```
/// use ghostlight_actors::{Agent, Child, RunContext, RunError, testing};
///
/// struct Adder;
/// impl Agent for Adder { const TYPE: &'static str = "Adder"; }
/// impl Child for Adder {
///     type Input = (u32, u32);
///     type Output = u32;
///     async fn run(&self, cx: &RunContext, (a, b): (u32, u32)) -> Result<u32, RunError> {
///         cx.step("add", async || Ok(a + b)).await
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), RunError> {
/// assert_eq!(testing::run(&Adder, (1, 2)).await?, 3);
/// # Ok(())
/// # }
/// ```
pub async fn run<C: Child>(child: &C, input: C::Input) -> Result<C::Output, RunError> {
    let entry = replay::enter(child, input, Vec::new(), |_| {}).await?;
    // Nothing is recorded yet that the code could fail to fit.
    entry.end.unwrap_or_else(|mismatch| Err(mismatch.into()))
}

/// Whether agents of a type have a finish hook, so that every run that ends owes them one; `false` if the
/// type is not registered.
pub fn has_finish_hook(system: &System, agent_type: &str) -> bool {
    system.node().kinds.get(agent_type).is_ok_and(|kind| kind.hooks.finish.is_some())
}

/// The limits that a system keeps to.
pub fn limits_of(system: &System) -> &Limits {
    &system.node().limits
}

/// Kills the actor of an agent where it stands, as a bug in it would; its supervisor restarts it, and
/// its runs go on. Returns whether the agent was in memory.
pub fn crash_agent(system: &System, agent: &AgentPath) -> bool {
    let actor = system.node().agents.get(agent);
    if let Some(actor) = actor.as_ref().filter(|_| !planted(Planted::SurviveAgentCrash)) {
        actor.kill();
    }
    actor.is_some()
}

/// Which actor an agent in memory has, as a number that no other actor of this process has had.
pub fn actor_of(system: &System, agent: &AgentPath) -> Option<u64> {
    system.node().agents.get(agent).map(|actor| actor.get_id().pid())
}

/// Kills the actor of a run where it stands, as a bug in it would; its parent recovers the run, which
/// loses an attempt. Returns whether the run was in memory.
pub fn crash_run(system: &System, run: &AgentPath) -> bool {
    let Some((parent, run_id)) = run.parent() else { return false };
    let actor = system.node().live.get(RunKey::new(&parent, &run_id));
    if let Some(actor) = actor.as_ref().filter(|_| !planted(Planted::SurviveRunCrash)) {
        actor.kill();
    }
    actor.is_some()
}

/// A place in a run at which [`TestSystem::crash_after`] crashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point(String);

impl Point {
    /// Right after the result of this step is durable, and before the code is told.
    pub fn step(key: impl StepKey) -> Self {
        Self(key.step_key())
    }
}

/// A system in memory, on a virtual clock, that crashes when told to and starts again on what was
/// durable. For tests on a paused current-thread runtime: `#[tokio::test(start_paused = true)]`.
pub struct TestSystem {
    store: MemoryStore,
    system: System,
    kinds: Kinds,
    seed: u64,
    clock: VirtualClock,
    limits: Limits,
    armed: Arc<Armed>,
}

/// How often the bodies of steps were executed, by run id and step key.
type Executions = BTreeMap<(String, String), u64>;

#[derive(Default)]
struct Armed {
    executions: Mutex<Executions>,
    point: Mutex<Option<Point>>,
    committer: Mutex<Option<Committer>>,
    reached: Notify,
}

/// Collects the kinds of a [`TestSystem`].
#[must_use = "a builder does nothing until `start` is awaited"]
pub struct TestSystemBuilder {
    builder: SystemBuilder,
    seed: u64,
    limits: Limits,
}

impl TestSystemBuilder {
    /// Registers a kind of agent that is a parent only.
    pub fn agent<A: Agent>(mut self, agent: A) -> Self {
        self.builder = self.builder.agent(agent);
        self
    }

    /// Registers a kind of agent that executes runs.
    pub fn child<C: Child>(mut self, child: C) -> Self {
        self.builder = self.builder.child(child);
        self
    }

    /// Sets the limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Starts the system on an empty store.
    ///
    /// # Errors
    /// As [`SystemBuilder::start`].
    ///
    /// # Cancel safety
    /// As [`SystemBuilder::start`].
    pub async fn start(mut self) -> Result<TestSystem, StartError> {
        if let Some(error) = self.builder.take_error() {
            return Err(error);
        }
        let store = MemoryStore::new();
        let kinds = self.builder.take_kinds();
        let clock = VirtualClock::starting_at(1_767_225_600_000);
        let armed = Arc::new(Armed::default());
        let parts =
            Parts { kinds: &kinds, clock, seed: self.seed, limits: &self.limits, armed: &armed };
        let system = parts.start(store.clone()).await?;
        Ok(TestSystem { store, system, kinds, seed: self.seed, clock, limits: self.limits, armed })
    }
}

struct Parts<'a> {
    kinds: &'a Kinds,
    clock: VirtualClock,
    seed: u64,
    limits: &'a Limits,
    armed: &'a Arc<Armed>,
}

impl Parts<'_> {
    async fn start(&self, store: MemoryStore) -> Result<System, StartError> {
        let system = SystemBuilder::on_memory_store(store)
            .kinds(self.kinds.clone())
            .clock(self.clock)
            .seed(self.seed)
            .limits(self.limits.clone())
            .probe(Arc::clone(self.armed) as Arc<dyn Probe>)
            .start()
            .await?;
        *lock(&self.armed.committer) = Some(system.node().committer.clone());
        Ok(system)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Probe for Armed {
    fn see(&self, seen: Seen<'_>) -> bool {
        match seen {
            Seen::StepBegan { run, key } => {
                let run_id =
                    run.parent().map_or_else(String::new, |(_, run_id)| run_id.to_string());
                *lock(&self.executions).entry((run_id, key.to_owned())).or_default() += 1;
                true
            }
            Seen::Durable { entry, .. } => self.durable(entry),
            _ => true,
        }
    }
}

impl Armed {
    /// Lets nothing more be written, or told, once the armed step is durable.
    fn durable(&self, entry: &LogEntry) -> bool {
        let LogEntry::Completed { call: StoredCall::Step(key), .. } = entry else { return true };
        let mut point = lock(&self.point);
        if point.as_ref().is_none_or(|point| point.0 != *key) {
            return true;
        }
        *point = None;
        if let Some(committer) = &*lock(&self.committer) {
            committer.fence();
        }
        self.reached.notify_one();
        false
    }
}

impl TestSystem {
    /// Builds a test system; chance is decided by `seed` alone.
    #[expect(clippy::new_ret_no_self, reason = "the kinds have to be known before it starts")]
    pub fn new(seed: u64) -> TestSystemBuilder {
        TestSystemBuilder { builder: System::in_memory(), seed, limits: Limits::default() }
    }

    /// The system of the current incarnation. Handles of an earlier one fail with
    /// [`Error::Stopped`].
    pub fn system(&self) -> &System {
        &self.system
    }

    /// The agent of type `A` with this name, in the current incarnation.
    ///
    /// # Errors
    /// As [`System::agent`].
    pub fn agent<A: Agent>(&self, name: &str) -> Result<AgentHandle<A>, Error> {
        self.system.agent(name)
    }

    /// Kills the system where it stands, and starts it again on what was durable.
    ///
    /// # Errors
    /// As [`SystemBuilder::start`].
    ///
    /// # Cancel safety
    /// Dropped, the system may be dead and not started again. Another `crash` starts it.
    pub async fn crash(&mut self) -> Result<(), StartError> {
        self.system.clone().crash().await;
        self.store = self.store.reopen();
        let parts = Parts {
            kinds: &self.kinds,
            clock: self.clock,
            seed: self.seed,
            limits: &self.limits,
            armed: &self.armed,
        };
        self.system = parts.start(self.store.clone()).await?;
        Ok(())
    }

    /// Crashes once the result of a step is durable, and before the code is told of it. Armed from
    /// this call on, so that the run may be dispatched before the future is awaited, through a
    /// handle that was made before; the future returns when the system has started again.
    ///
    /// # Errors
    /// As [`SystemBuilder::start`].
    ///
    /// # Cancel safety
    /// Dropped, the point stays armed: once it is reached, the system writes nothing more. As
    /// [`crash`](TestSystem::crash) from there on.
    pub fn crash_after(
        &mut self,
        point: Point,
    ) -> impl Future<Output = Result<(), StartError>> + '_ {
        *lock(&self.armed.point) = Some(point);
        async move {
            self.armed.reached.notified().await;
            self.crash().await
        }
    }

    /// Lets so much virtual time pass, with everything that is due meanwhile.
    ///
    /// # Cancel safety
    /// Dropped, less time has passed.
    pub async fn advance(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// How often the body of a step was executed, over all incarnations.
    pub fn executions(&self, run_id: &str, key: impl StepKey) -> u64 {
        let key = (run_id.to_owned(), key.step_key());
        lock(&self.armed.executions).get(&key).copied().unwrap_or(0)
    }

    /// How often the bodies of all steps were executed, by run id and step key.
    pub fn all_executions(&self) -> BTreeMap<(String, String), u64> {
        lock(&self.armed.executions).clone()
    }
}
