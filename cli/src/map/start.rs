//! What a start has made, for taking it back where it is refused.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ghostlight::storage::FolderLock;

use crate::batch::Made;

/// How long the disk may take to undo a start.
pub(super) const UNDO_WAIT: Duration = Duration::from_secs(5);

/// A start that may still be refused: nothing has been dispatched.
pub(super) struct Start {
    data: PathBuf,
    had_folder: bool,
    had_lock: bool,
    batch: Option<NewBatch>,
    /// We have had the folder.
    was_locked: bool,
    pub(super) has_begun: bool,
}

struct NewBatch {
    name: String,
    /// Another program may have begun it by now.
    is_shared: bool,
}

impl Start {
    /// Looks at what there is before the folder is locked.
    pub(super) fn new(data: &Path) -> Self {
        Self {
            data: data.to_owned(),
            // What cannot be looked at is not ours to remove.
            had_folder: data.try_exists().unwrap_or(true),
            had_lock: data.join("lock").try_exists().unwrap_or(true),
            batch: None,
            was_locked: false,
            has_begun: false,
        }
    }

    /// The folder was locked. `data`: by a path that stays right.
    pub(super) fn locked(&mut self, data: &Path) {
        data.clone_into(&mut self.data);
        self.was_locked = true;
    }

    /// A batch was bound that was not known before.
    pub(super) fn bound(&mut self, batch: &str, is_shared: bool) {
        self.batch = Some(NewBatch { name: batch.to_owned(), is_shared });
    }

    /// From now on nothing is taken back.
    pub(super) fn begun(&mut self) {
        self.has_begun = true;
    }

    /// Takes back what was made, once the folder is free; as much of it as nobody else uses by now.
    /// Does nothing once something has [begun](Self::begun).
    pub(super) async fn undo(self) {
        if self.was_locked && !self.has_begun {
            let undo = tokio::task::spawn_blocking(move || self.undo_now());
            // Why there was no start is what the user has to know, however slow the disk is.
            let _ = tokio::time::timeout(UNDO_WAIT, undo).await;
        }
    }

    fn undo_now(&self) {
        let Ok(lock) = FolderLock::acquire(&self.data) else { return };
        let has_store = self.data.join("store").exists();
        if let Some(batch) = &self.batch
            && !(batch.is_shared && has_store)
        {
            Made::unbind(&self.data, &batch.name);
        }
        if self.had_lock || has_store {
            return;
        }
        // What a background program has said is in the error.
        let _ = std::fs::remove_file(self.data.join("map.log"));
        let _ = lock.discard();
        if !self.had_folder {
            let _ = std::fs::remove_dir(&self.data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intent::Intent;

    #[tokio::test]
    async fn another_one_that_waits_is_not_in_the_way() {
        let place = tempfile::tempdir().unwrap();
        let data = place.path().join("data");
        let mut start = Start::new(&data);
        let lock = FolderLock::acquire(&data).unwrap();
        start.locked(&data);
        let waits = Intent::declare(&data);
        drop(lock);
        start.undo().await;
        drop(waits);
        assert!(!data.exists());
    }
}
