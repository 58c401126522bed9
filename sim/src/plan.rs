//! What goes wrong, and when: a plan is a value with a text, so that a failure can be repeated.

mod parse;

use std::fmt;
use std::time::Duration;

pub use self::parse::BadPlan;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The process is killed when this group of commits is about to be written: it is lost.
    KillBefore,
    /// The process is killed when this group is written and not synced: so many batches of it are on
    /// the disk all the same, the first ones, and nobody was told of any.
    KillTorn(u32),
    /// The process is killed when this group is durable, and before anybody is told.
    KillAfter,
    /// The disk takes this long for this group, in ms of virtual time.
    Stall(u64),
    /// The disk fails to sync this group, and takes no more writes in this life. So many batches of
    /// the group are there in the next life all the same, the first ones: whoever is told that a sync
    /// has failed knows nothing.
    Fail(u32),
    /// The disk takes this long for this read, in ms of virtual time.
    StallRead(u64),
    /// The disk fails at this read, and does nothing more in this life.
    FailRead,
    /// The process is asked to stop when this group is durable: its system waits for what is being
    /// executed, as [`System::shutdown`](ghostlight::System::shutdown) does, and the next life begins.
    Stop,
    /// The wall clock jumps by so many ms when this group is durable, and never before 1970.
    Jump(i64),
    /// So many ms pass after this life of the process, in which nothing runs.
    Down(u64),
    /// Every run that is known is dispatched once more, with its own input, when this group is
    /// durable.
    Duplicate,
    /// The run that was dispatched last is cancelled from outside when this group is durable.
    Cancel,
    /// The agent that handles this message is asked to leave memory.
    Evict,
    /// The actor of the agent that handles this message is killed.
    CrashParent,
    /// The actor of the run whose code is in this place is killed.
    CrashRun,
    /// The code of a run takes this long in this place, in ms of virtual time.
    StallChild(u64),
    /// The code of a run panics in this place.
    PanicChild,
}

/// What a fault is counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counter {
    /// Groups of commits, begun.
    Commit,
    /// Reads of the store.
    Read,
    /// Messages that agents have handled.
    Message,
    /// Places in the code of runs: each entry, the beginning of each step, and the end of each step.
    Code,
    /// Lives of the process, ended.
    Life,
}

impl Fault {
    /// The longest time of a fault in which the disk or the code of a run stalls, in ms: a day.
    pub const STALL_MS_MAX: u64 = 24 * 3600 * 1000;
    /// The furthest that the wall clock jumps, forwards or backwards, and the longest time between
    /// two lives, in ms: ten years.
    pub const SHIFT_MS_MAX: u64 = 3653 * 24 * 3600 * 1000;

    /// Whether the life in which it strikes does not come to its own end.
    pub(crate) fn ends_life(self) -> bool {
        let kills = matches!(self, Self::KillBefore | Self::KillTorn(_) | Self::KillAfter);
        kills || matches!(self, Self::Fail(_) | Self::FailRead)
    }

    /// Every way to be killed at a group of so many batches that leaves something else on the disk; of
    /// a large one, a sample.
    pub(crate) fn kills(batches: u32) -> Vec<Self> {
        let mut torn = [1, batches / 2, batches.saturating_sub(1)].to_vec();
        torn.retain(|kept| (1..batches).contains(kept));
        torn.dedup();
        let torn = torn.into_iter().map(Self::KillTorn);
        [Self::KillBefore].into_iter().chain(torn).chain([Self::KillAfter]).collect()
    }

    pub(crate) fn counter(self) -> Counter {
        match self {
            Self::Evict | Self::CrashParent => Counter::Message,
            Self::StallChild(_) | Self::PanicChild | Self::CrashRun => Counter::Code,
            Self::StallRead(_) | Self::FailRead => Counter::Read,
            Self::Down(_) => Counter::Life,
            _ => Counter::Commit,
        }
    }
}

/// A fault and its place: the nth group of commits, read, message, place in the code of runs, or life
/// of the process, counted from 1 over all lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlannedFault {
    /// Where.
    pub at: u64,
    /// What.
    pub fault: Fault,
}

/// Everything that decides how a simulated world goes: the same plan gives the same world.
///
/// Its text (`seed=7 latency=4 kill-before@12 evict@31`) reads back with [`str::parse`], which refuses
/// numbers over the limits of [`Plan`] and [`Fault`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Plan {
    /// Decides ids, jitter, and how observers behave.
    pub seed: u64,
    /// How long the disk takes for a group, and for a read, in ms of virtual time.
    pub latency_ms: u64,
    /// What goes wrong.
    pub faults: Vec<PlannedFault>,
}

impl Plan {
    /// The longest latency that a text may have, in ms: a minute.
    pub const LATENCY_MS_MAX: u64 = 60_000;
    /// The most faults that a text may have.
    pub const FAULTS_MAX: usize = 1000;

    /// A plan in which nothing goes wrong.
    pub fn calm(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// The same plan with one more fault.
    pub fn with(mut self, fault: Fault, at: u64) -> Self {
        self.faults.push(PlannedFault { at, fault });
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
            Self::Stop => f.write_str("stop"),
            Self::Stall(ms) => write!(f, "stall:{ms}"),
            Self::Fail(batches) => write!(f, "fail:{batches}"),
            Self::StallRead(ms) => write!(f, "stall-read:{ms}"),
            Self::FailRead => f.write_str("fail-read"),
            Self::Jump(ms) => write!(f, "jump:{ms}"),
            Self::Down(ms) => write!(f, "down:{ms}"),
            Self::Duplicate => f.write_str("duplicate"),
            Self::Cancel => f.write_str("cancel"),
            Self::Evict => f.write_str("evict"),
            Self::CrashParent => f.write_str("crash-parent"),
            Self::CrashRun => f.write_str("crash-run"),
            Self::StallChild(ms) => write!(f, "stall-child:{ms}"),
            Self::PanicChild => f.write_str("panic-child"),
        }
    }
}

impl fmt::Display for PlannedFault {
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
