//! What a batch is made with: one command, in one working directory.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use ghostlight::storage::{FolderLock, create_folder, sync_folder};
use ghostlight::{AgentPath, Cursor, Offline, RunFilter};
use serde::{Deserialize, Serialize};

use super::Text;
use crate::access::any_run;
use crate::fatal::Fatal;
use crate::shown::one_line;
use crate::sweep::{launches_of, short_hash, spool_of};

const VERSION: u32 = 1;

/// What is said of a batch that is not there.
pub(crate) fn no_batch(batch: &str, names: &[String]) -> Fatal {
    let there = match names {
        [] => "there is none yet".to_owned(),
        names => {
            let names: Vec<_> = names.iter().map(|name| one_line(name, 256)).collect();
            format!("there are: {}", names.join(", "))
        }
    };
    Fatal::new(format!("there is no batch {batch:?}; {there}"))
}

/// A batch's command and working directory. Its file is durable before the batch's first run, so that
/// no run is ever recorded for another command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Made {
    version: u32,
    /// The batch's name, which its file's name does not tell.
    pub(crate) batch: String,
    pub(crate) command: Vec<Text>,
    pub(crate) cwd: Text,
}

impl Made {
    pub(crate) fn new(batch: &str, command: &[OsString], cwd: &Path) -> Self {
        Self {
            version: VERSION,
            batch: batch.to_owned(),
            command: command.iter().map(|word| Text::from(word.as_os_str())).collect(),
            cwd: Text::from(cwd.as_os_str()),
        }
    }

    /// What a batch was made with; `None` if there is no such batch.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or of a newer version.
    pub(crate) async fn read(data: &Path, batch: &str) -> Result<Option<Self>, Fatal> {
        let path = file(data, batch);
        let bytes = match tokio::fs::read(&path).await {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Fatal::from(error).while_doing(path.display())),
        };
        let made: Self = serde_json::from_slice(&bytes)
            .map_err(|error| Fatal::from(error).while_doing(path.display()))?;
        if made.version != VERSION {
            let (path, version) = (path.display(), made.version);
            let text = format!("{path} has version {version}, which this program does not know");
            return Err(Fatal::new(text));
        }
        Ok(Some(made))
    }

    /// The names of all batches, in their order. What cannot be read has none.
    pub(crate) async fn names(data: &Path) -> Result<Vec<String>, Fatal> {
        let folder = data.join(FOLDER);
        let read = move || {
            let mut names = Vec::new();
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let bytes = std::fs::read(entry.path()).unwrap_or_default();
                names.extend(serde_json::from_slice::<Self>(&bytes).ok().map(|made| made.batch));
            }
            names.sort();
            names
        };
        Ok(tokio::task::spawn_blocking(read).await?)
    }

    /// Forgets a batch that has no runs: its command, its inputs that were put aside, and its folder
    /// of launches, if that is empty. Leaves what cannot be removed to the next time.
    ///
    /// For whoever holds the lock of the folder: so that nobody binds the batch meanwhile.
    pub(crate) async fn forget(data: &Path, batch: &str) {
        let (data, batch) = (data.to_owned(), batch.to_owned());
        // The files are in nobody's way.
        let _ = tokio::task::spawn_blocking(move || Self::remove(&data, &batch)).await;
    }

    fn remove(data: &Path, batch: &str) {
        let _ = std::fs::remove_file(file(data, batch));
        let _ = std::fs::remove_dir_all(spool_of(data, batch));
        let _ = std::fs::remove_dir(launches_of(data, batch));
        for folder in [FOLDER, "spool", "launches"] {
            let _ = std::fs::remove_dir(data.join(folder));
        }
        // What the background program said is about a batch that was put aside.
        if !data.join("spool").exists() {
            let _ = std::fs::remove_file(data.join("map.log"));
        }
    }

    /// Takes back that a batch was bound that has got no run since. Blocks.
    pub(crate) fn unbind(data: &Path, batch: &str) {
        // The file is in nobody's way.
        let _ = std::fs::remove_file(file(data, batch));
        let _ = std::fs::remove_dir(data.join(FOLDER));
    }

    /// Binds the batch to this command, durably, or refuses it: then nothing was written. A batch
    /// without any run is bound to nothing.
    ///
    /// # Errors
    /// The batch has runs of another command, or of another working directory.
    pub(crate) async fn bind(&self, data: &Path, lock: FolderLock) -> Result<Bound, Fatal> {
        let Some(known) = Self::read(data, &self.batch).await? else {
            self.write(data).await?;
            return Ok(Bound::Kept { lock, is_new: true });
        };
        if known == *self {
            return Ok(Bound::Kept { lock, is_new: false });
        }
        // The store has the lock until it is closed, and lets it go then.
        let store = Offline::open(lock).await?;
        let bound = self.bind_without_runs(data, &store, &known).await;
        store.close().await?;
        bound.map(|()| Bound::LetGo)
    }

    async fn bind_without_runs(
        &self,
        data: &Path,
        store: &Offline,
        known: &Self,
    ) -> Result<(), Fatal> {
        let batch = AgentPath::root("Batch", &self.batch)?;
        let (batch, all) = (&batch, &RunFilter::default());
        let page =
            |after: Option<Cursor>| async move { store.list(batch, all, after.as_ref(), 1).await };
        match any_run(page).await? {
            true => Err(self.refused(known)),
            false => self.write(data).await,
        }
    }

    fn refused(&self, known: &Self) -> Fatal {
        let (batch, hint) = (&self.batch, "give this one another --batch");
        Fatal::new(if self.command == known.command {
            let cwd = known.cwd.display();
            format!("batch {batch} was made in another working directory ({cwd}); {hint}")
        } else {
            let command = known.command_line();
            format!("batch {batch} was made with another command ({command}); {hint}")
        })
    }

    /// The command as people read it, its words apart by a space.
    pub(crate) fn command_line(&self) -> String {
        self.command.iter().map(Text::display).collect::<Vec<_>>().join(" ")
    }

    async fn write(&self, data: &Path) -> Result<(), Fatal> {
        let (made, data) = (self.clone(), data.to_owned());
        tokio::task::spawn_blocking(move || made.write_now(&data)).await?
    }

    fn write_now(&self, data: &Path) -> Result<(), Fatal> {
        let path = file(data, &self.batch);
        let folder = data.join(FOLDER);
        create_folder(&folder, 0o700)?;
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()?;
        std::fs::rename(new, path)?;
        Ok(sync_folder(&folder)?)
    }
}

/// What became of the lock of the folder.
pub(crate) enum Bound {
    Kept {
        lock: FolderLock,
        /// The batch was not known before.
        is_new: bool,
    },
    /// The store had to be looked into: take the lock again, and bind the batch again.
    LetGo,
}

const FOLDER: &str = "batches";

fn file(data: &Path, batch: &str) -> PathBuf {
    data.join(FOLDER).join(format!("{}.json", short_hash(batch)))
}
