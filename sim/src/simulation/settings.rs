//! What should go wrong, and how much of it.

use std::time::Duration;

use super::Simulation;
use crate::life::chooses_by_seed;
use crate::plan::Plan;

impl Simulation {
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
    /// [tolerates](crate::Scenario::tolerates).
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
    /// [`LIFE_MAX`](crate::LIFE_MAX) unless it is set, and for the latter [`SETTLE_MAX`](crate::SETTLE_MAX) at most.
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

    /// Takes a [warning](crate::Report::warnings) for a failure, so that nothing leaves the simulation unseen.
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
}
