//! Enters code without a system, from any prefix of what it has recorded.

use std::borrow::Borrow;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use ghostlight_protocol::journal::{Mismatch, due_name};
use ghostlight_protocol::{AgentPath, Limits, RunId};
use ghostlight_storage::payload::Payload;
use ghostlight_storage::records::{LogEntry, Origin, StoredCall};
use ghostlight_storage::{Committer, MemoryStore};
use serde_json::Value;

use crate::clock::VirtualClock;
use crate::code::Watch;
use crate::info::parse_json;
use crate::log_writer::COMMIT_BYTES_MAX;
use crate::node::{Node, NodeParts};
use crate::past::Past;
use crate::registry::Kinds;
use crate::shared::Shared;
use crate::{Child, RunContext, RunError};

/// Why a run is not the same when it is entered again.
///
/// `Debug` shows the text, for a test that unwraps it.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The first execution failed, and so there is nothing to compare with.
    #[error("the run fails: {0}")]
    Failed(String),
    /// The input is no JSON that reads back.
    #[error("the input cannot be recorded: {0}")]
    Input(String),
    /// Entered again, the code asks for something else than the log has.
    #[error("entered again after {after}: {mismatch}")]
    Mismatch {
        /// The last entry that the code was entered with.
        after: String,
        /// What the log has, and what the code asked for.
        mismatch: Mismatch,
    },
    /// Entered again, the code does something else, or returns something else.
    #[error(
        "entered again after {after}, the run {now}; at first it {before}: the code depends on something that is not recorded, such as a variable or a field that a step changes, the time, or chance"
    )]
    Differs {
        /// The last entry that the code was entered with.
        after: String,
        /// What it did at first.
        before: String,
        /// What it did when it was entered again.
        now: String,
    },
}

impl fmt::Debug for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One execution of the code.
pub(super) struct Entry<T> {
    pub(super) end: Result<Result<T, RunError>, Mismatch>,
    /// What it has recorded, in order, after what it was entered with.
    entries: Vec<LogEntry>,
}

/// Executes a run of `child` once, and then enters it again from its beginning and from every prefix of
/// what it has recorded, as after a crash in that place. Everything that the code between steps records
/// has to be the same: the keys of its steps, its milestones and chunks with their data, its writes of
/// state, and what it returns. Finds code that depends on what is not recorded: a variable that a step
/// changes, the time, chance, the order of a hash map.
///
/// A step that is executed again has its result of the first execution, whatever its body returns, so
/// that a step may well be different each time. Executes the code twice more than it records entries,
/// so that bodies of steps are executed many times: give them stand-ins for what is outside. Sleeps
/// take the time of the runtime, which a test should pause.
///
/// It cannot see:
///
/// - a field of `child` that a step changes, which a crash would reset: see [`replay_check_fresh`];
/// - dispatches, since there are no children, as with [`run`](super::run);
/// - what a step does, how long a sleep is, and reports of progress: none has to be the same;
/// - effects between steps. A simulation counts those.
///
/// # Errors
/// See [`ReplayError`].
///
/// # Panics
/// Outside a tokio runtime.
///
/// # Cancel safety
/// Dropping it drops the run.
///
/// # Examples
/// ```
/// use ghostlight_actors::{Agent, Child, RunContext, RunError, testing};
///
/// struct Counter;
/// impl Agent for Counter { const TYPE: &'static str = "Counter"; }
/// impl Child for Counter {
///     type Input = u32;
///     type Output = u32;
///     async fn run(&self, cx: &RunContext, parts: u32) -> Result<u32, RunError> {
///         let mut sum = 0;
///         for part in 0..parts {
///             // Wrong: a step that is not executed again adds nothing. Add its result instead.
///             cx.step(("part", u64::from(part)), async || { sum += part; Ok(()) }).await?;
///         }
///         Ok(sum)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let found = testing::replay_check(&Counter, 3).await.unwrap_err();
/// assert!(found.to_string().contains("that a step changes"), "{found}");
/// # }
/// ```
pub async fn replay_check<C: Child>(child: &C, input: C::Input) -> Result<C::Output, ReplayError> {
    check::<C, &C>(|| child, input).await
}

