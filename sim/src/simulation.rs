//! Executes a scenario under many plans, and shrinks the one that fails.

use std::cell::{Cell, OnceCell};
use std::collections::BTreeSet;
use std::time::Duration;

use crate::calm::{self, Calm};
use crate::failure::{Failure, Report};
use crate::life::{LIFE_MAX, LifeEnd, chooses_by_seed, live};
use crate::plan::{Fault, Plan};
use crate::repeat;
use crate::scenario::{Erased, Scenario};
use crate::shrink::{TRIES_MAX, shortest};
use crate::thread::Watchdog;
use crate::trace::Line;
use crate::world::{Counts, Violation, World};

/// More lives than a plan has faults, and a last one, are a world that does not come to an end.
const SPARE_LIVES: usize = 3;

/// More groups of commits than this are a world that does not come to an end.
const COMMITS_MAX: u64 = 20_000;

/// As many groups of commits as a world may have, so many times, are spent on a shorter plan.
const SHRINK_WORLDS: u64 = 5;

/// A simulation of a scenario: add what should go wrong, then [`check`](Simulation::check).
#[must_use = "a simulation does nothing until `check` or `run` is called"]
pub struct Simulation {
    scenario: Box<dyn Erased>,
    plan: Option<Plan>,
    watch: Option<Box<Watch>>,
    command: Box<dyn Fn(&Plan) -> String>,
    commits: bool,
    stops: bool,
    pairs: u64,
    evictions: bool,
    parent_crashes: bool,
    seeds: u64,
    commits_max: u64,
    life_max: Duration,
    most: usize,
    deny_warnings: bool,
    /// How runs end when nothing goes wrong, once that was executed.
    calm: OnceCell<Calm>,
}

/// Is told how many plans were executed, of how many.
type Watch = dyn Fn(u64, u64);

impl Simulation {
    /// A simulation in which nothing goes wrong yet.
    pub fn new(scenario: impl Scenario) -> Self {
        Self {
            scenario: Box::new(scenario),
            plan: None,
            watch: None,
            command: Box::new(repeat::command),
            commits: false,
            stops: false,
            pairs: 0,
            evictions: false,
            parent_crashes: false,
            seeds: 0,
            commits_max: COMMITS_MAX,
            life_max: LIFE_MAX,
            most: usize::MAX,
            deny_warnings: false,
            calm: OnceCell::new(),
        }
    }

    /// The scenario's name.
    pub fn name(&self) -> String {
        self.scenario.name()
    }

    /// Kills the process just before, in the middle of, and just after each group of commits of the
    /// calm world: one plan each. Adds a sample of pairs of kills, as many as there are groups; after
    /// every other first kill, time passes until the process is started again.
    pub fn crash_at_every_commit(mut self) -> Self {
        self.commits = true;
        self
    }

    /// Stops the process in order after each group of commits of the calm world: one plan each.
    pub fn stop_at_every_commit(mut self) -> Self {
        self.stops = true;
        self
    }

    /// Samples so many more pairs of kills.
    pub fn pairs(mut self, pairs: u64) -> Self {
        self.pairs = pairs;
        self
    }

    /// Asks an agent to leave memory after each message that it handles in the calm world.
    pub fn evict_at_every_turn(mut self) -> Self {
        self.evictions = true;
        self
    }

    /// Kills an agent's actor after each message that it handles in the calm world.
    pub fn crash_parent_at_every_turn(mut self) -> Self {
        self.parent_crashes = true;
        self
    }

    /// Executes so many random plans: kills, stops, crashes of parents, evictions, stalls and failures of
    /// the disk, jumps of the clock, duplicate dispatches, and whatever else the scenario
    /// [tolerates](Scenario::tolerates).
    pub fn seeds(mut self, seeds: u64) -> Self {
        self.seeds = seeds;
        self
    }

    /// Insists that the same plan gives the same timeline, byte for byte, in every process. That needs
    /// tokio's seeded scheduler; without it the faults of a plan repeat, and the branch that an
    /// unbiased `select!` tries first may not.
    ///
    /// # Panics
    /// If tokio, as the program was built, does not choose by the seed.
    pub fn exactly_repeatable(self) -> Self {
        assert!(
            chooses_by_seed(),
            "timelines repeat byte for byte only with tokio's seeded scheduler, which is not in this program: build it, and all it depends on, with RUSTFLAGS=\"--cfg tokio_unstable\", or with rustflags = [\"--cfg\", \"tokio_unstable\"] under [build] of .cargo/config.toml"
        );
        self
    }

    /// Takes a world for endless after so many groups of commits, ten times as many messages of agents, or
    /// ten times as many polls of code with nothing recorded in between: 20,000 unless it is set.
    pub fn commits_max(mut self, groups: u64) -> Self {
        self.commits_max = groups;
        self
    }

