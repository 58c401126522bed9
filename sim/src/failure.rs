//! What a simulation says in the end.

use std::collections::BTreeSet;
use std::fmt;

use crate::plan::Plan;
use crate::scenarios;
use crate::trace::Line;
use crate::world::World;

/// What a simulation has done, when everything held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Plans that were executed, each in a world of its own.
    pub plans: u64,
    /// Lives of the process in all of them.
    pub lives: u64,
    /// Groups of commits in all of them.
    pub commits: u64,
    /// Groups of commits in the world in which nothing goes wrong.
    pub calm_commits: u64,
    /// Messages that agents handled in that world.
    pub calm_messages: u64,
    /// Faults in all plans.
    pub faults: u64,
    /// Faults that have struck: the others' places were never reached.
    pub struck: u64,
    /// What is outside of the promise of a simulation, or not crash-safe without having failed: threads
    /// that a step blocks, and awaits of what is not recorded. In words, each once.
    pub warnings: BTreeSet<String>,
}

impl Report {
    pub(crate) fn add(&mut self, plan: &Plan, world: &World) {
        let counts = world.counts();
        self.faults += plan.faults.len() as u64;
        self.struck += counts.struck;
        self.warnings.extend(world.warnings());
        self.plans += 1;
        self.lives += counts.lives;
        self.commits += counts.commits;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} plans, {} lives, {} groups of commits, {} of {} faults struck",
            self.plans, self.lives, self.commits, self.struck, self.faults
        )?;
        self.warnings.iter().try_for_each(|warning| write!(f, "\nwarning: {warning}"))
    }
}

/// A plan under which something does not hold: the shortest one that was found, and its timeline.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Failure {
    /// The scenario.
    pub scenario: String,
    /// What does not hold.
    pub invariant: String,
    /// In which way.
    pub text: String,
    /// How many plans were executed until it was found, that one included.
    pub plans: u64,
    /// The plan under which it was found.
    pub found: Plan,
    /// The shortest plan under which it still does not hold.
    pub plan: Plan,
    /// What happened under the shortest plan.
    pub trace: Vec<Line>,
}

/// The environment variable that holds the one plan to execute.
pub(crate) const PLAN_VARIABLE: &str = "GHOSTLIGHT_SIM_PLAN";

impl Failure {
    /// The command that executes the shortest plan again.
    pub fn command(&self) -> String {
        let thread = std::thread::current();
        match thread.name().filter(|name| *name != "main") {
            Some(test) => format!("{PLAN_VARIABLE}='{}' cargo test {test}", self.plan),
            None if scenarios::all().iter().any(|shipped| shipped.name == self.scenario) => {
                format!("ghostlight sim --scenario {} --plan '{}'", self.scenario, self.plan)
            }
            None => {
                let program = std::env::current_exe().unwrap_or_default();
                let program = program.file_name().unwrap_or_default().to_string_lossy();
                format!("{PLAN_VARIABLE}='{}' {program}", self.plan)
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, invariant, text, plans, found, plan, trace } = self;
        writeln!(f, "scenario {scenario}: {invariant:?} does not hold: {text}\n")?;
        writeln!(f, "life     time what     (virtual time in seconds)")?;
        trace.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        writeln!(f, "\nfound under: {found} (plan {plans})")?;
        writeln!(f, "shortest:    {plan}")?;
        write!(f, "again:       {}", self.command())
    }
}

impl std::error::Error for Failure {}