/// As [`replay_check`], with a child of its own for every entry, which `child` makes: so it finds what a
/// step leaves in a field, and the code reads there instead of from the step. After a crash that is gone.
///
/// # Errors
/// See [`ReplayError`].
///
/// # Panics
/// Outside a tokio runtime.
///
/// # Cancel safety
/// Dropping it drops the run.
pub async fn replay_check_fresh<C: Child>(
    child: impl FnMut() -> C,
    input: C::Input,
) -> Result<C::Output, ReplayError> {
    check::<C, C>(child, input).await
}

async fn check<C: Child, B: Borrow<C>>(
    mut child: impl FnMut() -> B,
    input: C::Input,
) -> Result<C::Output, ReplayError> {
    let input = serde_json::to_vec(&input).map_err(|e| ReplayError::Input(e.to_string()))?;
    let input = || serde_json::from_slice(&input).map_err(|e| ReplayError::Input(e.to_string()));
    let failed = |error: RunError| ReplayError::Failed(error.to_string());
    let first = enter::<C>(child().borrow(), input()?, Vec::new(), |_| {}).await.map_err(failed)?;
    let output = match first.end {
        Ok(output) => output.map_err(failed)?,
        Err(mismatch) => return Err(ReplayError::Failed(mismatch.to_string())),
    };
    let returned = json(&output);
    for taken in 0..=first.entries.len() {
        let (past, left) = first.entries.split_at(taken);
        let after = past.last().map_or_else(|| "its beginning".to_owned(), shape);
        let recorded = |entry: &mut LogEntry| answer_as_before(entry, left);
        let again = enter::<C>(child().borrow(), input()?, past.to_vec(), recorded)
            .await
            .map_err(failed)?;
        let differs = |before: String, now: String| ReplayError::Differs {
            after: after.clone(),
            before,
            now,
        };
        let end = match again.end {
            Ok(end) => end,
            Err(mismatch) => return Err(ReplayError::Mismatch { after, mismatch }),
        };
        let did = |entries: &[LogEntry]| -> Vec<String> {
            // Results of what runs side by side may come in another order.
            let mut did: Vec<String> =
                entries.iter().filter(|e| is_of_code(e)).map(shape).collect();
            did.sort();
            did
        };
        let (before, now) = (did(left), did(&again.entries));
        if let Some(at) =
            (0..before.len().max(now.len())).find(|at| before.get(*at) != now.get(*at))
        {
            let name = |did: &[String]| match did.get(at) {
                Some(shape) => format!("went on with {shape}"),
                None => "came to its end".to_owned(),
            };
            return Err(differs(name(&before), name(&now)));
        }
        let now = match end {
            Ok(output) => format!("returned {}", json(&output)),
            Err(error) => format!("failed: {error}"),
        };
        let before = format!("returned {returned}");
        if before != now {
            return Err(differs(before, now));
        }
    }
    Ok(output)
}

/// Gives a step that is executed again the result that it had at first.
fn answer_as_before(entry: &mut LogEntry, first: &[LogEntry]) {
    let (LogEntry::Completed { call: StoredCall::Step(step), .. }
    | LogEntry::StepFailed { step, .. }) = &*entry
    else {
        return;
    };
    let before = first.iter().find(|before| match before {
        LogEntry::Completed { call: StoredCall::Step(key), .. } => key == step,
        LogEntry::StepFailed { step: key, .. } => key == step,
        _ => false,
    });
    if let Some(before) = before {
        *entry = before.clone();
    }
}

