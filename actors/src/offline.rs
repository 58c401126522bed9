//! A data folder without a system: what tools do while nobody owns it.

use ghostlight_protocol::{AgentPath, Phase, RunId, RunKey};
use ghostlight_storage as storage;
use storage::{Committer, CommitterHandle, FolderLock};

use crate::cascade::awaited;
use crate::clock::{Clock, WallClock};
use crate::finalise::cancel_unowned;
use crate::frame_page::{self, FramePage};
use crate::info::{Inspection, RunInfo, run_info};
use crate::lanes::{self, Stored, bury, children, ends_by_cancel, purge, request_cancel};
use crate::list::{self, Cursor, Lookup, RunFilter, RunPage};
use crate::system::open_spare;
use crate::{After, Error, StartError};

/// The most live runs that a refused clear names.
const EXAMPLES_MAX: usize = 20;

/// A data folder that is read, and changed a little, without starting the system: nothing is
/// executed, and no agent type has to be registered.
///
/// It needs less space on the disk than a system: it reads where there is hardly any, and cancels and
/// clears while 8 MiB are free. What a clear frees inside the store is used again by it, but not given
/// back to the disk.
///
/// It owns the folder meanwhile, so that no system can start on it: open it for one operation, and
/// close it again.
///
/// # Examples
/// ```
/// use ghostlight_actors::{Offline, RunFilter};
/// use ghostlight_storage::FolderLock;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let offline = Offline::open(FolderLock::acquire(folder.path())?).await?;
/// for parent in offline.agents().await? {
///     let page = offline.list(&parent, &RunFilter::default(), None, 100).await?;
///     println!("{parent}: {} runs", page.runs.len());
/// }
/// offline.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Offline {
    committer: Committer,
    handle: CommitterHandle,
}

impl Offline {
    /// Opens the store of a folder, or makes an empty one.
    ///
    /// # Errors
    /// The store cannot be opened; the folder is let go then.
    ///
    /// # Cancel safety
    /// Dropped, the store is closed again.
    pub async fn open(lock: FolderLock) -> Result<Self, StartError> {
        let (committer, handle) = open_spare(lock).await?;
        Ok(Self { committer, handle })
    }

