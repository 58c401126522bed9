//! A simulated world: everything that outlives the process, and the order in which things happened.

mod count;
mod disk;
mod judge;
mod strike;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use ghostlight::{AgentPath, Clock, System, testing};
use tokio::sync::Notify;
use tokio::time::Instant;

pub use self::count::Counts;
use crate::disk::Disk;
use crate::durable::{Change, Durable};
use crate::effects::Effects;
use crate::invariant::{Event, Invariant, Invariants};
use crate::observers::Observers;
use crate::oracle;
use crate::plan::{Counter, Fault, Plan};
use crate::trace::{Line, Trace};

/// What the wall clock shows when a world begins: 2026-01-01.
const EPOCH_MS: u64 = 1_767_225_600_000;

/// What outlives every life of the simulated process. Clones share it.
#[derive(Clone)]
pub struct World {
    shared: Arc<Shared>,
}

struct Shared {
    effects: Effects,
    always: Vec<(String, Holds)>,
    finally: Vec<(String, Holds)>,
    /// Apart, and locked before what is in `inner`: they look at the world.
    invariants: Mutex<Vec<Box<dyn Invariant>>>,
    inner: Mutex<Inner>,
    /// Something has happened that ends the life.
    ended: Notify,
    /// The process is asked to stop.
    stopping: Notify,
    observers: Observers,
}

type Holds = Box<dyn Fn(&World) -> bool + Send + Sync>;

/// How a life ends that does not end by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cut {
    Killed,
    Violated,
}

/// Something that should not have happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) invariant: String,
    pub(crate) text: String,
    /// It is a closure of the scenario, over the world as a whole.
    pub(crate) yours: bool,
}

struct Inner {
    plan: Plan,
    disk: Disk,
    /// The group that the last life was lost in, and how many batches of it the next one finds.
    left: Option<(u64, u32)>,
    /// How many batches each group of commits has.
    groups: Vec<u32>,
    /// Shared with whoever looks at it meanwhile.
    durable: Arc<Durable>,
    trace: Trace,
    life: u64,
    began: Option<Instant>,
    /// Virtual time of all earlier lives.
    elapsed: Duration,
    jumped_ms: i64,
    counts: Counts,
    commits_max: u64,
    /// How often code was polled, and how often since something was recorded.
    polls: u64,
    polls_since: u64,
    life_max: Duration,
    /// How long the disk has kept its users waiting.
    disk_busy: Duration,
    /// The drive has returned, and nothing was left to do: nothing may happen any more.
    settled: bool,
    warnings: BTreeSet<String>,
    killed: bool,
    /// The fault that this life must not outlive.
    doom: Option<Fault>,
    /// The actors of agents that must not go on, and what has befallen them.
    gone: BTreeMap<u64, (AgentPath, Fault)>,
    /// The process was asked to stop.
    stopping: bool,
    kills: u64,
    store_failed: bool,
    violation: Option<Violation>,
    promises: BTreeMap<String, String>,
    system: Option<System>,
    last_begun: Option<AgentPath>,
}

