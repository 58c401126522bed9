//! How runs end.

use std::fmt;

use serde::Serialize;

use crate::{InterruptReason, Status};

/// How a run ended, with its output where it completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<T> {
    /// The child returned this output.
    Completed(T),
    /// Anything else.
    NotCompleted(NotCompleted),
}

/// Why a run did not complete.
///
/// `Debug` shows the text, for a `main` that returns it.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotCompleted {
    /// The child returned an error or panicked, or its attempts are used up.
    #[error("run failed: {0}")]
    Error(Failure),
    /// The run was cancelled.
    #[error("run was cancelled: {reason}")]
    Aborted {
        /// Why, in the words of whoever cancelled.
        reason: String,
    },
    /// The parent stopped watching; the run may still end by itself.
    #[error("run was interrupted: {error}")]
    Interrupted {
        /// What happened, in words.
        error: String,
        /// What happened, for machines.
        reason: Option<InterruptReason>,
        /// Whether the child still works; `None` when nobody knows.
        child_still_running: Option<bool>,
    },
}

impl fmt::Debug for NotCompleted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a child failed with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The error's text, with its causes.
    pub message: String,
    /// A word that callers can branch on.
    pub kind: Option<String>,
    /// Whether trying again is known to be useless.
    pub permanent: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<T> Outcome<T> {
    /// The output of a completed run.
    ///
    /// # Errors
    /// [`NotCompleted`] for every other end.
    pub fn completed(self) -> Result<T, NotCompleted> {
        match self {
            Self::Completed(output) => Ok(output),
            Self::NotCompleted(end) => Err(end),
        }
    }

    /// The status this outcome belongs to.
    pub fn status(&self) -> Status {
        match self {
            Self::Completed(_) => Status::Completed,
            Self::NotCompleted(end) => end.status(),
        }
    }

    /// Turns the output into another type.
    ///
    /// # Errors
    /// What `f` fails with.
    pub fn try_map<U, E>(self, f: impl FnOnce(T) -> Result<U, E>) -> Result<Outcome<U>, E> {
        Ok(match self {
            Self::Completed(output) => Outcome::Completed(f(output)?),
            Self::NotCompleted(end) => Outcome::NotCompleted(end),
        })
    }
}

impl NotCompleted {
    /// The status this end belongs to.
    pub fn status(&self) -> Status {
        match self {
            Self::Error(_) => Status::Error,
            Self::Aborted { .. } => Status::Aborted,
            Self::Interrupted { .. } => Status::Interrupted,
        }
    }
}

/// What a model, or any other caller that only reads JSON, is told of a run that did not complete.
///
/// `retryable` is true for interrupted runs alone: only there does dispatching the same id again
/// do something (contract 2.4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FailureEnvelope {
    ok: bool,
    /// `error`, `aborted` or `interrupted`.
    pub status: Status,
    /// What happened, in words.
    pub error: String,
    /// Whether dispatching the same run again can help.
    pub retryable: bool,
    /// What happened, for machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<InterruptReason>,
    /// Whether the child still works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_still_running: Option<bool>,
}

impl From<&NotCompleted> for FailureEnvelope {
    fn from(end: &NotCompleted) -> Self {
        let (error, reason, child_still_running) = match end {
            NotCompleted::Error(failure) => (failure.message.clone(), None, None),
            NotCompleted::Aborted { reason } => (reason.clone(), None, None),
            NotCompleted::Interrupted { error, reason, child_still_running } => {
                (error.clone(), *reason, *child_still_running)
            }
        };
        let status = end.status();
        let retryable = status == Status::Interrupted;
        Self { ok: false, status, error, retryable, reason, child_still_running }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(end: NotCompleted) -> String {
        serde_json::to_string(&FailureEnvelope::from(&end)).unwrap()
    }

    /// Rows 63 to 65: interrupted is retryable, aborted and error are not, the text is kept.
    #[test]
    fn envelopes_have_the_exact_json() {
        let failure = Failure { message: "boom".into(), kind: None, permanent: false };
        assert_eq!(
            envelope(NotCompleted::Error(failure)),
            r#"{"ok":false,"status":"error","error":"boom","retryable":false}"#
        );
        assert_eq!(
            envelope(NotCompleted::Aborted { reason: "stop".into() }),
            r#"{"ok":false,"status":"aborted","error":"stop","retryable":false}"#
        );
        assert_eq!(
            envelope(NotCompleted::Interrupted {
                error: "lost".into(),
                reason: Some(InterruptReason::NoProgress),
                child_still_running: Some(true),
            }),
            r#"{"ok":false,"status":"interrupted","error":"lost","retryable":true,"reason":"no-progress","childStillRunning":true}"#
        );
    }
}
