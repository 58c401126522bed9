//! Tells followers that something changed in their launch folders.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::sys;

/// How often files are looked at where the kernel gives no notice.
const POLL: Duration = Duration::from_millis(100);

/// Notices changes in launch folders: one for all followers of a program.
///
/// Uses a single inotify instance, of which a user has few (128 by default), and one watch a
/// launch. Where the kernel refuses either, followers look at their files every 100 ms instead.
/// Cheap to clone; ends with its last clone and follower.
#[derive(Clone, Debug)]
pub struct OutputWatcher {
    inner: Option<Arc<Inner>>,
}

#[derive(Debug)]
pub(super) struct Inner {
    shared: Arc<Shared>,
    reader: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    inotify: AsyncFd<OwnedFd>,
    watches: Mutex<HashMap<i32, Watch>>,
}

#[derive(Debug)]
struct Watch {
    users: usize,
    changed: watch::Sender<()>,
}

/// One follower's interest in one folder.
#[derive(Debug)]
pub(super) enum Changes {
    Notified { inner: Arc<Inner>, watch: i32, changed: watch::Receiver<()> },
    Polled,
}

impl OutputWatcher {
    /// Starts watching.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O enabled.
    pub fn new() -> Self {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .map_err(io::Error::from)
            .and_then(sys::readable);
        let inner = inotify.ok().map(|inotify| {
            let shared = Arc::new(Shared { inotify, watches: Mutex::default() });
            let reader = tokio::spawn(read_events(Arc::clone(&shared)));
            Arc::new(Inner { shared, reader })
        });
        OutputWatcher { inner }
    }

    /// Looks at the files every 100 ms, for file systems that give no notice.
    pub fn polling() -> Self {
        OutputWatcher { inner: None }
    }

    /// Begins to notice what changes in `folder` and in the files in it.
    pub(super) fn watch(&self, folder: &Path) -> Changes {
        let Some(inner) = &self.inner else {
            return Changes::Polled;
        };
        let flags = WatchFlags::MODIFY | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        // Held while the watch is added, so that no event of it is looked up before it is known.
        let mut watches = inner.shared.watches();
        let Ok(watch) = inotify::add_watch(&inner.shared.inotify, folder, flags) else {
            return Changes::Polled;
        };
        // The kernel gives the same number to a folder that is watched already.
        let entry = watches
            .entry(watch)
            .or_insert_with(|| Watch { users: 0, changed: watch::Sender::new(()) });
        entry.users += 1;
        let changed = entry.changed.subscribe();
        Changes::Notified { inner: Arc::clone(inner), watch, changed }
    }
}

impl Default for OutputWatcher {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Shared {
    fn watches(&self) -> MutexGuard<'_, HashMap<i32, Watch>> {
        // Each critical section leaves the map whole at every step, so poison says nothing.
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, watch: i32, overflow: bool) {
        let watches = self.watches();
        if overflow {
            watches.values().for_each(|watch| watch.changed.send_modify(|()| ()));
        } else if let Some(watch) = watches.get(&watch) {
            watch.changed.send_modify(|()| ());
        }
    }
}

impl Changes {
    /// Forgets the changes so far; what is read after this includes them.
    pub(super) fn forget(&mut self) {
        if let Changes::Notified { changed, .. } = self {
            changed.mark_unchanged();
        }
    }

    /// Waits for a change since [`forget`](Self::forget). May return without one.
    pub(super) async fn wait(&mut self) {
        match self {
            Changes::Notified { changed, .. } => {
                if changed.changed().await.is_err() {
                    // No more notice is given, so look from now on.
                    *self = Changes::Polled;
                }
            }
            Changes::Polled => tokio::time::sleep(POLL).await,
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        let Changes::Notified { inner, watch, .. } = self else {
            return;
        };
        let mut watches = inner.shared.watches();
        let Some(entry) = watches.get_mut(watch) else {
            return;
        };
        entry.users -= 1;
        if entry.users == 0 {
            watches.remove(watch);
            // Fails for a folder that is gone, whose watch went with it.
            let _ = inotify::remove_watch(&inner.shared.inotify, *watch);
        }
    }
}

async fn read_events(shared: Arc<Shared>) {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(shared.inotify.get_ref(), &mut buffer);
    while let Ok(mut ready) = shared.inotify.readable().await {
        loop {
            if events.is_buffer_empty() {
                // Commands that never stop writing must not keep the worker to this task.
                tokio::task::consume_budget().await;
            }
            match events.next() {
                Ok(event) => {
                    let overflow = event.events().contains(ReadFlags::QUEUE_OVERFLOW);
                    shared.notify(event.wd(), overflow);
                }
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => break,
                Err(_) => {
                    // Followers see their senders go, and poll.
                    shared.watches().clear();
                    return;
                }
            }
        }
        ready.clear_ready();
    }
    shared.watches().clear();
}
