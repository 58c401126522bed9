//! Waits inside a run: their results are part of the run's history.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use ghostlight_protocol::journal::{self, Call, Told};
use ghostlight_protocol::{Failure, InterruptReason, NotCompleted, Outcome, Status};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::awaited::Awaited;
use super::recorded_error::RecordedError;
use crate::Error;
use crate::context::nothing;
use crate::info::{Milestone, RawOutcome};
use crate::log::of_run;
use crate::place::unless_stopped;
use crate::shared::Shared;

/// The position of a wait among those of a run: taken when the code asks for the wait, and not when it
/// first polls, since `select!` polls in an order of chance.
pub(crate) struct Position {
    shared: Arc<Shared>,
    /// None inside a step, whose result is recorded instead.
    number: Option<u64>,
}

impl Position {
    pub(crate) fn take(shared: &Arc<Shared>) -> Self {
        let mut inner = shared.lock();
        let number = inner.current_step.is_none().then(|| inner.journal.next_wait());
        drop(inner);
        Self { shared: Arc::clone(shared), number }
    }

    /// The run whose code waits.
    pub(super) fn run(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Whose wait it is, for [`Waiting`](crate::waits::Waiting); `None` inside a step, during which
    /// a run stays in memory.
    pub(crate) fn waiter(&self) -> Option<Arc<Shared>> {
        self.number.map(|_| Arc::clone(&self.shared))
    }

    /// The position of the wait's time limit among those of the run.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.number.map(journal::limit_of)
    }

    /// Returns the recorded result, if it is that of the same wait; or waits for `wait`, and records
    /// its result. An error is a result, too: the code may handle it and go on. A stop of the whole
    /// system, or a failure of its store, is none that the code should see: it waits until it is
    /// dropped, and is entered again by the next system.
    pub(super) async fn recorded<T, F>(self, of: Awaited, wait: F) -> Result<T, Error>
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = Result<T, Error>>,
    {
        match self.number {
            Some(number) => Wait::new(self.shared, number, of).recorded(wait).await,
            None => unless_stopped(&self.shared.node, wait.await).await,
        }
    }
}

impl Position {
    /// As [`Position::recorded`], for how another run ended.
    pub(super) async fn recorded_outcome<F>(self, of: Awaited, wait: F) -> Result<RawOutcome, Error>
    where
        F: Future<Output = Result<RawOutcome, Error>>,
    {
        let wait = async { wait.await.map(RecordedOutcome::from) };
        self.recorded(of, wait).await.map(RawOutcome::from)
    }
}

/// A wait of a run for another one.
struct Wait {
    shared: Arc<Shared>,
    call: Call,
    of: Awaited,
}

/// What a run's log has of a wait.
#[derive(Serialize, Deserialize)]
struct Recorded<T> {
    of: Awaited,
    result: Result<T, RecordedError>,
}

impl Wait {
    fn new(shared: Arc<Shared>, number: u64, of: Awaited) -> Self {
        let call = Call::Wait(number);
        shared.lock().waits += 1;
        // A number is given out once, so that the call is always new.
        let _ = shared.open(&call);
        Self { shared, call, of }
    }

    async fn recorded<T, F>(self, wait: F) -> Result<T, Error>
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = Result<T, Error>>,
    {
        let mut wait = pin!(wait);
        let mut executing = false;
        let mut held = false;
        poll_fn(|cx| {
            loop {
                if held {
                    return Poll::Pending;
                }
                if executing {
                    let Poll::Ready(result) = wait.as_mut().poll(cx) else {
                        return Poll::Pending;
                    };
                    executing = false;
                    let Some(result) = self.to_record(result) else {
                        held = true;
                        continue;
                    };
                    let recorded = Recorded { of: self.of.clone(), result };
                    let bytes = serde_json::to_vec(&recorded).map_err(|e| self.json(&e))?;
                    self.shared.complete(&self.call, Ok(bytes));
                }
                match self.shared.poll_call(&self.call, cx) {
                    Told::Pending => return Poll::Pending,
                    Told::Execute => executing = true,
                    Told::Ready(result) => match self.read(&result.unwrap_or_default()) {
                        Ok(result) => return Poll::Ready(result.map_err(Error::from)),
                        Err(log) => {
                            self.shared.differs(log, self.of.to_string());
                            return Poll::Pending;
                        }
                    },
                }
            }
        })
        .await
    }

