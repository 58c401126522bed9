//! What waits for the disk, in the order it was enqueued.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{
    AcquireError, Notify, OwnedSemaphorePermit, Semaphore, TryAcquireError, oneshot,
};

use super::CommitterStats;
use crate::Error;
use crate::store::{Batch, Entry, Limit, Versioned};

/// What a queued request costs besides its keys and values, so that the limit in bytes also bounds
/// the number of requests.
pub(super) const REQUEST_BYTES: usize = 512;

pub(super) type Answer<T> = oneshot::Sender<Result<T, Error>>;

/// The room in the queue that a request holds until it is answered.
pub(super) type Room = OwnedSemaphorePermit;

#[derive(Debug)]
pub(super) struct Commit {
    pub(super) batch: Batch,
    pub(super) bytes: usize,
    pub(super) answer: Answer<()>,
    pub(super) room: Room,
}

#[derive(Debug)]
pub(super) struct Read {
    pub(super) what: What,
    pub(super) room: Room,
}

#[derive(Debug)]
pub(super) enum What {
    Get { key: Vec<u8>, answer: Answer<Option<Versioned>> },
    Scan { prefix: Vec<u8>, after: Option<Vec<u8>>, limit: Limit, answer: Answer<Vec<Entry>> },
}

#[derive(Debug)]
pub(super) enum Request {
    Commit(Commit),
    Read(Read),
}

/// What the loop does between two looks at the queue.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Reads with no commit before them.
    pub(super) reads_before: Vec<Read>,
    /// What goes to the engine in one call.
    pub(super) group: Vec<Commit>,
    /// Reads enqueued after the first commit of the group.
    pub(super) reads_after: Vec<Read>,
}

#[derive(Debug)]
enum Phase {
    Open,
    /// Takes nothing new; what is queued is still done.
    Draining,
    /// Nothing is done any more, for this reason.
    Ended(Error),
}

#[derive(Debug)]
struct State {
    phase: Phase,
    requests: VecDeque<Request>,
    stats: CommitterStats,
}

/// The queue between the committers and the loop.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    room: Arc<Semaphore>,
    limit: usize,
    work: Notify,
    ended: Notify,
    told: Notify,
}

impl Queue {
    pub(super) fn new(limit: usize) -> Self {
        let limit = limit.min(Semaphore::MAX_PERMITS).min(u32::MAX as usize);
        Self {
            state: Mutex::new(State {
                phase: Phase::Open,
                requests: VecDeque::new(),
                stats: CommitterStats::default(),
            }),
            room: Arc::new(Semaphore::new(limit)),
            limit,
            work: Notify::new(),
            ended: Notify::new(),
            told: Notify::new(),
        }
    }

    /// Waits for room, first come, first served.
    pub(super) async fn room(&self, bytes: usize) -> Result<Room, Error> {
        let permits = self.permits(bytes)?;
        let acquired = Arc::clone(&self.room).acquire_many_owned(permits).await;
        acquired.map_err(|_: AcquireError| self.why_closed())
    }

    /// Takes room if there is some at once.
    pub(super) fn try_room(&self, bytes: usize) -> Result<Room, Error> {
        let permits = self.permits(bytes)?;
        Arc::clone(&self.room).try_acquire_many_owned(permits).map_err(|refused| match refused {
            TryAcquireError::Closed => self.why_closed(),
            TryAcquireError::NoPermits => Error::QueueFull { limit: self.limit },
        })
    }

    /// A request that could never be admitted is refused instead of waiting for ever.
    fn permits(&self, bytes: usize) -> Result<u32, Error> {
        let cost = bytes.saturating_add(REQUEST_BYTES);
        u32::try_from(cost).ok().filter(|_| cost <= self.limit).ok_or(Error::TooLarge {
            what: "the size of the request in bytes",
            actual: cost,
            limit: self.limit,
        })
    }

    pub(super) fn push(&self, request: Request) -> Result<(), Error> {
        let mut state = self.state();
        match &state.phase {
            Phase::Open => {}
            Phase::Draining => return Err(Error::Closed),
            Phase::Ended(why) => return Err(why.clone()),
        }
        state.requests.push_back(request);
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    /// Waits for something to do; `None` once nothing will ever be done again.
    pub(super) async fn next(&self, unsynced_max: Limit) -> Option<Turn> {
        loop {
            {
                let mut state = self.state();
                match state.phase {
                    Phase::Ended(_) => return None,
                    _ if !state.requests.is_empty() => {
                        return Some(take_turn(&mut state.requests, unsynced_max));
                    }
                    Phase::Draining => return None,
                    Phase::Open => {}
                }
            }
            self.work.notified().await;
        }
    }

    /// Refuses new requests; those queued are still done.
    pub(super) fn close(&self) {
        let mut state = self.state();
        if matches!(state.phase, Phase::Open) {
            state.phase = Phase::Draining;
        }
        drop(state);
        self.room.close();
        self.work.notify_one();
    }

    /// Ends everything at once: all that wait and all that come later are answered `why`. The
    /// first reason stands.
    pub(super) fn end(&self, why: Error) {
        let mut state = self.state();
        if !matches!(state.phase, Phase::Ended(_)) {
            state.phase = Phase::Ended(why);
        }
        // Dropped outside the lock: a dropped answer wakes whoever waits for it.
        let requests = std::mem::take(&mut state.requests);
        drop(state);
        drop(requests);
        self.room.close();
        self.work.notify_one();
        self.ended.notify_one();
        self.told.notify_waiters();
    }

    /// Resolves when [`Queue::end`] has been called. Only the loop waits here.
    pub(super) async fn ended(&self) {
        while !self.has_ended() {
            self.ended.notified().await;
        }
    }

    /// Resolves to the reason when [`Queue::end`] has been called; for anybody.
    pub(super) async fn why_ended(&self) -> Error {
        loop {
            let told = self.told.notified();
            if let Phase::Ended(why) = &self.state().phase {
                return why.clone();
            }
            told.await;
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state().phase, Phase::Ended(_))
    }

    /// The answer to a request that will never be done.
    pub(super) fn why_closed(&self) -> Error {
        match &self.state().phase {
            Phase::Ended(why) => why.clone(),
            Phase::Open | Phase::Draining => Error::Closed,
        }
    }

    pub(super) fn stats(&self) -> CommitterStats {
        self.state().stats
    }

    pub(super) fn update_stats(&self, update: impl FnOnce(&mut CommitterStats)) {
        update(&mut self.state().stats);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the next group, and every read that lies before its end.
///
/// A read may be answered later than its place in the queue says, never earlier: so reads that
/// stand between commits do not tear a group apart, and still see every commit before them.
fn take_turn(requests: &mut VecDeque<Request>, unsynced_max: Limit) -> Turn {
    let mut turn = Turn::default();
    let mut room = unsynced_max.start();
    while let Some(request) = requests.pop_front() {
        match request {
            Request::Read(read) if turn.group.is_empty() => turn.reads_before.push(read),
            Request::Read(read) => turn.reads_after.push(read),
            Request::Commit(commit) if room.take(commit.bytes) => turn.group.push(commit),
            Request::Commit(_) => {
                requests.push_front(request);
                break;
            }
        }
    }
    turn
}