impl World {
    pub(crate) fn new(
        plan: Plan,
        invariants: Invariants,
        commits_max: u64,
        life_max: Duration,
    ) -> Self {
        let Invariants { always, finally, others } = invariants;
        let mut all = oracle::all(plan.latency());
        all.extend(others);
        let inner = Inner {
            plan,
            disk: Disk::default(),
            left: None,
            groups: Vec::new(),
            durable: Arc::default(),
            trace: Trace::default(),
            life: 0,
            began: None,
            elapsed: Duration::ZERO,
            jumped_ms: 0,
            counts: Counts::default(),
            commits_max,
            polls: 0,
            polls_since: 0,
            life_max,
            disk_busy: Duration::ZERO,
            settled: false,
            warnings: BTreeSet::new(),
            killed: false,
            doom: None,
            gone: BTreeMap::new(),
            stopping: false,
            kills: 0,
            store_failed: false,
            violation: None,
            promises: BTreeMap::new(),
            system: None,
            last_begun: None,
        };
        let shared = Shared {
            effects: Effects::default(),
            always,
            finally,
            invariants: Mutex::new(all),
            inner: Mutex::new(inner),
            ended: Notify::new(),
            stopping: Notify::new(),
            observers: Observers::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.shared.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ledger of external effects.
    pub fn effects(&self) -> Effects {
        self.shared.effects.in_world(self)
    }

    /// Notes what somebody outside was told: whoever asks later, in whatever life, must be told the
    /// same.
    pub fn promise(&self, what: impl Into<String>, told: impl std::fmt::Debug) {
        let (what, told) = (what.into(), format!("{told:?}"));
        let before =
            self.lock().promises.entry(what.clone()).or_insert_with(|| told.clone()).clone();
        if before != told {
            self.violated("what was promised stays", format!("{what} was {before}, and is {told}"));
        }
    }

    /// Adds a line of one's own to the timeline.
    pub fn note(&self, text: impl Into<String>) {
        self.trace("note", text.into());
    }

    /// Looks at the durable state.
    pub fn durable<T>(&self, look: impl FnOnce(&Durable) -> T) -> T {
        let durable = Arc::clone(&self.lock().durable);
        look(&durable)
    }

    /// The plan that this world goes by.
    pub fn plan(&self) -> Plan {
        self.lock().plan.clone()
    }

    /// Whether the plan has a fault of those that a scenario [tolerates](crate::Scenario::tolerates):
    /// then runs may end otherwise than they would.
    pub fn ends_may_change(&self) -> bool {
        crate::calm::changes_ends(&self.lock().plan)
    }

    /// Which life of the process this is, from 1.
    pub fn life(&self) -> u64 {
        self.lock().life
    }

    /// The longest that the drive may take in this life.
    pub(crate) fn life_max(&self) -> Duration {
        self.lock().life_max
    }

    pub(crate) fn counts(&self) -> Counts {
        self.lock().counts
    }

    pub(crate) fn seed(&self) -> u64 {
        let inner = self.lock();
        inner.plan.seed.wrapping_mul(1000).wrapping_add(inner.life)
    }

    /// Notes what is outside of the promise, or may not be crash-safe, and has failed nothing.
    pub(crate) fn warn(&self, text: String) {
        self.lock().warnings.insert(text);
    }

    pub(crate) fn warnings(&self) -> BTreeSet<String> {
        self.lock().warnings.clone()
    }

    /// Adds a line about whoever's code is polled on this thread.
    pub(crate) fn trace(&self, kind: &'static str, text: String) {
        self.trace_of(kind, &crate::thread::polled_now().unwrap_or_default(), text);
    }

    /// Adds a line for a message that an agent has handled.
    pub(crate) fn trace_message(&self, agent: &AgentPath, number: u64) {
        let mut inner = self.lock();
        if inner.violation.is_none() {
            let line = inner.new_line("message", agent.as_str(), String::new());
            inner.trace.push_message(line, number);
        }
    }

    /// Adds a line about somebody.
    pub(crate) fn trace_of(&self, kind: &'static str, who: &str, text: String) {
        if kind == "effect" && !crate::thread::is_of_a_life() {
            self.warn(format!(
                "effect {text} on another thread: when that happens is not simulated"
            ));
        }
        self.lock().line(kind, who, text);
        if kind == "effect" {
            self.check_always();
        }
    }

    /// Notes a panic, which may have happened while the world is being looked at. If nobody catches it whom
    /// the system or the simulation knows, nothing fails by it.
    pub(crate) fn panicked(&self, text: &str, caught: bool) {
        let who = crate::thread::polled_now().unwrap_or_default();
        let inner = match self.shared.inner.try_lock() {
            Ok(inner) => Some(inner),
            Err(TryLockError::Poisoned(inner)) => Some(inner.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(mut inner) = inner {
            inner.line("panic", &who, text.to_owned());
            if !caught {
                inner.warnings.insert(format!("outside of runs and the drive, code has {text}"));
            }
        }
    }

    pub(crate) fn take_trace(&self) -> Vec<Line> {
        self.lock().trace.take()
    }

    /// Begins the next life on what is durable.
    pub(crate) fn begin_life(&self) {
        if self.life() > 0 {
            self.stay_down();
        }
        let mut inner = self.lock();
        inner.life += 1;
        inner.counts.lives += 1;
        inner.began = Some(Instant::now());
        inner.killed = false;
        inner.stopping = false;
        inner.store_failed = false;
        inner.doom = None;
        inner.gone.clear();
        let life = inner.life;
        inner.line("life", "", format!("life {life} of the process begins"));
        let left = inner.left.take();
        inner.disk.power_cut(left.map_or(0, |(_, kept)| kept as usize));
        #[cfg(ghostlight_planted)]
        if left.is_some() {
            inner.disk.damage();
        }
        drop(inner);
        if let Some((group, _)) = left {
            self.sync(group);
        }
        let recorded = self
            .durable(|durable| durable.runs().filter_map(|(_, run)| run.path.clone()).collect());
        // Of the life and of where the one before was lost, so that the same seed has all cases.
        let of = self.seed().wrapping_mul(1_000_003).wrapping_add(self.counts().commits);
        self.shared.observers.begin_life(recorded, &mut fastrand::Rng::with_seed(of));
        self.tell(&Event::LifeBegan);
    }

    /// Lets time pass between two lives, if that is planned.
    fn stay_down(&self) {
        let (_, faults, _) = self.count(Counter::Life);
        for fault in faults {
            let Fault::Down(ms) = fault else { continue };
            self.strike(fault);
            let mut inner = self.lock();
            inner.elapsed = inner.elapsed.saturating_add(Duration::from_millis(ms));
            inner.line("fault", "", format!("nothing runs for {ms} ms"));
        }
    }

    pub(crate) fn set_system(&self, system: Option<System>) {
        let mut inner = self.lock();
        if let Some(system) = &system {
            let cap = |agent_type: String| {
                let settings = system.agent_settings(&agent_type).ok()?;
                Some((agent_type, settings.max_concurrent_runs?))
            };
            let types = system.agent_types();
            let hooked = types.iter().filter(|of| testing::has_finish_hook(system, of)).cloned();
            let durable = Arc::make_mut(&mut inner.durable);
            durable.set_hooked(hooked.collect());
            durable.set_cancel_grace(testing::limits_of(system).cancel_grace);
            durable.set_caps(types.into_iter().filter_map(cap).collect());
        }
        inner.system = system;
    }

    /// The system of this life, unless that is over.
    pub(crate) fn system(&self) -> Option<System> {
        let inner = self.lock();
        inner.system.clone().filter(|_| !inner.killed)
    }

    pub(crate) fn end_life(&self) {
        let mut inner = self.lock();
        inner.system = None;
        inner.elapsed = inner.now();
        inner.began = None;
        inner.killed = true;
        drop(inner);
        self.tell(&Event::LifeEnded);
    }

    /// Waits until the life has to end.
    pub(crate) async fn cut(&self) -> Cut {
        loop {
            {
                let inner = self.lock();
                if inner.violation.is_some() {
                    return Cut::Violated;
                }
                if inner.killed {
                    return Cut::Killed;
                }
            }
            self.shared.ended.notified().await;
        }
    }

    /// Asks the process to stop.
    pub(crate) fn stop(&self) {
        let mut inner = self.lock();
        inner.stopping = true;
        inner.line("fault", "", "the process is asked to stop".into());
        drop(inner);
        self.shared.stopping.notify_one();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.lock().stopping
    }

    /// Waits until the process is asked to stop.
    pub(crate) async fn asked_to_stop(&self) {
        while !self.is_stopping() {
            self.shared.stopping.notified().await;
        }
    }

    pub(crate) fn observers(&self) -> &Observers {
        &self.shared.observers
    }

    pub(crate) fn jump(&self, ms: i64) {
        let mut inner = self.lock();
        // Held at 1970 as it is read, the clock would stand still for whoever waits by it.
        let furthest = i64::try_from(inner.unmoved_ms()).map_or(i64::MIN, |wall| -wall);
        inner.jumped_ms = inner.jumped_ms.saturating_add(ms).max(furthest);
        inner.line("fault", "", format!("the wall clock jumps by {ms} ms"));
    }

    pub(crate) fn last_begun(&self) -> Option<AgentPath> {
        self.lock().last_begun.clone()
    }

    pub(crate) fn clock(&self) -> impl Clock {
        WorldClock(self.clone())
    }
}

struct WorldClock(World);

impl Clock for WorldClock {
    fn now_ms(&self) -> u64 {
        let inner = self.0.lock();
        inner.unmoved_ms().saturating_add_signed(inner.jumped_ms)
    }
}

impl Inner {
    /// Virtual time since the world began.
    fn now(&self) -> Duration {
        self.elapsed.saturating_add(self.began.map_or(Duration::ZERO, |began| began.elapsed()))
    }

    /// What the wall clock would show if it had never jumped.
    fn unmoved_ms(&self) -> u64 {
        EPOCH_MS.saturating_add(millis(self.now()))
    }

    fn line(&mut self, kind: &'static str, who: &str, text: String) {
        if self.violation.is_some() {
            // The timeline ends with what does not hold.
            return;
        }
        let line = self.new_line(kind, who, text);
        self.trace.push(line);
    }

    fn new_line(&self, kind: &'static str, who: &str, text: String) -> Line {
        // One event is one line, whatever somebody has put into its text.
        let text = text.replace('\n', " ");
        Line { life: self.life, at_ms: millis(self.now()), who: who.to_owned(), kind, text }
    }

    fn knows(&self, change: &Change) -> bool {
        change.key.run().and_then(|run| self.durable.run(run)?.path.as_ref()).is_some()
    }

    fn violate(&mut self, invariant: &str, text: String) {
        if self.violation.is_none() {
            self.line("violated", "", format!("{invariant:?} does not hold: {text}"));
            let invariant = invariant.to_owned();
            self.violation = Some(Violation { invariant, text, yours: false });
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_has_jumped_back_to_1970_goes_on() {
        let world = World::new(Plan::calm(0), Invariants::none(), 1_000, crate::LIFE_MAX);
        world.begin_life();
        let clock = world.clock();
        for _ in 0..6 {
            world.jump(-315_619_200_000);
        }
        assert_eq!(clock.now_ms(), 0);
        tokio::time::advance(Duration::from_millis(7)).await;
        assert_eq!(clock.now_ms(), 7);
        world.jump(5);
        assert_eq!(clock.now_ms(), 12);
    }
}
