//! A batch under construction, in terms of keys and records.

use crate::codec::{self, Record};
use crate::{Batch, Expect, Key, Operation};

/// Collects what one commit changes.
#[derive(Debug, Default)]
pub struct Changes {
    batch: Batch,
}

impl Changes {
    /// No changes yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes a record.
    pub fn put<R: Record>(&mut self, key: &Key, record: &R) -> &mut Self {
        self.put_raw(key, codec::encode(record))
    }

    /// Writes bytes that are no record: parts of payloads alone.
    pub(crate) fn put_raw(&mut self, key: &Key, value: Vec<u8>) -> &mut Self {
        self.batch.operations.push(Operation::Put(key.as_bytes().to_vec(), value));
        self
    }

    /// Removes a key.
    pub fn delete(&mut self, key: &Key) -> &mut Self {
        self.batch.operations.push(Operation::Delete(key.as_bytes().to_vec()));
        self
    }

    /// Makes the commit fail unless `key` is as expected.
    pub fn expect(&mut self, key: &Key, expect: Expect) -> &mut Self {
        self.batch.operations.push(Operation::Expect(key.as_bytes().to_vec(), expect));
        self
    }

    /// The batch.
    pub fn into_batch(self) -> Batch {
        self.batch
    }
}
