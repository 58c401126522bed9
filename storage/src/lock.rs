//! One process owns a data folder.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::Error;
use crate::folder::{create_folder, parent};

/// The ownership of a data folder, held until it is dropped.
///
/// It is an advisory lock of the operating system on the file `lock` in the folder: the lock of a
/// process that was killed is free at once, whatever the file still says. The file holds the
/// owner's process id, for messages, and stays, unless it is [discarded](FolderLock::discard). A file of this name that holds anything
/// else is not ours, and is left alone.
#[derive(Debug)]
pub struct FolderLock {
    folder: PathBuf,
    file: File,
    handed_over: bool,
}

impl FolderLock {
    /// Takes the folder for this process; makes it, with mode 0700, if it does not exist.
    ///
    /// Does not wait.
    ///
    /// # Errors
    /// [`Error::Locked`] if another handle holds it, in this process or another: a retry is safe.
    /// [`Error::Open`] if the folder cannot be used.
    pub fn acquire(folder: impl AsRef<Path>) -> Result<Self, Error> {
        let given = folder.as_ref();
        let failed = |error: &std::io::Error| Error::Open { folder: given.into(), why: why(error) };
        let mut left = TIMES_REMOVED_MAX;
        let (folder, mut file) = loop {
            make_folder(given)?;
            let (folder, mut file) = match open(given) {
                Ok(opened) => opened,
                // Who has made the folder may remove it again once the lock is discarded.
                Err(error) if error.kind() == ErrorKind::NotFound && left > 0 => {
                    left -= 1;
                    continue;
                }
                Err(error) => return Err(failed(&error)),
            };
            lock(&folder, &mut file)?;
            // An owner may have discarded the file since it was opened: who is next makes another.
            if is_at(&file, &folder.join("lock")).map_err(|error| failed(&error))? {
                break (folder, file);
            }
        };
        if !is_ours(&mut file) {
            let why = "its file `lock` was not made by this program; name another folder".into();
            return Err(Error::Open { folder, why });
        }
        Self::own(folder, file)
    }

