use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use tokio::runtime::Handle;

use super::claim::ShimClaim;
use super::directory::{LOCK, LaunchDir};
use super::error::on_blocking_pool;
use super::observe::lock_is_held;
use super::{Error, ProcessStat};
use crate::sys;

/// How often the lock of a shim is looked at that cannot be watched by a process descriptor.
const LOCK_POLL: Duration = Duration::from_millis(250);

/// A shim that was alive when the handle was made.
///
/// Dropping the handle does not touch the shim. A shim that this program has started is reaped
/// when it ends, also after its handle was dropped, as long as the runtime runs.
#[derive(Debug)]
pub struct ShimHandle {
    claim: ShimClaim,
    lock: PathBuf,
    process: Option<OwnedFd>,
    to_reap: AtomicBool,
}

impl ShimHandle {
    /// Takes a shim that this process has just started and not reaped, so that its pid is valid.
    pub(super) fn of_child(dir: &LaunchDir, claim: ShimClaim) -> Self {
        let process = open(claim.pid);
        let lock = dir.file(LOCK);
        ShimHandle { claim, lock, process, to_reap: AtomicBool::new(true) }
    }

    pub(super) fn attach(
        dir: &LaunchDir,
        claim: ShimClaim,
        same_namespace: bool,
    ) -> Result<Self, Error> {
        let mut process = if same_namespace { open(claim.pid) } else { None };
        // Opened first, then compared: the descriptor stays with the process that was compared.
        let stat = if process.is_some() { ProcessStat::read(claim.pid)? } else { None };
        if stat.is_none_or(|stat| stat.start_time != claim.start_time) {
            // The lock outlives its shim for the instant in which a command that was not yet
            // executed dies with it. Then the lock is what can be waited for.
            process = None;
        }
        let lock = dir.file(LOCK);
        Ok(ShimHandle { claim, lock, process, to_reap: AtomicBool::new(false) })
    }

    /// Returns whose handle this is.
    pub fn claim(&self) -> &ShimClaim {
        &self.claim
    }

    /// Returns whether the shim's process can be seen and signalled from here.
    ///
    /// If not, as in another container over the same folder, it can only be waited for.
    pub fn in_reach(&self) -> bool {
        self.process.is_some()
    }

    /// Returns whether the command is known to be there, and has not ended. A command out of reach is
    /// not.
    ///
    /// # Errors
    ///
    /// `/proc` cannot be read.
    pub(crate) fn command_lives(&self) -> Result<bool, Error> {
        if !self.in_reach() {
            return Ok(false);
        }
        let stat = ProcessStat::read(self.claim.process_group)?;
        Ok(stat.is_some_and(|stat| self.claim.is_command(&stat)))
    }

    /// Waits until the shim is gone. What its launch came to is then read by
    /// [`recover`](super::recover); [`conclude`](super::conclude) does both.
    ///
    /// # Errors
    ///
    /// The lock of a shim out of reach cannot be probed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing; waiting can begin again.
    pub async fn ended(&self) -> Result<(), Error> {
        if let Some(process) = &self.process
            && gone(process).await.is_ok()
        {
            self.reap();
            return Ok(());
        }
        loop {
            let lock = self.lock.clone();
            if !on_blocking_pool(move || lock_is_held(&lock)).await? {
                self.reap();
                return Ok(());
            }
            tokio::time::sleep(LOCK_POLL).await;
        }
    }

    fn reap(&self) {
        let reaped = match &self.process {
            Some(process) => reap_process(process),
            None => reap_pid(self.claim.pid, &self.to_reap),
        };
        if reaped {
            self.to_reap.store(false, Ordering::Relaxed);
        }
    }
}

impl Drop for ShimHandle {
    fn drop(&mut self) {
        if !*self.to_reap.get_mut() {
            return;
        }
        self.reap();
        if !*self.to_reap.get_mut() {
            return;
        }
        // Without a runtime the program is about to end, and init reaps the shim.
        if let (Some(process), Ok(runtime)) = (self.process.take(), Handle::try_current()) {
            runtime.spawn(async move {
                if gone(&process).await.is_ok() {
                    reap_process(&process);
                }
            });
        }
    }
}

fn open(pid: i32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

async fn gone(process: &OwnedFd) -> io::Result<()> {
    // A duplicate, so that several tasks can wait at once: a descriptor registers only once.
    // It stays readable for ever, so there is no readiness to clear.
    sys::readable(process.try_clone()?)?.readable().await?.retain_ready();
    Ok(())
}

/// Reaps the process if it has ended; returns whether nothing is left to reap.
///
/// A process that is no child, or that another handle has reaped, gives ECHILD. A shim that is no
/// child by birth becomes one if this program is the init of its container.
fn reap_process(process: &OwnedFd) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    !matches!(waitid(WaitId::PidFd(process.as_fd()), options), Ok(None))
}

fn reap_pid(pid: i32, is_child: &AtomicBool) -> bool {
    // Only the pid of a child that is not reaped is sure to be that child's.
    let (true, Some(pid)) = (is_child.load(Ordering::Relaxed), Pid::from_raw(pid)) else {
        return true;
    };
    !matches!(waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG), Ok(None))
}