    /// Takes a drive for stuck after so much virtual time in one life, and what it has left behind, too:
    /// [`LIFE_MAX`] unless it is set, and for the latter [`SETTLE_MAX`](crate::SETTLE_MAX) at most.
    pub fn life_max(mut self, time: Duration) -> Self {
        self.life_max = time;
        self
    }

    /// Executes a sample of this many of the plans that were asked for, if there are more: the same
    /// ones every time, of all kinds. For a test that has to be quick, beside one that is not.
    pub fn at_most(mut self, plans: usize) -> Self {
        self.most = plans;
        self
    }

    /// Takes a [warning](Report::warnings) for a failure, so that nothing leaves the simulation unseen.
    pub fn deny_warnings(mut self) -> Self {
        self.deny_warnings = true;
        self
    }

    /// Executes this plan alone, whatever else was asked for. If it has faults, and none of them strikes, that
    /// is a failure.
    pub fn plan(mut self, plan: Plan) -> Self {
        self.plan = Some(plan);
        self
    }

    /// Calls `watch` after each plan, with how many were executed, and of how many.
    pub fn watch(mut self, watch: impl Fn(u64, u64) + 'static) -> Self {
        self.watch = Some(Box::new(watch));
        self
    }

    /// Lets a failure name this command to repeat it: for a program that has a command of its own.
    pub fn repeated_by(mut self, command: impl Fn(&Plan) -> String + 'static) -> Self {
        self.command = Box::new(command);
        self
    }

    /// Executes everything that was asked for, and prints the [warnings](Report::warnings) on standard
    /// error, where a test shows them with the rest of its output.
    ///
    /// # Panics
    /// When something does not hold, with the whole [`Failure`] as its text. As [`Simulation::run`].
    pub fn check(self) -> Report {
        let name = self.name();
        match self.run() {
            Ok(report) => {
                for warning in &report.warnings {
                    eprintln!("simulation of {name}: warning: {warning}");
                }
                report
            }
            Err(failure) => panic!("{failure}"),
        }
    }

    /// Executes everything that was asked for; if the environment variable `GHOSTLIGHT_SIM_PLAN`
    /// holds a plan, that one alone, and says so on standard error.
    ///
    /// # Errors
    /// The first failure, under the shortest plan that shows it.
    ///
    /// # Panics
    /// If the variable holds a text that is no plan, and within a tokio runtime.
    pub fn run(mut self) -> Result<Report, Box<Failure>> {
        let mut report = Report::default();
        if let Some(plan) = repeat::plan_of_environment() {
            let (name, variable) = (self.name(), repeat::PLAN_VARIABLE);
            eprintln!("{variable} is set: of {name} this plan alone is executed: {plan}");
            self.plan = Some(plan);
        }
        if let Some(plan) = &self.plan {
            let calm = self.calm(&mut Report::default())?.counts();
            (report.calm_commits, report.calm_messages) = (calm.commits, calm.messages);
            let world = self.one(plan, &mut report)?;
            if report.faults > 0 && report.struck == 0 {
                return Err(Box::new(self.strikes_nothing(plan, &world)));
            }
            return Ok(report);
        }
        let world = self.calm(&mut report)?;
        let calm = world.counts();
        report.calm_commits = calm.commits;
        report.calm_messages = calm.messages;
        let groups = world.groups();
        let (all, plans) = self.plans(calm, &groups);
        for plan in plans {
            self.one(&plan, &mut report)?;
            if let Some(watch) = &self.watch {
                watch(report.plans, all.saturating_add(1));
            }
        }
        Ok(report)
    }

    /// Executes one plan, and returns its timeline.
    ///
    /// # Errors
    /// The failure, if something does not hold under the plan.
    pub fn trace(&self, plan: &Plan) -> Result<Vec<Line>, Box<Failure>> {
        if self.calm.get().is_none() {
            self.calm(&mut Report::default())?;
        }
        match self.execute(plan) {
            Ok(world) => Ok(world.take_trace()),
            Err(failed) => Err(Box::new(self.shrink(plan, failed))),
        }
    }

    /// The random plans of these seeds, as [`Simulation::seeds`] executes them.
    ///
    /// # Errors
    /// The failure, if something does not hold in the calm world, which they are measured by.
    pub fn random_plans(
        &self,
        seeds: std::ops::RangeInclusive<u64>,
    ) -> Result<Vec<Plan>, Box<Failure>> {
        let calm = self.calm(&mut Report::default())?.counts();
        Ok(seeds.map(|seed| self.random(seed, calm)).collect())
    }

    /// Executes the plan in which nothing goes wrong, which all others are measured by.
    fn calm(&self, report: &mut Report) -> Result<World, Box<Failure>> {
        self.one(&Plan::calm(0), report)
    }

