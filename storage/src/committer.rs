//! Group commit: many writers, one sync.

mod backend;
mod pending;
mod queue;
#[cfg(test)]
mod tests;
mod worker;

use std::future::Future;
use std::sync::Arc;

use tokio::sync::oneshot;

pub use self::backend::Backend;
pub(crate) use self::backend::panic_text;
pub use self::pending::Pending;

use self::backend::Inline;
use self::queue::{Answer, Commit, Queue, REQUEST_BYTES, Read, Request, Room, What};
use self::worker::EndOnDrop;
use crate::Error;
use crate::store::{BATCH_BYTES_MAX, Batch, Entry, Limit, Store, Versioned};

/// The most bytes of a page that [`Committer::scan`] returns: 256 KiB (one entry is returned even
/// if it is larger).
pub const SCAN_BYTES_MAX: usize = 256 << 10;

/// Settings of a [`Committer`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CommitterOptions {
    /// The most bytes of requests that wait for the disk: 64 MiB by default. Beyond it
    /// [`Committer::commit`] waits and [`Committer::enqueue`] refuses. At least one batch of the
    /// largest size always fits, and at most 4 GiB are used.
    pub queue_bytes_max: usize,
}

impl Default for CommitterOptions {
    fn default() -> Self {
        Self { queue_bytes_max: 64 << 20 }
    }
}

/// What a [`Committer`] has done since it was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommitterStats {
    /// Batches that were accepted and made durable.
    pub commits: u64,
    /// Batches that were refused by the store.
    pub refused: u64,
    /// Calls of the store; each holds all batches that waited, up to [`Store::unsynced_max`].
    pub groups: u64,
    /// Syncs, as the store counts them; 0 if it does not.
    pub syncs: u64,
    /// Bytes of keys and values of all batches, the refused ones included.
    pub bytes: u64,
}

/// A handle to the one loop that owns a store; clones are cheap and share it.
///
/// Requests are done in the order in which they were enqueued. All that wait when the loop looks
/// are committed together, with one sync if they fit into [`Store::unsynced_max`]; a lone commit
/// costs one sync. Reads run between two groups: a read sees every commit enqueued before it, and
/// nothing that is not durable.
///
/// A batch whose expectation fails is refused alone. After a failed write or sync every request,
/// waiting or new, gets [`Error::Poisoned`], for ever: reopen the store.
///
/// When the last clone is dropped, the loop does what is queued, drops the store and ends.
#[derive(Debug, Clone)]
pub struct Committer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    queue: Arc<Queue>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// Ends a [`Committer`] in order. Dropping it changes nothing.
#[derive(Debug)]
pub struct CommitterHandle {
    queue: Arc<Queue>,
    done: oneshot::Receiver<()>,
}

impl Committer {
    /// Starts a thread that owns the store and runs the loop. Needs no runtime.
    ///
    /// If the operating system gives no thread, every request gets [`Error::Poisoned`].
    pub fn start(store: impl Store, options: CommitterOptions) -> (Self, CommitterHandle) {
        let (committer, handle, done) = Self::parts(&options);
        let queue = Arc::clone(committer.queue());
        let spawned = std::thread::Builder::new().name("ghostlight-store".into()).spawn({
            let queue = Arc::clone(&queue);
            move || {
                // The runtime only parks this thread between two groups; it has no other thread,
                // no timer and no I/O.
                match tokio::runtime::Builder::new_current_thread().build() {
                    Ok(runtime) => runtime.block_on(worker::run(Inline(store), EndOnDrop(queue))),
                    Err(error) => {
                        drop(store);
                        queue.end(no_thread(&error));
                    }
                }
                let _ = done.send(());
            }
        });
        if let Err(error) = spawned {
            queue.end(no_thread(&error));
        }
        (committer, handle)
    }

