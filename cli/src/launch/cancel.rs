use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

use tokio::time::Instant;

use super::claim::ShimClaim;
use super::directory::LOCK;
use super::error::on_blocking_pool;
use super::observe::lock_is_held;
use super::{
    Error, LaunchDir, ProcessStat, Recovered, Status, kill_leftover, pid_namespace, recover,
};

/// How long a shim that should be in reach is waited for before it is looked for again.
const REACH_WAIT: Duration = Duration::from_millis(500);

/// How long a killed command may take to be gone, and its shim after it.
const DEATH_TIME: Duration = Duration::from_secs(10);

/// What a cancelled launch came to.
#[derive(Debug)]
pub enum Cancelled {
    /// The command ended: by our signal, by itself, or long ago.
    Ended(Status),
    /// The command is gone without a status, and so is all that was left of it.
    Vanished,
    /// The command was not executed, and will not be by this launch.
    NeverRan,
    /// The command runs on and cannot be signalled from here: in another pid namespace, or as
    /// another user.
    OutOfReach,
}

/// What became of a signal to a command.
#[derive(PartialEq, Eq)]
enum Signalled {
    Sent,
    /// There is no command any more; its shim is about to end.
    Gone,
    /// The command has become another user.
    Refused,
}

/// Stops a launch's command: TERM to its process group, KILL after `grace`, and waits for the end.
///
/// A `grace` of zero kills at once. Nothing is signalled unless the shim is the process that its
/// claim names and still holds its lock.
///
/// # Errors
///
/// As [`recover`] and [`kill_leftover`], and if the command does not die within 10 s (it hangs
/// inside the kernel), or its shim within as long after it (it is stopped), or cannot be opened for as long; safe to
/// repeat.
///
/// # Cancel safety
///
/// Dropping the future leaves the launch as it is: perhaps claimed as void, perhaps with its
/// command told to terminate but never killed. Cancelling can begin again.
pub async fn cancel(dir: &LaunchDir, grace: Duration) -> Result<Cancelled, Error> {
    let mut killed = false;
    let began = Instant::now();
    loop {
        let seen = dir.clone();
        let look = move || Ok((recover(&seen)?, pid_namespace()?));
        let (recovered, namespace) = on_blocking_pool(look).await?;
        let shim = match recovered {
            Recovered::Ended(status) => return Ok(Cancelled::Ended(status)),
            Recovered::NeverRan => return Ok(Cancelled::NeverRan),
            Recovered::Vanished(claim) => {
                if let Some(claim) = claim {
                    on_blocking_pool(move || kill_leftover(&claim)).await?;
                }
                return Ok(Cancelled::Vanished);
            }
            Recovered::Alive(shim) => shim,
        };
        if !shim.in_reach() {
            if shim.claim().pid_namespace != namespace {
                return Ok(Cancelled::OutOfReach);
            }
            if began.elapsed() > grace.saturating_add(DEATH_TIME) {
                return Err(Error::Unreached { pid: shim.claim().pid });
            }
            // The instant in which a shim is gone and its lock is not; or we could not open what it
            // is reached by, and shall.
            if let Ok(ended) = tokio::time::timeout(REACH_WAIT, shim.ended()).await {
                ended?;
            }
            continue;
        }
        if !grace.is_zero() && !killed {
            let wait = match signal(dir, shim.claim(), Signal::TERM).await? {
                Signalled::Refused => return Ok(Cancelled::OutOfReach),
                Signalled::Sent => grace,
                Signalled::Gone => Duration::ZERO,
            };
            if let Ok(ended) = tokio::time::timeout(wait, shim.ended()).await {
                ended?;
                continue;
            }
        }
        match signal(dir, shim.claim(), Signal::KILL).await? {
            Signalled::Refused => return Ok(Cancelled::OutOfReach),
            Signalled::Sent if killed => {
                return Err(Error::StillThere { pid: shim.claim().process_group });
            }
            Signalled::Sent => {
                killed = true;
                if let Ok(ended) = tokio::time::timeout(DEATH_TIME, shim.ended()).await {
                    ended?;
                }
            }
            Signalled::Gone => match tokio::time::timeout(DEATH_TIME, shim.ended()).await {
                Ok(ended) => ended?,
                Err(_) => return Err(Error::ShimStuck { pid: shim.claim().pid }),
            },
        }
    }
}

async fn signal(dir: &LaunchDir, claim: &ShimClaim, signal: Signal) -> Result<Signalled, Error> {
    let (lock, claim) = (dir.file(LOCK), claim.clone());
    let work = move || match lock_is_held(&lock)? {
        true => signal_command(&claim, signal),
        false => Ok(Signalled::Gone),
    };
    on_blocking_pool(work).await
}

/// Signals the group of a command whose shim is known to be alive.
fn signal_command(claim: &ShimClaim, signal: Signal) -> Result<Signalled, Error> {
    let Some(leader) = Pid::from_raw(claim.process_group) else {
        return Ok(Signalled::Gone);
    };
    // If there is no command any more, the shim does the rest.
    let process = pidfd_open(leader, PidfdFlags::empty());
    let stat = ProcessStat::read(claim.process_group)?;
    let Some(stat) = stat.filter(|stat| claim.is_command(stat)) else {
        return Ok(Signalled::Gone);
    };
    let mut sent = kill_process_group(leader, signal);
    // A command may have moved itself to another group, its own group being empty then; and a
    // group has taken a signal if any of its members has, which need not be the command. A KILL
    // may come twice.
    if stat.group != claim.process_group || (sent.is_ok() && signal == Signal::KILL) {
        sent = process.and_then(|process| pidfd_send_signal(process, signal));
    }
    match sent {
        Ok(()) => Ok(Signalled::Sent),
        Err(Errno::SRCH) => Ok(Signalled::Gone),
        Err(Errno::PERM) => Ok(Signalled::Refused),
        Err(error) => {
            let path = format!("/proc/{}", claim.process_group);
            Err(Error::io("signal", Path::new(&path), error))
        }
    }
}
