//! Where a group of batches goes.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Error;
use crate::store::{Batch, Entry, Limit, Store, Versioned};

/// What the committer's loop awaits: a [`Store`], perhaps with a latency of its own.
///
/// In production the loop runs on a thread of its own and its backend calls the store there. A
/// simulation implements this trait to await latency and stalls on its virtual clock and then
/// calls its store inline.
///
/// # Implementers must keep true
///
/// - Every promise of [`Store`] holds for the methods of the same name.
/// - A future that is dropped before it resolved ([`Committer::fence`](super::Committer::fence))
///   writes nothing after the drop.
pub trait Backend: Send + 'static {
    /// Applies the group and makes it durable: one answer a batch, in order.
    ///
    /// # Errors
    /// As [`Store::commit`]. After an error the committer never calls any method again.
    fn commit(
        &mut self,
        group: Vec<Batch>,
    ) -> impl Future<Output = Result<Vec<Result<(), Error>>, Error>> + Send;

    /// Reads one key.
    ///
    /// # Errors
    /// As [`Store::get`].
    fn get(
        &mut self,
        key: Vec<u8>,
    ) -> impl Future<Output = Result<Option<Versioned>, Error>> + Send;

    /// Reads a page.
    ///
    /// # Errors
    /// As [`Store::scan`].
    fn scan(
        &mut self,
        prefix: Vec<u8>,
        after: Option<Vec<u8>>,
        limit: Limit,
    ) -> impl Future<Output = Result<Vec<Entry>, Error>> + Send;

    /// As [`Store::unsynced_max`]; asked once.
    fn unsynced_max(&self) -> Limit {
        Limit { entries: 1024, bytes: 1 << 20 }
    }

    /// As [`Store::syncs`].
    fn syncs(&self) -> u64 {
        0
    }
}

/// A backend without latency: calls the store where the loop runs.
#[derive(Debug)]
pub(super) struct Inline<S>(pub(super) S);

impl<S: Store> Backend for Inline<S> {
    async fn commit(&mut self, group: Vec<Batch>) -> Result<Vec<Result<(), Error>>, Error> {
        contain(|| self.0.commit(&group))
    }

    async fn get(&mut self, key: Vec<u8>) -> Result<Option<Versioned>, Error> {
        contain(|| self.0.get(&key))
    }

    async fn scan(
        &mut self,
        prefix: Vec<u8>,
        after: Option<Vec<u8>>,
        limit: Limit,
    ) -> Result<Vec<Entry>, Error> {
        contain(|| self.0.scan(&prefix, after.as_deref(), limit))
    }

    fn unsynced_max(&self) -> Limit {
        self.0.unsynced_max()
    }

    fn syncs(&self) -> u64 {
        self.0.syncs()
    }
}

/// Turns a panic of the engine into an error: the state of an engine that has panicked is unknown,
/// so it counts as a failed write, and the process lives on.
fn contain<T>(call: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        Err(Error::Poisoned { why: format!("the engine panicked: {}", panic_text(&*panic)) })
    })
}

/// The message of a panic, as far as it has one.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
