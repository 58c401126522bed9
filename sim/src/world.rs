//! A simulated world: everything that outlives the process, and the order in which things happened.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use ghostlight::storage::{Batch, Error as StoreError};
use ghostlight::{AgentPath, Clock, System};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::disk::{Disk, Written};
use crate::durable::{Change, Durable};
use crate::effects::Effects;
use crate::invariant::{Event, Invariant, Invariants};
use crate::life::words;
use crate::observers::Observers;
use crate::oracle;
use crate::plan::{Counter, Fault, Plan};
use crate::trace::{Line, Trace};

/// What the wall clock shows when a world begins: 2026-01-01.
const EPOCH_MS: u64 = 1_767_225_600_000;

/// More messages than this for each group of commits are a system that goes in circles.
const MESSAGES_A_COMMIT: u64 = 10;

/// What outlives every life of the simulated process. Clones share it.
#[derive(Clone)]
pub struct World {
    shared: Arc<Shared>,
}

struct Shared {
    effects: Effects,
    always: Vec<(String, Holds)>,
    finally: Vec<(String, Holds)>,
    inner: Mutex<Inner>,
    /// Something has happened that ends the life.
    ended: Notify,
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
    /// Shared with whoever looks at it meanwhile.
    durable: Arc<Durable>,
    invariants: Vec<Box<dyn Invariant>>,
    trace: Trace,
    life: u64,
    began: Option<Instant>,
    /// Virtual time of all earlier lives.
    elapsed: Duration,
    jumped_ms: i64,
    counts: Counts,
    commits_max: u64,
    /// How long the disk has kept its users waiting.
    disk_busy: Duration,
    /// The drive has returned, and nothing was left to do: nothing may happen any more.
    settled: bool,
    warnings: BTreeSet<String>,
    killed: bool,
    kills_due: u64,
    kills: u64,
    store_failed: bool,
    violation: Option<Violation>,
    promises: BTreeMap<String, String>,
    system: Option<System>,
    last_begun: Option<AgentPath>,
}

/// How much has happened in a world.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Groups of commits, begun.
    pub commits: u64,
    /// Messages that agents have handled.
    pub messages: u64,
    /// Entries into the code of runs.
    pub entries: u64,
    /// Lives of the process.
    pub lives: u64,
    /// Faults that have struck.
    pub struck: u64,
}

