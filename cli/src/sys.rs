//! All unsafe code of this crate: what no safe interface offers.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{OwnedFd, RawFd};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::launch::CommandEnd;

/// Lets the runtime wait until a descriptor is readable.
///
/// # Panics
///
/// Outside of a tokio runtime with I/O enabled.
pub(crate) fn readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd keeps one descriptor open for its whole life, and nothing closes or
    // replaces it while the AsyncFd owns it.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

/// Sets this process's soft limit of open files, as far as its hard one lets it; `None` is no limit.
pub(crate) fn set_open_files(current: Option<u64>) -> io::Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = match (current, maximum) {
        (Some(current), Some(maximum)) => Some(current.min(maximum)),
        (current, maximum) => current.or(maximum),
    };
    Ok(setrlimit(Resource::Nofile, Rlimit { current, maximum })?)
}

/// Which of the two processes this is.
pub(crate) enum Fork {
    Parent(Pid),
    Child,
}

/// Makes a copy of this process.
///
/// # Errors
///
/// No process can be made, or this one has several threads.
pub(crate) fn fork() -> io::Result<Fork> {
    // Checked, not assumed: the copy would hold locks whose owners it has not.
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::from_raw_os_error(libc::EDEADLK));
    }
    // SAFETY: the process has a single thread, so nothing is in an intermediate state in the copy,
    // which may therefore go on with any code.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid).map_or(Fork::Child, Fork::Parent)),
    }
}

/// Ends this process without running what the original has registered for its own end.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit has no preconditions and does not return.
    unsafe { libc::_exit(code) }
}

/// Makes ended children wait to be reaped, even if the caller had told the kernel otherwise.
pub(crate) fn restore_child_signal() {
    // SAFETY: setting a default disposition installs no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Makes a write beyond the limit of file sizes fail, instead of killing who writes.
pub(crate) fn ignore_size_signal() {
    // SAFETY: ignoring a signal installs no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Takes back [`ignore_size_signal`], for a command.
pub(crate) fn restore_size_signal() {
    // SAFETY: setting a default disposition installs no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
}

/// Closes a descriptor that was inherited; a number that is not open is ignored.
pub(crate) fn close_unowned(fd: RawFd) {
    // SAFETY: called before the shim opens anything, so no object in this process owns a
    // descriptor other than the standard ones, which the caller leaves out.
    unsafe { libc::close(fd) };
}

/// A child that has ended.
pub(crate) struct EndedChild {
    pub(crate) pid: Pid,
    pub(crate) end: CommandEnd,
}

/// Waits until some child has ended, and says how, without reaping it.
pub(crate) fn next_ended_child() -> io::Result<EndedChild> {
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        let options = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: `info` is valid for writing a siginfo_t.
        if unsafe { libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), options) } != 0 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        // SAFETY: all zeros is a valid siginfo_t, and waitid has filled in the fields of SIGCHLD,
        // which are those read here.
        let (pid, status, code) = unsafe {
            let info = info.assume_init();
            (info.si_pid(), info.si_status(), info.si_code)
        };
        let Some(pid) = Pid::from_raw(pid) else {
            continue;
        };
        let end = match code {
            libc::CLD_EXITED => CommandEnd::Exited { code: status },
            code => CommandEnd::Signaled { signal: status, core_dumped: code == libc::CLD_DUMPED },
        };
        return Ok(EndedChild { pid, end });
    }
}
