//! Runs a run's code in a task of its own, and watches it stand still, panic and end.

mod panics;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};

use ghostlight_protocol::journal::Outside;
use tokio::time::Sleep;

pub(crate) use self::panics::{caught, guarded, resume, tell_panics};

use crate::RunError;
use crate::messages::CodeEnd;
use crate::place::{CodePlace, Permit, as_run};
use crate::registry::{BoxFuture, Returned};
use crate::shared::Shared;

/// The future of a run's code: reports every standstill to the journal, and a panic as an end.
pub(crate) struct Code {
    body: BoxFuture<Result<Returned, RunError>>,
    shared: Arc<Shared>,
    watch: Watch,
    place: CodePlace,
}

impl Code {
    pub(crate) fn new(
        body: BoxFuture<Result<Returned, RunError>>,
        shared: Arc<Shared>,
        permit: Permit,
    ) -> Self {
        Self { body, shared, watch: Watch::new(), place: CodePlace::new(permit) }
    }
}

impl Future for Code {
    type Output = CodeEnd;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CodeEnd> {
        let Self { body, shared, watch, place } = &mut *self;
        ready!(place.poll(shared, cx));
        let polled = watch.poll(shared, cx, |cx| {
            match as_run(shared, || caught(|| body.as_mut().poll(cx))) {
                Ok(polled) => polled.map(CodeEnd::Returned),
                Err(panic) => Poll::Ready(CodeEnd::Panicked(panic)),
            }
        });
        if polled.is_pending() && !watch.is_woken() {
            place.stands_still(shared);
        }
        polled
    }
}

/// Notices where code stands still, and tells the journal.
pub(crate) struct Watch {
    waker: Arc<CodeWaker>,
    /// How often in a row the code was woken while it was being polled.
    restless: u32,
    doubt: Option<Doubt>,
}

/// Code that is woken so often in a row has a body that never rests; results of its other steps
/// must not wait for that.
const RESTLESS_MAX: u32 = 256;

/// Code that waits for what the log does not have next.
struct Doubt {
    /// What the code had done when it began: it is over once the code has done more.
    activity: u64,
    overdue: Pin<Box<Sleep>>,
}

/// Tells whether the code was woken while it was being polled.
struct CodeWaker {
    woken: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Wake for CodeWaker {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl CodeWaker {
    fn set_task(&self, task: Option<Waker>) {
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = task;
    }
}

impl Watch {
    pub(crate) fn new() -> Self {
        let waker = Arc::new(CodeWaker { woken: AtomicBool::new(false), task: Mutex::new(None) });
        Self { waker, restless: 0, doubt: None }
    }

    /// Whether the code was woken since its last poll began.
    pub(crate) fn is_woken(&self) -> bool {
        self.waker.woken.load(Ordering::Acquire)
    }

    /// Polls the code.
    pub(crate) fn poll<T>(
        &mut self,
        shared: &Shared,
        cx: &mut Context<'_>,
        code: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let waker = Waker::from(Arc::clone(&self.waker));
        // Whoever is woken until the task is known again is polled now.
        self.waker.set_task(None);
        shared.polled(&waker);
        self.waker.set_task(Some(cx.waker().clone()));
        // Sees what whoever has woken the code did before.
        self.waker.woken.swap(false, Ordering::AcqRel);
        let polled = code(&mut Context::from_waker(&waker));
        if polled.is_pending() {
            // Woken meanwhile: it has more to do, and does not stand still.
            self.restless += 1;
            if !self.is_woken() || self.restless > RESTLESS_MAX {
                self.restless = 0;
                self.standstill(shared, cx);
            }
        }
        polled
    }

    /// Whether anything but what `kept` counts may wake the code, or has just done so.
    fn outside(&self, kept: impl FnOnce() -> usize) -> Outside {
        // Held by us, by the waker of this poll, by `shared`, and by whatever else may wake the code.
        let held = Arc::strong_count(&self.waker) - 3;
        // The count is read relaxed: what was done before a clone was dropped is seen from here on.
        fence(Ordering::Acquire);
        // Another thread may have woken the code since it was polled, and dropped its clone by that.
        if self.is_woken() || held > kept() { Outside::MayWake } else { Outside::Nothing }
    }

    fn standstill(&mut self, shared: &Shared, cx: &mut Context<'_>) {
        let mut outside = self.outside(|| shared.kept());
        while let Some(activity) = shared.standstill(outside) {
            let doubt = match self.doubt.take().filter(|doubt| doubt.activity == activity) {
                Some(doubt) => self.doubt.insert(doubt),
                None => {
                    let overdue = Box::pin(tokio::time::sleep(shared.node.limits.mismatch_after));
                    self.doubt.insert(Doubt { activity, overdue })
                }
            };
            // Registered with the task, which polls the code once more before it is judged.
            if doubt.overdue.as_mut().poll(cx).is_pending() {
                return;
            }
            outside = Outside::Overdue;
        }
        self.doubt = None;
    }
}

#[cfg(test)]
mod tests;
