//! What a run's code sees of the system.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ghostlight_protocol::frame::progress_body;
use ghostlight_protocol::journal::{Act, Acted};
use ghostlight_protocol::{AgentPath, Retry, limits};
use ghostlight_storage::payload::Payload;
use ghostlight_storage::records::{LogEntry, Origin};
use serde::Serialize;
use serde_json::Value;

use crate::error::{check_json, write_json};
use crate::handle::AgentHandle;
use crate::log::of_run;
use crate::shared::{Inner, Shared};
use crate::sleep::Sleep;
use crate::state::State;
use crate::step::{Recorded, Step, StepKey};
use crate::{Agent, Progress, RunError};

/// The context of a run: durable steps, events, sleeps, state, and children of its own.
///
/// What a method of it has returned `Ok` for, survives every crash that comes later, as each method
/// says. After a crash the code is entered again from the top, and everything recorded is told to
/// it again, in the same order.
///
/// What the code does between the calls must follow from what it was told, and from nothing else:
///
/// - `tokio::select!` needs `biased;` wherever a branch is a future of the code's own. It polls its
///   branches in an order of chance, which nothing records: if two of them are ready, another one
///   may win after a crash. Futures of this context alone need no `biased;`, since their results
///   come one at a time.
/// - A step, sleep or wait that was made outside of a step's body must not be polled inside of it:
///   the body is not executed again, and what the future would have recorded is not asked for. Such
///   a step fails with the kind `nested-step`.
/// - What waits for room or for the disk is not in the order of the log: whether
///   [`emit`](RunContext::emit) or [`flush`](RunContext::flush) returns before or after the result
///   of a step that runs at the same time differs from entry to entry. Do not let them race with it.
pub struct RunContext {
    pub(crate) shared: Arc<Shared>,
}

