//! What a run is, as its child and as its parent see it.

use serde::{Deserialize, Serialize};

/// The status of a run as its observers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Recorded; the child has not begun.
    Starting,
    /// The child works, sleeps, or waits for its next attempt.
    Running,
    /// The child returned its output. Hard: never changes.
    Completed,
    /// The child failed. Hard: never changes.
    Error,
    /// The run was cancelled. Hard: never changes.
    Aborted,
    /// The parent stopped watching. Soft: the child's real end repairs it.
    Interrupted,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 6] = [
        Self::Starting,
        Self::Running,
        Self::Completed,
        Self::Error,
        Self::Aborted,
        Self::Interrupted,
    ];

    /// Whether the run has ended, softly or hard.
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Starting | Self::Running)
    }

    /// Whether the run has ended for good.
    pub fn is_hard(self) -> bool {
        matches!(self, Self::Completed | Self::Error | Self::Aborted)
    }

    /// The status as it is written in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Error => "error",
            Self::Aborted => "aborted",
            Self::Interrupted => "interrupted",
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Status {
    type Err = UnknownStatus;
    fn from_str(s: &str) -> Result<Self, UnknownStatus> {
        Self::ALL.into_iter().find(|status| status.as_str() == s).ok_or(UnknownStatus(s.to_owned()))
    }
}

/// A word that is no status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no status; use starting, running, completed, error, aborted or interrupted")]
pub struct UnknownStatus(String);
