//! The launches that are being watched, and what stops them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::launch::{self, LaunchDir};

/// How often a command is tried to be killed, and how far apart.
const KILL_TRIES: u32 = 5;
const KILL_WAIT: Duration = Duration::from_secs(1);
/// The file that tells the next owner that a death by KILL is our doing: the command did not fail. It
/// is there before the signal, so that a crash after the kill leaves no failed run; whoever finds the
/// command alive, and not just its shim, removes it. Only a command that others kill after such a crash, before its next owner
/// looks, is started once more than it should.
const STOPPED: &str = "stopped-by-owner";

/// What is still done about commands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    #[default]
    Starting,
    /// None is started any more, and those that are there are waited for.
    Draining,
    /// Those that are there are killed.
    Stopping,
}

/// Launches whose commands may live, for a stop that kills them.
#[derive(Debug, Default)]
pub(crate) struct Launches {
    active: Mutex<BTreeMap<PathBuf, LaunchDir>>,
    phase: watch::Sender<Phase>,
    /// This program has made, or found, the folder that they are in.
    have_folder: AtomicBool,
    #[cfg(test)]
    tried: std::sync::atomic::AtomicUsize,
}

impl Launches {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<PathBuf, LaunchDir>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// How often a launch was begun or taken over, or was to be.
    #[cfg(test)]
    pub(super) fn tried(&self) -> &std::sync::atomic::AtomicUsize {
        &self.tried
    }

    pub(super) fn have_folder(&self) -> bool {
        self.have_folder.load(Ordering::Acquire)
    }

    /// Notes that the folder is there, and its name durable where that was asked for.
    pub(super) fn note_folder(&self) {
        self.have_folder.store(true, Ordering::Release);
    }

    pub(super) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Whether commands are being killed, and none is started any more.
    pub(super) fn are_stopping(&self) -> bool {
        self.phase() == Phase::Stopping
    }

    /// Waits for a later phase.
    pub(super) async fn after(&self, phase: Phase) {
        // Its sender is in our hands.
        let _ = self.phase.subscribe().wait_for(|now| *now > phase).await;
    }

    /// Lets no command be started any more.
    pub(crate) fn drain(&self) {
        self.enter(Phase::Draining);
    }

    fn enter(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let is_later = phase > *now;
            *now = phase.max(*now);
            is_later
        });
    }

    /// Lets no command be started any more, and begins to kill all that are there: a task each. None
    /// may go on once the folder is let go, whose next owner takes the commands over.
    pub(crate) fn stop_all(&self) -> JoinSet<()> {
        // Said first: a launch that is not in the list yet reads it once it is.
        self.enter(Phase::Stopping);
        let launches: Vec<LaunchDir> = self.lock().values().cloned().collect();
        launches.into_iter().map(stop).collect()
    }
}

/// Kills the command of a launch, marked so that its next owner knows who did. It is started again
/// later, without counting an attempt.
pub(super) async fn stop(dir: LaunchDir) {
    let marker = dir.path().join(STOPPED);
    match tokio::task::spawn_blocking(move || std::fs::write(marker, b"")).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(%error, "a stopped command will look like a failed one");
        }
        Err(error) => tracing::error!(%error, "a stopped command was not marked"),
    }
    for _ in 0..KILL_TRIES {
        match launch::cancel(&dir, Duration::ZERO).await {
            Ok(launch::Cancelled::OutOfReach) => break,
            Ok(_) => return,
            Err(error) => tracing::warn!(%error, "a command is not killed yet"),
        }
        tokio::time::sleep(KILL_WAIT).await;
    }
    tracing::error!("a command was not killed, and goes on");
    if let Err(error) = tokio::task::spawn_blocking(move || not_stopped(&dir)).await {
        tracing::error!(%error, "a command that was not killed stays marked");
    }
}

/// Takes back that a living command was killed. Blocks.
pub(super) fn not_stopped(dir: &LaunchDir) -> std::io::Result<()> {
    match std::fs::remove_file(dir.path().join(STOPPED)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether an earlier owner killed the command of a launch that is over.
pub(super) async fn was_stopped(dir: &LaunchDir) -> std::io::Result<bool> {
    tokio::fs::try_exists(dir.path().join(STOPPED)).await
}

/// Keeps a launch among those that a stop kills, watched or not just then.
pub(super) struct Watched {
    launches: Arc<Launches>,
    folder: PathBuf,
}

impl Watched {
    pub(super) fn new(launches: &Arc<Launches>, dir: &LaunchDir) -> Self {
        let folder = dir.path().to_owned();
        launches.lock().insert(folder.clone(), dir.clone());
        Self { launches: Arc::clone(launches), folder }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.launches.lock().remove(&self.folder);
    }
}

/// Makes sure that nothing of a launch is left that could still work: a run that has failed in the
/// middle must not leave its command behind. `false` if that cannot be known.
pub(super) async fn stopped(dir: &LaunchDir) -> bool {
    if matches!(tokio::fs::try_exists(dir.path()).await, Ok(false)) {
        return true;
    }
    for _ in 0..KILL_TRIES {
        match launch::cancel(dir, Duration::ZERO).await {
            Ok(launch::Cancelled::OutOfReach) => return false,
            Ok(_) => return true,
            Err(error) => tracing::warn!(%error, "a command that nobody watches is not killed yet"),
        }
        tokio::time::sleep(KILL_WAIT).await;
    }
    false
}

/// Removes a launch folder, in the background, unless its command may live: the next sweep finds
/// what is left of it.
pub(super) fn remove(dir: LaunchDir) {
    tokio::task::spawn_blocking(move || {
        if let Err(error) = dir.remove() {
            tracing::warn!(%error, "a launch folder was not removed");
        }
    });
}
