//! Waits for the command, and leaves nothing of its group behind.

use std::io;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process_group, pidfd_open,
    pidfd_send_signal, waitid, waitpgid,
};

use crate::launch::{CommandEnd, ProcessStat, wait_for_all};
use crate::sys;

/// How long killed members of the group may take to be gone before the end is told anyway.
const DEATH_TIME: Duration = Duration::from_secs(5);

/// Waits until the command has ended, without reaping it, so that its number stays its own.
/// Whatever else has become a child of the shim is reaped meanwhile.
pub(super) fn wait_for(command: Pid) -> io::Result<CommandEnd> {
    loop {
        let child = sys::next_ended_child()?;
        if child.pid == command {
            return Ok(child.end);
        }
        waitid(WaitId::Pid(child.pid), WaitIdOptions::EXITED)?;
    }
}

/// Kills and reaps what is left of the command's group, the command itself included.
///
/// Processes that run as another user cannot be killed, and are not waited for.
pub(super) fn kill_group(command: Pid) -> io::Result<()> {
    // Nobody else has the group's number, because the command is not reaped yet.
    match kill_process_group(command, Signal::KILL) {
        // A command that has left its group may leave the group empty.
        Ok(()) | Err(Errno::PERM | Errno::SRCH) => {}
        Err(error) => return Err(error.into()),
    }
    waitid(WaitId::Pid(command), WaitIdOptions::EXITED)?;
    #[expect(clippy::disallowed_methods, reason = "the shim has no runtime")]
    let deadline = Instant::now() + DEATH_TIME;
    loop {
        match waitpgid(command, WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            // No child of that group: the common case, at once.
            Err(Errno::CHILD) => return Ok(()),
            Err(error) => return Err(error.into()),
            Ok(None) => {
                let dying = dying_members(command)?;
                if dying.is_empty() || !wait_for_all(&dying, deadline) {
                    return Ok(());
                }
            }
        }
    }
}

/// The shim's children in the group, those that can be killed.
fn dying_members(group: Pid) -> io::Result<Vec<rustix::fd::OwnedFd>> {
    let shim = rustix::process::getpid().as_raw_pid();
    let mut dying = Vec::new();
    for stat in ProcessStat::all().map_err(io::Error::other)? {
        if stat.group != group.as_raw_pid() || stat.parent != shim {
            continue;
        }
        let process = Pid::from_raw(stat.pid)
            .ok_or(Errno::SRCH)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
        if let Ok(process) = process
            && pidfd_send_signal(&process, Signal::KILL) != Err(Errno::PERM)
        {
            dying.push(process);
        }
    }
    Ok(dying)
}
