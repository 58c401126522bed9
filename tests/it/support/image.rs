//! A store on real files, and what a killed process leaves of it after any commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ghostlight::storage::{
    self, Backend, Batch, Durability, Entry, Limit, SledStore, Store, Versioned,
};
use tempfile::TempDir;
use tokio::sync::Notify;

use self::copy::copy;

#[path = "../../../storage/src/testing/copy.rs"]
mod copy;

/// One life of a folder. Right after a commit that the test names, and before anybody is told of
/// it, its files are copied: that is what a SIGKILL at this moment leaves. Then the life stands
/// still.
pub(crate) struct Life {
    store: SledStore,
    folder: Arc<TempDir>,
    killed_after: Option<u64>,
    shared: Arc<Shared>,
}

/// The test's end of a life.
#[derive(Clone)]
pub(crate) struct Killed(Arc<Shared>);

#[derive(Default)]
struct Shared {
    groups: AtomicU64,
    image: std::sync::Mutex<Option<TempDir>>,
    reached: Notify,
}

impl Life {
    pub(crate) fn open(folder: &Arc<TempDir>, killed_after: Option<u64>) -> (Self, Killed) {
        // What is synced makes no difference to a killed process.
        let store = SledStore::open(folder.path(), Durability::ProcessCrash).unwrap();
        let shared = Arc::<Shared>::default();
        let killed = Killed(Arc::clone(&shared));
        (Self { store, folder: Arc::clone(folder), killed_after, shared }, killed)
    }
}

impl Killed {
    /// Waits until the commit has come, and returns the folder as it was left.
    pub(crate) async fn image(&self) -> TempDir {
        self.0.reached.notified().await;
        self.0.image.lock().unwrap().take().unwrap()
    }

    /// How many groups were committed.
    pub(crate) fn groups(&self) -> u64 {
        self.0.groups.load(Ordering::Relaxed)
    }
}

impl Backend for Life {
    async fn commit(
        &mut self,
        group: Vec<Batch>,
    ) -> Result<Vec<Result<(), storage::Error>>, storage::Error> {
        let answers = self.store.commit(&group);
        let number = self.shared.groups.fetch_add(1, Ordering::Relaxed) + 1;
        if self.killed_after == Some(number) {
            let image = tempfile::tempdir().unwrap();
            // Nobody writes meanwhile: the store is idle between two groups.
            copy(self.folder.path(), image.path());
            *self.shared.image.lock().unwrap() = Some(image);
            self.shared.reached.notify_one();
            std::future::pending::<()>().await;
        }
        answers
    }

    async fn get(&mut self, key: Vec<u8>) -> Result<Option<Versioned>, storage::Error> {
        self.store.get(&key)
    }

    async fn scan(
        &mut self,
        prefix: Vec<u8>,
        after: Option<Vec<u8>>,
        limit: Limit,
    ) -> Result<Vec<Entry>, storage::Error> {
        self.store.scan(&prefix, after.as_deref(), limit)
    }
}

/// All keys of a store.
pub(crate) fn keys(store: &dyn Store) -> Vec<Vec<u8>> {
    let all = Limit { entries: usize::MAX, bytes: usize::MAX };
    store.scan(b"", None, all).unwrap().into_iter().map(|entry| entry.key).collect()
}
