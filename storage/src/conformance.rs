//! The contract of [`Store`] as a suite that every back end runs.
//!
//! A back end outside this crate enables the feature `test-util` of its dev-dependency and writes
//! one test:
//!
//! ```
//! use ghostlight_storage::conformance::{self, Disk};
//! use ghostlight_storage::{MemoryStore, Store};
//!
//! struct Fresh(MemoryStore);
//!
//! impl Disk for Fresh {
//!     fn open(&mut self) -> Box<dyn Store> {
//!         Box::new(self.0.reopen())
//!     }
//! }
//!
//! conformance::run(|| Box::new(Fresh(MemoryStore::new())));
//! ```
//!
//! What no suite can show from inside one process, the back end shows itself: that commits survive
//! a killed process and a power cut, and that a failed write refuses all later ones.

#[cfg(test)]
mod faults;
mod limits;
mod model;
mod reads;
mod writes;

use std::error::Error as StdError;

use crate::Error;
use crate::store::{Batch, Entry, Limit, Store};

/// An empty disk of a test, with whatever keeps it alive (a temporary folder, say).
pub trait Disk {
    /// Opens the store on this disk; everything committed before is there. The suite has dropped
    /// the store of an earlier call.
    fn open(&mut self) -> Box<dyn Store>;
}

/// Runs every clause, each on a new disk from `make`.
///
/// The clause with random operations takes its seed from the environment variable
/// `GHOSTLIGHT_SEED`, if it is set, and names it when it fails.
///
/// # Panics
/// If a clause does not hold; the message names all that do not.
pub fn run(make: impl FnMut() -> Box<dyn Disk>) {
    let failures = failures(make);
    assert!(failures.is_empty(), "the store breaks its contract:\n{}", failures.join("\n"));
}

/// Runs every clause as [`run`] does; returns one line for each that does not hold, which begins
/// with the name of the clause.
pub fn failures(mut make: impl FnMut() -> Box<dyn Disk>) -> Vec<String> {
    let clauses = [reads::CLAUSES, writes::CLAUSES, limits::CLAUSES, model::CLAUSES].concat();
    let failures = clauses.iter().filter_map(|(name, clause)| {
        clause(&mut *make()).err().map(|failure| format!("{name}: {failure}"))
    });
    failures.collect()
}

type Check = Result<(), Box<dyn StdError>>;
type Clause = (&'static str, fn(&mut dyn Disk) -> Check);

/// Fails the clause unless both are equal.
macro_rules! same {
    ($left:expr, $right:expr, $($what:tt)+) => {
        let (left, right) = (&$left, &$right);
        if left != right {
            let what = format!($($what)+);
            return Err(format!("{what}: {left:?} instead of {right:?}").into());
        }
    };
}
use same;

const ALL: Limit = Limit { entries: usize::MAX, bytes: usize::MAX };

/// Commits one batch that must be accepted.
fn accept(store: &dyn Store, batch: Batch) -> Check {
    answer(store, batch)?.map_err(Into::into)
}

/// Commits one batch; its own answer.
fn answer(store: &dyn Store, batch: Batch) -> Result<Result<(), Error>, Box<dyn StdError>> {
    let mut answers = store.commit(&[batch])?;
    same!(answers.len(), 1, "answers to one batch");
    Ok(answers.remove(0))
}

/// What an answer is, without its texts.
fn kind(answer: &Result<(), Error>) -> &'static str {
    match answer {
        Ok(()) => "accepted",
        Err(Error::Conflict { .. }) => "conflict",
        Err(Error::TooLarge { .. }) => "too large",
        Err(Error::KeyTwice { .. }) => "key twice",
        Err(_) => "another error",
    }
}

/// A key's revision and value.
fn read(store: &dyn Store, key: &[u8]) -> Result<Option<(u64, Vec<u8>)>, Error> {
    Ok(store.get(key)?.map(|versioned| (versioned.revision, versioned.value)))
}

fn keys(page: &[Entry]) -> Vec<Vec<u8>> {
    page.iter().map(|entry| entry.key.clone()).collect()
}
