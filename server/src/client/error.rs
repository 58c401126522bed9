//! Why a call failed.

use std::{fmt, io};

use ghostlight::protocol::text::with_causes;

/// Why a call of a client failed.
///
/// `Debug` shows the text, with its causes, for a `main` that returns it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Nobody listens: there is no socket, or its owner is gone.
    #[error("no program owns the data folder")]
    NoOwner,
    /// The owner went away in the middle of an answer. Look for the next owner, or take the folder.
    #[error("the program that owns the data folder has gone")]
    Cut,
    /// The owner refused.
    #[error("{detail}")]
    Problem {
        /// The status of the answer.
        status: u16,
        /// What is wrong, for programs; stable.
        code: String,
        /// What is wrong, for people.
        detail: String,
    },
    /// The socket cannot be used.
    #[error("the control socket cannot be used: {0}")]
    Io(#[source] io::Error),
    /// The answer is not one of ours, or what was asked for cannot be asked.
    #[error("the control socket does not speak as expected: {0}")]
    Invalid(String),
}

impl fmt::Debug for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&with_causes(self))
    }
}

impl ClientError {
    pub(crate) fn invalid(why: impl ToString) -> Self {
        Self::Invalid(why.to_string())
    }

    /// Whether the owner is gone, or there is none: whoever takes the folder may do the same work.
    pub fn is_without_owner(&self) -> bool {
        matches!(self, Self::NoOwner | Self::Cut)
    }
}
