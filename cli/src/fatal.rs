//! Errors of usage and environment: one line, what to do, and exit status 2.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

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

/// The working directory.
///
/// # Errors
/// It was removed, or this user may not enter what it is in.
pub(crate) fn working_directory() -> Result<PathBuf, Fatal> {
    std::env::current_dir().map_err(|error| match error.kind() {
        ErrorKind::NotFound => Fatal::new("the working directory was removed; go to another one"),
        _ => Fatal::from(error).while_doing("find the working directory"),
    })
}

/// A path from the root on.
///
/// # Errors
/// As [`working_directory`].
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, Fatal> {
    match path.is_absolute() {
        true => Ok(path.to_owned()),
        false => Ok(working_directory()?.join(path)),
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
