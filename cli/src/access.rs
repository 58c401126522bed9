//! Reaching the runs of a data folder: through its owner's socket, or directly where it has none.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ghostlight::storage::{self, FolderLock};
use ghostlight::{After, AgentPath, Cursor, FramePage, Inspection, Offline, RunFilter, RunPage};
use tokio::time::Instant;

use crate::fatal::Fatal;

/// How long to wait for whoever has the folder and no socket yet: another reader, or an owner that
/// starts or stops.
const FOLDER_WAIT: Duration = Duration::from_secs(5);
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
    Owner(ghostlight_server::Client),
}

impl Folder {
    /// # Errors
    /// When there is no such folder: looking at runs never makes one.
    pub(crate) fn open(path: &Path) -> Result<Self, Fatal> {
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => Ok(Self { path: path.to_owned() }),
            Ok(_) => Err(Fatal::new(format!("{} is a file, not a data folder", path.display()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let hint = "start with `ghostlight map`, or name another folder with --data";
                Err(Fatal::new(format!("there are no runs in {}; {hint}", path.display())))
            }
            Err(error) => Err(Fatal::from(error).while_doing(path.display())),
        }
    }

    /// Finds a way in.
    pub(crate) async fn access(&self) -> Result<Access, Fatal> {
        let began = Instant::now();
        loop {
            if let Some(client) = ghostlight_server::Client::connect_folder(&self.path).await? {
                return Ok(Access::Owner(client));
            }
            let folder = self.path.clone();
            match tokio::task::spawn_blocking(move || FolderLock::acquire(folder)).await? {
                Ok(lock) => return Ok(Access::Direct(Offline::open(lock).await?)),
                Err(storage::Error::Locked { .. }) if began.elapsed() < FOLDER_WAIT => {
                    tokio::time::sleep(RETRY).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Access {
    pub(crate) async fn agents(&self) -> Result<Vec<AgentPath>, Fatal> {
        Ok(match self {
            Self::Direct(offline) => offline.agents().await?,
            Self::Owner(client) => client.agents().await?,
        })
    }

    pub(crate) async fn list(
        &self,
        parent: &AgentPath,
        filter: &RunFilter,
        after: Option<&Cursor>,
    ) -> Result<RunPage, Fatal> {
        Ok(match self {
            Self::Direct(offline) => offline.list(parent, filter, after, PAGE).await?,
            Self::Owner(client) => client.runs(parent, filter, after, PAGE).await?,
        })
    }

    pub(crate) async fn inspect(
        &self,
        parent: &AgentPath,
        run_id: &str,
    ) -> Result<Option<Inspection>, Fatal> {
        Ok(match self {
            Self::Direct(offline) => offline.inspect(parent, run_id).await?,
            Self::Owner(client) => client.run(parent, run_id).await?,
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

const PAGE: usize = 500;
