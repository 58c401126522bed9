use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::process::boot_id;
use super::remove::{is_over, remove};
use super::{Error, Status};

pub(crate) const LOCK: &str = "lock";
pub(crate) const CLAIM: &str = "claim";
pub(crate) const STATUS: &str = "status";
pub(crate) const STDOUT: &str = "stdout";
pub(crate) const STDERR: &str = "stderr";
pub(crate) const LOG: &str = "shim.log";

/// A launch folder, and the boot it was made in.
///
/// Both are what a record of the launch has to keep: a launch outlives the program, never the
/// boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchDir {
    path: PathBuf,
    boot_id: String,
}

impl LaunchDir {
    /// Names the folder of a new launch, in this boot, without making it.
    ///
    /// The caller stores path and boot id before it calls [`create`](Self::create).
    ///
    /// # Errors
    ///
    /// The boot id or the current folder cannot be read.
    pub fn plan(path: &Path) -> Result<Self, Error> {
        let path = std::path::absolute(path).map_err(|error| Error::io("find", path, error))?;
        Ok(LaunchDir { path, boot_id: boot_id()? })
    }

    /// Names the folder of a launch that was planned before, by what was stored then.
    pub fn known(path: impl Into<PathBuf>, boot_id: impl Into<String>) -> Self {
        LaunchDir { path: path.into(), boot_id: boot_id.into() }
    }

    /// Makes the folder, for its owner only (mode 0700). The parent folder must be there, and the
    /// launch [of this boot](Self::is_of_this_boot).
    ///
    /// Nothing is synced: the shim syncs folder and parent before the launch's end is visible.
    ///
    /// # Errors
    ///
    /// The folder cannot be made; above all, it is there already: every launch has its own.
    pub fn create(&self) -> Result<(), Error> {
        DirBuilder::new()
            .mode(0o700)
            .create(&self.path)
            .map_err(|error| Error::io("create", &self.path, error))
    }

    /// Removes the folder and all that is in it; one that is not there is no error.
    ///
    /// Only for a launch whose outcome and output are stored elsewhere. A launch that nobody has
    /// claimed is given up by it.
    ///
    /// # Errors
    ///
    /// The launch has a shim and no status yet, so that its command may be executed: nothing is
    /// removed then. Or something in it cannot be removed.
    pub fn remove(&self) -> Result<(), Error> {
        remove(&self.path)
    }

    /// Returns the folder's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the boot the launch was made in.
    pub fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// Returns whether the command is not executed any more and never will be by this launch, giving
    /// it up if nobody has claimed it. Whatever else is wrong with the folder, `false` says that a
    /// shim is alive.
    ///
    /// # Errors
    ///
    /// The folder's files cannot be read.
    pub fn is_over(&self) -> Result<bool, Error> {
        is_over(&self.path)
    }

    /// Returns whether the machine has not been started again since the launch was planned.
    ///
    /// If it has, a folder that is missing says nothing: the command may have been executed, and
    /// the folder lost with what was not synced. Such a launch is recovered, never begun.
    ///
    /// # Errors
    ///
    /// The boot id cannot be read.
    pub fn is_of_this_boot(&self) -> Result<bool, Error> {
        Ok(self.boot_id == boot_id()?)
    }

    /// Reads how the command ended; `None` as long as the shim has not said so.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is corrupt.
    pub fn status(&self) -> Result<Option<Status>, Error> {
        let path = self.file(STATUS);
        match read_small(&path)? {
            Some(bytes) => Status::decode(&bytes, &path).map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Reads a file of the shim's, at most 64 KiB of it; `None` if it is not there.
pub(super) fn read_small(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    use std::io::Read;

    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(65_536).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path, error)),
    }
}
