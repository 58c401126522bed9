//! The restart decision as a pure value: rule, history and exit in, decision out.

use std::collections::VecDeque;
use std::time::Duration;

use crate::exit::ExitKind;

#[cfg(test)]
mod tests;

/// Says whether a child that ended is started again.
///
/// | policy      | `Normal` | `Restart` | `Failed` | `Killed` |
/// |-------------|----------|-----------|----------|----------|
/// | `Permanent` | restart  | at once   | restart  | restart  |
/// | `Transient` | remove   | at once   | restart  | restart  |
/// | `Temporary` | remove   | remove    | remove   | remove   |
///
/// *restart* waits out the [`Backoff`] and counts against the [`Intensity`]; *at once* does neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Always started again, however it ended.
    Permanent,
    /// Started again unless it ended normally.
    Transient,
    /// Never started again.
    Temporary,
}

/// How many restarts one child may use within a sliding window.
///
/// The restart after the `max_restarts`-th within `within` is refused, and [`Exhausted`] says what
/// happens instead. Every child counts for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intensity {
    /// Restarts granted within the window; 0 refuses the first. A child remembers at most this many
    /// points in time (16 bytes each).
    pub max_restarts: u32,
    /// The window. A child that ran for longer than this starts over with a clean history. With a
    /// window of zero only `max_restarts: 0` is ever exhausted.
    pub within: Duration,
}

impl Default for Intensity {
    /// 5 restarts within 60 s.
    fn default() -> Self {
        Self { max_restarts: 5, within: Duration::from_secs(60) }
    }
}

/// Exponential wait before a restart: `first`, then times `factor` for each further restart in a row.
///
/// Jitter only ever shortens a wait, so that `max` is a bound. Whole numbers throughout: the same
/// seed gives the same waits on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The wait before the first restart; above `max` it counts as `max`.
    pub first: Duration,
    /// The growth from one restart to the next; 0 counts as 1.
    pub factor: u32,
    /// The longest wait.
    pub max: Duration,
    /// The largest share of a wait that chance may take off, in per cent; above 100 counts as 100.
    pub jitter_percent: u8,
}

impl Default for Backoff {
    /// 100 ms, doubled up to 30 s, each shortened by up to 20 %.
    fn default() -> Self {
        Self {
            first: Duration::from_millis(100),
            factor: 2,
            max: Duration::from_secs(30),
            jitter_percent: 20,
        }
    }
}

impl Backoff {
    /// No wait at all. With [`Exhausted::RetryAtMax`] a child that fails at once keeps a processor busy.
    pub const NONE: Self =
        Self { first: Duration::ZERO, factor: 1, max: Duration::ZERO, jitter_percent: 0 };

    /// Returns the wait before the restart that follows `restarts` others in a row.
    ///
    /// `draw` is the uniform random number that decides the jitter.
    #[must_use]
    pub fn wait(&self, restarts: u32, draw: u64) -> Duration {
        let mut wait = self.first.min(self.max);
        if self.factor > 1 && !wait.is_zero() {
            for _ in 0..restarts {
                if wait == self.max {
                    break;
                }
                wait = wait.saturating_mul(self.factor).min(self.max);
            }
        }
        self.shorten(wait, draw)
    }

    /// Returns the longest wait, shortened by jitter like any other.
    #[must_use]
    pub fn longest(&self, draw: u64) -> Duration {
        self.shorten(self.max, draw)
    }

    fn shorten(&self, wait: Duration, draw: u64) -> Duration {
        let percent = u128::from(self.jitter_percent.min(100));
        // Beyond u64 nanoseconds (584 years) the jitter stops growing, which nobody will see.
        let span = (wait.as_nanos() * percent / 100).min(u128::from(u64::MAX));
        let off = (span * u128::from(draw)) >> 64;
        wait - Duration::from_nanos(u64::try_from(off).unwrap_or(u64::MAX))
    }
}

/// What becomes of a child whose restart intensity is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exhausted {
    /// The supervisor stops all its children and fails, for its own supervisor to see.
    Escalate,
    /// The child is restarted at the longest backoff, for ever, until it once ran for longer than
    /// the window.
    RetryAtMax,
    /// The child is given up and forgotten.
    Remove,
}

/// All that decides about a child's restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartRule {
    /// Which ends are followed by a restart.
    pub policy: RestartPolicy,
    /// How many restarts are granted.
    pub intensity: Intensity,
    /// How long to wait before each.
    pub backoff: Backoff,
    /// What happens when no more are granted.
    pub on_exhausted: Exhausted,
}

/// What a child's restarts have used up so far. Starts out empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// When each restart still inside the window was granted.
    granted: VecDeque<Duration>,
    /// Counted restarts since the child was last stable.
    in_a_row: u32,
    /// The intensity was used up and the child has not been stable since.
    exhausted: bool,
}

/// One end of a child, as far as the decision is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// How it ended.
    pub kind: ExitKind,
    /// How long it had run; zero if it failed to start.
    pub ran: Duration,
    /// Now, on any monotonic clock that is the same for all ends of this child.
    pub now: Duration,
    /// A uniform random number, for the jitter.
    pub draw: u64,
}

/// What follows the end of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is started again after this wait.
    Restart {
        /// The wait, counted from the decision.
        after: Duration,
    },
    /// It is forgotten; its id is free.
    Remove,
    /// The supervisor itself fails because of it.
    Escalate,
}

impl RestartRule {
    /// Decides what follows an end, and returns the history to hand in at the next one.
    ///
    /// [`RestartPolicy`] says which ends want a restart. Of those that count:
    ///
    /// | restarts in the window | `Escalate` | `RetryAtMax`            | `Remove` |
    /// |------------------------|------------|-------------------------|----------|
    /// | below `max_restarts`   | restart    | restart                 | restart  |
    /// | at `max_restarts`      | escalate   | restart, longest wait   | remove   |
    ///
    /// A child that ran for longer than the window has its history, and so its backoff, cleared
    /// first.
    #[must_use]
    pub fn decide(&self, mut history: History, end: End) -> (Decision, History) {
        let Intensity { max_restarts, within } = self.intensity;
        match (self.policy, end.kind) {
            (RestartPolicy::Temporary, _) | (RestartPolicy::Transient, ExitKind::Normal) => {
                return (Decision::Remove, history);
            }
            (RestartPolicy::Permanent | RestartPolicy::Transient, ExitKind::Restart) => {
                return (Decision::Restart { after: Duration::ZERO }, history);
            }
            (RestartPolicy::Permanent, ExitKind::Normal)
            | (
                RestartPolicy::Permanent | RestartPolicy::Transient,
                ExitKind::Failed | ExitKind::Killed,
            ) => {}
        }

        if end.ran > within {
            history = History::default();
        }
        while history.granted.front().is_some_and(|&at| end.now.saturating_sub(at) >= within) {
            history.granted.pop_front();
        }
        // Once exhausted it stays so until the child is stable: otherwise the long waits alone
        // would empty the window, and the backoff would start to shorten again.
        if history.exhausted || history.granted.len() >= max_restarts as usize {
            history.exhausted = true;
            let decision = match self.on_exhausted {
                Exhausted::Escalate => Decision::Escalate,
                Exhausted::RetryAtMax => {
                    Decision::Restart { after: self.backoff.longest(end.draw) }
                }
                Exhausted::Remove => Decision::Remove,
            };
            return (decision, history);
        }
        let after = self.backoff.wait(history.in_a_row, end.draw);
        history.granted.push_back(end.now);
        history.in_a_row = history.in_a_row.saturating_add(1);
        (Decision::Restart { after }, history)
    }
}
