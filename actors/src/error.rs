//! What can go wrong for users of a system.

use std::fmt;
use std::time::Duration;

use ghostlight_protocol::json::{self, WriteError};
use ghostlight_protocol::limits::InvalidLimit;
use ghostlight_protocol::text::with_causes;
use ghostlight_protocol::{Failure, IdError, Status, TooDeep, TooLarge, limits};
use ghostlight_storage as storage;

/// The error of user code: a text, and what callers may branch on.
///
/// Every `std::error::Error` becomes one by `?`, with its causes in the text. It does not implement
/// `std::error::Error` itself, on purpose: that would forbid the conversion from every other error.
/// `Debug` shows the text, as with all errors here, for a `main` that returns it.
pub struct RunError {
    pub(crate) failure: Failure,
}

impl RunError {
    /// An error with this text.
    pub fn new(message: impl Into<String>) -> Self {
        Self { failure: Failure { message: message.into(), kind: None, permanent: false } }
    }

    /// Adds a word that callers can branch on.
    #[must_use]
    pub fn kind(mut self, kind: &'static str) -> Self {
        self.failure.kind = Some(kind.to_owned());
        self
    }

    /// Says that trying again is useless: `step_retry` gives up at once.
    #[must_use]
    pub fn permanent(mut self) -> Self {
        self.failure.permanent = true;
        self
    }

    /// The error's text.
    pub fn message(&self) -> &str {
        &self.failure.message
    }

    /// The word that callers can branch on, if there is one.
    pub fn kind_str(&self) -> Option<&str> {
        self.failure.kind.as_deref()
    }

    /// Whether trying again is known to be useless.
    pub fn is_permanent(&self) -> bool {
        self.failure.permanent
    }
}

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for RunError {
    fn from(error: E) -> Self {
        Self::new(with_causes(&*error.into()))
    }
}

/// Writes what is to be recorded; trying again is useless.
pub(crate) fn write_json<T: serde::Serialize + ?Sized>(
    what: &'static str,
    value: &T,
) -> Result<Vec<u8>, RunError> {
    json::to_vec(what, value).map_err(|error| match error {
        WriteError::TooDeep(error) => RunError::from(error).kind("too-deep").permanent(),
        WriteError::NoJson(error) => {
            RunError::new(format!("{what} is no JSON: {error}")).permanent()
        }
    })
}

/// Refuses JSON that must not be recorded; trying again is useless.
pub(crate) fn check_json(
    what: &'static str,
    json: &[u8],
    bytes_max: usize,
) -> Result<(), RunError> {
    limits::check(what, json.len(), bytes_max)
        .map_err(|error| RunError::from(error).kind("too-large").permanent())?;
    limits::check_depth(what, json)
        .map_err(|error| RunError::from(error).kind("too-deep").permanent())
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.failure.message)
    }
}

impl fmt::Debug for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a request to a running system failed.
///
/// `Debug` shows the text, with its causes, for a `main` that returns it.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name, run id or address that is not valid.
    #[error(transparent)]
    Id(#[from] IdError),
    /// A payload over its limit.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// A JSON payload that is nested too deeply.
    #[error(transparent)]
    TooDeep(#[from] TooDeep),
    /// An agent type that was not registered when the system was built.
    #[error("agent type {asked:?} is not registered; registered are: {}", registered.join(", "))]
    UnknownType {
        /// The type asked for.
        asked: String,
        /// The types that are.
        registered: Vec<String>,
    },
    /// An agent type that is no child was dispatched.
    #[error("agent type {0:?} cannot be dispatched: register it with `child`, not with `agent`")]
    NotAChild(String),
    /// The id belongs to a run of another agent type.
    #[error("run {run_id:?} is a run of {actual}, not of {asked}; use another id")]
    WrongType {
        /// The id.
        run_id: String,
        /// The type of the run that has it.
        actual: String,
        /// The type asked for.
        asked: String,
    },
    /// The id belongs to a run with another input.
    #[error("run {run_id:?} was dispatched before with another input; use another id, or `attach`")]
    DifferentInput {
        /// The id.
        run_id: String,
    },
    /// The id belongs to a run that is awaited where this one is detached, or the other way round.
    #[error("run {run_id:?} was dispatched as {was}; dispatch it the same way, or use `attach`")]
    DifferentMode {
        /// The id.
        run_id: String,
        /// How it was dispatched: `awaited` or `detached`.
        was: &'static str,
    },
    /// The id belongs to a run that was cleared; ids are never used again.
    #[error("run {0:?} was cleared, and ids are never used again; use another id")]
    Cleared(String),
    /// The run has ended, or is being cleared, but its task has not stopped yet.
    #[error("run {0:?} is still stopping: its code has not returned; try again later")]
    StillStopping(String),
    /// The run is left to a system that goes on with it: this one goes on with the runs of another
    /// agent alone (`SystemBuilder::resume_only`).
    #[error(
        "run {0:?} rests: this system does not go on with it; wait in one that does, or cancel it"
    )]
    Resting(String),
    /// No run has this id.
    #[error("no run {0:?} is known here")]
    UnknownRun(String),
    /// A position after the last frame that the run has.
    #[error("the position is beyond the end of run {run_id:?}, which has {frames} frames")]
    BeyondEnd {
        /// The id of the run.
        run_id: String,
        /// How many frames it has.
        frames: u64,
    },
    /// Runs that were to be cleared are live, and there is no system to stop them.
    #[error(
        "{live} runs are live and were not cleared (such as {}), {cleared} others were; cancel \
         them and start the program that executes them, or clear while it runs",
        examples.join(", ")
    )]
    LiveRuns {
        /// How many runs were cleared.
        cleared: usize,
        /// How many were not.
        live: usize,
        /// The ids of the first of those, at most 20.
        examples: Vec<String>,
    },
    /// The parent's cap is reached, and it does not queue.
    #[error("maxConcurrentAgentTools ({limit}) exceeded")]
    CapExceeded {
        /// The cap.
        limit: usize,
    },
    /// The input or output could not be turned into JSON, or back.
    #[error("{what} of run {run_id:?} does not fit its type: {why}")]
    Json {
        /// The id of the run.
        run_id: String,
        /// `input` or `output`.
        what: &'static str,
        /// What the JSON library says.
        why: String,
    },
    /// A wait took too long.
    #[error("{what} did not come within {}s", after.as_secs_f64())]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        after: Duration,
    },
    /// The run ended without the milestone that was waited for.
    #[error("run {run_id:?} ended as {status} without milestone {milestone:?}")]
    NoMilestone {
        /// The id of the run.
        run_id: String,
        /// The milestone's name.
        milestone: String,
        /// How the run ended.
        status: Status,
    },
    /// The code of a run read a tail outside of its steps, where nothing records what it was shown.
    #[error(
        "the code of a run reads a tail of run {0:?} outside of its steps: what a tail shows is not recorded, and may differ after a crash; read it in a step"
    )]
    TailOutsideStep(String),
    /// A turn waited for its own queue.
    #[error("a turn of {0} waits for another turn of the same agent: neither would ever end")]
    OwnQueue(String),
    /// The store failed.
    #[error(transparent)]
    Storage(storage::Error),
    /// The agent's actor could not be started, or is being restarted too often.
    #[error("agent {agent} does not start: {why}")]
    AgentDown {
        /// The agent's address.
        agent: String,
        /// Why.
        why: String,
    },
    /// The system is shutting down, or has been dropped.
    #[error("the system has stopped")]
    Stopped,
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&with_causes(self))
    }
}

