//! Errors of waits, as a run's log has them: the code must be told the same one again.

use ghostlight_storage as storage;
use serde::{Deserialize, Serialize};

use crate::Error;

/// An error that decides what the code does next. Told again, it is the same variant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum RecordedError {
    UnknownType { asked: String, registered: Vec<String> },
    NotAChild(String),
    WrongType { run_id: String, actual: String, asked: String },
    DifferentInput(String),
    DifferentMode { run_id: String, detached: bool },
    Cleared(String),
    StillStopping(String),
    UnknownRun(String),
    CapExceeded(usize),
    AgentDown { agent: String, why: String },
    Corrupt { key: String, why: String },
    TooNew { key: String, found: u32, known: u32 },
    TooLarge { actual: usize, limit: usize },
    KeyTwice { key: String },
    Conflict { key: String, expected: String, found: String },
}

const DETACHED: &str = "detached";
const AWAITED: &str = "awaited";

/// What was too large, of a commit of another actor.
const COMMIT: &str = "the commit, or a part of it,";

impl RecordedError {
    /// `None` for errors that are about this life of the system, and say nothing of the run.
    pub(super) fn new(error: &Error) -> Option<Self> {
        Some(match error.clone() {
            Error::UnknownType { asked, registered } => Self::UnknownType { asked, registered },
            Error::NotAChild(asked) => Self::NotAChild(asked),
            Error::WrongType { run_id, actual, asked } => Self::WrongType { run_id, actual, asked },
            Error::DifferentInput { run_id } => Self::DifferentInput(run_id),
            Error::DifferentMode { run_id, was } => {
                Self::DifferentMode { run_id, detached: was == DETACHED }
            }
            Error::Cleared(run_id) => Self::Cleared(run_id),
            Error::StillStopping(run_id) => Self::StillStopping(run_id),
            Error::UnknownRun(run_id) => Self::UnknownRun(run_id),
            Error::CapExceeded { limit } => Self::CapExceeded(limit),
            Error::AgentDown { agent, why } => Self::AgentDown { agent, why },
            // No later life of the system reads what cannot be read.
            Error::Storage(storage::Error::Corrupt { key, why }) => Self::Corrupt { key, why },
            Error::Storage(storage::Error::TooNew { key, found, known }) => {
                Self::TooNew { key, found, known }
            }
            // The store is well, and refuses the one commit: trying again changes nothing.
            Error::Storage(storage::Error::TooLarge { actual, limit, .. }) => {
                Self::TooLarge { actual, limit }
            }
            Error::Storage(storage::Error::KeyTwice { key }) => Self::KeyTwice { key },
            Error::Storage(storage::Error::Conflict { key, expected, found }) => {
                Self::Conflict { key, expected, found }
            }
            Error::Storage(_) | Error::Resting(_) | Error::Stopped => return None,
            // No wait for another run ends so: they come before one, or from something else.
            Error::Id(_)
            | Error::TooLarge(_)
            | Error::TooDeep(_)
            | Error::BeyondEnd { .. }
            | Error::LiveRuns { .. }
            | Error::Json { .. }
            | Error::Timeout { .. }
            | Error::NoMilestone { .. }
            | Error::TailOutsideStep(_)
            | Error::OwnQueue(_) => return None,
        })
    }
}

impl From<RecordedError> for Error {
    fn from(recorded: RecordedError) -> Self {
        match recorded {
            RecordedError::UnknownType { asked, registered } => {
                Self::UnknownType { asked, registered }
            }
            RecordedError::NotAChild(asked) => Self::NotAChild(asked),
            RecordedError::WrongType { run_id, actual, asked } => {
                Self::WrongType { run_id, actual, asked }
            }
            RecordedError::DifferentInput(run_id) => Self::DifferentInput { run_id },
            RecordedError::DifferentMode { run_id, detached } => {
                Self::DifferentMode { run_id, was: if detached { DETACHED } else { AWAITED } }
            }
            RecordedError::Cleared(run_id) => Self::Cleared(run_id),
            RecordedError::StillStopping(run_id) => Self::StillStopping(run_id),
            RecordedError::UnknownRun(run_id) => Self::UnknownRun(run_id),
            RecordedError::CapExceeded(limit) => Self::CapExceeded { limit },
            RecordedError::AgentDown { agent, why } => Self::AgentDown { agent, why },
            RecordedError::Corrupt { key, why } => storage::Error::Corrupt { key, why }.into(),
            RecordedError::TooNew { key, found, known } => {
                storage::Error::TooNew { key, found, known }.into()
            }
            RecordedError::TooLarge { actual, limit } => {
                storage::Error::TooLarge { what: COMMIT, actual, limit }.into()
            }
            RecordedError::KeyTwice { key } => storage::Error::KeyTwice { key }.into(),
            RecordedError::Conflict { key, expected, found } => {
                storage::Error::Conflict { key, expected, found }.into()
            }
        }
    }
}