/// Enters the code with a past. `record` sees every entry before the code is told of it.
pub(super) async fn enter<C: Child>(
    child: &C,
    input: C::Input,
    past: Vec<LogEntry>,
    record: impl Fn(&mut LogEntry),
) -> Result<Entry<C::Output>, RunError> {
    let (committer, _handle) = Committer::inline(MemoryStore::new());
    let node = Arc::new(Node::new(NodeParts {
        clock: Arc::new(VirtualClock::starting_at(0)),
        limits: Limits::default(),
        committer,
        kinds: Kinds::default(),
        incarnation: 1,
        seed: 0,
        resume_only: None,
        probe: None,
    }));
    let parent = AgentPath::root("Test", "test")?;
    let run_id = RunId::new("run")?;
    let path = parent.child(C::TYPE, &run_id)?;
    let past = Past::of(past);
    let shared = Arc::new(Shared::new(node, parent, path, run_id, 1, past));
    let cx = RunContext { shared: Arc::clone(&shared) };
    let mut code = pin!(child.run(&cx, input));
    let mut watch = Watch::new();
    let mut entries = Vec::new();
    let end = poll_fn(|context| {
        loop {
            if let Poll::Ready(result) = watch.poll(&shared, context, |cx| code.as_mut().poll(cx)) {
                let end = shared.finish().map(|()| result);
                let (last, _) = shared.take(usize::MAX, false);
                entries.extend(last);
                return Poll::Ready(end);
            }
            if let Some(mismatch) = shared.take_mismatch() {
                return Poll::Ready(Err(mismatch));
            }
            let (mut taken, number) = shared.take(COMMIT_BYTES_MAX, false);
            if taken.is_empty() {
                return Poll::Pending;
            }
            let bytes = taken.iter().map(LogEntry::bytes).sum();
            taken.iter_mut().for_each(&record);
            entries.extend(taken.iter().cloned());
            let told = taken.into_iter().filter_map(crate::run_actor::done).collect();
            shared.durable(number, bytes, told);
        }
    })
    .await;
    Ok(Entry { end, entries })
}

/// What an entry is of, without what may well be different each time.
fn shape(entry: &LogEntry) -> String {
    match entry {
        LogEntry::Chunk { body, .. } => format!("chunk {}", parse_json(&inline(body))),
        LogEntry::Milestone { name, data: None, .. } => format!("milestone {name:?}"),
        LogEntry::Milestone { name, data: Some(data), .. } => {
            format!("milestone {name:?} {}", parse_json(&inline(data)))
        }
        LogEntry::Completed { call: StoredCall::Step(key), .. } => format!("step {key:?}"),
        LogEntry::Completed { call: StoredCall::Sleep(n), .. } => format!("the end of sleep {n}"),
        LogEntry::Completed { call: StoredCall::Wait(n), .. } => format!("the end of wait {n}"),
        LogEntry::StepFailed { step, .. } => format!("step {step:?}, which failed"),
        LogEntry::SleepSet { ordinal, .. } => due_name(*ordinal),
        LogEntry::Tried { step, tries } => format!("try {tries} of step {step:?}"),
        LogEntry::Mark { step, .. } => format!("another try of step {step:?}"),
        LogEntry::State { key, value } => {
            let value = value.as_ref().map_or(Value::Null, |value| parse_json(&inline(value)));
            format!("state {key:?} = {value}")
        }
        LogEntry::Progress { .. } => "progress".to_owned(),
        LogEntry::Started
        | LogEntry::Finished { .. }
        | LogEntry::Failed { .. }
        | LogEntry::Aborted { .. }
        | LogEntry::Interrupted { .. } => "an end".to_owned(),
    }
}

/// Whether the entry is of the code between steps. Reports of progress come when they come; how often a
/// step is tried, and what it emits, is the step's own business.
fn is_of_code(entry: &LogEntry) -> bool {
    match entry {
        LogEntry::Progress { .. } | LogEntry::Mark { .. } | LogEntry::Tried { .. } => false,
        LogEntry::Chunk { origin, .. } | LogEntry::Milestone { origin, .. } => {
            !matches!(origin, Origin::Step(_))
        }
        _ => true,
    }
}

fn inline(payload: &Payload) -> Vec<u8> {
    match payload {
        Payload::Inline(bytes) => bytes.clone(),
        // Nothing is stored here, and so nothing in parts.
        Payload::Parts { .. } => Vec::new(),
    }
}

fn json(output: &impl serde::Serialize) -> String {
    serde_json::to_string(output).unwrap_or_default()
}
