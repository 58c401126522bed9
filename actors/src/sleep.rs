//! Durable sleeps.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ghostlight_protocol::journal::{Call, Told};

use ghostlight_storage::records::LogEntry;

use crate::clock::millis;
use crate::context::nothing;
use crate::shared::Shared;

enum Stage {
    /// Not polled yet. Without a number it is a sleep inside a step.
    New(Option<u64>),
    /// Inside a step: part of its body, and executed again with it.
    Plain(Pin<Box<tokio::time::Sleep>>),
    Asked(u64),
    Sleeping(u64, Pin<Box<tokio::time::Sleep>>),
    Done,
}

/// A durable sleep; see [`RunContext::sleep`](crate::RunContext::sleep).
#[must_use = "a sleep does nothing unless it is awaited"]
pub struct Sleep<'a> {
    shared: &'a Arc<Shared>,
    duration: Duration,
    stage: Stage,
}

impl<'a> Sleep<'a> {
    pub(crate) fn new(shared: &'a Arc<Shared>, duration: Duration) -> Self {
        // The number is taken here, in the order of the code, and not at the first poll: `select!`
        // polls in an order of chance.
        let number = {
            let mut inner = shared.lock();
            inner.current_step.is_none().then(|| inner.journal.next_sleep())
        };
        Self { shared, duration, stage: Stage::New(number) }
    }

    fn begin(&self, ordinal: u64) -> Stage {
        let (_, left) = set(self.shared, ordinal, self.duration);
        Stage::Sleeping(ordinal, Box::pin(tokio::time::sleep(left)))
    }
}

/// Records when a sleep is due, unless the log says so. Returns that time, and how much is left.
fn set(shared: &Shared, ordinal: u64, duration: Duration) -> (u64, Duration) {
    let now = shared.node.clock.now_ms();
    let mut inner = shared.lock();
    let due = inner.journal.sleep_due(ordinal).unwrap_or_else(|| {
        let due_ms = now.saturating_add(millis(duration));
        shared.push(&mut inner, LogEntry::SleepSet { ordinal, due_ms });
        due_ms
    });
    inner.sleeps.insert(ordinal, due);
    (due, Duration::from_millis(due.saturating_sub(now)))
}

/// The time limit of a wait inside a run, recorded like a sleep: it begins once, and wakes a run
/// that waits outside memory.
pub(crate) struct TimeLimit {
    shared: Arc<Shared>,
    ordinal: u64,
    pub(crate) due_ms: u64,
    pub(crate) left: Duration,
}

impl TimeLimit {
    /// Begins the limit, or goes on with it.
    pub(crate) fn begin(shared: &Arc<Shared>, ordinal: u64, within: Duration) -> Self {
        let (due_ms, left) = set(shared, ordinal, within);
        Self { shared: Arc::clone(shared), ordinal, due_ms, left }
    }
}

impl Drop for TimeLimit {
    fn drop(&mut self) {
        self.shared.limit_over(self.ordinal);
    }
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match &mut self.stage {
                Stage::New(None) => {
                    self.stage = Stage::Plain(Box::pin(tokio::time::sleep(self.duration)));
                }
                Stage::Plain(sleep) => {
                    std::task::ready!(sleep.as_mut().poll(cx));
                    self.stage = Stage::Done;
                    return Poll::Ready(());
                }
                Stage::New(Some(ordinal)) => {
                    let ordinal = *ordinal;
                    // A number is given out once, so that the call is always new.
                    let _ = self.shared.open(&Call::Sleep(ordinal));
                    self.stage = Stage::Asked(ordinal);
                }
                Stage::Asked(ordinal) => {
                    let ordinal = *ordinal;
                    match self.shared.poll_call(&Call::Sleep(ordinal), cx) {
                        Told::Pending => return Poll::Pending,
                        Told::Execute => self.stage = self.begin(ordinal),
                        Told::Ready(_) => {
                            self.stage = Stage::Done;
                            return Poll::Ready(());
                        }
                    }
                }
                Stage::Sleeping(ordinal, sleep) => {
                    if sleep.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    let ordinal = *ordinal;
                    self.shared.complete(&Call::Sleep(ordinal), Ok(nothing()));
                    self.stage = Stage::Asked(ordinal);
                }
                Stage::Done => return Poll::Pending,
            }
        }
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Stage::Asked(ordinal) | Stage::Sleeping(ordinal, _) = self.stage {
            self.shared.close(&Call::Sleep(ordinal));
        }
    }
}
