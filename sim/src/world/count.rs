//! Counts what happens in a world, and says what goes wrong there.

use std::time::Duration;

use super::World;
use crate::plan::{Counter, Fault};

/// More messages than this for each group of commits are a system that goes in circles.
const MESSAGES_A_COMMIT: u64 = 10;

/// More polls of code than this for each group of commits that a world may have, with nothing recorded in
/// between, are code that never comes to an end.
const POLLS_A_COMMIT: u64 = 10;

/// How much has happened in a world.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Groups of commits, begun.
    pub commits: u64,
    /// Messages that agents have handled.
    pub messages: u64,
    /// Reads of the store.
    pub reads: u64,
    /// Places in the code of runs: each entry, the beginning of each step, and the end of each step.
    pub code: u64,
    /// Lives of the process.
    pub lives: u64,
    /// Faults that have struck: they had something to act on, and acted.
    pub struck: u64,
}

impl World {
    /// Counts, and returns what goes wrong there, and how long the disk takes.
    pub(crate) fn count(&self, counter: Counter) -> (u64, Vec<Fault>, Duration) {
        let mut inner = self.lock();
        let lives = inner.counts.lives;
        if counter == Counter::Commit {
            inner.polls_since = 0;
        }
        let at = match counter {
            Counter::Commit => &mut inner.counts.commits,
            Counter::Message => &mut inner.counts.messages,
            Counter::Read => &mut inner.counts.reads,
            Counter::Code => &mut inner.counts.code,
            // Counted as they begin.
            Counter::Life => &mut 0,
        };
        *at += 1;
        let at = if counter == Counter::Life { lives } else { *at };
        let Counts { commits, messages, .. } = inner.counts;
        if commits > inner.commits_max || messages / MESSAGES_A_COMMIT > inner.commits_max {
            let text = format!(
                "it has not in {commits} groups of commits and {messages} messages, at a virtual time of {:?}; {} sets how much is endless",
                inner.now(),
                limit(inner.commits_max)
            );
            inner.violate("a world comes to its end", text);
            self.shared.ended.notify_one();
        }
        let planned = inner.plan.faults.iter();
        let faults: Vec<Fault> = planned
            .filter(|planned| planned.at == at && planned.fault.counter() == counter)
            .map(|planned| planned.fault)
            .collect();
        inner.doom = faults.iter().copied().find(|fault| fault.ends_life()).or(inner.doom);
        let latency = inner.plan.latency();
        (at, faults, latency)
    }

    /// Code is about to be polled: that counts until something is recorded, whether virtual time goes on
    /// meanwhile or not.
    pub(crate) fn count_poll(&self, who: &str) {
        let mut inner = self.lock();
        inner.polls += 1;
        inner.polls_since += 1;
        if inner.polls_since / POLLS_A_COMMIT > inner.commits_max {
            let text = format!(
                "{who} goes on and on: {} polls, and nothing recorded, until a virtual time of {:?}; {} sets how much is endless",
                inner.polls_since,
                inner.now(),
                limit(inner.commits_max)
            );
            inner.violate("a world comes to its end", text);
            self.shared.ended.notify_one();
        }
    }

    /// How much work the world was, in groups of commits.
    pub(crate) fn work(&self) -> u64 {
        let inner = self.lock();
        inner.counts.commits + inner.polls / POLLS_A_COMMIT
    }
}

fn limit(commits_max: u64) -> String {
    format!("Simulation::commits_max, which is {commits_max},")
}
