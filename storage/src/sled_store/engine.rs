//! Every call of sled, with what it does not do itself.

use std::cell::{OnceCell, RefCell};
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::acked::Mark;
use super::explain::failure;
use super::space;
use crate::Error;
use crate::committer::panic_text;
use crate::lock::FolderLock;

/// How long closing may take before it is left to itself.
const CLOSE_MAX: Duration = Duration::from_secs(10);

/// An open sled, our own handle of its log, and the first failure of either.
#[derive(Debug)]
pub(super) struct Engine {
    /// `None` once it is being closed.
    parts: Option<Parts>,
    failure: OnceCell<Failure>,
    pub(super) reserve: u64,
}

#[derive(Debug)]
pub(super) struct Parts {
    pub(super) db: sled::Db,
    /// Another handle of the log's inode: an fsync of it covers whatever sled wrote there.
    pub(super) log: File,
    pub(super) lock: FolderLock,
    /// What was acknowledged; `None` while the store is made, or if it cannot be written.
    pub(super) mark: RefCell<Option<Mark>>,
}

#[derive(Debug)]
struct Failure {
    why: String,
    /// Whether sled itself failed, so that nothing is known of its state.
    within: bool,
}

impl Engine {
    pub(super) fn new(parts: Parts, reserve: u64) -> Self {
        Self { parts: Some(parts), failure: OnceCell::new(), reserve }
    }

    pub(super) fn parts(&self) -> &Parts {
        self.parts.as_ref().expect("only closing takes the parts")
    }

    #[cfg(test)]
    pub(super) fn parts_mut(&mut self) -> &mut Parts {
        self.parts.as_mut().expect("only closing takes the parts")
    }

    /// Closes sled and gives back the ownership of the folder.
    pub(super) fn close(mut self) -> Result<FolderLock, Error> {
        let parts = self.parts.take().expect("only closing takes the parts");
        let folder = parts.lock.folder().to_owned();
        close_within(parts).ok_or_else(|| Error::Open {
            folder,
            why: "the engine could not be closed; end this process and try again".into(),
        })
    }

    /// Fails, for ever, if the disk is too full to write.
    pub(super) fn check_space(&self) -> Result<(), Error> {
        self.usable()?;
        let folder = self.parts().lock.folder();
        space::check(folder, self.reserve).map_err(|why| self.fail(why, false))
    }

    /// Applies the batch whole, and hands it to the operating system.
    pub(super) fn apply(&self, batch: sled::Batch) -> Result<(), Error> {
        self.call("write", |db| {
            db.apply_batch(batch)?;
            db.flush()?;
            Ok(())
        })
    }

    /// Makes durable whatever was applied. sled's own flush does not reach the device.
    pub(super) fn sync(&self) -> Result<(), Error> {
        self.usable()?;
        // Never tried a second time: after a failed fsync the kernel may have dropped the pages
        // and would report success.
        let synced = self.parts().log.sync_data();
        synced.map_err(|error| self.fail(format!("cannot sync: {error}"), false))
    }

    /// Notes how many commits were acknowledged, and how many of them are synced.
    pub(super) fn acknowledged(&self, count: u64, synced: u64) {
        if let Some(mark) = self.parts().mark.borrow_mut().as_mut() {
            mark.note(count, synced);
        }
    }

    /// Calls sled. An error or panic is the end of the store: what sled's memory holds after it is
    /// unknown.
    pub(super) fn call<T>(
        &self,
        what: &str,
        call: impl FnOnce(&sled::Db) -> sled::Result<T>,
    ) -> Result<T, Error> {
        self.usable()?;
        match catch_unwind(AssertUnwindSafe(|| call(&self.parts().db))) {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(self.fail(format!("cannot {what}: {}", failure(&error)), true)),
            Err(panic) => {
                Err(self.fail(format!("cannot {what}: panic: {}", panic_text(&*panic)), true))
            }
        }
    }

    fn usable(&self) -> Result<(), Error> {
        match self.failure.get() {
            Some(failure) => Err(Error::Poisoned { why: failure.why.clone() }),
            None => Ok(()),
        }
    }

    fn fail(&self, why: String, within: bool) -> Error {
        let failure = self.failure.get_or_init(|| Failure { why, within });
        Error::Poisoned { why: failure.why.clone() }
    }
}

impl Drop for Engine {
    /// Returns when the folder is free for the next owner, if sled is sound; at once if it is not;
    /// and after [`CLOSE_MAX`] in any case.
    fn drop(&mut self) {
        let Some(parts) = self.parts.take() else { return };
        if self.failure.get().is_some() {
            // Nobody knows what of the latest commits is durable.
            parts.mark.take();
        }
        if self.failure.get().is_some_and(|failure| failure.within) {
            // A sled that has failed may wait for itself when it is closed, for ever, with a lock
            // that every sled of this process needs. So it is left as it is, with the lock of the
            // folder: only the end of the process makes sure that it writes no more.
            tracing::error!("the folder of the failed store stays locked until the process ends");
            std::mem::forget(parts);
        } else if close_within(parts).is_none() {
            tracing::error!("the store could not be closed; its folder stays locked");
        }
    }
}

/// Closes sled on a thread of its own, because it can meet an I/O error even now. If it does not
/// come back, the lock stays taken, as it must while sled may still write.
fn close_within(parts: Parts) -> Option<FolderLock> {
    let (sender, closed) = mpsc::channel();
    let closer = std::thread::Builder::new().name("ghostlight-close".into());
    closer.spawn(move || sender.send(close(parts))).ok()?;
    closed.recv_timeout(CLOSE_MAX).ok()
}

/// Closes sled and waits until it has really let go of its files.
fn close(parts: Parts) -> FolderLock {
    let Parts { db, log, lock, mark } = parts;
    let closed = catch_unwind(AssertUnwindSafe(|| drop(db)));
    if let Err(panic) = &closed {
        tracing::error!(panic = panic_text(&**panic), "closing the store failed");
    }
    // sled's threads may hold its file, and with it sled's lock on it, for a moment longer, and
    // whoever opens in this moment is refused. So wait for the same lock.
    let waited = flock(&log, FlockOperation::LockExclusive)
        .and_then(|()| flock(&log, FlockOperation::Unlock));
    if let Err(error) = waited {
        tracing::error!(%error, "cannot wait for the end of the store");
    }
    if closed.is_ok()
        && let Some(mark) = mark.into_inner()
        && log.sync_data().is_ok()
    {
        mark.close();
    }
    lock
}
