//! The contract of a storage engine.

use crate::Error;

/// The most operations a batch may hold.
pub const BATCH_OPERATIONS_MAX: usize = 64;
/// The most bytes of keys and values a batch may hold: 192 KiB.
pub const BATCH_BYTES_MAX: usize = 192 << 10;
/// The largest value the engine is given: 32 KiB. Larger payloads are stored in parts.
pub const VALUE_BYTES_MAX: usize = 32 << 10;

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
    /// An answer is [`Error::Conflict`] or [`Error::TooLarge`] for that batch alone. The call as a
    /// whole fails with [`Error::Poisoned`]; then nothing of it has been acknowledged.
    fn commit(&self, batches: &[Batch]) -> Result<Vec<Result<(), Error>>, Error>;

    /// The most batches and bytes that may be applied before a sync; the committer splits its
    /// groups accordingly.
    fn unsynced_max(&self) -> Limit {
        Limit { entries: 1024, bytes: 1 << 20 }
    }
}