    /// The addresses of all agents that have runs.
    ///
    /// # Errors
    /// Failures of the store.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn agents(&self) -> Result<Vec<AgentPath>, Error> {
        list::parents(&self.committer).await
    }

    /// Lists runs of `parent`, oldest first, a page of at most `limit` at a time.
    ///
    /// # Errors
    /// Failures of the store.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn list(
        &self,
        parent: &AgentPath,
        filter: &RunFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<RunPage, Error> {
        list::list(&self.committer, parent, filter, after, limit).await
    }

    /// What the registry of `parent` has under an id.
    ///
    /// # Errors
    /// An invalid id, failures of the store.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn lookup(&self, parent: &AgentPath, run_id: &str) -> Result<Lookup, Error> {
        list::lookup(&self.committer, parent, &RunId::new(run_id)?).await
    }

    /// A run as it stands; `None` if it is not known.
    ///
    /// # Errors
    /// An invalid id, failures of the store.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn inspect(
        &self,
        parent: &AgentPath,
        run_id: &str,
    ) -> Result<Option<Inspection>, Error> {
        lanes::inspect(&self.committer, parent, &RunId::new(run_id)?).await
    }

    /// A page of at most `limit` frames of a run; it may hold fewer. A run that has not ended goes
    /// on with the next owner of the folder: an empty page is no end, [`FramePage::ended`] is.
    ///
    /// # Errors
    /// [`Error::UnknownRun`], [`Error::Cleared`], [`Error::BeyondEnd`], an invalid id, failures of
    /// the store.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn frames(
        &self,
        parent: &AgentPath,
        run_id: &str,
        after: After,
        limit: usize,
    ) -> Result<FramePage, Error> {
        frame_page::read(&self.committer, parent, &RunId::new(run_id)?, after, limit).await
    }

    /// Cancels a run, durably, and returns it as it stands then. A run that is queued, suspended or
    /// backing off has ended by it, and before it what it dispatched and awaits. One that was being
    /// executed has its request recorded, and the next owner of the folder ends it: its code is
    /// entered once more, with the grace time of any other, to come to its end. An ended run is no
    /// error.
    ///
    /// # Errors
    /// [`Error::UnknownRun`], [`Error::Cleared`], an invalid id, failures of the store.
    ///
    /// # Cancel safety
    /// Dropped, the request may or may not be recorded; calling it again is fine.
    pub async fn cancel(
        &self,
        parent: &AgentPath,
        run_id: &str,
        reason: &str,
    ) -> Result<RunInfo, Error> {
        let run_id = RunId::new(run_id)?;
        let run = RunKey::new(parent, &run_id);
        let stored = frame_page::stored(&self.committer, run, &run_id).await?;
        // What it has dispatched goes first, so that a crash leaves no cascade half-done for good.
        if ends_by_cancel(stored.record.state.phase) {
            let path = parent.child(&stored.record.agent_type, &run_id)?;
            for (parent, run_id) in self.awaited_below(path).await?.into_iter().rev() {
                let run = RunKey::new(&parent, &run_id);
                if let Some(stored) = Stored::read_key(&self.committer, run).await? {
                    self.cancel_one(&parent, run, stored, reason).await?;
                }
            }
        }
        self.cancel_one(parent, run, stored, reason).await
    }

    /// The awaited runs below an agent that have not ended, every one before what it dispatched.
    async fn awaited_below(&self, path: AgentPath) -> Result<Vec<(AgentPath, RunId)>, Error> {
        let (mut found, mut agents) = (Vec::new(), vec![path]);
        while let Some(parent) = agents.pop() {
            for run_id in awaited(&self.committer, &parent).await?.runs {
                agents.extend(self.agent_of(&parent, &run_id).await?);
                found.push((parent.clone(), run_id));
            }
        }
        Ok(found)
    }

    /// The address of the agent that executes a run; `None` at the deepest level.
    async fn agent_of(
        &self,
        parent: &AgentPath,
        run_id: &RunId,
    ) -> Result<Option<AgentPath>, Error> {
        let run = RunKey::new(parent, run_id);
        let stored = Stored::read_key(&self.committer, run).await?;
        Ok(stored.and_then(|stored| parent.child(&stored.record.agent_type, run_id).ok()))
    }

    async fn cancel_one(
        &self,
        parent: &AgentPath,
        run: RunKey,
        stored: Stored,
        reason: &str,
    ) -> Result<RunInfo, Error> {
        let now_ms = WallClock.now_ms();
        if ends_by_cancel(stored.record.state.phase) {
            // Nothing here writes in the name of an incarnation.
            let writer = stored.writer(0, run);
            // Nobody here knows the parent's hooks. An owner without a finish hook drops the row.
            let cancelled =
                cancel_unowned(&self.committer, true, parent, stored, writer, reason, now_ms);
            return run_info(&cancelled.await?.record).map_err(Error::from);
        }
        let record = request_cancel(&self.committer, run, stored, reason).await?;
        run_info(&record).map_err(Error::from)
    }

    /// Removes the runs that have ended, with all that they dispatched, but for their ids, which
    /// are never used again. Returns how many of `parent`'s own there were.
    ///
    /// # Errors
    /// [`Error::LiveRuns`] names the matching runs that have not ended, or that dispatched one that
    /// has not; all others were cleared. Failures of the store; what was cleared stays cleared.
    ///
    /// # Cancel safety
    /// Dropped, it has cleared some of them; calling it again goes on.
    pub async fn clear(&self, parent: &AgentPath, filter: &RunFilter) -> Result<usize, Error> {
        let (mut cleared, mut live, mut examples, mut after) = (0, 0, Vec::new(), None);
        loop {
            let page = self.list(parent, filter, after.as_ref(), 500).await?;
            for run in &page.runs {
                if self.clear_one(parent, &RunId::new(&run.run_id)?).await? {
                    cleared += 1;
                } else {
                    live += 1;
                    if examples.len() < EXAMPLES_MAX {
                        examples.push(run.run_id.clone());
                    }
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        purge(&self.committer).await?;
        if live == 0 { Ok(cleared) } else { Err(Error::LiveRuns { cleared, live, examples }) }
    }

    /// Clears a run with all that it dispatched, unless one of them has not ended.
    async fn clear_one(&self, parent: &AgentPath, run_id: &RunId) -> Result<bool, Error> {
        let mut runs = vec![(parent.clone(), run_id.clone())];
        let mut at = 0;
        while let Some((parent, run_id)) = runs.get(at).cloned() {
            at += 1;
            let run = RunKey::new(&parent, &run_id);
            let Some(stored) = Stored::read_key(&self.committer, run).await? else { continue };
            if !matches!(stored.record.state.phase, Phase::Ended(_)) {
                return Ok(false);
            }
            let Ok(path) = parent.child(&stored.record.agent_type, &run_id) else { continue };
            let children = children(&self.committer, &path).await?;
            runs.extend(children.into_iter().map(|child| (path.clone(), child)));
        }
        // What was dispatched goes before the run that leads to it.
        for (parent, run_id) in runs.iter().rev() {
            let run = RunKey::new(parent, run_id);
            if let Some(stored) = Stored::read_key(&self.committer, run).await? {
                bury(&self.committer, parent, run, &stored, WallClock.now_ms()).await?;
            }
        }
        Ok(true)
    }

    /// Closes the store and lets the folder go.
    ///
    /// # Errors
    /// The store has failed meanwhile.
    ///
    /// # Cancel safety
    /// Dropped, it is closed all the same, a little later; so is a value that is just dropped.
    pub async fn close(self) -> Result<(), storage::Error> {
        self.handle.shutdown().await
    }
}

#[cfg(test)]
mod tests;
