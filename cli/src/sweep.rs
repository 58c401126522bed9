//! Removes launch folders whose runs have ended: a crash came between the end and the removal.

use std::future::Future;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::fatal::Fatal;
use crate::launch;

/// Where the launches of a batch have their folders. A batch's name may hold anything; a folder's
/// does not.
pub(crate) fn launches_of(data: &Path, batch: &str) -> PathBuf {
    data.join("launches").join(short_hash(batch))
}

/// Where the inputs of a batch are that were put aside.
pub(crate) fn spool_of(data: &Path, batch: &str) -> PathBuf {
    data.join("spool").join(short_hash(batch))
}

/// A name for files that belong to a batch.
pub(crate) fn short_hash(batch: &str) -> String {
    Sha256::digest(batch.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Removes the folders of the runs that `has_ended`, and those whose removal had begun; says nothing
/// if some cannot be removed.
pub(crate) async fn sweep<F, Fut>(folder: PathBuf, has_ended: F)
where
    F: Fn(String) -> Fut,
    Fut: Future<Output = bool>,
{
    // Whoever sweeps next sees what cannot be listed now.
    for (run_id, path) in launches(folder).await.unwrap_or_default() {
        if run_id.starts_with(launch::REMOVED) || has_ended(run_id).await {
            // Whoever sweeps next tries again: what cannot be removed may have a command that lives.
            let _ = tokio::task::spawn_blocking(move || launch::remove(&path)).await;
        }
    }
}

/// The launch folders of a batch, with their run ids.
///
/// # Errors
/// They cannot be listed, so that there may be others.
pub(crate) async fn launches(folder: PathBuf) -> Result<Vec<(String, PathBuf)>, Fatal> {
    let list = move || {
        let failed = |error| Fatal::from(error).while_doing(folder.display());
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if let Some((run_id, _)) = name.to_str().and_then(|name| name.rsplit_once('.')) {
                found.push((run_id.to_owned(), entry.path()));
            }
        }
        Ok(found)
    };
    tokio::task::spawn_blocking(list).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_crash_left_of_a_removal_is_removed() {
        let folder = tempfile::tempdir().expect("temporary folder");
        for name in ["live.0", "ended.0", "removed.live.1", "removed.ended.1"] {
            std::fs::create_dir(folder.path().join(name)).expect("folder");
            std::fs::write(folder.path().join(name).join("stdout"), "x").expect("file");
        }
        sweep(folder.path().to_owned(), async |run_id| run_id == "ended").await;
        let left: Vec<_> = std::fs::read_dir(folder.path()).expect("folder").flatten().collect();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].file_name(), "live.0");
    }

    #[tokio::test]
    async fn launches_that_cannot_be_listed_are_not_taken_for_none() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("launches");
        assert_eq!(launches(path.clone()).await.map_err(|error| error.message), Ok(Vec::new()));
        std::fs::write(&path, "in the way").expect("file");
        assert!(launches(path).await.is_err());
    }
}
