//! Requests for runs that are on their way to their actors, or have one.

use std::sync::Arc;
use std::time::Duration;

use ghostlight_protocol::{RunId, RunKey};
use ractor::{ActorRef, MessagingErr};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{AgentState, Lane};
use crate::Error;
use crate::agents::unless_gone;
use crate::lanes;
use crate::messages::{AgentMsg, Reply, RunMsg, RunRequest, hold};

/// How long a clear waits for a live run to end, however long that run may clean up.
const CLEAR_WAIT_MAX: Duration = Duration::from_secs(60);

impl AgentState {
    /// Answers what it can while the run is on its way to its actor; all else waits.
    pub(super) fn while_entering(&mut self, run_id: RunId, request: RunRequest) {
        let Some(Lane::Entering { pending, cancel, shown }) = self.lanes.get_mut(&run_id) else {
            return;
        };
        let args = self.args.clone();
        match request {
            RunRequest::Inspect(reply) => {
                let task = async move {
                    let found = lanes::inspect(&args.node.committer, &args.path, &run_id).await;
                    let _ = reply.send(found);
                };
                self.args.node.spawn(self.args.operations.track_future(task));
            }
            RunRequest::Start(start, reply) => {
                let task = async move { lanes::start_existing(&args, &start, true, reply).await };
                self.args.node.spawn(self.args.operations.track_future(task));
            }
            RunRequest::Cancel(reason, reply) => match cancel.take() {
                Some(cancel) => {
                    if let Err((reason, reply)) = cancel.send((reason, reply)) {
                        hold(pending, RunRequest::Cancel(reason, reply));
                    }
                }
                None => hold(pending, RunRequest::Cancel(reason, reply)),
            },
            RunRequest::Clear(reply, due) => {
                if let Some(cancel) = cancel.take() {
                    // If it comes too late, the run is cancelled once it is live.
                    let _ = cancel.send((lanes::CLEARED.to_owned(), oneshot::channel().0));
                }
                hold(pending, RunRequest::Clear(reply, due));
            }
            RunRequest::Tail(reply) if *shown => _ = reply.send(Ok(Some(()))),
            // Frame 0 is shown after the start hook.
            RunRequest::Tail(reply) => hold(pending, RunRequest::Tail(reply)),
            // It is on its way already.
            RunRequest::Recover(reply) => {
                if let Some(reply) = reply {
                    let _ = reply.send(Ok(true));
                }
            }
            RunRequest::Wake | RunRequest::Admit => {}
        }
    }

    /// Passes a request on to the run's actor.
    pub(super) fn forward(
        &mut self,
        myself: &ActorRef<AgentMsg>,
        run_id: RunId,
        request: RunRequest,
    ) {
        let run = RunKey::new(&self.args.path, &run_id);
        let actor = self.args.node.live.get(run);
        let message = match request {
            RunRequest::Inspect(reply) => RunMsg::Inspect(self.relay(actor.as_ref(), reply)),
            RunRequest::Cancel(reason, reply) => {
                RunMsg::Cancel(reason, self.relay(actor.as_ref(), reply))
            }
            RunRequest::Tail(reply) => RunMsg::Tail(self.relay(actor.as_ref(), reply)),
            RunRequest::Start(start, reply) => {
                RunMsg::Start(start, self.relay(actor.as_ref(), reply))
            }
            RunRequest::Clear(reply, due) => return self.clear_live(myself, run_id, reply, due),
            // A live run needs none of it; one that has just left may.
            RunRequest::Recover(Some(reply)) => {
                if actor.is_some() {
                    let _ = reply.send(Ok(self.args.node.live.is_executed(run)));
                } else if let Some(Lane::Live(pending)) = self.lanes.get_mut(&run_id) {
                    hold(pending, RunRequest::Recover(Some(reply)));
                }
                return;
            }
            // Its actor may be on its way out, to wait for what has just come.
            RunRequest::Wake => {
                if let Some(Lane::Live(pending)) = self.lanes.get_mut(&run_id)
                    && !pending.iter().any(|request| matches!(request, RunRequest::Wake))
                {
                    pending.push_back(RunRequest::Wake);
                }
                return;
            }
            RunRequest::Recover(None) | RunRequest::Admit => return,
        };
        let unsent = match actor {
            Some(actor) => match actor.cast(message) {
                Ok(()) => return,
                Err(MessagingErr::SendErr(message)) => message,
                Err(_) => return,
            },
            None => message,
        };
        // The actor has just ended: decide again once its exit notice is here.
        let request = match unsent {
            RunMsg::Start(start, reply) => RunRequest::Start(start, reply),
            RunMsg::Inspect(reply) => RunRequest::Inspect(reply),
            RunMsg::Cancel(reason, reply) => RunRequest::Cancel(reason, reply),
            RunMsg::Tail(reply) => RunRequest::Tail(reply),
            _ => return,
        };
        if let Some(Lane::Live(pending)) = self.lanes.get_mut(&run_id) {
            hold(pending, request);
        }
    }

    /// Passes an answer back, or drops its port once the run's actor has ended without one: then the
    /// asker asks again, and this agent decides.
    pub(super) fn relay<T: Send + 'static>(
        &self,
        actor: Option<&ActorRef<RunMsg>>,
        reply: Reply<T>,
    ) -> Reply<T> {
        let Some(actor) = actor.cloned() else { return reply };
        let (relayed, answer) = oneshot::channel();
        self.args.node.spawn(async move {
            match unless_gone(&actor, answer).await {
                Some(answer) => _ = reply.send(answer),
                // It may be on its way out; asked again, it would leave that unanswered, too.
                None => _ = actor.wait(None).await,
            }
        });
        relayed
    }

    /// Cancels a live run, and clears it when its task has ended.
    pub(super) fn clear_live(
        &mut self,
        myself: &ActorRef<AgentMsg>,
        run_id: RunId,
        reply: Reply<bool>,
        due: Option<Instant>,
    ) {
        let (node, actor) = (Arc::clone(&self.args.node), myself.clone());
        let run = RunKey::new(&self.args.path, &run_id);
        if node.live.is_stopping(run) {
            let _ = reply.send(Err(Error::StillStopping(run_id.to_string())));
            return;
        }
        let overdue = node.limits.cancel_grace.saturating_mul(2).min(CLEAR_WAIT_MAX);
        let gives_up = due.unwrap_or_else(|| Instant::now() + overdue);
        if let Some(Lane::Live(pending)) = self.lanes.get_mut(&run_id) {
            hold(pending, RunRequest::Clear(reply, Some(gives_up)));
        }
        if let Some(live) = node.live.get(run) {
            let (cancelled, _) = oneshot::channel();
            // An actor that is gone needs no cancel.
            let _ = live.cast(RunMsg::Cancel(lanes::CLEARED.to_owned(), cancelled));
        }
        self.args.node.spawn(async move {
            tokio::time::sleep_until(gives_up).await;
            let _ = actor.cast(AgentMsg::ClearOverdue(run_id));
        });
    }

    /// Refuses the clears that have waited long enough; a later one may still see the run end.
    pub(super) fn clear_overdue(&mut self, run_id: &RunId) {
        let now = Instant::now();
        let Some(Lane::Live(pending)) = self.lanes.get_mut(run_id) else { return };
        for request in std::mem::take(pending) {
            match request {
                RunRequest::Clear(reply, Some(due)) if due <= now => {
                    let _ = reply.send(Err(Error::StillStopping(run_id.to_string())));
                }
                other => pending.push_back(other),
            }
        }
    }
}
