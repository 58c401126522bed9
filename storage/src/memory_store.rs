//! A store in memory, for tests and simulation.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Error;
use crate::judge::Judge;
use crate::store::{Batch, Entry, Limit, Store, Versioned};

/// A [`Store`] whose disk is a map in memory.
///
/// The disk outlives the handle: [`MemoryStore::reopen`] opens the same disk again, as a process
/// that starts after a crash would. A clone is another handle of the same incarnation.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    disk: Arc<Mutex<Disk>>,
    incarnation: u64,
}

#[derive(Debug, Default)]
struct Disk {
    entries: BTreeMap<Vec<u8>, Versioned>,
    /// Invariant: only the handle that carries this number may write.
    incarnation: u64,
    syncs: u64,
}

impl MemoryStore {
    /// Makes an empty disk and opens it.
    pub fn new() -> Self {
        Self { disk: Arc::default(), incarnation: 0 }
    }

    /// Opens the same disk as a new incarnation.
    ///
    /// From then on a commit through any earlier handle fails with [`Error::Poisoned`] and writes
    /// nothing: a process that is taken for dead cannot write any more. Reads through an earlier
    /// handle go on and see the disk as it is now.
    pub fn reopen(&self) -> Self {
        let mut disk = self.disk();
        disk.incarnation += 1;
        disk.syncs = 0;
        Self { disk: Arc::clone(&self.disk), incarnation: disk.incarnation }
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        // Nothing panics between two changes that belong together, so the map is whole even if a
        // panic elsewhere marked the lock.
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for MemoryStore {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, Error> {
        Ok(self.disk().entries.get(key).cloned())
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: Limit) -> Result<Vec<Entry>, Error> {
        let disk = self.disk();
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let mut page = Vec::new();
        let mut room = limit.start();
        for (key, versioned) in disk.entries.range::<[u8], _>((start, Bound::Unbounded)) {
            if !key.starts_with(prefix) || !room.take(key.len() + versioned.value.len()) {
                break;
            }
            page.push(Entry { key: key.clone(), versioned: versioned.clone() });
        }
        Ok(page)
    }

    fn commit(&self, batches: &[Batch]) -> Result<Vec<Result<(), Error>>, Error> {
        let mut disk = self.disk();
        if disk.incarnation != self.incarnation {
            return Err(Error::Poisoned { why: "a later incarnation has opened the disk".into() });
        }
        let mut judge = Judge::default();
        let mut answers = Vec::with_capacity(batches.len());
        for batch in batches {
            answers.push(judge.accept(batch, |key| Ok(disk.entries.get(key).cloned()))?);
        }
        let changes = judge.into_changes();
        disk.syncs += u64::from(!changes.is_empty());
        for (key, change) in changes {
            match change {
                Some(versioned) => disk.entries.insert(key, versioned),
                None => disk.entries.remove(&key),
            };
        }
        Ok(answers)
    }

    fn syncs(&self) -> u64 {
        self.disk().syncs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{self, Disk as TestDisk};
    use crate::store::Expect;

    struct Fresh(MemoryStore);

    impl TestDisk for Fresh {
        fn open(&mut self) -> Box<dyn Store> {
            Box::new(self.0.reopen())
        }
    }

    #[test]
    fn keeps_the_contract() {
        conformance::run(|| Box::new(Fresh(MemoryStore::new())));
    }

    #[test]
    fn reopen_keeps_the_disk_and_fences_every_earlier_handle() {
        let first = MemoryStore::new();
        let twin = first.clone();
        assert!(first.commit(&[Batch::new().put("a", "1")]).unwrap()[0].is_ok());

        let second = first.reopen();
        assert_eq!(second.get(b"a").unwrap().unwrap().value, b"1");
        for old in [&first, &twin] {
            let refused = old.commit(&[Batch::new().put("a", "2")]);
            assert!(matches!(refused, Err(Error::Poisoned { .. })), "{refused:?}");
        }
        let batch = Batch::new().expect("a", Expect::At(1)).put("a", "3");
        assert!(second.commit(&[batch]).unwrap()[0].is_ok());
        assert_eq!(first.get(b"a").unwrap().unwrap().revision, 2);
    }
}