    /// Takes a folder that has a store for this process, and makes nothing; `None` if it has none.
    ///
    /// Does not wait.
    ///
    /// # Errors
    /// As [`FolderLock::acquire`].
    pub fn acquire_existing(folder: impl AsRef<Path>) -> Result<Option<Self>, Error> {
        let given = folder.as_ref();
        let failed = |error: &std::io::Error| Error::Open { folder: given.into(), why: why(error) };
        let opened = given.canonicalize().and_then(|folder| {
            let file = OpenOptions::new().read(true).write(true).open(folder.join("lock"))?;
            Ok((folder, file))
        });
        let (folder, mut file) = match opened {
            Ok(opened) => opened,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(&error)),
        };
        // Of a folder that somebody is making, too: it has a store soon.
        lock(&folder, &mut file)?;
        let has_store = ["db", "conf"].iter().any(|name| folder.join("store").join(name).exists());
        // Another one may be in its place where an owner has discarded it.
        let is_current = is_at(&file, &folder.join("lock")).map_err(|error| failed(&error))?;
        match has_store && is_current && is_ours(&mut file) {
            true => Self::own(folder, file).map(Some),
            false => Ok(None),
        }
    }

    fn own(folder: PathBuf, file: File) -> Result<Self, Error> {
        let mut lock = Self { folder, file, handed_over: false };
        match lock.write_pid() {
            // On a full disk runs are still read, and others are refused without a pid.
            Err(error) if !is_full(&error) => {
                Err(Error::Open { folder: lock.folder.clone(), why: why(&error) })
            }
            _ => Ok(lock),
        }
    }

    /// Lets the folder go, and removes the file of the lock: for who has made it, and was refused.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn discard(self) -> std::io::Result<()> {
        // Held until it is gone: whoever waits for it finds that it is not in its place any more.
        std::fs::remove_file(self.folder.join("lock"))
    }

    /// Gives the folder to a child process, without a moment in which nobody has it: the child is
    /// started with the returned file as one of its own, and takes it by [`FolderLock::inherit`]. Until
    /// then the folder is locked in the name of this process, as long as anybody has the file open.
    ///
    /// # Errors
    /// No more files can be opened; the folder is let go then.
    pub fn hand_over(mut self) -> std::io::Result<File> {
        let file = self.file.try_clone()?;
        self.handed_over = true;
        Ok(file)
    }

    /// Takes a folder that the parent process has [handed over](FolderLock::hand_over); `None` if the
    /// file is another one than the folder's lock.
    ///
    /// # Errors
    /// As [`FolderLock::acquire`].
    pub fn inherit(folder: impl AsRef<Path>, mut file: File) -> Result<Option<Self>, Error> {
        let given = folder.as_ref();
        let failed = |error: std::io::Error| Error::Open { folder: given.into(), why: why(&error) };
        let folder = given.canonicalize().map_err(failed)?;
        if !is_at(&file, &folder.join("lock")).map_err(failed)? {
            return Ok(None);
        }
        lock(&folder, &mut file)?;
        Self::own(folder, file).map(Some)
    }

    /// The process that says that it owns a folder; `None` if none does, or its disk was too full to
    /// say so. A process that was killed may still be named.
    ///
    /// # Errors
    /// The folder's lock file cannot be read.
    pub fn owner(folder: impl AsRef<Path>) -> std::io::Result<Option<u32>> {
        match File::open(folder.as_ref().join("lock")) {
            Ok(mut file) => Ok(Some(read_pid(&mut file)).filter(|pid| *pid != 0)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The folder, as an absolute path.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn write_pid(&mut self) -> std::io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        writeln!(self.file, "{}", std::process::id())
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        if self.handed_over {
            return;
        }
        // So that nobody is told the pid of a process that has let go.
        let _ = self.file.set_len(0);
        // Closing the file is not enough: a child process that has been forked but has not yet
        // replaced its image shares the lock.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// How often a folder may be removed between being made and being opened.
const TIMES_REMOVED_MAX: usize = 100;

/// Opens the file of a folder's lock, or makes it; returns the folder as an absolute path: the engine
/// must find its files even if the working directory changes later.
fn open(folder: &Path) -> std::io::Result<(PathBuf, File)> {
    let folder = folder.canonicalize()?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(folder.join("lock"))?;
    Ok((folder, file))
}

/// Whether a path leads to this very file.
fn is_at(file: &File, path: &Path) -> std::io::Result<bool> {
    let own = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (own.dev(), own.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn lock(folder: &Path, file: &mut File) -> Result<(), Error> {
    let folder = folder.to_owned();
    match flock(&*file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(Error::Locked { pid: read_pid(file), folder }),
        Err(errno) => {
            let hint = "use a folder on a local disk";
            Err(Error::Open {
                why: format!("its file system gives no locks ({errno}); {hint}"),
                folder,
            })
        }
    }
}

/// The most bytes of a file that holds a process id, or a part of one.
const PID_BYTES_MAX: u64 = 32;

/// Whether a file holds what an owner writes: its process id, or nothing. Nothing of it is synced, and
/// a power cut may leave as many zero bytes in its place.
fn is_ours(file: &mut File) -> bool {
    let mut text = Vec::new();
    let read = file.rewind().and_then(|()| file.take(PID_BYTES_MAX + 1).read_to_end(&mut text));
    let digits = text.strip_suffix(b"\n").unwrap_or(&text);
    let is_lost = text.iter().all(|byte| *byte == 0);
    let is_pid = digits.iter().all(u8::is_ascii_digit);
    read.is_ok() && text.len() as u64 <= PID_BYTES_MAX && (is_pid || is_lost)
}

fn read_pid(file: &mut File) -> u32 {
    let mut text = String::new();
    // A file that cannot be read, or is being written, is worth an error without a pid.
    let _ = file.take(PID_BYTES_MAX).read_to_string(&mut text);
    text.trim().parse().unwrap_or(0)
}

fn make_folder(folder: &Path) -> Result<(), Error> {
    let failed = |why: String| Err(Error::Open { folder: folder.into(), why });
    match std::fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(_) => return failed("it is a file; name a folder, or move the file away".into()),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return failed(why(&error)),
    }
    make_durable(folder, 0o700).or_else(|error| failed(why(&error)))
}

/// Makes a folder and the missing ones above it, so that a power cut cannot take them back.
fn make_durable(folder: &Path, mode: u32) -> std::io::Result<()> {
    let parent = parent(folder);
    if !parent.try_exists()? {
        make_durable(parent, 0o777)?;
    }
    // Where somebody else made it in the same moment, the lock decides who has it.
    create_folder(folder, mode)
}

/// Whether an I/O error says that nothing more fits.
pub(crate) fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// What an I/O error means for somebody who wants to use a folder, and what to do.
pub(crate) fn why(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            "permission denied; make the folder writable for this user, or use another folder"
                .into()
        }
        ErrorKind::ReadOnlyFilesystem => {
            "its file system is read-only; use a folder on a writable one".into()
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "no space is left on its file system; make space and try again".into()
        }
        ErrorKind::NotADirectory => {
            "a part of its path is a file; name a folder, or move the file away".into()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
