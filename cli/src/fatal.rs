//! Errors of usage and environment: one line, what to do, and exit status 2.

use std::fmt;

use ghostlight::protocol::text::with_causes;

/// Why the program does nothing, or stops.
#[derive(Debug)]
pub(crate) struct Fatal {
    /// What is wrong, and what to do.
    pub(crate) message: String,
    /// The exit status.
    pub(crate) code: u8,
    /// The owner of the folder went away in the middle: find the next way in, and ask again.
    pub(crate) owner_is_gone: bool,
}

impl Fatal {
    /// A usage or environment error.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 2, owner_is_gone: false }
    }

    /// Says what was being done.
    #[must_use]
    pub(crate) fn while_doing(self, doing: impl fmt::Display) -> Self {
        Self { message: format!("{doing}: {}", self.message), ..self }
    }
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<E: std::error::Error + 'static> From<E> for Fatal {
    fn from(error: E) -> Self {
        Self::new(with_causes(&error))
    }
}
