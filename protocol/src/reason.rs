//! Why an observer stopped watching a run.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The cause of an `interrupted` run, for programs to branch on.
///
/// The set is closed. The first seven are those every client of the wire knows; the last is an
/// extension of ours, see [`is_extension`](Self::is_extension).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InterruptReason {
    /// The run was silent for a whole no-progress window.
    NoProgress,
    /// The hard ceiling of a re-attach elapsed; the child was cancelled.
    WindowExceeded,
    /// The child has no way of being followed.
    NotTailable,
    /// The child did not answer an inspection in time during recovery.
    InspectTimeout,
    /// An inspection of the child failed during recovery.
    InspectFailed,
    /// Recovery ran out of time before it came to the run.
    RecoveryDeadline,
    /// The absolute budget of a detached run was used up.
    BudgetExceeded,
    /// The code asked for other events than the run's log has; the run is parked until the next
    /// incarnation tries again.
    ///
    /// An extension: other clients carry it through, for they show the reason and do not match it.
    JournalMismatch,
}

impl InterruptReason {
    /// Every reason, extensions last.
    pub const ALL: [Self; 8] = [
        Self::NoProgress,
        Self::WindowExceeded,
        Self::NotTailable,
        Self::InspectTimeout,
        Self::InspectFailed,
        Self::RecoveryDeadline,
        Self::BudgetExceeded,
        Self::JournalMismatch,
    ];

    /// The reason as it stands in frames and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoProgress => "no-progress",
            Self::WindowExceeded => "window-exceeded",
            Self::NotTailable => "not-tailable",
            Self::InspectTimeout => "inspect-timeout",
            Self::InspectFailed => "inspect-failed",
            Self::RecoveryDeadline => "recovery-deadline",
            Self::BudgetExceeded => "budget-exceeded",
            Self::JournalMismatch => "journal-mismatch",
        }
    }

    /// Whether the reason is one of ours, outside the seven that the wire's other speakers know.
    pub const fn is_extension(self) -> bool {
        matches!(self, Self::JournalMismatch)
    }
}

impl fmt::Display for InterruptReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for InterruptReason {
    type Err = UnknownInterruptReason;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|reason| reason.as_str() == text)
            .ok_or_else(|| UnknownInterruptReason { asked: text.to_owned() })
    }
}

/// The error of parsing a text that is none of the interrupt reasons.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown interrupt reason {asked:?}")]
pub struct UnknownInterruptReason {
    /// What was to be parsed.
    pub asked: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_json_agree_for_every_reason() {
        for reason in InterruptReason::ALL {
            assert_eq!(reason.as_str().parse(), Ok(reason));
            let json = format!("\"{reason}\"");
            assert_eq!(serde_json::to_string(&reason).unwrap(), json);
            assert_eq!(serde_json::from_str::<InterruptReason>(&json).unwrap(), reason);
        }
    }

    #[test]
    fn seven_are_of_the_contract_and_one_is_ours() {
        let ours: Vec<_> =
            InterruptReason::ALL.into_iter().filter(|reason| reason.is_extension()).collect();
        assert_eq!(ours, [InterruptReason::JournalMismatch]);
    }

    #[test]
    fn anything_else_is_refused_by_name() {
        for text in ["", "no_progress", "No-Progress", "gave-up", "no-progress "] {
            let error = text.parse::<InterruptReason>().unwrap_err();
            assert_eq!(error.asked, text);
            assert!(serde_json::from_str::<InterruptReason>(&format!("\"{text}\"")).is_err());
        }
    }
}
