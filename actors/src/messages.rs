//! What the actors say to one another.

use std::collections::VecDeque;
use std::sync::Arc;

use ghostlight_protocol::RunId;
use ghostlight_protocol::journal::Mismatch;
use ghostlight_storage as storage;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::Error;
use crate::error::RunError;
use crate::info::{Inspection, RawOutcome};
use crate::lanes::LaneEnd;
use crate::place::Permit;
use crate::registry::Returned;
use crate::shared::Dormant;
use crate::turns::TurnEnd;

/// An answer that is due; dropping it tells the asker to ask again.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// Everything that a new run is made of.
#[derive(Debug, Clone)]
pub(crate) struct StartRun {
    pub(crate) run_id: RunId,
    pub(crate) agent_type: &'static str,
    pub(crate) input: Arc<Vec<u8>>,
    pub(crate) input_digest: [u8; 16],
    pub(crate) input_preview: Option<Vec<u8>>,
    pub(crate) display: Option<Vec<u8>>,
    pub(crate) display_order: i64,
    pub(crate) parent_tool_call_id: Option<String>,
    pub(crate) detached: bool,
    pub(crate) permit: Permit,
}

/// What a dispatch came to.
#[derive(Debug, Clone)]
pub(crate) struct Started {
    /// Whether the id was dispatched before.
    pub(crate) already_existed: bool,
    /// How the run ended, if it had before.
    pub(crate) outcome: Option<RawOutcome>,
}

/// A request about one run of an agent; the same whether the run is in memory or not.
#[derive(Debug)]
pub(crate) enum RunRequest {
    Start(Box<StartRun>, Reply<Started>),
    /// `None`: not known, or not known yet.
    Inspect(Reply<Option<Inspection>>),
    /// Durable once answered; unknown and ended runs are no error.
    Cancel(String, Reply<()>),
    /// Answered once the run may be tailed; `None` for an unknown run.
    Tail(Reply<Option<()>>),
    /// With when it gives up, if it waits for the run's task.
    Clear(Reply<bool>, Option<Instant>),
    /// The run's timer is due, or something has happened that it waits for.
    Wake,
    /// The run is live in the store, and nobody executes it. Answered once that is mended, with
    /// whether the run goes on: it does not if it has ended, is parked, or rests.
    Recover(Option<Reply<bool>>),
    /// A slot is free for the run.
    Admit,
}

/// Keeps a request until its run can be asked. Whoever asks again and again, and gives up each time, leaves
/// at most one cancel and one clear behind, which are asked for all the same.
pub(crate) fn hold(pending: &mut VecDeque<RunRequest>, request: RunRequest) {
    // Looking at all of them each time would cost too much where many do wait.
    if pending.len() >= 8 && pending.len().is_power_of_two() {
        let (mut cancels, mut clears) = (0, 0);
        pending.retain(|held| match held {
            RunRequest::Inspect(reply) => !reply.is_closed(),
            RunRequest::Tail(reply) => !reply.is_closed(),
            RunRequest::Cancel(_, reply) => {
                cancels += 1;
                cancels == 1 || !reply.is_closed()
            }
            RunRequest::Clear(reply, _) => {
                clears += 1;
                clears == 1 || !reply.is_closed()
            }
            RunRequest::Start(..)
            | RunRequest::Wake
            | RunRequest::Recover(_)
            | RunRequest::Admit => true,
        });
    }
    pending.push_back(request);
}

/// To an agent.
#[derive(Debug)]
pub(crate) enum AgentMsg {
    Run(RunId, RunRequest),
    /// A run's actor has ended, and its code's task before it.
    Exited(RunId, RunExit),
    /// A clear may have waited long enough for the run's task.
    ClearOverdue(RunId),
    /// The operation in a run's lane is done; `Err` is the text of a panic.
    LaneDone(RunId, Result<LaneEnd, String>),
    /// A run owes the agent a finish hook, which a shutdown waits for.
    Owed(RunId, TaskTrackerToken),
    /// A failed delivery is tried again.
    OwedAgain(RunId),
    TurnDone(TurnEnd),
    /// The last open tail of the agent's runs is closed.
    TailClosed,
    /// The queue may have a head now.
    AdmitAgain,
    /// Perhaps nothing has happened for the idle time.
    Idle,
    Evict(Reply<()>),
    /// Answered once every dispatch that came before is recorded, or refused.
    Settle(Reply<()>),
    /// A turn of the user's program.
    Turn(crate::turns::AdHoc),
}

/// How a run's actor ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunExit {
    /// The run is over for good.
    Ended,
    /// The run waits outside memory.
    Waiting,
    /// The run waits for the next incarnation.
    Parked,
    /// Nobody knows: look at the store.
    Lost,
}

/// To a run's actor.
#[derive(Debug)]
pub(crate) enum RunMsg {
    /// The code has queued something.
    Queued,
    Committed(Result<(), storage::Error>),
    CodeEnded(CodeEnd),
    /// The code waits for nothing but timers and other runs.
    Dormant,
    /// It did so a while ago.
    StillDormant(Dormant),
    Mismatch(Mismatch),
    ProgressDue,
    GraceOver,
    /// The code was dropped a while ago; what has not ended by now blocks its thread.
    Overdue,
    /// The cancels of all descendants are durable.
    Cascaded,
    /// A dispatch of the run's own id.
    Start(Box<StartRun>, Reply<Started>),
    Inspect(Reply<Option<Inspection>>),
    Cancel(String, Reply<()>),
    Tail(Reply<Option<()>>),
}

/// How the task of a run's code ended.
#[derive(Debug)]
pub(crate) enum CodeEnd {
    Returned(Result<Returned, RunError>),
    Panicked(String),
    Dropped,
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn requests_of_askers_that_are_gone_do_not_gather() {
        let mut pending = VecDeque::new();
        let (reply, _asker) = oneshot::channel();
        hold(&mut pending, RunRequest::Tail(reply));
        for _ in 0..1_000 {
            hold(&mut pending, RunRequest::Cancel("enough".into(), oneshot::channel().0));
            hold(&mut pending, RunRequest::Tail(oneshot::channel().0));
            hold(&mut pending, RunRequest::Clear(oneshot::channel().0, None));
        }
        assert!(pending.len() <= 16, "{} are held", pending.len());
        assert!(matches!(&pending[0], RunRequest::Tail(reply) if !reply.is_closed()));
        let is = |wanted: fn(&RunRequest) -> bool| pending.iter().any(wanted);
        assert!(is(|held| matches!(held, RunRequest::Cancel(..))));
        assert!(is(|held| matches!(held, RunRequest::Clear(..))));
    }
}