    /// Executes one plan.
    fn one(&self, plan: &Plan, report: &mut Report) -> Result<World, Box<Failure>> {
        match self.execute(plan) {
            Ok(world) => {
                report.add(plan, &world);
                Ok(world)
            }
            Err(failed) => {
                let mut failure = self.shrink(plan, failed);
                failure.plans = report.plans + 1;
                Err(Box::new(failure))
            }
        }
    }

    /// The plans that were asked for, and how many; `groups` has the batches of each group of the calm
    /// world. Random ones are made when it is their turn: there may be more than fit into memory.
    fn plans(&self, calm: Counts, groups: &[u32]) -> (u64, impl Iterator<Item = Plan>) {
        let mut plans = Vec::new();
        let mut chance = fastrand::Rng::with_seed(calm.commits);
        let kill = |chance: &mut fastrand::Rng, at: u64| {
            let batches = usize::try_from(at - 1).ok().and_then(|at| groups.get(at));
            // Beyond the calm world nobody knows how large a group is.
            let kills = Fault::kills(batches.copied().unwrap_or(2));
            kills[chance.usize(..kills.len())]
        };
        if self.commits {
            for (at, batches) in (1..).zip(groups) {
                for fault in Fault::kills(*batches) {
                    plans.push(Plan::calm(0).with(fault, at));
                }
            }
        }
        if self.stops {
            plans.extend((1..=calm.commits).map(|at| Plan::calm(0).with(Fault::Stop, at)));
        }
        let pairs = self.pairs + if self.commits { calm.commits } else { 0 };
        for _ in 0..pairs {
            let first = chance.u64(1..=calm.commits);
            let second = first + chance.u64(1..=calm.commits);
            let plan = Plan::calm(0).with(kill(&mut chance, first), first);
            let plan = plan.with(kill(&mut chance, second), second);
            // Every other process is not started again at once.
            plans.push(if chance.bool() { plan.with(down(&mut chance), 1) } else { plan });
        }
        let at_messages =
            [(self.evictions, Fault::Evict), (self.parent_crashes, Fault::CrashParent)];
        for (wanted, fault) in at_messages {
            let last = if wanted { calm.messages } else { 0 };
            plans.extend((1..=last).map(|at| Plan::calm(0).with(fault, at)));
        }
        let planned = plans.len() as u64;
        let all = planned.saturating_add(self.seeds);
        let most = u64::try_from(self.most).unwrap_or(u64::MAX);
        let sample = (all > most).then(|| {
            let mut sample = BTreeSet::new();
            while sample.len() < self.most {
                sample.insert(chance.u64(..all));
            }
            sample
        });
        let everything = if sample.is_some() { 0..0 } else { 0..all };
        let chosen = sample.into_iter().flatten().chain(everything);
        let plans = chosen.map(move |at| {
            let plan = usize::try_from(at).ok().and_then(|at| plans.get(at).cloned());
            plan.unwrap_or_else(|| self.random(at - planned + 1, calm))
        });
        (all.min(most), plans)
    }

    /// The random plan of a seed.
    fn random(&self, seed: u64, calm: Counts) -> Plan {
        let mut chance = fastrand::Rng::with_seed(seed);
        let latency_ms = [0, 0, 1, 5, 20][chance.usize(..5)];
        let mut plan = Plan { seed, latency_ms, faults: Vec::new() };
        let mut tolerated = vec![Fault::Cancel, Fault::PanicChild, Fault::StallChild(0)];
        tolerated.retain(|fault| self.scenario.tolerates(*fault));
        for _ in 0..chance.u64(1..=5) {
            let fault = match chance.usize(..18 + tolerated.len()) {
                0 | 1 => Fault::KillBefore,
                2 | 3 => Fault::KillAfter,
                4 => Fault::KillTorn(chance.u32(1..4)),
                5 => Fault::Stall(chance.u64(1..30_000)),
                6 => Fault::Fail([0, 1, u32::MAX][chance.usize(..3)]),
                7 => Fault::Jump(chance.i64(-600_000..3_600_000)),
                8 => Fault::Duplicate,
                9 | 10 => Fault::Evict,
                11 => Fault::CrashParent,
                12 => Fault::CrashRun,
                13 => Fault::StallRead(chance.u64(1..30_000)),
                14 => Fault::FailRead,
                15 => down(&mut chance),
                16 | 17 => Fault::Stop,
                other => match tolerated[other - 18] {
                    Fault::StallChild(_) => Fault::StallChild(chance.u64(1..600_000)),
                    fault => fault,
                },
            };
            let most = match fault {
                Fault::Evict | Fault::CrashParent => calm.messages,
                Fault::StallChild(_) | Fault::PanicChild | Fault::CrashRun => calm.code,
                Fault::StallRead(_) | Fault::FailRead => calm.reads,
                Fault::Down(_) => 2,
                _ => calm.commits,
            };
            plan = plan.with(fault, chance.u64(1..=most * 3 / 2 + 1));
        }
        plan
    }