    /// Runs the loop as a task of the current runtime that calls the store inline: for stores that
    /// never block, such as [`MemoryStore`](crate::MemoryStore). Uses no thread and no real time.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn inline(store: impl Store) -> (Self, CommitterHandle) {
        Self::inline_options(store, CommitterOptions::default())
    }

    /// As [`Committer::inline`], with settings.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn inline_options(store: impl Store, options: CommitterOptions) -> (Self, CommitterHandle) {
        Self::with_backend_options(Inline(store), options)
    }

    /// Runs the loop as a task of the current runtime, over a backend with a latency of its own.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn with_backend(backend: impl Backend) -> (Self, CommitterHandle) {
        Self::with_backend_options(backend, CommitterOptions::default())
    }

    /// As [`Committer::with_backend`], with settings.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn with_backend_options(
        backend: impl Backend,
        options: CommitterOptions,
    ) -> (Self, CommitterHandle) {
        let (committer, handle, done) = Self::parts(&options);
        let queue = EndOnDrop(Arc::clone(committer.queue()));
        tokio::spawn(async move {
            worker::run(backend, queue).await;
            let _ = done.send(());
        });
        (committer, handle)
    }

    fn parts(options: &CommitterOptions) -> (Self, CommitterHandle, oneshot::Sender<()>) {
        let limit = options.queue_bytes_max.max(BATCH_BYTES_MAX + REQUEST_BYTES);
        let queue = Arc::new(Queue::new(limit));
        let (done_sender, done) = oneshot::channel();
        let handle = CommitterHandle { queue: Arc::clone(&queue), done };
        (Self { shared: Arc::new(Shared { queue }) }, handle, done_sender)
    }

    /// Commits a batch; when it returns `Ok`, the batch is durable.
    ///
    /// Waits for room in the queue first, in the order of the callers that wait.
    ///
    /// # Errors
    /// [`Error::Conflict`], [`Error::TooLarge`] or [`Error::KeyTwice`] for this batch alone;
    /// nothing of it was written. [`Error::Poisoned`] if the store has failed: the batch may or
    /// may not be there after a reopen. [`Error::Closed`] after a shutdown or fence; after a
    /// fence, too, it may or may not be there.
    ///
    /// # Cancel safety
    /// Dropped while it waits for room, nothing was queued. Dropped later, the batch is committed
    /// or refused as if somebody still waited.
    pub async fn commit(&self, batch: Batch) -> Result<(), Error> {
        batch.validate()?;
        let permit = self.reserve(batch.bytes()).await?;
        self.enqueue_reserved(permit, batch).await
    }

    /// Enqueues a batch without waiting; the order of the calls is the order of the commits, so
    /// one writer can send several batches ahead.
    ///
    /// # Errors
    /// The future resolves to the errors of [`Committer::commit`], or to [`Error::QueueFull`] if
    /// there was no room: then the batch was not enqueued. Whoever must not lose a batch so
    /// reserves room first.
    pub fn enqueue(&self, batch: Batch) -> Pending {
        match batch.validate().and_then(|()| self.queue().try_room(batch.bytes())) {
            Ok(room) => self.push(batch, room),
            Err(error) => Pending::refused(error),
        }
    }

    /// Waits until a batch of so many bytes ([`Batch::bytes`]) has room in the queue.
    ///
    /// # Errors
    /// [`Error::Poisoned`] or [`Error::Closed`] if nothing is accepted any more;
    /// [`Error::TooLarge`] if it could never fit.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place among those who wait for room.
    pub async fn reserve(&self, bytes: usize) -> Result<Permit, Error> {
        Ok(Permit { room: self.queue().room(bytes).await?, bytes })
    }

    /// Enqueues a batch into reserved room; otherwise as [`Committer::enqueue`].
    ///
    /// # Errors
    /// The future resolves to [`Error::TooLarge`] if the batch is larger than the reservation.
    pub fn enqueue_reserved(&self, permit: Permit, batch: Batch) -> Pending {
        if let Err(error) = batch.validate() {
            return Pending::refused(error);
        }
        let actual = batch.bytes();
        if actual > permit.bytes {
            return Pending::refused(Error::TooLarge {
                what: "the size of the batch in bytes",
                actual,
                limit: permit.bytes,
            });
        }
        self.push(batch, permit.room)
    }

    fn push(&self, batch: Batch, room: Room) -> Pending {
        let bytes = batch.bytes();
        let (answer, pending) = oneshot::channel();
        match self.queue().push(Request::Commit(Commit { batch, bytes, answer, room })) {
            Ok(()) => Pending::waiting(pending, Arc::clone(self.queue())),
            Err(error) => Pending::refused(error),
        }
    }

    /// Reads one key, after every commit enqueued before this read.
    ///
    /// # Errors
    /// As [`Store::get`]; [`Error::Closed`] after a shutdown or fence.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    pub async fn get(&self, key: Vec<u8>) -> Result<Option<Versioned>, Error> {
        self.read(key.len(), |answer| What::Get { key, answer }).await
    }

    /// Reads a page of the keys that start with `prefix`, after the key `after`, after every
    /// commit enqueued before this read. Pages hold at most [`SCAN_BYTES_MAX`]; a page is not a
    /// snapshot with the pages before it.
    ///
    /// The scan has ended when a page is empty.
    ///
    /// # Errors
    /// As [`Store::scan`]; [`Error::Closed`] after a shutdown or fence.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    pub async fn scan(
        &self,
        prefix: Vec<u8>,
        after: Option<Vec<u8>>,
        limit: Limit,
    ) -> Result<Vec<Entry>, Error> {
        let limit = Limit { bytes: limit.bytes.min(SCAN_BYTES_MAX), ..limit };
        let bytes = prefix.len() + after.as_ref().map_or(0, Vec::len);
        self.read(bytes, |answer| What::Scan { prefix, after, limit, answer }).await
    }

    async fn read<T>(
        &self,
        bytes: usize,
        what: impl FnOnce(Answer<T>) -> What,
    ) -> Result<T, Error> {
        let room = self.queue().room(bytes).await?;
        let (answer, result) = oneshot::channel();
        self.queue().push(Request::Read(Read { what: what(answer), room }))?;
        result.await.unwrap_or_else(|_| Err(self.queue().why_closed()))
    }

    /// Stops everything at once, as a crash does: all that wait and all that come later get
    /// [`Error::Closed`], and nothing more is handed to the store.
    ///
    /// A backend that is awaiting its latency writes nothing. Only a store that is inside a
    /// blocking call on the committer's own thread finishes that call;
    /// [`CommitterHandle::shutdown`] waits for it.
    pub fn fence(&self) {
        self.queue().end(Error::Closed);
    }

    /// Resolves once nothing will be committed any more: to [`Error::Poisoned`] when the store has
    /// failed, and to [`Error::Closed`] after a fence, or when a shutdown has done what was queued.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn failed(&self) -> Error {
        self.queue().why_ended().await
    }

    /// What has been done so far.
    pub fn stats(&self) -> CommitterStats {
        self.queue().stats()
    }

    fn queue(&self) -> &Arc<Queue> {
        &self.shared.queue
    }
}

impl CommitterHandle {
    /// Refuses new requests, does those that are queued, drops the store, and returns when it is
    /// closed.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if the store has failed before or during the drain.
    ///
    /// # Cancel safety
    /// The shutdown begins with the call and goes on if the future is dropped.
    pub fn shutdown(self) -> impl Future<Output = Result<(), Error>> + Send {
        self.queue.close();
        async move {
            // An error means that the loop is gone without a word, which the queue knows.
            let _ = self.done.await;
            match self.queue.why_closed() {
                Error::Closed => Ok(()),
                why => Err(why),
            }
        }
    }
}

/// Room for one batch in the queue, from [`Committer::reserve`]. Dropping it gives the room back.
#[derive(Debug)]
pub struct Permit {
    room: Room,
    bytes: usize,
}

fn no_thread(error: &std::io::Error) -> Error {
    Error::Poisoned { why: format!("no thread for the committer: {error}") }
}
