//! Operations of a parent on one run that nobody executes: each reads what it needs, decides by the
//! pure rules, makes one commit, and acts on it only then.

mod cancel;
mod clear;
mod resume;
mod start;
mod stored;
mod workload;

use std::sync::{Arc, Mutex, PoisonError};

use ghostlight_protocol::{AgentPath, Phase, RunId, RunKey};
use ghostlight_storage::records::RunRecord;
use ghostlight_supervisor::ChildSpec;
use tokio::sync::oneshot;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::Error;
use crate::agent_actor::AgentArgs;
use crate::finalise::Decided;
use crate::info::Inspection;
use crate::log_writer::LogWriter;
use crate::messages::{Reply, StartRun, Started};
use crate::past::Past;
use crate::place::Permit;
use crate::run_actor::{RunActor, RunArgs};
use crate::shared::Shared;

pub(crate) use cancel::{cancel_unregistered, ends_by_cancel, request_cancel};
pub(crate) use clear::{bury, children, purge};
pub(crate) use start::{joins, start_existing};
pub(crate) use stored::{CLEARED, Stored, inspect, is_cleared, outcome, outcome_of_cleared};
pub(crate) use workload::{each, look_around, queue_head, valid_id};

/// What a lane does.
pub(crate) enum Operation {
    /// `held`: whether the run had a slot before.
    Start {
        start: Box<StartRun>,
        reply: Reply<Started>,
        held: bool,
    },
    StartAtCap {
        start: Box<StartRun>,
        reply: Reply<Started>,
        cap: usize,
        number: Option<u64>,
    },
    Admit,
    Enter {
        entering: Entering,
        cancelled: Cancelled,
    },
    Resume {
        cause: Cause,
        /// Told whether the run goes on.
        reply: Option<Reply<bool>>,
    },
    Inspect {
        reply: Reply<Option<Inspection>>,
    },
    Cancel {
        reason: String,
        reply: Reply<()>,
    },
    Tail {
        reply: Reply<Option<()>>,
    },
    Clear {
        reply: Reply<bool>,
    },
}

impl Operation {
    /// As it is logged.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Start { .. } | Self::StartAtCap { .. } => "start",
            Self::Admit => "admit",
            Self::Enter { .. } => "enter",
            Self::Resume { .. } => "resume",
            Self::Inspect { .. } => "inspect",
            Self::Cancel { .. } => "cancel",
            Self::Tail { .. } => "tail",
            Self::Clear { .. } => "clear",
        }
    }
}

/// Why a run is entered again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// What it waited for has come.
    Woken,
    /// It is live in the store, and nobody executes it.
    Orphaned,
}

/// A run on its way to its actor.
#[derive(Debug)]
pub(crate) enum Entering {
    /// It is ours: its start hook comes next, and its place.
    Owned(Box<Owned>),
    /// It waits for its place. Nothing is written before it has one, so that it loses no attempt
    /// if it is lost on the way.
    Again(Cause),
}

/// A run that is recorded, and that nobody else writes to.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) record: RunRecord,
    pub(crate) record_revision: u64,
    pub(crate) writer: LogWriter,
    pub(crate) past: Past,
    /// Its place, if it has one already.
    pub(crate) permit: Permit,
    /// An earlier life was lost, and may have entered the code.
    pub(crate) lost: bool,
    /// Its record says that it is executed, before it is: a shutdown waits for one of the two to be so.
    pub(crate) begun: Option<TaskTrackerToken>,
}

/// Brings a cancel to a run that is on its way to its actor.
pub(crate) type Cancelled = oneshot::Receiver<(String, Reply<()>)>;

