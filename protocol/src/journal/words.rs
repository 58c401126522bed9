//! What goes into the journal, and what it answers.

/// Something a run's code waits for, and that is recorded when it completes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// The step of this key.
    Step(String),
    /// The nth sleep of the entry.
    Sleep(u64),
    /// The nth wait of the entry for another run: its outcome, or one of its milestones.
    Wait(u64),
    /// The nth act of the entry, which waits until it is durable. The act itself is its record.
    Act(u64),
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Step(key) => write!(f, "step {key:?}"),
            Self::Sleep(n) => write!(f, "sleep number {n}"),
            Self::Wait(n) => write!(f, "wait number {n} for another run"),
            Self::Act(n) => write!(f, "event number {n}"),
        }
    }
}

/// Something that the code does outside steps and that has a position in the log of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// A chunk.
    Chunk,
    /// A milestone of this name.
    Milestone(String),
    /// A write of this key of the run's state.
    State(String),
}

impl Act {
    /// Whether the code waits until the act is durable. When it goes on is then a matter of the
    /// log's order, like any completion.
    pub fn is_awaited(&self) -> bool {
        match self {
            Self::Chunk => false,
            Self::Milestone(_) | Self::State(_) => true,
        }
    }
}

impl std::fmt::Display for Act {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Chunk => f.write_str("a chunk"),
            Self::Milestone(name) => write!(f, "milestone {name:?}"),
            Self::State(key) => write!(f, "a write of state {key:?}"),
        }
    }
}

/// One entry of the log, as far as it matters to a re-entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recorded<R> {
    /// The code did this outside steps; the result is what it is told once that is durable.
    Act(Act, R),
    /// This call completed with this result.
    Completed(Call, R),
    /// The nth sleep is due at this wall-clock time; or a time limit is, see [`limit_of`].
    SleepSet(u64, u64),
    /// So many tries of a step have failed.
    Tried(String, u32),
    /// An event of a step that had not completed when it was recorded.
    StepEvent(String),
}

/// The code asks for something else than the log has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "journal mismatch at entry {entry}: the log has {log}, the code asks for {code}; code between steps must be deterministic, and a run in flight needs the code it began with"
)]
pub struct Mismatch {
    /// Which entry of the journal, from 0.
    pub entry: u64,
    /// What the log has there.
    pub log: String,
    /// What the code asks for.
    pub code: String,
}

/// Why a call cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// A step key was used twice in one entry.
    #[error(
        "{0} was already used in this run; every step needs a key of its own, for instance (\"part\", n)"
    )]
    Reused(Call),
}

/// What a call is told when it asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told<R> {
    /// The recorded result; the call is spent.
    Ready(R),
    /// The log has nothing of this call: execute it, and report the completion. Said once.
    Execute,
    /// Ask again when woken.
    Pending,
}

/// What an act outside steps is told, with its number in the entry. An act that is awaited has
/// [`Call::Act`] of that number opened, which completes once the act is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acted {
    /// The log has it: append nothing.
    Recorded(u64),
    /// It is new: append it.
    Append(u64),
}

/// Whether something outside the journal may wake code that stands still, so that it asks for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outside {
    /// Nothing may.
    Nothing,
    /// Something may: a channel, or a combinator that wakes its futures itself, and does not tell
    /// what they wait for.
    MayWake,
    /// Something might have, and had its time.
    Overdue,
}

/// Which calls have reason to ask again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Wake {
    /// None.
    Nobody,
    /// This one: its completion was released.
    One(Call),
    /// All: the recorded past is over.
    All,
}

/// The number, among the due times of sleeps, of the time limit of the nth wait for another run. No
/// sleep has it, so that code that sleeps where other code waited does not sleep until that limit.
pub fn limit_of(wait: u64) -> u64 {
    LIMIT | wait
}

const LIMIT: u64 = 1 << 63;

/// What is due by this number: a sleep, or the limit of a wait.
pub fn due_name(number: u64) -> String {
    match number & LIMIT {
        0 => format!("sleep {number}"),
        _ => format!("the limit of wait {}", number & !LIMIT),
    }
}
