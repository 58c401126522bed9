//! Notices that the store was removed under a running `map`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::fatal::Fatal;

const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The folder of the store, held open: wherever it is moved to, its names are counted.
pub(super) struct StoreFolder {
    folder: Arc<File>,
    data: PathBuf,
}

impl StoreFolder {
    /// Opens the folder of a store that is open.
    pub(super) fn open(data: &Path) -> Result<Self, Fatal> {
        let folder = Arc::new(File::open(data.join("store"))?);
        Ok(Self { folder, data: data.to_owned() })
    }

    /// Waits until the store is removed, and says so.
    pub(super) async fn removed(&self) -> Fatal {
        loop {
            tokio::time::sleep(CHECK_EVERY).await;
            if let Err(fatal) = self.check().await {
                return fatal;
            }
        }
    }

    /// # Errors
    /// It was removed: nothing that is recorded from then on will be found again.
    pub(super) async fn check(&self) -> Result<(), Fatal> {
        let folder = Arc::clone(&self.folder);
        let state = tokio::task::spawn_blocking(move || rustix::fs::fstat(&*folder)).await?;
        match state.map_err(std::io::Error::from)?.st_nlink {
            0 => Err(Fatal::new(format!(
                "the store in {} was removed while its runs were at work: what they did is not recorded, and commands that still run are watched by nobody",
                self.data.display()
            ))),
            _ => Ok(()),
        }
    }
}
