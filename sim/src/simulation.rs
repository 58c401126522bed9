//! Executes a scenario under many plans, and shrinks the one that fails.

mod plans;
mod settings;

use std::cell::{Cell, OnceCell};
use std::collections::BTreeSet;
use std::time::Duration;

use crate::calm::{self, Calm};
use crate::failure::{Failure, Report};
use crate::life::{LIFE_MAX, LifeEnd, live};
use crate::plan::Plan;
use crate::repeat;
use crate::scenario::{Erased, Scenario};
use crate::shrink::{TRIES_MAX, shortest};
use crate::thread::Watchdog;
use crate::trace::Line;
use crate::world::{Violation, World};

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