impl From<storage::Error> for Error {
    fn from(error: storage::Error) -> Self {
        match error {
            // The store is closed by whoever stops the system, and by nobody else.
            storage::Error::Closed => Self::Stopped,
            error => Self::Storage(error),
        }
    }
}

impl Error {
    /// A stable word for the kind of error, for programs; problems over HTTP carry it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Id(_) => "invalid-name",
            Self::TooLarge(_) => "too-large",
            Self::TooDeep(_) => "too-deep",
            Self::UnknownType { .. } => "unknown-agent-type",
            Self::NotAChild(_) => "not-a-child",
            Self::WrongType { .. } => "wrong-type",
            Self::DifferentInput { .. } => "different-input",
            Self::DifferentMode { .. } => "different-mode",
            Self::Cleared(_) => "cleared",
            Self::StillStopping(_) => "still-stopping",
            Self::Resting(_) => "resting",
            Self::UnknownRun(_) => "unknown-run",
            Self::BeyondEnd { .. } => "invalid-position",
            Self::LiveRuns { .. } => "live-runs",
            Self::CapExceeded { .. } => "cap-exceeded",
            Self::Json { .. } => "invalid-json",
            Self::Timeout { .. } => "timeout",
            Self::NoMilestone { .. } => "no-milestone",
            Self::TailOutsideStep(_) => "tail-outside-step",
            Self::OwnQueue(_) => "own-queue",
            Self::Storage(_) => "storage",
            Self::AgentDown { .. } => "agent-down",
            Self::Stopped => "stopped",
        }
    }

    /// Whether the same request may succeed later without anybody's help.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::StillStopping(_)
            | Self::CapExceeded { .. }
            | Self::Timeout { .. }
            | Self::AgentDown { .. } => true,
            Self::Storage(error) => error.is_retryable(),
            _ => false,
        }
    }
}

/// Why a system did not start.
///
/// `Debug` shows the text, with its causes, for a `main` that returns it.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An agent type's name is not valid.
    #[error("agent type {name:?} cannot be registered: {why}")]
    InvalidType {
        /// The name.
        name: String,
        /// Why.
        why: IdError,
    },
    /// Two agent types have the same name.
    #[error("agent type {0:?} is registered twice; give one of them another TYPE")]
    RegisteredTwice(String),
    /// The store has live runs that need a type that is not registered, as theirs or as their
    /// parent's; or it owes the finish hook of that type the end of a run.
    #[error(
        "agent type {agent_type:?} is not registered, and the store has live runs or owed \
         deliveries that need it ({live_runs}, for instance run {example:?}); register it, or call `park_unregistered()` to \
         leave them alone; registered are: {}",
        registered.join(", ")
    )]
    Unregistered {
        /// The unknown type.
        agent_type: String,
        /// How many live runs and owed deliveries need it.
        live_runs: usize,
        /// The id of the run of one.
        example: String,
        /// The registered types.
        registered: Vec<String>,
    },
    /// The store has live runs of a type that is registered as a parent only.
    #[error(
        "agent type {agent_type:?} is registered by `agent(…)`, and the store has live runs of it \
         ({live_runs}, for instance {example:?}); register it by `child(…)`, or call \
         `park_unregistered()` to leave them alone"
    )]
    NotAChild {
        /// The type.
        agent_type: String,
        /// How many live runs it has.
        live_runs: usize,
        /// The id of one.
        example: String,
    },
    /// A limit that no system can work with.
    #[error(transparent)]
    InvalidLimit(#[from] InvalidLimit),
    /// The store could not be opened or read.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// A part of the system did not start.
    #[error("the system did not start: {0}")]
    System(String),
}

impl fmt::Debug for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&with_causes(self))
    }
}
