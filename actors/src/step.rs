//! Durable steps.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ghostlight_protocol::journal::{Call, Told};
use ghostlight_protocol::{Retry, limits};
use ghostlight_storage::records::LogEntry;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::RunError;
use crate::code::{caught, resume};
use crate::error::{check_json, write_json};
use crate::probe::{At, BeforeCode, Seen};
use crate::shared::{CallResult, Shared};

/// The key of a step: a text, or a text and a number or another text; at most 256 bytes in all.
///
/// A key is part of the run's durable history. A `String` is refused on purpose, since most of them
/// are made from something that changes between two attempts; [`Key::dynamic`] is the way out.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no step key",
    label = "use a literal, (literal, number) or (literal, &str)",
    note = "a key computed at run time must be the same in every attempt; if it is, say so with `Key::dynamic(s)`"
)]
pub trait StepKey {
    /// The key's text.
    fn step_key(self) -> String;
}

impl StepKey for &'static str {
    fn step_key(self) -> String {
        self.to_owned()
    }
}

impl StepKey for (&'static str, u64) {
    fn step_key(self) -> String {
        format!("{}#{}", self.0, self.1)
    }
}

impl StepKey for (&'static str, &str) {
    fn step_key(self) -> String {
        format!("{}#{}", self.0, self.1)
    }
}

/// A step key that was computed at run time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// A key that the caller promises to be the same in every attempt.
    pub fn dynamic(key: impl Into<String>) -> Self {
        Self(key.into())
    }
}

impl StepKey for Key {
    fn step_key(self) -> String {
        self.0
    }
}

/// What a step may return: anything that serde can write as JSON and read back.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be recorded as the result of a step",
    note = "derive `serde::Serialize` and `serde::Deserialize` for it; results own their data"
)]
pub trait Recorded: Serialize + DeserializeOwned + Send + 'static {}

impl<T: Serialize + DeserializeOwned + Send + 'static> Recorded for T {}

type Body<'a, T> = Pin<Box<dyn Future<Output = Result<T, RunError>> + Send + 'a>>;
type MakeBody<'a, T> = Box<dyn FnMut() -> Option<Body<'a, T>> + Send + 'a>;

enum Stage<'a, T> {
    /// Not polled yet.
    New,
    /// Waits for its recorded result, or for its turn to be executed.
    Asked,
    Body(Body<'a, T>),
    /// A try has failed; the count is being recorded.
    Failed {
        number: u64,
        wait: std::time::Duration,
    },
    Backoff(Pin<Box<tokio::time::Sleep>>),
    /// The result was told, and a probe keeps the code from going on.
    Told(BeforeCode, CallResult),
    Done,
}

/// A durable step; see [`RunContext::step`](crate::RunContext::step).
#[must_use = "a step does nothing unless it is awaited"]
pub struct Step<'a, T> {
    shared: &'a Arc<Shared>,
    key: String,
    call: Call,
    make: MakeBody<'a, T>,
    policy: Option<Retry>,
    stage: Stage<'a, T>,
}

// Nothing in it is pinned in place: bodies are boxed.
impl<T> Unpin for Step<'_, T> {}

impl<'a, T: Recorded> Step<'a, T> {
    fn new(
        shared: &'a Arc<Shared>,
        key: String,
        policy: Option<Retry>,
        make: MakeBody<'a, T>,
    ) -> Self {
        let call = Call::Step(key.clone());
        Self { shared, key, call, make, policy, stage: Stage::New }
    }

