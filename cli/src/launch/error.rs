use std::io;
use std::path::{Path, PathBuf};

/// What can go wrong around a launch folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// What was being done, as in "read".
        doing: &'static str,
        /// The file or folder concerned.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A file of the launch folder does not say what it should.
    #[error("corrupt {}: {reason}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file of the launch folder was written by a newer version.
    #[error("{} has version {version}, which this program does not know", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The version it names.
        version: u32,
    },
    /// Processes of a launch do not die; the launch must not be repeated yet.
    #[error("process {pid} was killed and is still there")]
    StillThere {
        /// One of them.
        pid: i32,
    },
    /// The command has ended, but its shim has not: it is stopped, or waits for its disk. It tells the
    /// end, and kills the rest of the command's group, once it goes on.
    #[error(
        "the command has ended, and its shim, process {pid}, has not yet: is that process stopped?"
    )]
    ShimStuck {
        /// The shim.
        pid: i32,
    },
    /// The shim of a command keeps its lock, and cannot be opened to be signalled.
    #[error("process {pid}, which keeps the command, cannot be reached")]
    Unreached {
        /// The shim.
        pid: i32,
    },
    /// The command may still be executed, so its folder is not removed.
    #[error("{} has a shim that is alive", path.display())]
    Kept {
        /// The launch folder.
        path: PathBuf,
    },
}

impl Error {
    pub(super) fn io(doing: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Error::Io { doing, path: path.to_owned(), source: source.into() }
    }

    /// Returns whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Error::Io { .. }
                | Error::StillThere { .. }
                | Error::ShimStuck { .. }
                | Error::Unreached { .. }
                | Error::Kept { .. }
        )
    }
}

/// Why a launch did not begin.
///
/// In every case the command was not executed, and no shim is left that could do it later, except
/// for [`Lost`](Self::Lost), where the folder belongs to somebody else.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The command's arguments and environment are more than the kernel takes. Final.
    #[error("argument list too long")]
    TooLong,
    /// An argument holds a NUL byte. Final.
    #[error("an argument holds a NUL byte")]
    Nul,
    /// The shim could not be started: no processes, memory or descriptors left.
    #[error("start the shim: {0}")]
    Start(#[source] io::Error),
    /// The shim could not set itself up.
    #[error("set up the shim ({stage}): {source}")]
    SetUp {
        /// What it was doing.
        stage: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The shim ended without a word, for instance by a signal.
    #[error("the shim ended before it started the command")]
    Died,
    /// The launch had been given up, or has a shim already.
    #[error("the launch is no longer free")]
    Lost,
}

impl SpawnError {
    /// Returns whether a new launch of the same command may succeed.
    pub fn is_retryable(&self) -> bool {
        !matches!(self, SpawnError::TooLong | SpawnError::Nul)
    }
}

/// Runs what blocks where it may block.
pub(super) async fn on_blocking_pool<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::io("work in", Path::new("the background"), error)),
    }
}
