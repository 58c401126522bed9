//! What can go wrong between a caller and the disk.

use std::fmt;
use std::path::PathBuf;

/// Why storage refused, or failed, a request.
///
/// `Debug` shows the text, for a `main` that returns it.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An expectation of the batch did not hold: nothing of that batch was written.
    #[error("conflict on {key}: expected {expected}, found {found}")]
    Conflict {
        /// The key, in the form that error messages show.
        key: String,
        /// What the batch expected.
        expected: String,
        /// What the store holds.
        found: String,
    },
    /// A batch, key or value over its limit. Nothing of the batch was written.
    #[error("{what} is {actual}, over the limit of {limit}")]
    TooLarge {
        /// What was too large, and its unit.
        what: &'static str,
        /// Its size.
        actual: usize,
        /// The limit.
        limit: usize,
    },
    /// A batch that puts or deletes one key more than once. Nothing of it was written.
    #[error("a batch changes {key} more than once")]
    KeyTwice {
        /// The key, in the form that error messages show.
        key: String,
    },
    /// The commits that wait for the disk fill the queue. The batch was not queued.
    ///
    /// Only a request that does not wait for room is answered so.
    #[error("the commit queue is full (limit {limit} bytes)")]
    QueueFull {
        /// The most bytes that may be queued.
        limit: usize,
    },
    /// A record that cannot be decoded.
    #[error("record {key} is corrupt: {why}")]
    Corrupt {
        /// The key, in the form that error messages show.
        key: String,
        /// What is wrong with the bytes.
        why: String,
    },
    /// A record or folder written by a newer version of Ghostlight.
    #[error(
        "{key} was written by a newer version (format {found}, this program knows {known}); upgrade the program"
    )]
    TooNew {
        /// The record, or the folder.
        key: String,
        /// The version found.
        found: u32,
        /// The newest version this program reads.
        known: u32,
    },
    /// Another process owns the folder.
    #[error("{} is in use by {}; stop it, or use another folder", folder.display(), process(*pid))]
    Locked {
        /// The data folder.
        folder: PathBuf,
        /// The owner's process id; 0 when it could not be read.
        pid: u32,
    },
    /// The folder cannot be used as a store.
    #[error("cannot open the store in {}: {why}", folder.display())]
    Open {
        /// The data folder.
        folder: PathBuf,
        /// The reason, and what to do.
        why: String,
    },
    /// Commits that were acknowledged cannot be read any more: the medium has damaged the store, or
    /// its files are not of one moment.
    #[error(
        "acknowledged commits are missing in {}, at least {missing} of them: {why}; keep a \
         copy of the folder, and restore a backup or use another folder",
        folder.display()
    )]
    CommitsLost {
        /// The data folder.
        folder: PathBuf,
        /// How many, at least.
        missing: u64,
        /// How it was noticed.
        why: String,
    },
    /// The engine failed to write or sync. From then on every write is refused.
    #[error("the store failed and refuses writes until it is reopened: {why}")]
    Poisoned {
        /// The first failure.
        why: String,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

fn process(pid: u32) -> String {
    match pid {
        0 => "another process".into(),
        pid => format!("process {pid}"),
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// Whether the same request may succeed later without anybody's help.
    ///
    /// A conflict is not retryable as it stands: re-read, and decide again. A full queue is: the
    /// disk empties it.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::QueueFull { .. })
    }
}
