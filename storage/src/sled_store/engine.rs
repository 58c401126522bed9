//! Every call of sled, with what it does not do itself.

use std::cell::OnceCell;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

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
    failure: OnceCell<String>,
    pub(super) reserve: u64,
}

#[derive(Debug)]
pub(super) struct Parts {
    pub(super) db: sled::Db,
    /// Another handle of the log's inode: an fsync of it covers whatever sled wrote there.
    pub(super) log: File,
    pub(super) lock: FolderLock,
}

impl Engine {
    pub(super) fn new(parts: Parts) -> Self {
        let reserve = space::RESERVE_BYTES;
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
        space::check(folder, self.reserve).map_err(|why| self.fail(why))
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
        self.parts().log.sync_data().map_err(|error| self.fail(format!("cannot sync: {error}")))
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
            Ok(Err(error)) => Err(self.fail(format!("cannot {what}: {error}"))),
            Err(panic) => Err(self.fail(format!("cannot {what}: panic: {}", panic_text(&*panic)))),
        }
    }

    fn usable(&self) -> Result<(), Error> {
        match self.failure.get() {
            Some(why) => Err(Error::Poisoned { why: why.clone() }),
            None => Ok(()),
        }
    }

    fn fail(&self, why: String) -> Error {
        Error::Poisoned { why: self.failure.get_or_init(|| why).clone() }
    }
}

impl Drop for Engine {
    /// Returns when the folder is free for the next owner, or after [`CLOSE_MAX`].
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take()
            && close_within(parts).is_none()
        {
            tracing::error!("the store could not be closed; its folder stays locked");
        }
    }
}

/// Closes sled on a thread of its own: a sled that has met an I/O error may wait for its own dead
/// threads for ever. The lock then stays taken, as it must while sled may still write.
fn close_within(parts: Parts) -> Option<FolderLock> {
    let (sender, closed) = mpsc::channel();
    let closer = std::thread::Builder::new().name("ghostlight-close".into());
    closer.spawn(move || sender.send(close(parts))).ok()?;
    closed.recv_timeout(CLOSE_MAX).ok()
}

/// Closes sled and waits until it has really let go of its files.
fn close(parts: Parts) -> FolderLock {
    let Parts { db, log, lock } = parts;
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(db))) {
        tracing::error!(panic = panic_text(&*panic), "closing the store failed");
    }
    // sled's threads may hold its file, and with it sled's lock on it, for a moment longer, and
    // whoever opens in this moment is refused. So wait for the same lock.
    let waited = flock(&log, FlockOperation::LockExclusive)
        .and_then(|()| flock(&log, FlockOperation::Unlock));
    if let Err(error) = waited {
        tracing::error!(%error, "cannot wait for the end of the store");
    }
    lock
}
