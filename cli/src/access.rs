//! Reaching the runs of a data folder: through its owner's socket, or directly where it has none.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ghostlight::frame::{Frame, FrameEvent};
use ghostlight::storage::{self, FolderLock};
use ghostlight::{After, AgentPath, Cursor, Inspection, Offline, RunFilter, RunInfo, RunPage};
use ghostlight_server::{Client, ClientError};
use tokio::time::Instant;

use crate::fatal::Fatal;
use crate::intent::Intent;
use crate::look::{Early, Printer};

/// How long to wait for whoever has the folder and no socket yet: another reader, or an owner that
/// starts or stops.
const FOLDER_WAIT: Duration = Duration::from_secs(5);
/// How long an owner may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(20);

/// A data folder, for one bounded operation at a time: between two the folder is free.
pub(crate) struct Folder {
    path: PathBuf,
}

/// One way in.
pub(crate) enum Access {
    /// Nobody owns the folder: the store is open, and its lock is ours.
    Direct(Offline),
    /// The owner answers.
    Owner(Client),
}

impl Folder {
    /// # Errors
    /// When there is no such folder: looking at runs never makes one.
    pub(crate) fn open(path: &Path) -> Result<Self, Fatal> {
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => Ok(Self { path: path.to_owned() }),
            Ok(_) => Err(Fatal::new(format!("{} is a file, not a data folder", path.display()))),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(no_runs(path)),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(no_permission(path)),
            Err(error) => Err(Fatal::from(error).while_doing(path.display())),
        }
    }

    /// Finds a way in.
    pub(crate) async fn access(&self) -> Result<Access, Fatal> {
        self.access_within(FOLDER_WAIT).await
    }

    /// Finds a way in, however busy the folder or its owner is for so long.
    pub(crate) async fn access_within(&self, wait: Duration) -> Result<Access, Fatal> {
        let began = Instant::now();
        loop {
            // An owner that starts has a socket already, and answers once it has started.
            let left = wait.saturating_sub(began.elapsed()).max(ANSWER_WAIT);
            let connected = tokio::time::timeout(left, Client::connect(&self.path)).await;
            let Ok(connected) = connected else {
                let text = format!("the owner of {} does not answer", self.path.display());
                return Err(Fatal::new(text));
            };
            match connected {
                Ok(client) => return Ok(Access::Owner(client)),
                Err(error) if error.is_without_owner() => {}
                Err(ClientError::Io(error)) if error.kind() == ErrorKind::PermissionDenied => {
                    return Err(no_permission(&self.path));
                }
                Err(error) => return Err(Fatal::from(error).while_doing(self.path.display())),
            }
            let folder = self.path.clone();
            let acquire = move || match Intent::is_declared(&folder) {
                // An owner that waits goes first, and waits for whoever has the folder.
                true => {
                    let pid = FolderLock::owner(&folder).ok().flatten().unwrap_or(0);
                    Err(storage::Error::Locked { folder, pid })
                }
                false => FolderLock::acquire_existing(folder),
            };
            match tokio::task::spawn_blocking(acquire).await? {
                Ok(Some(lock)) => return Ok(Access::Direct(Offline::open(lock).await?)),
                Ok(None) => return Err(no_runs(&self.path)),
                Err(storage::Error::Locked { .. }) if began.elapsed() < wait => {
                    tokio::time::sleep(RETRY).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Folder {
    /// Does one bounded, repeatable thing with the folder, again if its owner goes away meanwhile.
    pub(crate) async fn with<T>(
        &self,
        mut what: impl AsyncFnMut(&Access) -> Result<T, Early>,
    ) -> Result<T, Early> {
        loop {
            let access = self.access().await?;
            let done = what(&access).await;
            access.close().await?;
            match done {
                Err(Early::Fatal(fatal)) if fatal.owner_is_gone => {}
                done => return done,
            }
        }
    }

    /// Waits until the folder has an owner, at most so long.
    pub(crate) async fn wait_for_owner(&self, at_most: Duration) {
        let began = Instant::now();
        while began.elapsed() < at_most {
            let left = at_most.saturating_sub(began.elapsed());
            if let Ok(Ok(_)) = tokio::time::timeout(left, Client::connect(&self.path)).await {
                return;
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}

fn no_runs(folder: &Path) -> Fatal {
    let hint = "start with `ghostlight map`, or name another folder with --data";
    Fatal::new(format!("there are no runs in {}; {hint}", folder.display()))
}

fn no_permission(folder: &Path) -> Fatal {
    let owner = std::fs::metadata(folder).map(|metadata| metadata.uid()).ok();
    let of = match owner.filter(|uid| *uid != rustix::process::geteuid().as_raw()) {
        Some(uid) => format!(", which belongs to another user (id {uid})"),
        None => String::new(),
    };
    let hint = "name another folder with --data";
    Fatal::new(format!("permission denied for the data folder {}{of}; {hint}", folder.display()))
}

fn from_owner(error: ClientError) -> Fatal {
    let owner_is_gone = error.is_without_owner();
    Fatal { owner_is_gone, ..Fatal::from(error) }
}

/// Where following a run has led.
pub(crate) enum Followed {
    /// The run is over for good.
    Ended(ExitCode),
    /// There is more, at once.
    More,
    /// There is no more for now: the owner is gone, or there is none.
    Cut,
}

/// How many bytes of chunks are read before they are printed.
const READ_BYTES: usize = 4 << 20;

impl Access {
    /// Prints a run's frames from where the printer is, and lets the folder go: all that is stored, and
    /// from an owner also all that comes.
    pub(crate) async fn follow(
        self,
        parent: &AgentPath,
        run_id: &str,
        printer: &mut Printer,
    ) -> Result<Followed, Early> {
        match self {
            Self::Direct(offline) => {
                let read = read_some(&offline, parent, run_id, printer.after()).await;
                // Whoever reads what we print may be slow.
                offline.close().await.map_err(Fatal::from)?;
                let (frames, ended) = read?;
                let is_cut = frames.is_empty();
                for frame in frames {
                    if let Some(code) = printer.frame(&frame)? {
                        printer.flush()?;
                        return Ok(Followed::Ended(code));
                    }
                }
                printer.flush()?;
                match is_cut {
                    // The caller has the end already, and asked for what follows it.
                    _ if ended => Ok(Followed::Ended(ExitCode::SUCCESS)),
                    true => Ok(Followed::Cut),
                    false => Ok(Followed::More),
                }
            }
            Self::Owner(client) => {
                let mut frames = match client.tail(parent, run_id, printer.number()).await {
                    Ok(frames) => frames,
                    Err(error) if error.is_without_owner() => return Ok(Followed::Cut),
                    Err(error) => return Err(Fatal::from(error).into()),
                };
                loop {
                    let frame = match frames.next().await {
                        Some(Ok(frame)) => frame,
                        None => return Ok(Followed::Ended(ExitCode::SUCCESS)),
                        Some(Err(error)) if error.is_without_owner() => return Ok(Followed::Cut),
                        Some(Err(error)) => return Err(Fatal::from(error).into()),
                    };
                    let ended = printer.frame(&frame)?;
                    printer.flush()?;
                    if let Some(code) = ended {
                        return Ok(Followed::Ended(code));
                    }
                }
            }
        }
    }

    /// Makes a cancel durable, and returns the run as it stands then.
    pub(crate) async fn cancel(
        &self,
        parent: &AgentPath,
        run_id: &str,
        reason: &str,
    ) -> Result<RunInfo, Fatal> {
        Ok(match self {
            Self::Direct(offline) => offline.cancel(parent, run_id, reason).await?,
            Self::Owner(client) => {
                client.cancel(parent, run_id, reason).await.map_err(from_owner)?
            }
        })
    }

    pub(crate) async fn clear(
        &self,
        parent: &AgentPath,
        filter: &RunFilter,
    ) -> Result<usize, Fatal> {
        Ok(match self {
            Self::Direct(offline) => offline.clear(parent, filter).await?,
            Self::Owner(client) => client.clear(parent, filter).await.map_err(from_owner)?,
        })
    }

    pub(crate) async fn agents(&self) -> Result<Vec<AgentPath>, Fatal> {
        Ok(match self {
            Self::Direct(offline) => offline.agents().await?,
            Self::Owner(client) => client.agents().await.map_err(from_owner)?,
        })
    }

    pub(crate) async fn list(
        &self,
        parent: &AgentPath,
        filter: &RunFilter,
        after: Option<&Cursor>,
    ) -> Result<RunPage, Fatal> {
        self.page(parent, filter, after, PAGE).await
    }

    /// As [`Access::list`], with at most `limit` runs, itself at most [`PAGE`].
    pub(crate) async fn page(
        &self,
        parent: &AgentPath,
        filter: &RunFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<RunPage, Fatal> {
        Ok(match self {
            Self::Direct(offline) => offline.list(parent, filter, after, limit).await?,
            Self::Owner(client) => {
                client.runs(parent, filter, after, limit).await.map_err(from_owner)?
            }
        })
    }

    pub(crate) async fn inspect(
        &self,
        parent: &AgentPath,
        run_id: &str,
    ) -> Result<Option<Inspection>, Fatal> {
        Ok(match self {
            Self::Direct(offline) => offline.inspect(parent, run_id).await?,
            Self::Owner(client) => match client.run(parent, run_id).await {
                // As without an owner: another batch may have a run of this id.
                Err(ClientError::Problem { code, .. }) if code == "cleared" => None,
                found => found.map_err(from_owner)?,
            },
        })
    }

    /// Lets the folder go.
    pub(crate) async fn close(self) -> Result<(), Fatal> {
        match self {
            Self::Direct(offline) => Ok(offline.close().await?),
            Self::Owner(_) => Ok(()),
        }
    }
}

/// Whether a listing has any run at all: a page may be empty and yet not be the last.
pub(crate) async fn any_run<E, Fut>(mut page: impl FnMut(Option<Cursor>) -> Fut) -> Result<bool, E>
where
    Fut: Future<Output = Result<RunPage, E>>,
{
    let mut after = None;
    loop {
        let RunPage { runs, next } = page(after).await?;
        if !runs.is_empty() || next.is_none() {
            return Ok(!runs.is_empty());
        }
        after = next;
    }
}

/// Reads stored frames, as many as are worth printing, and whether the run has ended with them.
async fn read_some(
    offline: &Offline,
    parent: &AgentPath,
    run_id: &str,
    mut after: After,
) -> Result<(Vec<Frame>, bool), Fatal> {
    let (mut frames, mut bytes) = (Vec::new(), 0);
    while bytes < READ_BYTES {
        let page = offline.frames(parent, run_id, after, PAGE).await?;
        let Some(last) = page.frames.last() else { return Ok((frames, page.ended)) };
        after = After::number(last.sequence);
        bytes += page.frames.iter().map(size).sum::<usize>();
        frames.extend(page.frames);
        if page.ended {
            return Ok((frames, true));
        }
    }
    Ok((frames, false))
}

fn size(frame: &Frame) -> usize {
    match &frame.event {
        FrameEvent::Chunk { body, .. } => body.len(),
        _ => 0,
    }
}

/// The most runs, or frames, that are read at once.
pub(crate) const PAGE: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_empty_page_is_not_the_end_of_a_listing() {
        let cursor = |page: usize| format!("{page:048x}").parse::<Cursor>().unwrap();
        for (pages, run_at, any) in [(1, 9, false), (3, 9, false), (3, 0, true), (3, 2, true)] {
            let mut asked = Vec::new();
            let found = any_run(|after| {
                let page = asked.len();
                asked.push(after);
                let runs = if page == run_at { vec![crate::look::run(1, 0)] } else { Vec::new() };
                let next = (page + 1 < pages).then(|| cursor(page));
                std::future::ready(Ok::<_, Fatal>(RunPage { runs, next }))
            });
            assert_eq!(found.await.ok(), Some(any), "{pages} pages, a run in page {run_at}");
            let expected = std::iter::once(None).chain((0..).map(|page| Some(cursor(page))));
            assert_eq!(asked, expected.take(asked.len()).collect::<Vec<_>>());
        }
    }

    #[tokio::test]
    async fn an_owner_that_waits_goes_first() {
        let dir = tempfile::tempdir().unwrap();
        drop(Offline::open(FolderLock::acquire(dir.path()).unwrap()).await.unwrap().close().await);
        let folder = Folder::open(dir.path()).unwrap();
        let at_once = async || folder.access_within(Duration::ZERO).await;
        let intent = Intent::declare(dir.path()).unwrap();
        assert!(Intent::declare(dir.path()).is_none());
        let refused = async || at_once().await.err().unwrap().message;
        let text = refused().await;
        assert!(text.contains(" is in use by another process; "), "{text}");
        let owner = FolderLock::acquire(dir.path()).unwrap();
        let text = refused().await;
        let pid = std::process::id();
        assert!(text.contains(&format!(" is in use by process {pid}; ")), "{text}");
        drop(owner);
        drop(intent);
        assert!(matches!(at_once().await, Ok(Access::Direct(_))));
    }
}