impl RunContext {
    /// Executes `body` once, and records its result: after a crash the result is returned without
    /// executing the body again. The result is durable when the step returns.
    ///
    /// A key stands for one step in the whole run. Steps may run concurrently; their results reach
    /// the code one at a time, in the order of the log, after a crash as before it. A step that was
    /// executing during a crash is executed again: pass [`RunContext::key`] to outside systems.
    ///
    /// # Errors
    /// The body's error, which is recorded like a result once the code has seen it, its text cut to
    /// 4 KiB; a key that was used before, or is over 256 bytes; a result over 1 MiB or nested
    /// over 100 levels deep.
    ///
    /// # Cancel safety
    /// Dropping the future drops the body where it stands; the key is spent all the same.
    pub fn step<'a, T, F, Fut>(&'a self, key: impl StepKey, body: F) -> Step<'a, T>
    where
        T: Recorded,
        F: FnOnce() -> Fut + Send + 'a,
        Fut: Future<Output = Result<T, RunError>> + Send + 'a,
    {
        Step::once(&self.shared, key.step_key(), body)
    }

    /// Like [`RunContext::step`], but tries the body again when it fails. How often it has failed is
    /// durable, so that a crash does not start the count anew; an error that is
    /// [permanent](RunError::permanent) ends it at once.
    ///
    /// A run that the body dispatches without an id of its own has the same id in every try, so that a
    /// try joins what an earlier one has begun, and is told how that ended: also that it failed. To
    /// have it executed again, retry outside steps, where each dispatch has another id.
    ///
    /// # Errors
    /// The last try's error, and those of [`RunContext::step`].
    ///
    /// # Cancel safety
    /// As [`RunContext::step`].
    pub fn step_retry<'a, T, F, Fut>(
        &'a self,
        key: impl StepKey,
        policy: Retry,
        body: F,
    ) -> Step<'a, T>
    where
        T: Recorded,
        F: FnMut() -> Fut + Send + 'a,
        Fut: Future<Output = Result<T, RunError>> + Send + 'a,
    {
        Step::retried(&self.shared, key.step_key(), policy, body)
    }

    /// Like [`RunContext::step`], for code that blocks: it runs on a thread for that purpose.
    ///
    /// # Errors
    /// As [`RunContext::step`].
    ///
    /// # Cancel safety
    /// Blocking code cannot be dropped: the run keeps its id and its slot until it has returned,
    /// even if the run was cancelled meanwhile.
    pub fn step_blocking<'a, T, F>(&'a self, key: impl StepKey, body: F) -> Step<'a, T>
    where
        T: Recorded,
        F: FnOnce() -> Result<T, RunError> + Send + 'static,
    {
        Step::blocking(&self.shared, key.step_key(), body)
    }

    /// Emits a chunk of output: any JSON value. Returns once it is queued; observers see it once it
    /// is durable. A fast run waits here for a slow disk, in no order with the results of steps that
    /// run at the same time.
    ///
    /// Outside steps the nth event of an entry is the nth event of the run: what the log has is not
    /// appended again.
    ///
    /// # Errors
    /// A chunk that is no JSON, over 256 KiB or nested over 100 levels deep.
    ///
    /// # Cancel safety
    /// Dropped while it waits for room, nothing was emitted.
    pub async fn emit(&self, chunk: impl Serialize) -> Result<(), RunError> {
        let body = self.json("chunk", &chunk, self.shared.node.limits.chunk_bytes_max)?;
        self.emit_json(body, None).await
    }

    /// Emits a chunk that was read from an outside stream, `source`, up to offset `end`. It is
    /// recorded together with the offset: after a crash, read on from
    /// [`RunContext::source_offset`], and nothing is lost or doubled.
    ///
    /// # Errors
    /// As [`RunContext::emit`], and for a `source` over 256 bytes.
    ///
    /// # Cancel safety
    /// As [`RunContext::emit`].
    pub async fn emit_from(
        &self,
        source: &str,
        end: u64,
        chunk: impl Serialize,
    ) -> Result<(), RunError> {
        limits::check("the source's name", source.len(), limits::NAME_BYTES_MAX)
            .map_err(|error| RunError::from(error).kind("too-large").permanent())?;
        let body = self.json("chunk", &chunk, self.shared.node.limits.chunk_bytes_max)?;
        self.shared.lock().reads_source = true;
        self.emit_json(body, Some(Origin::Source { name: source.to_owned(), end })).await
    }

    /// Where the last chunk from `source` ends, of those that the log had when the code was entered and
    /// that were emitted since; 0 before the first. [`RunContext::flush`] waits until that is durable.
    pub fn source_offset(&self, source: &str) -> u64 {
        let mut inner = self.shared.lock();
        inner.reads_source = true;
        inner.sources.get(source).copied().unwrap_or(0)
    }

    async fn emit_json(&self, body: Vec<u8>, origin: Option<Origin>) -> Result<(), RunError> {
        let mut body = Some(body);
        self.append(Act::Chunk, origin, move |origin| LogEntry::Chunk {
            origin,
            body: Payload::Inline(body.take().unwrap_or_default()),
        })
        .await;
        Ok(())
    }

    /// Reports that a named point was reached, with data. Durable when it returns, never dropped,
    /// never coalesced, and not doubled by a crash. The same name may be reported repeatedly.
    ///
    /// # Errors
    /// An empty name, data that is no JSON, over 64 KiB or nested over 100 levels deep.
    ///
    /// # Cancel safety
    /// Dropped before it returned, the milestone may or may not have been reported.
    pub async fn milestone(&self, name: &str, data: impl Serialize) -> Result<(), RunError> {
        if name.is_empty() {
            return Err(RunError::new("a milestone needs a name").kind("invalid-milestone"));
        }
        limits::check("the milestone's name", name.len(), limits::NAME_BYTES_MAX)?;
        let data = self.json("milestone", &data, self.shared.node.limits.milestone_bytes_max)?;
        let mut data = Some(data).filter(|data| data != b"null");
        let name = name.to_owned();
        let act = Act::Milestone(name.clone());
        let appended = self
            .append(act, None, move |origin| LogEntry::Milestone {
                origin,
                name: name.clone(),
                // Both are the log owner's to say.
                sequence: 0,
                at_ms: 0,
                data: data.take().map(Payload::Inline),
            })
            .await;
        match appended {
            Appended::Act(number) => self.shared.acted(number).await,
            Appended::Entry(number) => self.durable(number).await,
        }
        Ok(())
    }

    /// Reports progress. Never waits and never fails: of reports in quick succession only the newest
    /// reaches observers, at the latest 200 ms later; one of 1 or more goes at once. One over the
    /// limits of a chunk is dropped, and the one before it stands.
    pub fn progress(&self, progress: Progress) {
        const WHAT: &str = "the progress report";
        let limit = self.shared.node.limits.chunk_bytes_max;
        let fits = write_json(WHAT, &progress.data)
            .and_then(|_| check_json(WHAT, progress_body(&progress.data).as_bytes(), limit));
        if let Err(error) = fits {
            of_run!(warn, self.shared, %error, "a progress report was dropped");
            return;
        }
        self.shared.report(progress);
    }

    /// Waits until everything that was emitted so far is durable, but not for reports of progress,
    /// which go when their time has come; in no order with the results of steps that run at the same
    /// time.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn flush(&self) {
        self.durable(self.shared.newest()).await;
    }

    /// Sleeps for so long, durably: the due time is recorded, and a crash does not start the sleep
    /// anew. A run that waits for nothing but a sleep of more than 1 s, or has waited as long for
    /// other runs, leaves memory meanwhile.
    /// Inside a step it is part of the step's body: not recorded, and slept again with it.
    ///
    /// # Cancel safety
    /// A dropped sleep is over for good; it still counts as the nth sleep of the run.
    pub fn sleep(&self, duration: Duration) -> Sleep<'_> {
        Sleep::new(&self.shared, duration)
    }

    /// The durable key-values of this run.
    pub fn state(&self) -> State<'_> {
        State::new(&self.shared)
    }

    /// Waits until the run is cancelled. Then there is a grace time, 5 s by default, to clean up;
    /// after that the code is dropped where it stands. Code that is entered again after a crash, and
    /// had been cancelled before, first comes to where it was.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn cancelled(&self) {
        self.shared.cancelled().await;
    }

    /// Whether the run was cancelled, as [`RunContext::cancelled`] tells. Code that asks instead of
    /// waiting, and has recorded something since it was cancelled, may find itself not cancelled there
    /// after a crash; it is dropped then, without the rest of its clean-up.
    pub fn is_cancelled(&self) -> bool {
        self.shared.token.is_cancelled()
    }

    /// The number of this attempt: 1, and one more for every time that the process was lost.
    /// Waking from a sleep is no new attempt.
    pub fn attempt(&self) -> u32 {
        self.shared.attempt
    }

    /// The run's id.
    pub fn run_id(&self) -> &str {
        self.shared.run_id.as_str()
    }

    /// The address of this agent.
    pub fn path(&self) -> &AgentPath {
        &self.shared.path
    }

    /// The idempotency key of the step whose body is running, to be passed to outside systems: the
    /// same however often the step is tried, and another one for every other step of every run.
    /// Outside a step it is the run's own.
    pub fn key(&self) -> String {
        match &self.shared.lock().current_step {
            Some(step) => format!("{}#{step}", self.shared.path),
            None => self.shared.path.to_string(),
        }
    }

    /// This agent as a parent, to dispatch children of its own.
    pub fn agent<A: Agent>(&self) -> AgentHandle<A> {
        AgentHandle::inside(Arc::clone(&self.shared))
    }

    fn json(
        &self,
        what: &'static str,
        value: &impl Serialize,
        bytes_max: usize,
    ) -> Result<Vec<u8>, RunError> {
        let bytes = write_json(what, value)?;
        check_json(what, &bytes, bytes_max)?;
        Ok(bytes)
    }

    /// Queues an event once there is room, unless the log has it.
    async fn append(
        &self,
        act: Act,
        source: Option<Origin>,
        mut entry: impl FnMut(Origin) -> LogEntry,
    ) -> Appended {
        let shared = &self.shared;
        poll_fn(|cx| {
            let mut inner = shared.lock();
            let origin = match (&source, &inner.current_step) {
                (Some(source), _) => source.clone(),
                (None, Some(step)) => Origin::Step(step.clone()),
                (None, None) => Origin::Code,
            };
            if shared.poll_room(&mut inner, cx).is_pending() {
                return Poll::Pending;
            }
            match &origin {
                Origin::Code => match shared.act(&mut inner, &act) {
                    Some(Acted::Recorded(number)) => return Poll::Ready(Appended::Act(number)),
                    Some(Acted::Append(number)) => {
                        shared.push_act(&mut inner, &act, number, entry(origin));
                        return Poll::Ready(Appended::Act(number));
                    }
                    // A mismatch: the code ends here.
                    None => return Poll::Pending,
                },
                Origin::Step(step) => {
                    mark_torn(shared, &mut inner, step);
                    inner.emitting.insert(step.clone());
                }
                Origin::Source { name, end } => {
                    inner.sources.insert(name.clone(), *end);
                }
            }
            let entry = entry(origin);
            Poll::Ready(Appended::Entry(shared.push(&mut inner, entry)))
        })
        .await
    }

    async fn durable(&self, number: u64) {
        poll_fn(|cx| self.shared.poll_durable(number, cx)).await;
    }
}

/// What can be waited for after an event.
enum Appended {
    /// The act of this number; the log may have had it.
    Act(u64),
    /// The entry of this number, for [`Shared::poll_durable`].
    Entry(u64),
}

/// Precedes the first event of a step that is tried again by the mark that supersedes the earlier
/// ones.
fn mark_torn(shared: &Shared, inner: &mut Inner, step: &str) {
    if inner.journal.take_torn(step) {
        let attempt = shared.attempt.max(inner.journal.tries(step) + 1).max(2);
        shared.push(inner, LogEntry::Mark { step: step.to_owned(), attempt });
    }
}

/// The JSON of `null`: what a call without a result completes with.
pub(crate) fn nothing() -> Vec<u8> {
    Value::Null.to_string().into_bytes()
}
