//! A store in memory that cannot read what a test names.

use std::sync::{Arc, Mutex};

use ghostlight::storage::{
    self, Backend, Batch, Entry, Key as StoreKey, Limit, MemoryStore, Store, Versioned,
};
use tokio::time::Instant;

/// A store that cannot read what is below a prefix, so many times.
#[derive(Clone, Default)]
pub(crate) struct Unreadable {
    store: MemoryStore,
    fault: Arc<Mutex<Fault>>,
}

#[derive(Default)]
struct Fault {
    prefix: Vec<u8>,
    times: usize,
    failed_at: Vec<Instant>,
}

impl Unreadable {
    /// Reads below `key` fail so often from now on.
    pub(crate) fn fail(&self, key: StoreKey, times: usize) {
        let fault = Fault { prefix: key.into_bytes(), times, failed_at: Vec::new() };
        *self.fault.lock().unwrap() = fault;
    }

    /// The first key below `prefix`.
    pub(crate) fn first(&self, prefix: &StoreKey) -> StoreKey {
        let one = Limit { entries: 1, bytes: 1 };
        let mut found = self.store.scan(prefix.as_bytes(), None, one).unwrap();
        StoreKey::from_bytes(found.remove(0).key)
    }

    /// When they have failed.
    pub(crate) fn failed_at(&self) -> Vec<Instant> {
        self.fault.lock().unwrap().failed_at.clone()
    }

    fn read(&self, key: &[u8]) -> Result<(), storage::Error> {
        let mut fault = self.fault.lock().unwrap();
        if fault.failed_at.len() == fault.times || !key.starts_with(&fault.prefix) {
            return Ok(());
        }
        fault.failed_at.push(Instant::now());
        Err(storage::Error::Corrupt { key: "some key".into(), why: "a test says so".into() })
    }
}

impl Backend for Unreadable {
    async fn commit(
        &mut self,
        group: Vec<Batch>,
    ) -> Result<Vec<Result<(), storage::Error>>, storage::Error> {
        self.store.commit(&group)
    }

    async fn get(&mut self, key: Vec<u8>) -> Result<Option<Versioned>, storage::Error> {
        self.read(&key)?;
        self.store.get(&key)
    }

    async fn scan(
        &mut self,
        prefix: Vec<u8>,
        after: Option<Vec<u8>>,
        limit: Limit,
    ) -> Result<Vec<Entry>, storage::Error> {
        self.read(&prefix)?;
        self.store.scan(&prefix, after.as_deref(), limit)
    }
}
