//! How children end, and how their owner is told.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ractor::{ActorCell, ActorId, SupervisionEvent};

use crate::child_spec::ChildId;
use crate::restart::Decision;

/// The stop reason by which an actor asks its supervisor to be started anew.
///
/// An actor that calls `myself.stop(Some(RESTART.into()))` is restarted at once, without backoff and
/// outside its restart intensity, unless it is `Temporary`.
pub const RESTART: &str = "ghostlight: restart";

/// How a child ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExitReason {
    /// It stopped, by itself or asked to, with the stop reason if there was one.
    Normal(Option<String>),
    /// It stopped with the reason [`RESTART`].
    Restart,
    /// It panicked or a handler returned an error; ractor does not tell these apart.
    Failed(String),
    /// It never came up: its constructor or `pre_start` panicked or failed.
    StartFailed(String),
    /// It was a supervisor that gave up on one of its own children.
    Escalated(Box<Escalated>),
    /// It was killed; its `post_stop` has not run. A stop with the reason `killed` looks the same.
    Killed,
    /// It ended without saying how: its task was aborted, it was linked away to another supervisor,
    /// or this supervisor was being stopped through its cell and could no longer listen.
    Lost,
    /// No actor ended: the child was removed while it was starting or waiting to be started.
    Cancelled,
}

impl ExitReason {
    /// Returns what this reason is to a restart policy.
    #[must_use]
    pub fn kind(&self) -> ExitKind {
        match self {
            Self::Normal(_) => ExitKind::Normal,
            Self::Restart => ExitKind::Restart,
            Self::Failed(_) | Self::StartFailed(_) | Self::Escalated(_) => ExitKind::Failed,
            Self::Killed | Self::Lost | Self::Cancelled => ExitKind::Killed,
        }
    }
}

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Normal(None) => f.write_str("stopped"),
            Self::Normal(Some(reason)) => write!(f, "stopped: {reason}"),
            Self::Restart => f.write_str("asked to be restarted"),
            Self::Failed(error) => write!(f, "failed: {error}"),
            Self::StartFailed(error) => write!(f, "failed to start: {error}"),
            Self::Escalated(escalated) => write!(f, "escalated: {escalated}"),
            Self::Killed => f.write_str("killed"),
            Self::Lost => f.write_str("ended without a reason"),
            Self::Cancelled => f.write_str("cancelled before it started"),
        }
    }
}

/// The kinds of end a restart policy tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitKind {
    /// Stopped.
    Normal,
    /// Stopped in order to be started anew.
    Restart,
    /// Panicked, failed, escalated, or failed to start.
    Failed,
    /// Killed, or lost.
    Killed,
}

/// Why a supervisor failed: a child's restart intensity was used up.
///
/// The supervisor's own supervisor finds it in the error of ractor's `ActorFailed`, by
/// `downcast_ref::<Escalated>()`, or, if it is one of ours, as [`ExitReason::Escalated`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("child `{child}` used up its restarts and {reason}")]
pub struct Escalated {
    /// The child.
    pub child: ChildId,
    /// Its last end.
    pub reason: ExitReason,
}

/// One end of a child, told to the owner of the supervisor.
///
/// Every actor that was ever linked as a child gives exactly one notice, when its task has really
/// ended (its state dropped) and before its replacement starts; so does every failed start. Of all
/// notices about one child the last, and only the last, says [`Decision::Remove`] or
/// [`Decision::Escalate`].
///
/// There are no notices about children that ractor kills because the supervisor itself was killed
/// or panicked: who needs to know supervises the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitNotice {
    /// The child.
    pub id: ChildId,
    /// The actor that ended; `None` if none was running.
    pub actor: Option<ActorId>,
    /// How it ended.
    pub reason: ExitReason,
    /// What the supervisor does about it.
    pub decision: Decision,
}

/// Called by the supervisor for every [`ExitNotice`], in the order of the ends.
///
/// It runs on the supervisor's task, so it must not block and should only pass the notice on. A
/// panic in it is logged and otherwise ignored.
pub type ExitCallback = Arc<dyn Fn(ExitNotice) + Send + Sync>;

/// Reads the end of an actor from a supervision event; `None` for other events.
///
/// The final state an actor hands over is dropped here: it may hold what the replacement needs, and
/// a panic in its `Drop` must not reach the supervisor. The same holds for its error.
pub(crate) fn classify(event: SupervisionEvent) -> Option<(ActorCell, ExitReason)> {
    match event {
        SupervisionEvent::ActorTerminated(cell, state, reason) => {
            guarded(|| drop(state));
            let reason = match reason.as_deref() {
                None => ExitReason::Normal(None),
                Some("killed") => ExitReason::Killed,
                Some("actor_task_cancelled") => ExitReason::Lost,
                Some(RESTART) => ExitReason::Restart,
                Some(_) => ExitReason::Normal(reason),
            };
            Some((cell, reason))
        }
        SupervisionEvent::ActorFailed(cell, error) => {
            let reason = guarded(|| match error.downcast::<Escalated>() {
                Ok(escalated) => ExitReason::Escalated(escalated),
                Err(error) => ExitReason::Failed(error.to_string()),
            });
            Some((cell, reason.unwrap_or_else(|| ExitReason::Failed("unprintable error".into()))))
        }
        SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => None,
    }
}

/// Runs foreign code; `None` if it panicked.
pub(crate) fn guarded<T>(code: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(code)).ok()
}
