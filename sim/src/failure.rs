//! What a simulation says in the end.

use std::collections::BTreeSet;
use std::fmt;

use crate::plan::Plan;
use crate::trace::{Line, heading};
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
    /// Runs that were recorded in all of them.
    pub runs: u64,
    /// How often the process was killed, in all of them.
    pub kills: u64,
    /// Groups of commits in the world in which nothing goes wrong.
    pub calm_commits: u64,
    /// Messages that agents handled in that world.
    pub calm_messages: u64,
    /// Faults in all plans.
    pub faults: u64,
    /// Faults that have struck: the others' places were not reached, or had nothing to act on.
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
        self.runs += world.durable(|durable| durable.runs().count()) as u64;
        self.kills += world.kills();
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} plans, {} runs, {} kills, {} lives, {} groups of commits, {} of {} faults struck",
            self.plans, self.runs, self.kills, self.lives, self.commits, self.struck, self.faults
        )?;
        self.warnings.iter().try_for_each(|warning| write!(f, "\nwarning: {warning}"))
    }
}

/// A plan under which something does not hold: the shortest one that was found, and its timeline.
///
/// What a child fails with is a [`ghostlight::Failure`].
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
    /// The shortest plan under which it still does not hold, in the same way.
    pub plan: Plan,
    /// Whether that plan, executed once more, has failed in the same way. If not, something that is
    /// not simulated decides, and the plan is the one under which it was found.
    pub repeats: bool,
    /// What happened under the shortest plan.
    pub trace: Vec<Line>,
    /// As those of a [`Report`], under the shortest plan.
    pub warnings: BTreeSet<String>,
    /// The command that executes the shortest plan again: of cargo for a test and for a program that cargo
    /// has started, or the program with its arguments.
    pub command: String,
}

/// The longest address that the timeline is aligned for.
const WHO_MAX: usize = 48;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, invariant, text, plans, found, plan, trace, command, .. } = self;
        writeln!(f, "scenario {scenario}: {invariant:?} does not hold: {text}\n")?;
        let widths = trace.iter().map(|line| line.who.len());
        let width = widths.filter(|width| *width <= WHO_MAX).max().unwrap_or(0).max(12);
        writeln!(f, "{}", heading(width))?;
        for line in trace {
            let gap = if line.kind == "life" && line.life > 1 { "\n" } else { "" };
            writeln!(f, "{gap}{line:width$}")?;
        }
        writeln!(f)?;
        self.warnings.iter().try_for_each(|warning| writeln!(f, "warning: {warning}"))?;
        if !self.repeats {
            writeln!(
                f,
                "warning: this plan, executed again, did not fail in this way: something decides that is not simulated, such as a thread, real time, or the order of a HashMap"
            )?;
        }
        writeln!(f, "found under: {found} (plan {plans})")?;
        writeln!(f, "shortest:    {plan}")?;
        write!(f, "again:       {command}")
    }
}

impl std::error::Error for Failure {}
