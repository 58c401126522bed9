//! What can go wrong when a supervisor is asked for something.

use std::time::Duration;

use crate::child_spec::ChildId;
use crate::exit::Escalated;

/// Why a supervisor did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A child of this id exists, if only because it has not really ended yet.
    #[error("child `{id}` already exists")]
    AlreadyExists {
        /// The id asked for.
        id: ChildId,
    },
    /// There is no child of this id.
    #[error("no child `{id}`")]
    Unknown {
        /// The id asked for.
        id: ChildId,
    },
    /// The child did not come up.
    #[error("child `{id}` failed to start: {error}")]
    StartFailed {
        /// The child.
        id: ChildId,
        /// What its constructor or `pre_start` said.
        error: String,
        /// When the supervisor tries again; `None` if it has given up and the id is free.
        retry_after: Option<Duration>,
    },
    /// The child was removed before it could be had.
    #[error("child `{id}` was removed")]
    Removed {
        /// The child.
        id: ChildId,
    },
    /// A static child's restarts were used up while the supervisor was starting.
    #[error(transparent)]
    Escalated(#[from] Escalated),
    /// The supervisor is stopping its children and takes no more.
    #[error("supervisor is shutting down")]
    ShuttingDown,
    /// The supervisor has ended, or its own supervisor has.
    #[error("supervisor has stopped")]
    Stopped,
}

impl Error {
    /// Returns whether the same request may succeed later, on the same supervisor.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::AlreadyExists { .. } | Self::StartFailed { .. } => true,
            Self::Unknown { .. }
            | Self::Removed { .. }
            | Self::Escalated(_)
            | Self::ShuttingDown
            | Self::Stopped => false,
        }
    }
}
