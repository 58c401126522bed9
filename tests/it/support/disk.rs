//! A disk in memory that stops, stalls or fails at a group of commits that the test names.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ghostlight::storage::{self, Backend, Batch, Entry, Limit, MemoryStore, Store, Versioned};
use tokio::sync::Notify;

/// What happens at a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The process is lost right before the group is durable.
    Before,
    /// The process is lost right after it, and before anybody is told.
    After,
    /// The disk fails; nothing of the group is there.
    Fail,
    /// Every batch of the group is refused as too large; the disk goes on.
    Refuse,
}

#[derive(Default)]
struct Shared {
    groups: AtomicU64,
    group_bytes_max: AtomicUsize,
    reads: Mutex<Reads>,
    reached: Notify,
}

/// What was read of a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Reads {
    gets: usize,
    scans: usize,
    entries: usize,
    bytes: usize,
}

/// One life of the disk.
#[derive(Clone)]
pub(crate) struct Disk {
    store: MemoryStore,
    fault: Option<(u64, Fault)>,
    latency: std::time::Duration,
    shared: Arc<Shared>,
}

impl Disk {
    /// Opens the data of `store`, which no earlier life can write to any more. Groups count from 1.
    pub(crate) fn open(store: &MemoryStore, fault: Option<(u64, Fault)>) -> Self {
        let latency = std::time::Duration::ZERO;
        Self { store: store.reopen(), fault, latency, shared: Arc::default() }
    }

    /// Every group takes so long.
    pub(crate) fn latency(self, latency: std::time::Duration) -> Self {
        Self { latency, ..self }
    }

    /// Waits until the fault has come.
    pub(crate) async fn reached(&self) {
        self.shared.reached.notified().await;
    }

    /// How many groups were begun.
    pub(crate) fn groups(&self) -> u64 {
        self.shared.groups.load(Ordering::Relaxed)
    }

    /// The bytes of the largest group.
    pub(crate) fn group_bytes_max(&self) -> usize {
        self.shared.group_bytes_max.load(Ordering::Relaxed)
    }

    /// What this life has read so far.
    pub(crate) fn reads(&self) -> Reads {
        *self.shared.reads.lock().unwrap()
    }
}

impl Backend for Disk {
    async fn commit(
        &mut self,
        group: Vec<Batch>,
    ) -> Result<Vec<Result<(), storage::Error>>, storage::Error> {
        let number = self.shared.groups.fetch_add(1, Ordering::Relaxed) + 1;
        let bytes = group.iter().map(Batch::bytes).sum();
        self.shared.group_bytes_max.fetch_max(bytes, Ordering::Relaxed);
        let fault = self.fault.filter(|(at, _)| *at == number).map(|(_, fault)| fault);
        if fault == Some(Fault::Before) {
            self.shared.reached.notify_one();
            std::future::pending::<()>().await;
        }
        if fault == Some(Fault::Fail) {
            self.shared.reached.notify_one();
            return Err(storage::Error::Poisoned { why: "the disk is broken".into() });
        }
        if fault == Some(Fault::Refuse) {
            let what = "the size of the value in bytes";
            let refused = storage::Error::TooLarge { what, actual: 32_769, limit: 32_768 };
            return Ok(group.iter().map(|_| Err(refused.clone())).collect());
        }
        if !self.latency.is_zero() {
            tokio::time::sleep(self.latency).await;
        }
        let answers = self.store.commit(&group);
        if fault == Some(Fault::After) {
            self.shared.reached.notify_one();
            std::future::pending::<()>().await;
        }
        answers
    }

    async fn get(&mut self, key: Vec<u8>) -> Result<Option<Versioned>, storage::Error> {
        let read = self.store.get(&key)?;
        let mut reads = self.shared.reads.lock().unwrap();
        reads.gets += 1;
        reads.bytes += read.as_ref().map_or(0, |read| read.value.len());
        Ok(read)
    }

    async fn scan(
        &mut self,
        prefix: Vec<u8>,
        after: Option<Vec<u8>>,
        limit: Limit,
    ) -> Result<Vec<Entry>, storage::Error> {
        let page = self.store.scan(&prefix, after.as_deref(), limit)?;
        let mut reads = self.shared.reads.lock().unwrap();
        reads.scans += 1;
        reads.entries += page.len();
        reads.bytes += page.iter().map(|entry| entry.versioned.value.len()).sum::<usize>();
        Ok(page)
    }
}
