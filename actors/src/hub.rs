//! Pub/sub: who is told of a run's frames and of its end, in this process.
//!
//! Only durable things are published. Nobody waits for a subscriber: one that falls behind is told
//! so, and reads the log.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ghostlight_protocol::RunKey;
use ghostlight_protocol::frame::{Frame, FrameEvent};
use tokio::sync::{broadcast, oneshot};

use crate::Error;
use crate::info::RawOutcome;
use crate::node::Node;

#[cfg(test)]
mod tests;

/// What subscribers to a run's frames receive.
#[derive(Debug, Clone)]
pub(crate) enum Published {
    Frame(Arc<Frame>),
    /// The frame of this number, which is too large to wait in memory for slow readers: it is in the
    /// log.
    Stored(u64),
    Cleared,
}

/// The largest chunk that waits in memory: with so many frames as may be unread, 4 MiB of a run.
const UNREAD_CHUNK_BYTES_MAX: usize = 4 << 10;

fn is_large(frame: &Frame) -> bool {
    matches!(&frame.event, FrameEvent::Chunk { body, .. } if body.len() > UNREAD_CHUNK_BYTES_MAX)
}

#[derive(Default)]
struct Channel {
    frames: Option<broadcast::Sender<Published>>,
    waiters: Vec<oneshot::Sender<Result<RawOutcome, Error>>>,
}

/// Whoever subscribes holds one for longer than the receiver, so that nothing stays behind of a run
/// of which nothing is ever published again.
pub(crate) struct Leave {
    node: Arc<Node>,
    run: RunKey,
}

impl Leave {
    pub(crate) fn new(node: &Arc<Node>, run: RunKey) -> Self {
        Self { node: Arc::clone(node), run }
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        self.node.hub.left(self.run);
    }
}

#[derive(Default)]
struct Channels {
    /// In an order of its own, since those who wait are let go in it.
    by_run: BTreeMap<RunKey, Channel>,
    /// Whoever comes now is let go at once: nothing is published any more.
    closed: bool,
}

/// The subscribers of all runs, by run.
pub(crate) struct Hub {
    channels: Mutex<Channels>,
    unread_max: usize,
}

impl Hub {
    pub(crate) fn new(unread_max: usize) -> Self {
        Self { channels: Mutex::default(), unread_max: unread_max.max(1) }
    }

    fn lock(&self) -> MutexGuard<'_, Channels> {
        // Nothing panics while the lock is held; the map is whole even if something did.
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes to the frames published from now on. The receiver fails when the system stops,
    /// and if it has.
    pub(crate) fn subscribe(&self, run: RunKey) -> broadcast::Receiver<Published> {
        let mut channels = self.lock();
        if channels.closed {
            return broadcast::channel(1).1;
        }
        let channel = channels.by_run.entry(run).or_default();
        match &channel.frames {
            Some(frames) => frames.subscribe(),
            None => {
                let (frames, receiver) = broadcast::channel(self.unread_max);
                channel.frames = Some(frames);
                receiver
            }
        }
    }

    /// Waits for the run's end. The receiver fails when the system stops, and if it has.
    pub(crate) fn outcome(&self, run: RunKey) -> oneshot::Receiver<Result<RawOutcome, Error>> {
        let (sender, receiver) = oneshot::channel();
        let mut channels = self.lock();
        if channels.closed {
            return receiver;
        }
        let waiters = &mut channels.by_run.entry(run).or_default().waiters;
        // Waiters that gave up would otherwise gather on a run that never ends.
        if waiters.len() >= 8 && waiters.len().is_power_of_two() {
            waiters.retain(|waiter| !waiter.is_closed());
        }
        waiters.push(sender);
        receiver
    }

    /// Whether anybody reads the run's frames; if not, nobody has to make them.
    pub(crate) fn is_tailed(&self, run: RunKey) -> bool {
        let mut channels = self.lock();
        let Some(channel) = channels.by_run.get_mut(&run) else { return false };
        if channel.frames.as_ref().is_some_and(|frames| frames.receiver_count() == 0) {
            channel.frames = None;
        }
        let tailed = channel.frames.is_some();
        if !tailed && channel.waiters.is_empty() {
            channels.by_run.remove(&run);
        }
        tailed
    }

    /// Forgets the run's subscribers that have gone away.
    fn left(&self, run: RunKey) {
        if let Some(channel) = self.lock().by_run.get_mut(&run) {
            channel.waiters.retain(|waiter| !waiter.is_closed());
        }
        self.is_tailed(run);
    }

    pub(crate) fn publish(&self, run: RunKey, published: Published) {
        let published = match published {
            Published::Frame(frame) if is_large(&frame) => Published::Stored(frame.sequence),
            published => published,
        };
        let channels = self.lock();
        let channel = channels.by_run.get(&run);
        if let Some(frames) = channel.and_then(|channel| channel.frames.as_ref()) {
            // An error means that the last reader has just left.
            let _ = frames.send(published);
        }
    }

    /// Tells everybody who waits for the run how it ended.
    pub(crate) fn ended(&self, run: RunKey, outcome: &RawOutcome) {
        self.tell(run, &Ok(outcome.clone()));
    }

    /// Tells everybody who waits for the run why its end will not come.
    pub(crate) fn failed(&self, run: RunKey, error: &Error) {
        self.tell(run, &Err(error.clone()));
    }

    fn tell(&self, run: RunKey, end: &Result<RawOutcome, Error>) {
        let waiters = match self.lock().by_run.get_mut(&run) {
            Some(channel) => std::mem::take(&mut channel.waiters),
            None => return,
        };
        for waiter in waiters {
            let _ = waiter.send(end.clone());
        }
        self.is_tailed(run);
    }

    /// Lets everybody go, and whoever comes later: the system stops, or its store has failed.
    pub(crate) fn close(&self) {
        let mut channels = self.lock();
        channels.closed = true;
        channels.by_run.clear();
    }
}
