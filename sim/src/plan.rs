//! What goes wrong, and when: a plan is a value with a text, so that a failure can be repeated.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The process is killed when this group of commits is about to be written: it is lost.
    KillBefore,
    /// The process is killed when so many batches of this group have reached the disk: nobody was
    /// told of them.
    KillTorn(u32),
    /// The process is killed when this group is durable, and before anybody is told.
    KillAfter,
    /// The disk takes this long for this group, in ms of virtual time.
    Stall(u64),
    /// The disk fails at this group: nothing of it is written, and the store takes no more writes.
    Fail,
    /// The wall clock jumps by so many ms when this group is durable.
    Jump(i64),
    /// Every run that is known is dispatched once more, with its own input, when this group is
    /// durable.
    Duplicate,
    /// The run that was dispatched last is cancelled from outside when this group is durable.
    Cancel,
    /// The agent that handles this message is asked to leave memory.
    Evict,
    /// The actor of the agent that handles this message is killed.
    CrashParent,
    /// The code of a run takes this long, in ms of virtual time, before its first line, the nth time
    /// that code is entered.
    StallChild(u64),
    /// The code of a run panics before its first line, the nth time that code is entered.
    PanicChild,
}

/// What a fault is counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counter {
    /// Groups of commits, begun.
    Commit,
    /// Messages that agents have handled.
    Message,
    /// Entries into the code of runs.
    Entry,
}

impl Fault {
    pub(crate) fn is_kill(self) -> bool {
        matches!(self, Self::KillBefore | Self::KillTorn(_) | Self::KillAfter)
    }

    pub(crate) fn counter(self) -> Counter {
        match self {
            Self::Evict | Self::CrashParent => Counter::Message,
            Self::StallChild(_) | Self::PanicChild => Counter::Entry,
            _ => Counter::Commit,
        }
    }
}

/// A fault and its place: the nth group of commits, the nth message, or the nth entry into the code
/// of a run, counted from 1 over all lives of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Planned {
    /// Where.
    pub at: u64,
    /// What.
    pub fault: Fault,
}

/// Everything that decides how a simulated world goes: the same plan gives the same world.
///
/// Its text (`seed=7 latency=4 kill-before@12 evict@31`) reads back with [`str::parse`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Plan {
    /// Decides ids, jitter, and how observers behave.
    pub seed: u64,
    /// How long the disk takes for a group, in ms of virtual time.
    pub latency_ms: u64,
    /// What goes wrong.
    pub faults: Vec<Planned>,
}

impl Plan {
    /// A plan in which nothing goes wrong.
    pub fn calm(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// The same plan with one more fault.
    pub fn with(mut self, fault: Fault, at: u64) -> Self {
        self.faults.push(Planned { at, fault });
        self
    }

    pub(crate) fn latency(&self) -> Duration {
        Duration::from_millis(self.latency_ms)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KillBefore => f.write_str("kill-before"),
            Self::KillTorn(batches) => write!(f, "kill-torn:{batches}"),
            Self::KillAfter => f.write_str("kill-after"),
            Self::Stall(ms) => write!(f, "stall:{ms}"),
            Self::Fail => f.write_str("fail"),
            Self::Jump(ms) => write!(f, "jump:{ms}"),
            Self::Duplicate => f.write_str("duplicate"),
            Self::Cancel => f.write_str("cancel"),
            Self::Evict => f.write_str("evict"),
            Self::CrashParent => f.write_str("crash-parent"),
            Self::StallChild(ms) => write!(f, "stall-child:{ms}"),
            Self::PanicChild => f.write_str("panic-child"),
        }
    }
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.fault, self.at)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed={} latency={}", self.seed, self.latency_ms)?;
        self.faults.iter().try_for_each(|planned| write!(f, " {planned}"))
    }
}

/// A text that is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no part of a plan; one looks like this: seed=7 latency=4 kill-before@12 evict@31. \
     Counted by groups of commits are kill-before, kill-torn:BATCHES, kill-after, stall:MS, fail, \
     jump:MS, duplicate and cancel; by messages of agents evict and crash-parent; by entries into \
     the code of runs stall-child:MS and panic-child"
)]
pub struct BadPlan(String);

impl FromStr for Fault {
    type Err = BadPlan;

    fn from_str(text: &str) -> Result<Self, BadPlan> {
        let bad = || BadPlan(text.to_owned());
        let name = text.split(':').next().unwrap_or_default();
        let number = |number: Option<&str>| number.and_then(|n| n.parse::<i64>().ok());
        let fault = match (name, text.split_once(':').map(|(_, n)| n)) {
            ("kill-before", None) => Self::KillBefore,
            ("kill-after", None) => Self::KillAfter,
            ("fail", None) => Self::Fail,
            ("duplicate", None) => Self::Duplicate,
            ("cancel", None) => Self::Cancel,
            ("evict", None) => Self::Evict,
            ("crash-parent", None) => Self::CrashParent,
            ("panic-child", None) => Self::PanicChild,
            ("kill-torn", n) => {
                Self::KillTorn(number(n).and_then(|n| n.try_into().ok()).ok_or_else(bad)?)
            }
            ("stall", n) => Self::Stall(number(n).and_then(|n| n.try_into().ok()).ok_or_else(bad)?),
            ("stall-child", n) => {
                Self::StallChild(number(n).and_then(|n| n.try_into().ok()).ok_or_else(bad)?)
            }
            ("jump", n) => Self::Jump(number(n).ok_or_else(bad)?),
            _ => return Err(bad()),
        };
        Ok(fault)
    }
}

impl FromStr for Plan {
    type Err = BadPlan;

    fn from_str(text: &str) -> Result<Self, BadPlan> {
        let mut plan = Self::default();
        for word in text.split_whitespace() {
            let bad = || BadPlan(word.to_owned());
            if let Some(seed) = word.strip_prefix("seed=") {
                plan.seed = seed.parse().map_err(|_| bad())?;
            } else if let Some(latency) = word.strip_prefix("latency=") {
                plan.latency_ms = latency.parse().map_err(|_| bad())?;
            } else {
                let (fault, at) = word.split_once('@').ok_or_else(bad)?;
                let at = at.parse().ok().filter(|at| *at > 0).ok_or_else(bad)?;
                plan.faults.push(Planned { at, fault: fault.parse()? });
            }
        }
        Ok(plan)
    }
}
