//! Judges batches one after the other before an engine applies them together.

use std::collections::BTreeMap;

use crate::Error;
use crate::store::{Batch, Expect, Operation, Versioned, show_key};

/// What the accepted batches of a group change, on top of what the engine holds: for those who
/// implement [`Store`](crate::Store) or [`Backend`](crate::Backend).
#[derive(Debug, Default)]
pub struct Judge {
    changes: BTreeMap<Vec<u8>, Option<Versioned>>,
}

impl Judge {
    /// Judges the next batch; if it is accepted, its changes count for the batches after it.
    ///
    /// The outer error is a failed read of the engine, the inner one the batch's own answer; with
    /// either, the batch has changed nothing.
    ///
    /// # Errors
    /// What `read` returns.
    pub fn accept(
        &mut self,
        batch: &Batch,
        read: impl Fn(&[u8]) -> Result<Option<Versioned>, Error>,
    ) -> Result<Result<(), Error>, Error> {
        if let Err(error) = batch.validate() {
            return Ok(Err(error));
        }
        let current = |key: &[u8]| match self.changes.get(key) {
            Some(change) => Ok(change.clone()),
            None => read(key),
        };
        let mut changes = Vec::new();
        for operation in &batch.operations {
            match operation {
                Operation::Expect(key, expect) => {
                    let found = current(key)?.map(|versioned| versioned.revision);
                    if let Err(conflict) = check(key, *expect, found) {
                        return Ok(Err(conflict));
                    }
                }
                Operation::Put(key, value) => {
                    let revision = current(key)?.map_or(0, |versioned| versioned.revision) + 1;
                    let versioned = Versioned { revision, value: value.clone() };
                    changes.push((key.clone(), Some(versioned)));
                }
                Operation::Delete(key) => changes.push((key.clone(), None)),
            }
        }
        self.changes.extend(changes);
        Ok(Ok(()))
    }

    /// The state after all accepted batches of every key they touch; `None` is a deleted key.
    pub fn into_changes(self) -> BTreeMap<Vec<u8>, Option<Versioned>> {
        self.changes
    }
}

fn check(key: &[u8], expect: Expect, found: Option<u64>) -> Result<(), Error> {
    let holds = match expect {
        Expect::Absent => found.is_none(),
        Expect::At(revision) => found == Some(revision),
    };
    if holds {
        return Ok(());
    }
    let show = |revision: Option<u64>| match revision {
        None => "no key".to_owned(),
        Some(revision) => format!("revision {revision}"),
    };
    let expected = match expect {
        Expect::Absent => None,
        Expect::At(revision) => Some(revision),
    };
    Err(Error::Conflict { key: show_key(key), expected: show(expected), found: show(found) })
}
