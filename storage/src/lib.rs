//! Durable storage for runs: one narrow store trait, group commit, memory and sled.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test fails by a panic"))]

mod changes;
pub mod codec;
mod committer;
#[cfg(any(test, feature = "test-util"))]
pub mod conformance;
mod error;
mod folder;
mod judge;
mod keys;
mod lock;
mod memory_store;
pub mod payload;
pub mod records;
mod sled_store;
mod store;
#[cfg(test)]
mod testing;

pub use changes::Changes;
pub use committer::{
    Backend, Committer, CommitterHandle, CommitterOptions, CommitterStats, Pending, Permit,
    SCAN_BYTES_MAX,
};
pub use error::Error;
pub use folder::{create_folder, sync_folder};
pub use judge::Judge;
pub use keys::Key;
pub use lock::FolderLock;
pub use memory_store::MemoryStore;
pub use sled_store::{Durability, SledStore};
pub use store::{
    BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX, Batch, Entry, Expect, KEY_BYTES_MAX, Limit, Operation,
    Revision, Store, VALUE_BYTES_MAX, Versioned,
};
