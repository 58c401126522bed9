//! Why a run was interrupted.

use serde::{Deserialize, Serialize};

/// The machine-readable cause of an interruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InterruptReason {
    /// Silent for a whole no-progress window.
    NoProgress,
    /// The ceiling of the re-attach window elapsed.
    WindowExceeded,
    /// The child cannot be tailed.
    NotTailable,
    /// The child did not answer an inspection in time.
    InspectTimeout,
    /// An inspection failed.
    InspectFailed,
    /// The recovery sweep ran out of time.
    RecoveryDeadline,
    /// The absolute budget elapsed.
    BudgetExceeded,
    /// The code asked for something else than the log has.
    JournalMismatch,
}
