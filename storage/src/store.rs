//! The contract of a storage engine.

use std::collections::BTreeSet;

use crate::Error;

/// The most operations a batch may hold.
pub const BATCH_OPERATIONS_MAX: usize = 64;
/// The most bytes of keys and values a batch may hold: 192 KiB.
pub const BATCH_BYTES_MAX: usize = 192 << 10;
/// The largest value the engine is given: 32 KiB. Larger payloads are stored in parts.
pub const VALUE_BYTES_MAX: usize = 32 << 10;
/// The largest key: 2 KiB.
pub const KEY_BYTES_MAX: usize = 2 << 10;

/// How many times a key has been written since it was last absent: the first put is 1.
///
/// A writer can therefore know the revisions of its own future puts and queue batches in advance.
pub type Revision = u64;

/// What must hold of a key for a batch to be accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// The key does not exist.
    Absent,
    /// The key exists at exactly this revision.
    At(Revision),
}

/// One operation of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Writes the value.
    Put(Vec<u8>, Vec<u8>),
    /// Removes the key; removing an absent key is no error.
    Delete(Vec<u8>),
    /// Fails the batch unless the expectation holds.
    Expect(Vec<u8>, Expect),
}

/// Puts, deletes and expectations that happen together or not at all.
///
/// Expectations are judged against the state before the batch, whatever their place in it; a key
/// is put or deleted at most once in a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// The operations.
    pub operations: Vec<Operation>,
}

impl Batch {
    /// Makes an empty batch. Committing it writes nothing and succeeds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a put.
    #[must_use]
    pub fn put(mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        self.operations.push(Operation::Put(key.into(), value.into()));
        self
    }

    /// Adds a delete.
    #[must_use]
    pub fn delete(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.operations.push(Operation::Delete(key.into()));
        self
    }

    /// Adds an expectation.
    #[must_use]
    pub fn expect(mut self, key: impl Into<Vec<u8>>, expect: Expect) -> Self {
        self.operations.push(Operation::Expect(key.into(), expect));
        self
    }

    /// The bytes of all keys and values, those of expectations included.
    pub fn bytes(&self) -> usize {
        self.operations
            .iter()
            .map(|operation| match operation {
                Operation::Put(key, value) => key.len() + value.len(),
                Operation::Delete(key) | Operation::Expect(key, _) => key.len(),
            })
            .sum()
    }

    /// Checks everything that can be known of a batch without looking at the store.
    ///
    /// # Errors
    /// [`Error::TooLarge`] over a limit of this module, [`Error::KeyTwice`] if a key is put or
    /// deleted more than once. A retry of the same batch fails again.
    pub fn validate(&self) -> Result<(), Error> {
        limit(
            "the number of operations of the batch",
            self.operations.len(),
            BATCH_OPERATIONS_MAX,
        )?;
        limit("the size of the batch in bytes", self.bytes(), BATCH_BYTES_MAX)?;
        let mut changed = BTreeSet::new();
        for operation in &self.operations {
            let (Operation::Put(key, _) | Operation::Delete(key) | Operation::Expect(key, _)) =
                operation;
            limit("the size of the key in bytes", key.len(), KEY_BYTES_MAX)?;
            if let Operation::Put(_, value) = operation {
                limit("the size of the value in bytes", value.len(), VALUE_BYTES_MAX)?;
            }
            if !matches!(operation, Operation::Expect(..)) && !changed.insert(key) {
                return Err(Error::KeyTwice { key: show_key(key) });
            }
        }
        Ok(())
    }
}

fn limit(what: &'static str, actual: usize, limit: usize) -> Result<(), Error> {
    if actual > limit { Err(Error::TooLarge { what, actual, limit }) } else { Ok(()) }
}

/// The form of a key in error messages when nothing is known of its layout.
pub(crate) fn show_key(key: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 64;
    let shown = &key[..key.len().min(SHOWN_BYTES_MAX)];
    let rest = if shown.len() < key.len() { "..." } else { "" };
    format!("{}{rest}", shown.escape_ascii())
}