/// How an operation left its run.
#[derive(Debug, Default)]
pub(crate) struct LaneEnd {
    /// The run enters its code next.
    pub(crate) entering: Option<Entering>,
    /// The run's actor owns the run now.
    pub(crate) live: bool,
    /// Whether the run holds a slot; `None`: as before.
    pub(crate) holds_slot: Option<bool>,
    /// By how much the queue's length differs from what was counted.
    pub(crate) queued: isize,
    pub(crate) admission: Option<Admission>,
    /// Why the run, which goes on or rests, was not cancelled.
    pub(crate) not_cancelled: Option<Error>,
    /// A reader who may see the run only once it has left the queue.
    pub(crate) hidden: Option<Reply<Option<()>>>,
}

/// What an admission from the queue came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The next one may follow.
    Done,
    /// Nothing has changed, and the run would be next again.
    Failed,
}

impl LaneEnd {
    pub(crate) const UNCHANGED: Self = Self {
        entering: None,
        live: false,
        holds_slot: None,
        queued: 0,
        admission: None,
        not_cancelled: None,
        hidden: None,
    };
    pub(crate) const LIVE: Self = Self { live: true, holds_slot: Some(true), ..Self::UNCHANGED };
    pub(crate) const FREE: Self = Self { holds_slot: Some(false), ..Self::UNCHANGED };

    pub(crate) fn enter(entering: Entering) -> Self {
        Self { entering: Some(entering), holds_slot: Some(true), ..Self::UNCHANGED }
    }

    pub(crate) fn slot(held: bool) -> Self {
        Self { holds_slot: Some(held), ..Self::UNCHANGED }
    }
}

pub(crate) async fn operate(args: &AgentArgs, run_id: &RunId, operation: Operation) -> LaneEnd {
    let run = RunKey::new(&args.path, run_id);
    match operation {
        Operation::Start { start, reply, held } => start::start(args, &start, reply, held).await,
        Operation::StartAtCap { start, reply, cap, number } => {
            start::start_at_cap(args, &start, reply, cap, number).await
        }
        Operation::Admit => {
            let (admission, end) = match resume::admit(args, run_id).await {
                Ok(end) => (Admission::Done, end),
                Err(error) => {
                    log_unless_failed(&error, run_id, &args.path, "run was not admitted");
                    (Admission::Failed, LaneEnd::FREE)
                }
            };
            LaneEnd { admission: Some(admission), ..end }
        }
        Operation::Enter { entering, cancelled } => match entering {
            Entering::Owned(owned) => start::enter(args, run_id, *owned, cancelled).await,
            Entering::Again(cause) => resume::enter_again(args, run_id, cause, cancelled).await,
        },
        Operation::Resume { cause, reply } => {
            // Whether it waits for a sleep or was lost: nobody goes on with it here.
            let resumed = match args.node.rests_run(&args.path, run).await {
                Ok(true) => {
                    let _ = reply.map(|reply| reply.send(Ok(false)));
                    return LaneEnd::UNCHANGED;
                }
                Ok(false) => resume::resume(args, run_id, cause, None).await,
                Err(error) => Err(error.into()),
            };
            if let Some(reply) = reply {
                let goes_on = |end: &LaneEnd| end.holds_slot != Some(false);
                let _ = reply.send(resumed.as_ref().map(goes_on).map_err(Clone::clone));
            }
            resumed.unwrap_or_else(|error| not_entered(args, run_id, &error))
        }
        Operation::Inspect { reply } => {
            let _ = reply.send(inspect(&args.node.committer, &args.path, run_id).await);
            LaneEnd::UNCHANGED
        }
        Operation::Cancel { reason, reply } => cancel::cancel(args, run_id, reason, reply).await,
        Operation::Tail { reply } => {
            let stored = Stored::read(args, run_id).await;
            if let Ok(Some(Stored { record, .. })) = &stored
                && record.state.phase == Phase::Queued
                && args.kind.hooks.start.is_some()
            {
                // Frame 0 is shown after the start hook.
                return LaneEnd { hidden: Some(reply), ..LaneEnd::UNCHANGED };
            }
            let _ = reply.send(stored.map(|stored| stored.map(|_| ())));
            LaneEnd::UNCHANGED
        }
        Operation::Clear { reply } => clear::clear(args, run_id, reply).await,
    }
}

