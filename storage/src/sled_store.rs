//! The default store, on sled 0.34.
//!
//! sled alone keeps less than [`Store`] promises. The guards are all here and in the modules below,
//! each with a test:
//!
//! - sled's flush is no fsync: every group is followed by an fdatasync of our own ([`Engine::sync`]).
//! - A long unsynced tail can cost the whole store in a power cut: what is not synced is bounded,
//!   with either [`Durability`] ([`UNSYNCED_MAX`]).
//! - Pages over a quarter of a segment go to files that sled never syncs: values are small and
//!   segments large enough that no page gets there ([`open::SEGMENT_BYTES`]).
//! - A kill while sled opens can leave a file that it never gets over: it is removed ([`open`]).
//! - A kill while the store is made can leave half a store: it is made under another name
//!   ([`open`]).
//! - A full disk is noticed before sled meets it ([`space`]).
//! - sled takes damage in its log for the torn end of a crash, and overwrites what is behind it: the
//!   log is looked through before sled opens it ([`log_check`]), and what was acknowledged is
//!   counted beside it ([`acked`]).
//! - Calls of sled may panic, and closing it after a failure may hang ([`engine`]).
//! - After any failure nothing is written or read any more.

mod acked;
mod engine;
mod explain;
mod log_check;
mod open;
mod space;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::ops::Bound;
use std::path::Path;

use self::engine::Engine;
use crate::Error;
use crate::judge::Judge;
use crate::lock::FolderLock;
use crate::store::{Batch, Entry, Limit, Store, Versioned, show_key};

/// What an acknowledged batch survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// A power cut, and whatever less: each group is synced to the device.
    #[default]
    PowerLoss,
    /// The end of the process by whatever cause, SIGKILL included: each group is handed to the
    /// operating system. A power cut may take back the latest batches, in the reverse order of
    /// their commits; the store itself survives it.
    ProcessCrash,
}

/// The most that is ever applied without a sync: what was shown to survive power cuts.
const UNSYNCED_MAX: Limit = Limit { entries: 64, bytes: 200 << 10 };
/// The most operations that are ever applied without a sync. Each rewrites a part of a page, so
/// their number bounds the log where the bytes of small values do not.
const UNSYNCED_OPERATIONS_MAX: usize = 128;

/// The first byte of the keys that belong to callers; those of the store itself begin with 0.
const CALLERS: u8 = 1;
/// The bytes of the revision in front of each value.
const REVISION_BYTES: usize = 8;

/// A [`Store`] in a folder, on sled 0.34.
///
/// It lives in `<folder>/store`, and owns the folder by [`FolderLock`] until it is really closed.
/// Space on disk that is freed is used again, but never given back. It opens only while 40 MiB are
/// free on the disk, and writes while 32 MiB are.
///
/// Memory is a small multiple of the 32 MiB cache, and the engine's index, all of which stays there:
/// about 40 bytes for each entry of the store.
///
/// Damage by the medium is noticed, by checksums and by a count of what was acknowledged. What a
/// crash leaves is never taken for damage; so damage inside the log that looks like it may stay
/// unnoticed, but never that the latest acknowledged commits are missing. Copy the folder only while
/// nobody has it open: the files of a copy must be of one moment, or the copy is taken for a damaged
/// store.
///
/// Dropping it blocks until the engine is closed, which may take a second, or at most ten. If the
/// engine itself has failed, the folder stays locked until the process ends.
#[derive(Debug)]
pub struct SledStore {
    engine: Engine,
    durability: Durability,
    commits: Cell<Commits>,
    /// Applied and flushed, but not synced.
    unsynced: Cell<Load>,
    syncs: Cell<u64>,
}

impl SledStore {
    /// Opens the store in the folder, or makes it.
    ///
    /// Blocks, for some seconds if a large store was not closed in order.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process owns the folder; [`Error::TooNew`] if a newer version
    /// wrote it; [`Error::Open`] if it cannot be used, or if the engine does not recognise its
    /// files; [`Error::CommitsLost`] if acknowledged commits cannot be read. Nothing is repaired or
    /// removed then; but where the error does not say that nothing was changed, the engine has made
    /// the damage the end of its log, and what was behind it is gone.
    pub fn open(folder: impl AsRef<Path>, durability: Durability) -> Result<Self, Error> {
        Self::open_locked(FolderLock::acquire(folder)?, durability)
    }

    /// Opens the store in a folder that is owned already; otherwise as [`SledStore::open`].
    ///
    /// # Errors
    /// As [`SledStore::open`]; the lock is let go then.
    pub fn open_locked(lock: FolderLock, durability: Durability) -> Result<Self, Error> {
        Self::open_with(lock, durability, space::RESERVE_BYTES)
    }

    /// Opens the store on a disk that may be nearly full, for whoever reads, deletes, and changes
    /// single records, and adds nothing; otherwise as [`SledStore::open_locked`].
    ///
    /// It opens whatever is free, as long as the engine finds what it writes when it opens, at most
    /// 4 MiB and an eighth of the store's size, and commits while 8 MiB are free.
    ///
    /// # Errors
    /// As [`SledStore::open`]; the lock is let go then.
    pub fn open_spare(lock: FolderLock, durability: Durability) -> Result<Self, Error> {
        Self::open_with(lock, durability, space::SPARE_BYTES)
    }

    fn open_with(lock: FolderLock, durability: Durability, reserve: u64) -> Result<Self, Error> {
        let (engine, count) = open::open(lock, reserve)?;
        let commits = Cell::new(Commits { applied: count, synced: count });
        Ok(Self { engine, durability, commits, unsynced: Cell::default(), syncs: Cell::new(0) })
    }