/// A stored value with its revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned {
    /// The revision of the key.
    pub revision: Revision,
    /// The value.
    pub value: Vec<u8>,
}

/// One entry of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The whole key, prefix included.
    pub key: Vec<u8>,
    /// The value and its revision.
    pub versioned: Versioned,
}

/// Where a page of a scan ends: after so many entries, or so many bytes, whichever comes first.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// The most entries; at least 1 is returned if there is one.
    pub entries: usize,
    /// The most bytes of keys and values; one entry is returned even if it is larger.
    pub bytes: usize,
}

impl Limit {
    /// Starts to count one page.
    pub(crate) fn start(self) -> Room {
        Room { limit: self, entries: 0, bytes: 0 }
    }
}

/// What is left of a [`Limit`].
#[derive(Debug)]
pub(crate) struct Room {
    limit: Limit,
    entries: usize,
    bytes: usize,
}

impl Room {
    /// Whether one more entry of that size fits; if so, it is counted. The first one always fits.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let fits = self.entries == 0
            || (self.entries < self.limit.entries && self.bytes + bytes <= self.limit.bytes);
        if fits {
            self.entries += 1;
            self.bytes += bytes;
        }
        fits
    }
}

/// An ordered key-value space, and the promises every engine keeps.
///
/// All calls block; the committer's thread is the only caller. Keys are ordered bytewise.
///
/// # Implementers must keep true
///
/// - `commit` judges the batches in order, each against the state left by the accepted ones
///   before it, and applies each whole or not at all; a batch whose expectation fails changes
///   nothing and fails alone.
/// - When `commit` returns, every accepted batch is durable to the degree the store was opened
///   with; after a crash each batch is there whole or not at all, and no batch is there without
///   the accepted ones before it.
/// - A revision counts the puts of its own key since the key was last absent, from 1.
/// - After a failed write or sync every further `commit` returns [`Error::Poisoned`].
/// - A batch that does not pass [`Batch::validate`] is refused with that error.
/// - Dropping the store closes it: when the drop returns, the same data can be opened again.
/// - `scan` returns the entries whose key starts with `prefix` and is greater than `after`, in
///   key order, without gaps.
pub trait Store: Send + 'static {
    /// Reads one key.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::Poisoned`] when the engine cannot read it.
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, Error>;

    /// Reads a page of the keys that start with `prefix`, after the key `after`.
    ///
    /// # Errors
    /// As [`Store::get`].
    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: Limit) -> Result<Vec<Entry>, Error>;

    /// Applies the batches and makes the accepted ones durable; one answer a batch, in order.
    ///
    /// # Errors
    /// An answer is [`Error::Conflict`] or one of [`Batch::validate`], for that batch alone. The
    /// call as a whole fails with [`Error::Poisoned`]; then nothing of it has been acknowledged.
    fn commit(&self, batches: &[Batch]) -> Result<Vec<Result<(), Error>>, Error>;

    /// The most batches and bytes that may be applied before a sync; the committer splits its
    /// groups accordingly.
    fn unsynced_max(&self) -> Limit {
        Limit { entries: 1024, bytes: 1 << 20 }
    }

    /// How many syncs commits have cost since the store was opened, for metrics and tests; 0 if
    /// the engine does not count them. A `commit` that changes nothing costs none.
    fn syncs(&self) -> u64 {
        0
    }
}

impl<S: Store + ?Sized> Store for Box<S> {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, Error> {
        (**self).get(key)
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: Limit) -> Result<Vec<Entry>, Error> {
        (**self).scan(prefix, after, limit)
    }

    fn commit(&self, batches: &[Batch]) -> Result<Vec<Result<(), Error>>, Error> {
        (**self).commit(batches)
    }

    fn unsynced_max(&self) -> Limit {
        (**self).unsynced_max()
    }

    fn syncs(&self) -> u64 {
        (**self).syncs()
    }
}