    /// The recorded result; or what the log has, if that is no result of this wait.
    fn read<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<Result<T, RecordedError>, String> {
        let unreadable =
            |error: serde_json::Error| format!("{} that cannot be read: {error}", self.call);
        match serde_json::from_slice(bytes) {
            Ok(Recorded { of, result }) if of == self.of => Ok(result),
            Ok(Recorded { of, .. }) => Err(of.to_string()),
            // What is recorded of another kind of wait has another shape.
            Err(error) => Err(match serde_json::from_slice(bytes) {
                Ok(OnlyOf { of }) if of != self.of => of.to_string(),
                Ok(_) | Err(_) => unreadable(error),
            }),
        }
    }

    /// The result as the log gets it; `None` if the code must not see it.
    fn to_record<T>(&self, result: Result<T, Error>) -> Option<Result<T, RecordedError>> {
        let error = match result {
            Ok(value) => return Some(Ok(value)),
            Err(error) => error,
        };
        let recorded = RecordedError::new(&error);
        if recorded.is_none() && !matches!(error, Error::Stopped) {
            of_run!(warn, self.shared, call = %self.call, %error, "the run waits for the next start");
        }
        recorded.map(Err)
    }

    fn json(&self, error: &serde_json::Error) -> Error {
        Error::Json {
            run_id: self.shared.run_id.to_string(),
            what: "a recorded wait",
            why: error.to_string(),
        }
    }
}

/// [`Recorded`], without what depends on the kind of wait.
#[derive(Deserialize)]
struct OnlyOf {
    of: Awaited,
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.shared.lock().waits -= 1;
        self.shared.close(&self.call);
    }
}

/// An outcome as a run's log has it.
#[derive(Serialize, Deserialize)]
pub(super) struct RecordedOutcome {
    status: Status,
    /// As it is: a [`Value`](serde_json::Value) does not hold every number. None stands for `null`.
    #[serde(default)]
    output: Option<Box<RawValue>>,
    #[serde(default)]
    error: String,
    kind: Option<String>,
    #[serde(default)]
    permanent: bool,
    reason: Option<InterruptReason>,
    child_still_running: Option<bool>,
}

impl From<RawOutcome> for RecordedOutcome {
    fn from(outcome: RawOutcome) -> Self {
        let mut recorded = Self {
            status: outcome.status(),
            output: None,
            error: String::new(),
            kind: None,
            permanent: false,
            reason: None,
            child_still_running: None,
        };
        match outcome {
            Outcome::Completed(output) => recorded.output = serde_json::from_slice(&output).ok(),
            Outcome::NotCompleted(NotCompleted::Error(failure)) => {
                recorded.error = failure.message;
                recorded.kind = failure.kind;
                recorded.permanent = failure.permanent;
            }
            Outcome::NotCompleted(NotCompleted::Aborted { reason }) => recorded.error = reason,
            Outcome::NotCompleted(NotCompleted::Interrupted {
                error,
                reason,
                child_still_running,
            }) => {
                recorded.error = error;
                recorded.reason = reason;
                recorded.child_still_running = child_still_running;
            }
        }
        recorded
    }
}

impl From<RecordedOutcome> for RawOutcome {
    fn from(recorded: RecordedOutcome) -> Self {
        let RecordedOutcome { status, output, error, kind, permanent, reason, .. } = recorded;
        Outcome::NotCompleted(match status {
            Status::Completed => {
                let output = output.map_or_else(nothing, |output| output.get().as_bytes().to_vec());
                return Outcome::Completed(output);
            }
            Status::Aborted => NotCompleted::Aborted { reason: error },
            Status::Interrupted => NotCompleted::Interrupted {
                error,
                reason,
                child_still_running: recorded.child_still_running,
            },
            Status::Error | Status::Starting | Status::Running => {
                NotCompleted::Error(Failure { message: error, kind, permanent })
            }
        })
    }
}

/// How a wait for a milestone ended, as a run's log has it.
#[derive(Serialize, Deserialize)]
pub(super) enum RecordedMilestone {
    Reached(Milestone),
    /// The run ended without it.
    Ended(Status),
    Timeout,
}
