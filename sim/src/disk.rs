//! The simulated disk, which knows written from synced, and its use by one life of the process.

mod life;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Bound;

#[cfg(ghostlight_planted)]
use ghostlight::protocol::planted::{Planted, planted};
use ghostlight::storage::{Batch, Entry, Error, Judge, Key, Limit, Versioned};

pub(crate) use self::life::{DISK_FAILED, DiskOfLife};
use crate::durable::Change;

pub(crate) type Written = BTreeMap<Vec<u8>, Versioned>;

/// What the keys of a batch held before it.
type Undo = BTreeMap<Vec<u8>, Option<Versioned>>;

/// What was written, and how to get back to what was synced.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    written: Written,
    /// The batches that were written since the last sync, in order; a refused one has changed nothing.
    unsynced: Vec<Undo>,
    /// What was written before the last sync, which was none.
    #[cfg(ghostlight_planted)]
    skipped: Vec<Undo>,
}

impl Disk {
    pub(crate) fn written(&self) -> &Written {
        &self.written
    }

    /// Applies batches; from then on they can be read.
    pub(crate) fn write(&mut self, group: &[Batch]) -> Vec<Result<(), Error>> {
        group.iter().map(|batch| self.write_one(batch)).collect()
    }

    fn write_one(&mut self, batch: &Batch) -> Result<(), Error> {
        let mut judge = Judge::default();
        let answer =
            judge.accept(batch, |key| Ok(self.written.get(key).cloned())).unwrap_or_else(Err);
        let mut undo = Undo::new();
        for (key, change) in judge.into_changes() {
            let before = set(&mut self.written, key.clone(), change);
            undo.insert(key, before);
        }
        self.unsynced.push(undo);
        answer
    }

    /// Makes durable what was written, and returns what that changes.
    pub(crate) fn sync(&mut self) -> Vec<Change> {
        let synced = std::mem::take(&mut self.unsynced);
        #[cfg(ghostlight_planted)]
        if planted(Planted::SkipSync) {
            self.skipped.clone_from(&synced);
        }
        let mut before = Undo::new();
        for (key, held) in synced.into_iter().flatten() {
            before.entry(key).or_insert(held);
        }
        let changed = before.into_iter().map(|(key, before)| {
            let after = self.written.get(&key).cloned();
            Change { key: Key::from_bytes(key), before, after }
        });
        changed.collect()
    }

    /// What a power cut does to everything that was not synced, but for the first `kept` batches: those
    /// have reached the disk all the same.
    pub(crate) fn power_cut(&mut self, kept: usize) {
        let kept = kept.min(self.unsynced.len());
        for undo in self.unsynced.split_off(kept).into_iter().rev() {
            undo.into_iter().for_each(|(key, held)| _ = set(&mut self.written, key, held));
        }
    }

    /// What a power cut does on top of that, if such a fault is planted.
    #[cfg(ghostlight_planted)]
    pub(crate) fn damage(&mut self) {
        for undo in std::mem::take(&mut self.skipped).into_iter().rev() {
            undo.into_iter().for_each(|(key, held)| _ = set(&mut self.written, key, held));
        }
        if planted(Planted::TearBatch)
            && let Some(last) = self.unsynced.last_mut()
            && let Some(middle) = last.keys().nth(last.len() / 2).cloned()
        {
            for (key, held) in last.split_off(&middle) {
                set(&mut self.written, key, held);
            }
        }
    }
}

/// Lets a key hold something, or nothing; returns what it held before.
fn set(written: &mut Written, key: Vec<u8>, held: Option<Versioned>) -> Option<Versioned> {
    match held {
        Some(versioned) => written.insert(key, versioned),
        None => written.remove(&key),
    }
}

/// As [`ghostlight::storage::Store::scan`].
fn page(written: &Written, prefix: &[u8], after: Option<&[u8]>, limit: Limit) -> Vec<Entry> {
    let start = match after {
        Some(after) if after >= prefix => Bound::Excluded(after),
        _ => Bound::Included(prefix),
    };
    let mut page = Vec::new();
    let mut bytes = 0;
    for (key, versioned) in written.range::<[u8], _>((start, Bound::Unbounded)) {
        let size = key.len() + versioned.value.len();
        let full = page.len() >= limit.entries || bytes + size > limit.bytes;
        if !key.starts_with(prefix) || (full && !page.is_empty()) {
            break;
        }
        bytes += size;
        page.push(Entry { key: key.clone(), versioned: versioned.clone() });
    }
    page
}