    pub(crate) fn once<F, Fut>(shared: &'a Arc<Shared>, key: String, body: F) -> Self
    where
        F: FnOnce() -> Fut + Send + 'a,
        Fut: Future<Output = Result<T, RunError>> + Send + 'a,
    {
        let mut body = Some(body);
        let make = move || body.take().map(|body| Box::pin(body()) as Body<'a, T>);
        Self::new(shared, key, None, Box::new(make))
    }

    pub(crate) fn retried<F, Fut>(
        shared: &'a Arc<Shared>,
        key: String,
        policy: Retry,
        mut body: F,
    ) -> Self
    where
        F: FnMut() -> Fut + Send + 'a,
        Fut: Future<Output = Result<T, RunError>> + Send + 'a,
    {
        let make = move || Some(Box::pin(body()) as Body<'a, T>);
        Self::new(shared, key, Some(policy), Box::new(make))
    }

    pub(crate) fn blocking<F>(shared: &'a Arc<Shared>, key: String, body: F) -> Self
    where
        F: FnOnce() -> Result<T, RunError> + Send + 'static,
    {
        let (mut body, name) = (Some(body), key.clone());
        let make = move || {
            let body = body.take()?;
            shared.node.seen(Seen::Blocking { run: &shared.path, key: &name });
            let task = shared.blocking.spawn_blocking(|| caught(body));
            Some(Box::pin(async move {
                match task.await {
                    Ok(Ok(result)) => result,
                    Ok(Err(panic)) => resume(panic),
                    Err(error) => Err(RunError::from(error)),
                }
            }) as Body<'a, T>)
        };
        Self::new(shared, key, None, Box::new(make))
    }

    fn open(&self) -> Result<(), RunError> {
        limits::check("the step's key", self.key.len(), limits::NAME_BYTES_MAX)?;
        Ok(self.shared.open(&self.call)?)
    }

    fn execute(&mut self) -> Result<(), RunError> {
        {
            let mut inner = self.shared.lock();
            if let Some(outer) = &inner.current_step {
                let text = format!("step {:?} was awaited inside step {outer:?}", self.key);
                drop(inner);
                self.shared.close(&self.call);
                return Err(RunError::new(text).kind("nested-step").permanent());
            }
            inner.current_step = Some(self.key.clone());
            inner.step_dispatches.remove(&self.key);
        }
        let (run, key) = (&self.shared.path, self.key.as_str());
        self.shared.node.seen(Seen::StepBegan { run, key });
        let first = self.shared.before_code(At::Step(key));
        let body = (self.make)().map(|body| match first {
            None => body,
            Some(first) => Box::pin(async move {
                first.await;
                body.await
            }),
        });
        self.shared.lock().current_step = None;
        self.stage = match body {
            Some(body) => Stage::Body(body),
            // The journal says `Execute` once, and a retried body can be made again.
            None => Stage::Done,
        };
        Ok(())
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, RunError>> {
        let Stage::Body(body) = &mut self.stage else { return Poll::Pending };
        let _inside = Inside::enter(self.shared, &self.key);
        body.as_mut().poll(cx)
    }

    /// Records what the body returned, or prepares the next try.
    fn returned(&mut self, result: Result<T, RunError>) {
        let limit = self.shared.node.limits.step_bytes_max;
        let result = result.and_then(|value| {
            let bytes = write_json("the step's result", &value)?;
            check_json("the step's result", &bytes, limit)?;
            Ok(bytes)
        });
        let error = match result {
            Ok(bytes) => {
                self.stage = Stage::Asked;
                return self.shared.complete(&self.call, Ok(bytes));
            }
            Err(error) => error,
        };
        if let Some(policy) = self.policy.as_ref().filter(|_| !error.is_permanent()) {
            let mut inner = self.shared.lock();
            let tried = inner.journal.failed_once_more(&self.key);
            if inner.emitting.remove(&self.key) {
                inner.journal.tear(&self.key);
            }
            if let Some(wait) = policy.next(tried) {
                let entry = LogEntry::Tried { step: self.key.clone(), tries: tried };
                let number = self.shared.push(&mut inner, entry);
                drop(inner);
                self.stage = Stage::Failed { number, wait };
                return;
            }
        }
        self.stage = Stage::Asked;
        self.shared.complete(&self.call, Err(error.failure));
    }
}

impl<T: Recorded> Future for Step<'_, T> {
    type Output = Result<T, RunError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            match &mut this.stage {
                Stage::New => {
                    this.stage = Stage::Asked;
                    if let Err(error) = this.open() {
                        this.stage = Stage::Done;
                        return Poll::Ready(Err(error.kind("step-key").permanent()));
                    }
                }
                Stage::Asked => match this.shared.poll_call(&this.call, cx) {
                    Told::Pending => return Poll::Pending,
                    Told::Execute => {
                        if let Err(error) = this.execute() {
                            this.stage = Stage::Done;
                            return Poll::Ready(Err(error));
                        }
                    }
                    Told::Ready(result) => {
                        this.stage = Stage::Done;
                        let (run, key) = (&this.shared.path, this.key.as_str());
                        let told = result.as_deref();
                        this.shared.node.seen(Seen::StepTold { run, key, result: told });
                        if let Some(first) = this.shared.before_code(At::AfterStep(key)) {
                            this.stage = Stage::Told(first, result);
                            continue;
                        }
                        return Poll::Ready(read_result(&this.key, result));
                    }
                },
                Stage::Body(_) => match this.poll_body(cx) {
                    Poll::Ready(result) => this.returned(result),
                    Poll::Pending => return Poll::Pending,
                },
                Stage::Failed { number, wait } => {
                    let (number, wait) = (*number, *wait);
                    if this.shared.poll_durable(number, cx).is_pending() {
                        return Poll::Pending;
                    }
                    this.stage = Stage::Backoff(Box::pin(tokio::time::sleep(wait)));
                }
                Stage::Backoff(sleep) => {
                    if sleep.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    if let Err(error) = this.execute() {
                        this.stage = Stage::Done;
                        return Poll::Ready(Err(error));
                    }
                }
                Stage::Told(first, _) => {
                    std::task::ready!(first.as_mut().poll(cx));
                    this.shared.lock().reads_source = false;
                    if let Stage::Told(_, result) = std::mem::replace(&mut this.stage, Stage::Done)
                    {
                        return Poll::Ready(read_result(&this.key, result));
                    }
                }
                // Polled after it was ready: nothing will ever happen.
                Stage::Done => return Poll::Pending,
            }
        }
    }
}

impl<T> Drop for Step<'_, T> {
    fn drop(&mut self) {
        match self.stage {
            // Dropping a body may run user code, which may ask for the lock.
            Stage::New | Stage::Told(..) | Stage::Done => {}
            _ => {
                self.stage = Stage::Done;
                self.shared.close(&self.call);
            }
        }
    }
}

fn read_result<T: Recorded>(key: &str, result: CallResult) -> Result<T, RunError> {
    match result {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
            RunError::new(format!("the recorded result of step {key:?} does not fit: {error}"))
                .kind("recorded-result")
                .permanent()
        }),
        Err(failure) => Err(RunError { failure }),
    }
}

/// Marks the code that is being polled as the body of a step.
struct Inside<'a> {
    shared: &'a Shared,
    outer: Option<String>,
}

impl<'a> Inside<'a> {
    fn enter(shared: &'a Shared, key: &str) -> Self {
        let outer = shared.lock().current_step.replace(key.to_owned());
        Self { shared, outer }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.shared.lock().current_step = self.outer.take();
    }
}