    /// Finds the shortest plan that fails in the same way, and sees it fail once more.
    fn shrink(&self, found: &Plan, failed: Failed) -> Failure {
        let work_left = Cell::new(self.commits_max.saturating_mul(SHRINK_WORLDS));
        let fails = |plan: &Plan| {
            let (work, again) = match self.execute(plan) {
                Ok(world) => (world.work(), None),
                Err(again) => (again.work, Some(again)),
            };
            work_left.set(work_left.get().saturating_sub(work));
            again.filter(|again| again.violation.is_like(&failed.violation))
        };
        let mut plan =
            shortest(found, TRIES_MAX, |plan| work_left.get() > 0 && fails(plan).is_some());
        let mut last = fails(&plan);
        let repeats = last.is_some();
        if !repeats {
            plan = found.clone();
            last = fails(&plan);
        }
        let Failed { violation, trace, warnings, .. } = last.unwrap_or(failed);
        Failure {
            scenario: self.scenario.name(),
            invariant: violation.invariant,
            text: violation.text,
            plans: 1,
            found: found.clone(),
            command: (self.command)(&plan),
            plan,
            repeats,
            trace,
            warnings,
        }
    }

    /// The failure of a plan that was asked for, and proves nothing.
    fn strikes_nothing(&self, plan: &Plan, world: &World) -> Failure {
        let text = "nothing has struck, which proves nothing: the places of its faults were not reached, or had nothing to act on";
        Failure {
            scenario: self.scenario.name(),
            invariant: "a plan strikes".to_owned(),
            text: text.to_owned(),
            plans: 1,
            found: plan.clone(),
            command: (self.command)(plan),
            plan: plan.clone(),
            repeats: true,
            trace: world.take_trace(),
            warnings: world.warnings(),
        }
    }

    /// Lives through a plan until all is over, and once more.
    fn execute(&self, plan: &Plan) -> Result<World, Failed> {
        assert!(
            tokio::runtime::Handle::try_current().is_err(),
            "a simulation makes runtimes of its own: call it from a plain #[test], not from #[tokio::test]"
        );
        let scenario = &*self.scenario;
        let world =
            World::new(plan.clone(), scenario.invariants(), self.commits_max, self.life_max);
        let watchdog = Watchdog::begin(format!("simulation of {} under {plan}", scenario.name()));
        let lives = plan.faults.len() + SPARE_LIVES;
        let mut settled = 0;
        for _ in 0..lives {
            match live(scenario, &world, &watchdog) {
                Ok(LifeEnd::Settled) => {
                    settled += 1;
                    world.judge_faults();
                }
                Ok(LifeEnd::Killed | LifeEnd::Stopped) => {}
                Ok(LifeEnd::Violated) => break,
                Err(error) => {
                    world.violated("a runtime can be made", error.to_string());
                    break;
                }
            }
            // The second one finds everything done, and has nothing to do.
            if settled == 2 {
                break;
            }
        }
        if settled < 2 {
            world.violated("a world comes to its end", format!("it has not in {lives} lives"));
        }
        self.compare(plan, &world);
        if let Some(warning) = world.warnings().first().filter(|_| self.deny_warnings) {
            world.violated("there is no warning", warning.clone());
        }
        drop(watchdog);
        match world.violation() {
            None => Ok(world),
            Some(violation) => Err(Failed::of(&world, violation)),
        }
    }

    /// Compares how runs have ended with the calm world, or keeps it, if that is it.
    fn compare(&self, plan: &Plan, world: &World) {
        if world.violation().is_some() || !self.scenario.is_deterministic() {
            return;
        }
        let Some(calm) = self.calm.get() else {
            if *plan == Plan::calm(0) {
                let _ = self.calm.set(world.durable(Calm::new));
            }
            return;
        };
        let differs = world.durable(|durable| calm.differs(durable));
        if let Some(text) = differs.filter(|_| !calm::changes_ends(plan)) {
            world.violated("every run ends as it does in peace", text);
        }
    }
}

/// A time between two lives: from a blink to a fortnight.
fn down(chance: &mut fastrand::Rng) -> Fault {
    Fault::Down(10u64.pow(chance.u32(1..=9)) + chance.u64(..200_000_000))
}

/// A world in which something does not hold.
struct Failed {
    violation: Violation,
    trace: Vec<Line>,
    warnings: BTreeSet<String>,
    work: u64,
}

impl Failed {
    fn of(world: &World, violation: Violation) -> Self {
        let (warnings, work) = (world.warnings(), world.work());
        Self { violation, trace: world.take_trace(), warnings, work }
    }
}