    /// Applies the changes in one step of the engine, durable when it returns.
    fn apply(&self, slice: &[Batch], accepted: u64, judge: Judge) -> Result<(), Error> {
        let mut changes = sled::Batch::default();
        let mut empty = true;
        for (key, change) in judge.into_changes() {
            empty = false;
            match change {
                Some(versioned) => changes.insert(callers_key(&key), encode(&versioned)),
                None => changes.remove(callers_key(&key)),
            }
        }
        if empty {
            return Ok(());
        }
        self.engine.check_space()?;
        let load = Load::of(slice);
        // Invariant: what is unsynced never exceeds the bound, whatever is promised to callers.
        if !self.unsynced.get().and(load).fits() {
            self.sync()?;
        }
        self.unsynced.set(self.unsynced.get().and(load));
        let commits = self.commits.get();
        let applied = commits.applied + accepted;
        changes.insert(open::COUNT_KEY, &applied.to_be_bytes());
        self.engine.apply(changes)?;
        self.commits.set(Commits { applied, ..commits });
        if self.durability == Durability::PowerLoss {
            self.sync()?;
        }
        let Commits { applied, synced } = self.commits.get();
        self.engine.acknowledged(applied, synced);
        Ok(())
    }

    fn sync(&self) -> Result<(), Error> {
        self.engine.sync()?;
        self.unsynced.set(Load::default());
        let Commits { applied, .. } = self.commits.get();
        self.commits.set(Commits { applied, synced: applied });
        self.syncs.set(self.syncs.get() + 1);
        Ok(())
    }
}

impl Store for SledStore {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, Error> {
        let found = self.engine.call("read", |db| db.get(callers_key(key)))?;
        found.map(|bytes| decode(key, &bytes)).transpose()
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: Limit) -> Result<Vec<Entry>, Error> {
        let prefix_stored = callers_key(prefix);
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(callers_key(after)),
            _ => Bound::Included(prefix_stored.clone()),
        };
        let found = self.engine.call("scan", |db| {
            let mut page = Vec::new();
            let mut room = limit.start();
            for entry in db.range::<Vec<u8>, _>((start, Bound::Unbounded)) {
                let (key, value) = entry?;
                let bytes = (key.len() + value.len()).saturating_sub(1 + REVISION_BYTES);
                if !key.starts_with(&prefix_stored) || !room.take(bytes) {
                    break;
                }
                page.push((key, value));
            }
            Ok(page)
        })?;
        let entries = found.into_iter().map(|(key, value)| {
            let key = key[1..].to_vec();
            let versioned = decode(&key, &value)?;
            Ok(Entry { key, versioned })
        });
        entries.collect()
    }

    fn commit(&self, batches: &[Batch]) -> Result<Vec<Result<(), Error>>, Error> {
        let mut answers = Vec::with_capacity(batches.len());
        for slice in slices(batches) {
            let mut judge = Judge::default();
            let mut accepted = 0;
            for batch in slice {
                let answer = judge.accept(batch, |key| self.get(key))?;
                accepted += u64::from(answer.is_ok());
                answers.push(answer);
            }
            self.apply(slice, accepted, judge)?;
        }
        Ok(answers)
    }

    fn unsynced_max(&self) -> Limit {
        UNSYNCED_MAX
    }

    fn syncs(&self) -> u64 {
        self.syncs.get()
    }
}

/// How many batches were accepted since the store was made.
#[derive(Debug, Clone, Copy)]
struct Commits {
    applied: u64,
    synced: u64,
}

/// How much batches weigh against the unsynced bound.
#[derive(Debug, Clone, Copy, Default)]
struct Load {
    batches: usize,
    operations: usize,
    bytes: usize,
}

impl Load {
    fn of(slice: &[Batch]) -> Self {
        slice.iter().fold(Self::default(), |load, batch| {
            load.and(Self { batches: 1, operations: batch.operations.len(), bytes: batch.bytes() })
        })
    }

    fn and(self, other: Self) -> Self {
        Self {
            batches: self.batches + other.batches,
            operations: self.operations + other.operations,
            bytes: self.bytes + other.bytes,
        }
    }

    fn fits(self) -> bool {
        self.batches <= UNSYNCED_MAX.entries
            && self.operations <= UNSYNCED_OPERATIONS_MAX
            && self.bytes <= UNSYNCED_MAX.bytes
    }
}

/// Cuts the batches into the fewest slices within the unsynced bound. A batch within its own
/// limits fits alone; a larger one is refused when it is judged, and weighs nothing.
fn slices(batches: &[Batch]) -> impl Iterator<Item = &[Batch]> {
    let mut rest = batches;
    std::iter::from_fn(move || {
        let mut load = Load::default();
        let mut count = 0;
        for batch in rest {
            let with = load.and(Load::of(std::slice::from_ref(batch)));
            if count > 0 && !with.fits() {
                break;
            }
            load = with;
            count += 1;
        }
        let (slice, later) = rest.split_at(count);
        rest = later;
        (!slice.is_empty()).then_some(slice)
    })
}

fn callers_key(key: &[u8]) -> Vec<u8> {
    [&[CALLERS], key].concat()
}

fn encode(versioned: &Versioned) -> Vec<u8> {
    [&versioned.revision.to_be_bytes()[..], &versioned.value].concat()
}

fn decode(key: &[u8], bytes: &[u8]) -> Result<Versioned, Error> {
    match bytes.split_first_chunk::<REVISION_BYTES>() {
        Some((revision, value)) => {
            Ok(Versioned { revision: u64::from_be_bytes(*revision), value: value.to_vec() })
        }
        None => Err(Error::Corrupt {
            key: show_key(key),
            why: format!("{} bytes are too few for a revision", bytes.len()),
        }),
    }
}