impl World {
    pub(crate) fn new(plan: Plan, invariants: Invariants, commits_max: u64) -> Self {
        let Invariants { always, finally, others } = invariants;
        let mut all = oracle::all();
        all.extend(others);
        let inner = Inner {
            plan,
            disk: Disk::default(),
            durable: Arc::default(),
            invariants: all,
            trace: Trace::default(),
            life: 0,
            began: None,
            elapsed: Duration::ZERO,
            jumped_ms: 0,
            counts: Counts::default(),
            commits_max,
            disk_busy: Duration::ZERO,
            settled: false,
            warnings: BTreeSet::new(),
            killed: false,
            kills_due: 0,
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
            inner: Mutex::new(inner),
            ended: Notify::new(),
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

    /// Notes a panic, which may have happened while the world is being looked at.
    pub(crate) fn panicked(&self, text: &str) {
        let who = crate::thread::polled_now().unwrap_or_default();
        let inner = match self.shared.inner.try_lock() {
            Ok(inner) => Some(inner),
            Err(TryLockError::Poisoned(inner)) => Some(inner.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(mut inner) = inner {
            inner.line("panic", &who, text.to_owned());
        }
    }

    pub(crate) fn take_trace(&self) -> Vec<Line> {
        self.lock().trace.take()
    }

    /// Something does not hold: the first such thing ends the life.
    pub(crate) fn violated(&self, invariant: &str, text: String) {
        let mut inner = self.lock();
        inner.violate(invariant, text);
        drop(inner);
        self.shared.ended.notify_one();
    }

    /// Something that a scenario asks for does not hold; the text is no part of what that is.
    fn violated_yours(&self, invariant: &str, who: &str, text: String) {
        let mut inner = self.lock();
        if inner.violation.is_none() {
            inner.line("violated", who, format!("{invariant:?} does not hold"));
            let invariant = invariant.to_owned();
            inner.violation = Some(Violation { invariant, text, yours: true });
        }
        drop(inner);
        self.shared.ended.notify_one();
    }

    pub(crate) fn violation(&self) -> Option<Violation> {
        self.lock().violation.clone()
    }

    /// Tells everybody who checks of an event.
    pub(crate) fn tell(&self, event: &Event<'_>) {
        self.judge(event);
        self.check_always();
        if matches!(event, Event::Settled) {
            self.lock().settled = true;
            for (name, holds) in &self.shared.finally {
                if !held(holds, self) {
                    self.violated_yours(name, "", "all is over".into());
                }
            }
        }
        if self.lock().violation.is_some() {
            self.shared.ended.notify_one();
        }
    }

    fn check_always(&self) {
        for (name, holds) in &self.shared.always {
            if !held(holds, self) {
                let (who, text) = self.lock().trace.last_change();
                self.violated_yours(name, &who, text);
            }
        }
    }

    /// Lets every invariant judge an event. They are checked without the lock, so that they may look at
    /// the world; one that panics does not hold, and takes no other with it.
    fn judge(&self, event: &Event<'_>) {
        let (mut invariants, durable) = {
            let mut inner = self.lock();
            (std::mem::take(&mut inner.invariants), Arc::clone(&inner.durable))
        };
        for invariant in &mut invariants {
            let checked = catch_unwind(AssertUnwindSafe(|| invariant.check(event, &durable)));
            let held = checked.unwrap_or_else(|panic| Err(format!("panicked: {}", words(&*panic))));
            if let Err(text) = held {
                self.lock().violate(invariant.name(), text);
            }
        }
        drop(durable);
        self.lock().invariants = invariants;
    }

    /// Begins the next life on what is durable.
    pub(crate) fn begin_life(&self) {
        let mut inner = self.lock();
        inner.life += 1;
        inner.counts.lives += 1;
        inner.began = Some(Instant::now());
        inner.killed = false;
        inner.store_failed = false;
        inner.disk.forget_unsynced();
        let life = inner.life;
        let recorded = inner.durable.runs().filter_map(|(_, run)| run.path.clone()).collect();
        inner.line("life", "", format!("life {life} of the process begins"));
        drop(inner);
        self.shared.observers.begin_life(recorded);
        self.tell(&Event::LifeBegan);
    }

    pub(crate) fn set_system(&self, system: Option<System>) {
        let mut inner = self.lock();
        if let Some(system) = &system {
            let cap = |agent_type: String| {
                let settings = system.agent_settings(&agent_type).ok()?;
                Some((agent_type, settings.max_concurrent_runs?))
            };
            let caps = system.agent_types().into_iter().filter_map(cap).collect();
            Arc::make_mut(&mut inner.durable).set_caps(caps);
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

    pub(crate) fn kill(&self, when: &str) {
        let mut inner = self.lock();
        inner.killed = true;
        inner.kills += 1;
        inner.line("fault", "", format!("the process is killed {when}"));
        drop(inner);
        self.shared.ended.notify_one();
    }

    /// Whether this life may go on to use the disk.
    pub(crate) fn is_alive(&self, life: u64) -> bool {
        let inner = self.lock();
        inner.life == life && !inner.killed
    }

    /// How often the process was killed.
    pub(crate) fn kills(&self) -> u64 {
        self.lock().kills
    }

    /// Whether every kill that was due has ended a life.
    pub(crate) fn kills_strike(&self) -> bool {
        let inner = self.lock();
        inner.kills >= inner.kills_due
    }

    pub(crate) fn store_failed(&self) -> bool {
        self.lock().store_failed
    }

    pub(crate) fn fail_store(&self) {
        let mut inner = self.lock();
        inner.store_failed = true;
        inner.line("fault", "", "the disk fails".into());
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

    pub(crate) fn observers(&self) -> &Observers {
        &self.shared.observers
    }

    pub(crate) fn disk_busy(&self) -> Duration {
        self.lock().disk_busy
    }

    /// Lets the disk keep its user waiting.
    pub(crate) async fn busy(&self, time: Duration) {
        if !time.is_zero() {
            tokio::time::sleep(time).await;
            self.lock().disk_busy += time;
        }
    }

    /// Counts, and returns what goes wrong there, and how long the disk takes.
    pub(crate) fn count(&self, counter: Counter) -> (u64, Vec<Fault>, Duration) {
        let mut inner = self.lock();
        let at = match counter {
            Counter::Commit => &mut inner.counts.commits,
            Counter::Message => &mut inner.counts.messages,
            Counter::Entry => &mut inner.counts.entries,
        };
        *at += 1;
        let at = *at;
        let Counts { commits, messages, .. } = inner.counts;
        if commits > inner.commits_max || messages / MESSAGES_A_COMMIT > inner.commits_max {
            let text = format!("it has not in {commits} groups of commits, {messages} messages");
            inner.violate("a world comes to its end", text);
            self.shared.ended.notify_one();
        }
        let planned = inner.plan.faults.iter();
        let faults: Vec<Fault> = planned
            .filter(|planned| planned.at == at && planned.fault.counter() == counter)
            .map(|planned| planned.fault)
            .collect();
        inner.counts.struck += faults.len() as u64;
        // A disk that fails ends the life in its own way.
        let fails = faults.contains(&Fault::Fail);
        inner.kills_due += u64::from(!fails && faults.iter().any(|fault| fault.is_kill()));
        let latency = inner.plan.latency();
        (at, faults, latency)
    }

    /// Brings batches to the disk, where they can be read, and may be lost.
    pub(crate) fn write(&self, group: &[Batch]) -> Vec<Result<(), StoreError>> {
        self.lock().disk.write(group)
    }

    /// Makes everything that was written durable, as group `group`.
    pub(crate) fn sync(&self, group: u64) {
        let mut inner = self.lock();
        let changes = inner.disk.sync();
        if changes.is_empty() {
            return;
        }
        let known: Vec<bool> = changes.iter().map(|change| inner.knows(change)).collect();
        let is_new = |c: &&Change| c.after.is_some() && matches!(c.key.kind(), "record" | "log");
        let new = changes.iter().find(is_new);
        if let (true, Some(change)) = (inner.settled, new) {
            let run = change.key.run().and_then(|run| inner.durable.run(run));
            let name = run.and_then(|run| run.path.as_ref()).map_or("a new run", AgentPath::as_str);
            let text = format!("something is recorded of {name}");
            inner.violate("the last life finds everything done", text);
        }
        if let Err(error) = Arc::make_mut(&mut inner.durable).apply(&changes) {
            inner.violate("every record can be read", error.to_string());
        }
        let begun: Vec<AgentPath> = changes
            .iter()
            .zip(known)
            .filter(|(change, known)| change.key.kind() == "record" && !known)
            .filter_map(|(change, _)| inner.durable.run(change.key.run()?)?.path.clone())
            .collect();
        for (who, text) in crate::trace::describe(&changes, &inner.durable) {
            inner.line("commit", &who, format!("{group}: {text}"));
        }
        if let Some(last) = begun.last() {
            inner.last_begun = Some(last.clone());
        }
        drop(inner);
        self.shared.observers.add(begun);
        self.tell(&Event::Committed { group, changes: &changes });
    }

    pub(crate) fn read<T>(&self, read: impl FnOnce(&Written) -> T) -> T {
        read(self.lock().disk.written())
    }

    pub(crate) fn jump(&self, ms: i64) {
        let mut inner = self.lock();
        inner.jumped_ms += ms;
        inner.line("fault", "", format!("the wall clock jumps by {ms} ms"));
    }

    pub(crate) fn last_begun(&self) -> Option<AgentPath> {
        self.lock().last_begun.clone()
    }

    pub(crate) fn clock(&self) -> impl Clock {
        WorldClock(self.clone())
    }
}

/// Whether something holds; a panic says that it does not.
fn held(holds: &Holds, world: &World) -> bool {
    catch_unwind(AssertUnwindSafe(|| holds(world))).unwrap_or(false)
}

struct WorldClock(World);

impl Clock for WorldClock {
    fn now_ms(&self) -> u64 {
        let inner = self.0.lock();
        (EPOCH_MS + millis(inner.now())).saturating_add_signed(inner.jumped_ms)
    }
}

impl Inner {
    /// Virtual time since the world began.
    fn now(&self) -> Duration {
        self.elapsed + self.began.map_or(Duration::ZERO, |began| began.elapsed())
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
