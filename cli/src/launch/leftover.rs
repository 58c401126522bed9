#![expect(
    clippy::disallowed_methods,
    reason = "processes die by the wall clock, and the shim has no runtime"
)]
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::claim::ShimClaim;
use super::{Error, ProcessStat, boot_id, pid_namespace};

/// How long killed processes may take to be gone.
const DEATH_TIME: Duration = Duration::from_secs(10);

/// Kills what is left of a vanished launch's process group; returns how many processes that were.
///
/// The command dies with its shim, but not what it had started. Only processes are touched that
/// are in the claim's group and session and started after its shim, in the same boot and pid
/// namespace. What has left the group or the session escapes, and so does what runs as another
/// user.
///
/// Once this returns, none of the launch's processes runs any more, so that another launch is not
/// a second execution. Safe to repeat.
///
/// # Errors
///
/// `/proc` cannot be read, or a process does not die within 10 s (it hangs inside the kernel): try
/// again later.
pub fn kill_leftover(claim: &ShimClaim) -> Result<usize, Error> {
    if claim.boot_id != boot_id()? || claim.pid_namespace != pid_namespace()? {
        return Ok(0);
    }
    let deadline = Instant::now() + DEATH_TIME;
    let mut killed = 0;
    loop {
        let members = members(claim)?;
        let Some((first, _)) = members.first() else {
            return Ok(killed);
        };
        let pid = *first;
        let mut dying = Vec::new();
        let mut all_foreign = true;
        for (_, process) in members {
            match pidfd_send_signal(&process, Signal::KILL) {
                Ok(()) => {
                    killed += 1;
                    all_foreign = false;
                    dying.push(process);
                }
                Err(Errno::PERM) => {}
                Err(_) => all_foreign = false,
            }
        }
        if all_foreign {
            return Ok(killed);
        }
        // Members may have forked before the signal reached them: look again until none is left.
        if !wait_for_all(&dying, deadline) || Instant::now() >= deadline {
            return Err(Error::StillThere { pid });
        }
    }
}

/// The living members of the claim's group, each with a descriptor opened before it was checked.
fn members(claim: &ShimClaim) -> Result<Vec<(i32, OwnedFd)>, Error> {
    // A session's number is not given to a new process while the session has members. So a
    // process of that number that is not the shim says that all members are of another session.
    if ProcessStat::read(claim.pid)?.is_some_and(|leader| leader.start_time != claim.start_time) {
        return Ok(Vec::new());
    }
    let mut members = Vec::new();
    for stat in ProcessStat::all()?.into_iter().filter(|stat| is_member(claim, stat)) {
        let Some(Ok(process)) = Pid::from_raw(stat.pid).map(open) else {
            continue;
        };
        if ProcessStat::read(stat.pid)?.is_some_and(|again| is_member(claim, &again)) {
            members.push((stat.pid, process));
        }
    }
    Ok(members)
}

fn is_member(claim: &ShimClaim, stat: &ProcessStat) -> bool {
    // The command itself counts even if it has moved to another group.
    (stat.group == claim.process_group || stat.pid == claim.process_group)
        && stat.session == claim.pid
        && stat.start_time >= claim.start_time
        && !stat.zombie
}

fn open(pid: Pid) -> Result<OwnedFd, Errno> {
    pidfd_open(pid, PidfdFlags::empty())
}

/// Waits until all processes have ended; returns whether they did before the deadline.
pub(crate) fn wait_for_all(processes: &[OwnedFd], deadline: Instant) -> bool {
    processes.iter().all(|process| {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return false,
                Ok(_) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    })
}
