//! A `map` that waits for a data folder goes before those that only look.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

const NAME: &str = "next-owner";

/// Keeps new readers out of a folder, until it is dropped: many of them, each for a moment, would keep
/// an owner out for good. Only a courtesy: the folder's own lock decides.
///
/// It is a lock on a file, which is never removed, so that one of a process that was killed keeps out
/// nobody.
#[derive(Debug)]
pub(crate) struct Intent {
    _file: File,
}

impl Intent {
    /// Declares it; `None` if another owner waits already, or the file cannot be made. Blocks.
    ///
    /// A folder without a store has no readers to keep out, and whoever has made it may yet remove it:
    /// the file would be in the way.
    pub(crate) fn declare(data: &Path) -> Option<Self> {
        if !data.join("store").exists() {
            return None;
        }
        let file = File::create(data.join(NAME)).ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(Self { _file: file })
    }

    /// Whether an owner waits for the folder. Blocks.
    pub(crate) fn is_declared(data: &Path) -> bool {
        match File::open(data.join(NAME)) {
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
            // What cannot be read keeps nobody out.
            Err(_) => false,
        }
    }
}
