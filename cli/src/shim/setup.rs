//! Cuts the shim off from its caller, and opens the files of the launch.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FlockOperation, Mode, OFlags, Stat, fallocate, flock, fstat,
    fsync, openat, renameat, statat,
};
use rustix::io::Errno;
use rustix::process::{chdir, getpid, set_child_subreaper, setsid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::launch::{CLAIM, FolderId, LOCK, LOG, STATUS, STDERR, STDOUT};
use crate::sys;

/// The name under which a status is written before it takes its place.
const STATUS_DRAFT: &str = "status.draft";

/// How much room is kept for the status, so that a full disk does not lose it.
const STATUS_BYTES_RESERVED: u64 = 4096;

/// Why the shim could not claim its launch.
pub(super) struct SetUpError {
    pub(super) stage: &'static str,
    pub(super) errno: i32,
}

impl SetUpError {
    pub(super) fn at<E: Into<io::Error>>(stage: &'static str) -> impl FnOnce(E) -> Self {
        move |error| SetUpError { stage, errno: error.into().raw_os_error().unwrap_or(libc::EIO) }
    }
}

/// Leaves the caller's session, terminal, working directory and descriptors.
pub(super) fn isolate() -> Result<(), SetUpError> {
    sys::restore_child_signal();
    sys::ignore_size_signal();
    close_inherited().map_err(SetUpError::at("close descriptors"))?;
    setsid().map_err(SetUpError::at("start a session"))?;
    set_child_subreaper(Some(getpid())).map_err(SetUpError::at("become a subreaper"))?;
    // Not the program's own name: who kills the program by name must not meet its shims.
    rustix::thread::set_name(c"run-shim").map_err(SetUpError::at("set the name"))
}

/// Closes all descriptors but the standard ones.
fn close_inherited() -> io::Result<()> {
    let mut inherited = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        inherited
            .extend(name.to_str().and_then(|name| name.parse().ok()).filter(|fd: &i32| *fd > 2));
    }
    // The folder's own descriptor is in the list and closed by now, which closing again ignores.
    inherited.into_iter().for_each(sys::close_unowned);
    Ok(())
}

fn folder_id(stat: &Stat) -> FolderId {
    FolderId { device: stat.st_dev, inode: stat.st_ino }
}

/// The launch's files, open.
pub(super) struct Files {
    folder: OwnedFd,
    stdout: File,
    stderr: File,
    status: File,
    log: File,
    /// `/dev/null`, opened before the launch is claimed: a shortage of files is then no more than a
    /// launch that did not begin.
    null: File,
    /// Held for the shim's life; closed by the end of the process only.
    _lock: OwnedFd,
}

impl Files {
    /// Takes the launch's lock and makes its files; `None` if the launch is not free.
    pub(super) fn open(dir: &Path) -> Result<Option<Self>, SetUpError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, dir, flags, Mode::empty())
            .map_err(SetUpError::at("open the launch folder"))?;
        chdir("/").map_err(SetUpError::at("leave the working directory"))?;
        let file = |name: &str, flags: OFlags| {
            let flags = flags | OFlags::CREATE | OFlags::CLOEXEC;
            openat(&folder, name, flags, Mode::RUSR | Mode::WUSR)
        };
        let append = OFlags::WRONLY | OFlags::APPEND;
        let make = || -> Result<Option<[OwnedFd; 5]>, Errno> {
            let lock = file(LOCK, OFlags::RDWR)?;
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => return Ok(None),
                taken => taken?,
            }
            // Linking the claim decides; but a launch that is over need not be touched at all.
            match statat(&folder, CLAIM, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => {}
                claimed => return claimed.map(|_| None),
            }
            Ok(Some([
                lock,
                file(STDOUT, append)?,
                file(STDERR, append)?,
                file(LOG, append)?,
                file(STATUS_DRAFT, OFlags::WRONLY)?,
            ]))
        };
        let null = File::open("/dev/null").map_err(SetUpError::at("open /dev/null"))?;
        let Some([lock, stdout, stderr, log, status]) =
            make().map_err(SetUpError::at("make the launch's files"))?
        else {
            return Ok(None);
        };
        match fallocate(&status, FallocateFlags::empty(), 0, STATUS_BYTES_RESERVED) {
            // A file system that cannot reserve room is none to refuse for that.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(SetUpError::at("reserve room for the status")(error)),
        }
        Ok(Some(Files {
            folder,
            stdout: stdout.into(),
            stderr: stderr.into(),
            status: status.into(),
            log: log.into(),
            null,
            _lock: lock,
        }))
    }

    pub(super) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// Which folder it is, by whatever path it was opened.
    pub(super) fn folder_id(&self) -> io::Result<FolderId> {
        Ok(folder_id(&fstat(&self.folder)?))
    }

    /// Whether the folder still has the name it was opened by, wherever its parent is by now. To be
    /// asked once the launch is claimed: whoever removes a folder takes its name away before the
    /// claim in it.
    pub(super) fn are_in_place(&self, dir: &Path) -> io::Result<bool> {
        let Some(name) = dir.file_name() else {
            return Ok(false);
        };
        let own = self.folder_id()?;
        match statat(&self.folder, Path::new("..").join(name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => Ok(folder_id(&there) == own),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Syncs the folder's own name, which must last as long as the status in it.
    pub(super) fn sync_name(&self) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Through the folder: its path may be another one by now.
        Ok(fsync(openat(&self.folder, "..", flags, Mode::empty())?)?)
    }

    pub(super) fn stdout(&self) -> &File {
        &self.stdout
    }

    pub(super) fn stderr(&self) -> &File {
        &self.stderr
    }

    /// Makes the log the shim's own output, and nothing its input.
    pub(super) fn take_streams(&self) -> io::Result<()> {
        dup2_stdin(&self.null)?;
        dup2_stdout(&self.log)?;
        dup2_stderr(&self.log)?;
        Ok(())
    }

    /// Makes the command's files the standard streams of this process.
    pub(super) fn give_streams(&self) -> io::Result<()> {
        dup2_stdin(&self.null)?;
        dup2_stdout(&self.stdout)?;
        dup2_stderr(&self.stderr)?;
        Ok(())
    }

    /// Makes the status visible, whole and in one moment.
    pub(super) fn publish_status(&self, bytes: &[u8], sync: bool) -> io::Result<()> {
        let mut status = &self.status;
        status.write_all(bytes)?;
        status.set_len(bytes.len() as u64)?;
        if sync {
            status.sync_all()?;
        }
        renameat(&self.folder, STATUS_DRAFT, &self.folder, STATUS)?;
        if sync {
            fsync(&self.folder)?;
        }
        Ok(())
    }
}