/// Waits until a run is ready to be entered, unless a cancel comes first. `None` if this life of the
/// agent ends before: the next one finds the run in the store, and begins anew.
async fn unless_cancelled<T>(
    args: &AgentArgs,
    mut cancelled: Cancelled,
    ready: impl Future<Output = T>,
) -> Option<Result<T, (String, Reply<()>)>> {
    let ready = tokio::select! {
        biased;
        Ok(cancel) = &mut cancelled => Err(cancel),
        () = args.life.cancelled() => return None,
        ready = ready => Ok(ready),
    };
    // What comes from now on waits for the run's actor; what has just come is not lost.
    cancelled.close();
    match cancelled.try_recv() {
        Ok(cancel) => Some(Err(cancel)),
        Err(_) => Some(ready),
    }
}

/// Tells whoever waits for a run that it was not entered; it is recorded, and found again later.
fn not_entered(args: &AgentArgs, run_id: &RunId, error: &Error) -> LaneEnd {
    let run = RunKey::new(&args.path, run_id);
    args.node.hub.failed(run, error);
    match error {
        // Whoever waits for it goes on with the next start, too, and may leave memory until then.
        Error::Stopped => {
            tracing::debug!(%run_id, agent = %args.path, "run is left to the next start");
        }
        error => {
            log_unless_failed(error, run_id, &args.path, "run was not entered");
            args.node.live.set_left(run, is_lasting(error));
            args.node.call_waiting(run);
        }
    }
    LaneEnd::UNCHANGED
}

/// Logs an error of one run. A store that has failed is one for all of them, and logged as that.
fn log_unless_failed(error: &Error, run_id: &RunId, agent: &AgentPath, what: &'static str) {
    match error {
        Error::Storage(ghostlight_storage::Error::Poisoned { .. }) => {
            tracing::debug!(%run_id, %agent, %error, what);
        }
        error => tracing::error!(%run_id, %agent, %error, what),
    }
}

/// Whether trying to enter a run again comes to the same, in this process.
fn is_lasting(error: &Error) -> bool {
    use ghostlight_storage::Error::{Corrupt, TooNew};
    matches!(
        error,
        Error::NotAChild(_)
            | Error::UnknownType { .. }
            | Error::Storage(Corrupt { .. } | TooNew { .. })
    )
}

/// Hands a run over to an actor of its own: the epoch is durable, and from here on the actor alone
/// writes to it.
pub(crate) async fn spawn(
    args: &AgentArgs,
    run_id: &RunId,
    owned: Owned,
    decided: Option<Decided>,
) -> Result<LaneEnd, Error> {
    let Owned { record, record_revision, writer, past, permit, lost: _, begun: _begun } = owned;
    let node = &args.node;
    let run = RunKey::new(&args.path, run_id);
    let child = node.kinds.child(&record.agent_type)?;
    let input = record.input.clone().read(&node.committer, run).await?;
    let path = args.path.child(&record.agent_type, run_id)?;
    let signals = past.signals.clone();
    let shared = Arc::new(Shared::new(
        Arc::clone(node),
        args.path.clone(),
        path.clone(),
        run_id.clone(),
        record.attempt,
        past,
    ));
    let run_args =
        RunArgs { shared, child, input, record, record_revision, writer, signals, decided, permit };
    let once = Mutex::new(Some(run_args));
    let spec = ChildSpec::temporary(path.as_str(), move || {
        let args = once.lock().unwrap_or_else(PoisonError::into_inner).take();
        (RunActor, args.expect("a temporary child is started once"))
    });
    let supervisors = node.supervisors.get().ok_or(Error::Stopped)?;
    match supervisors.runs.add(spec).await {
        Ok(_) => Ok(LaneEnd::LIVE),
        Err(ghostlight_supervisor::Error::Stopped) => Err(Error::Stopped),
        Err(error) => Err(Error::AgentDown { agent: path.to_string(), why: error.to_string() }),
    }
}
