//! The launches that are being watched, and what stops them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::Instrument;

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

/// A launch whose command may live.
#[derive(Debug)]
struct Active {
    run_id: Arc<str>,
    dir: LaunchDir,
}

/// Launches whose commands may live, for a stop that kills them, and for who shows them.
#[derive(Debug, Default)]
pub(crate) struct Launches {
    active: watch::Sender<BTreeMap<PathBuf, Active>>,
    phase: watch::Sender<Phase>,
    /// This program has made, or found, the folder that they are in.
    have_folder: AtomicBool,
    #[cfg(test)]
    tried: std::sync::atomic::AtomicUsize,
}

impl Launches {
    pub(crate) fn count(&self) -> usize {
        self.active.borrow().len()
    }

    /// Which runs have a command that is running.
    pub(crate) fn running(&self) -> Running {
        let mut active = self.active.subscribe();
        active.mark_changed();
        Running { active }
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
        let stops = |Active { run_id, dir }: &Active| {
            stop(dir.clone()).instrument(tracing::error_span!("stop", %run_id))
        };
        self.active.borrow().values().map(stops).collect()
    }
}

/// The runs whose commands have been started and not come to their end.
pub(crate) struct Running {
    active: watch::Receiver<BTreeMap<PathBuf, Active>>,
}

impl Running {
    /// Their ids, if they are others than at the last call.
    pub(crate) fn changed_to(&mut self) -> Option<BTreeSet<Arc<str>>> {
        self.active.has_changed().ok().filter(|changed| *changed)?;
        let active = self.active.borrow_and_update();
        Some(active.values().map(|active| Arc::clone(&active.run_id)).collect())
    }

    /// Waits until there are others.
    pub(crate) async fn changed(&mut self) {
        match self.active.changed().await {
            Ok(()) => self.active.mark_changed(),
            // There will be none any more.
            Err(_) => std::future::pending().await,
        }
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
    pub(super) fn new(launches: &Arc<Launches>, run_id: &str, dir: &LaunchDir) -> Self {
        let folder = dir.path().to_owned();
        let active = Active { run_id: run_id.into(), dir: dir.clone() };
        launches.active.send_modify(|launches| _ = launches.insert(folder.clone(), active));
        Self { launches: Arc::clone(launches), folder }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.launches.active.send_modify(|launches| _ = launches.remove(&self.folder));
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
    // Its fields say which run the launch was of.
    let span = tracing::Span::current();
    tokio::task::spawn_blocking(move || {
        if let Err(error) = dir.remove() {
            tracing::warn!(parent: &span, %error, "a launch folder was not removed");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_shows_the_running_commands_is_told_of_each_change() {
        let place = tempfile::tempdir().unwrap();
        let launches = Arc::new(Launches::default());
        let dir = LaunchDir::plan(&place.path().join("launch")).unwrap();
        let watched = Watched::new(&launches, "run", &dir);
        // Also of what was there before.
        let mut running = launches.running();
        let only = BTreeSet::from(["run".into()]);
        assert_eq!(running.changed_to(), Some(only));
        assert_eq!(running.changed_to(), None);
        drop(watched);
        assert_eq!(running.changed_to(), Some(BTreeSet::new()));
    }
}
