//! The supervisor as a ractor actor: its mailbox, and the way into and out of its state.

use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::oneshot;

use super::Config;
use super::state::State;
use crate::child_spec::{ChildId, ChildSpec, Started};
use crate::error::Error;
use crate::exit::Escalated;
use crate::strategy::Place;

pub(super) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// Adds to the callers who wait. Those who have gone away are dropped whenever the list would have to
/// grow, so that callers who try again and again do not pile up behind a child that is never ready.
pub(super) fn owe<T>(replies: &mut Vec<Reply<T>>, reply: Reply<T>) {
    if replies.len() == replies.capacity() {
        replies.retain(|reply| !reply.is_closed());
    }
    replies.push(reply);
}

/// What a supervisor is asked, and what its own tasks report to it.
pub(crate) enum Msg {
    Add { spec: Box<ChildSpec>, reply: Reply<ActorCell> },
    Ready { id: ChildId, reply: Reply<ActorCell> },
    Remove { id: ChildId, mode: StopMode, reply: Reply<()> },
    Child { id: ChildId, reply: oneshot::Sender<Option<ActorCell>> },
    Children { reply: oneshot::Sender<Vec<(ChildId, ActorCell)>> },
    Shutdown,
    Report { place: Place, start: u64, report: Report },
    SweepDue,
}

/// How a child is made to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopMode {
    /// Told to stop, killed when its drain time is over.
    Drain,
    /// Killed.
    Kill,
}

/// What a task that belongs to the `start`-th start of a child reports.
pub(crate) enum Report {
    /// The start is over; the sender has nothing left of it.
    Started(Result<Started, StartError>),
    /// The child was still starting when its drain time was over.
    DrainOver,
    /// The child's task has ended.
    Ended,
    /// The wait before the next start is over.
    BackoffOver,
}

/// Why a start gave no child.
pub(crate) enum StartError {
    Failed(String),
    Cancelled,
}

pub(super) struct SupervisorActor;

impl Actor for SupervisorActor {
    type Msg = Msg;
    type State = State;
    type Arguments = (Config, Reply<()>);

    async fn pre_start(
        &self,
        myself: ActorRef<Msg>,
        (config, booted): Self::Arguments,
    ) -> Result<State, ActorProcessingErr> {
        Ok(State::new(myself, config, booted))
    }

    async fn post_start(
        &self,
        _: ActorRef<Msg>,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        state.boot();
        proceed(state)
    }

    async fn handle(
        &self,
        _: ActorRef<Msg>,
        message: Msg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Add { spec, reply } => state.add(*spec, reply),
            Msg::Ready { id, reply } => state.ready(&id, reply),
            Msg::Remove { id, mode, reply } => state.remove(id, mode, reply),
            // A caller that has gone away is no reason to fail, here and below.
            Msg::Child { id, reply } => drop(reply.send(state.child(&id))),
            Msg::Children { reply } => drop(reply.send(state.children())),
            Msg::Shutdown => state.begin_close(None),
            Msg::Report { place, start, report } => state.report(place, start, report),
            Msg::SweepDue => state.sweep_due(),
        }
        proceed(state)
    }

    /// Replaces ractor's default, which stops the supervisor at the first end of a child.
    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<Msg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        state.event(event);
        proceed(state)
    }

    /// Stops what is still there, in order, when the supervisor was stopped through its cell. After
    /// a shutdown or an escalation nothing is.
    async fn post_stop(
        &self,
        _: ActorRef<Msg>,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        state.stop_unheard().await;
        Ok(())
    }
}

/// Takes the steps that have become due, and ends the supervisor after the last.
fn proceed(state: &mut State) -> Result<(), ActorProcessingErr> {
    state.advance();
    match state.closed() {
        Some(Some(escalated)) => Err(Box::<Escalated>::new(escalated)),
        Some(None) => {
            state.myself.stop(None);
            Ok(())
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_that_have_gone_away_do_not_pile_up() {
        let mut replies = Vec::<Reply<()>>::new();
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let (reply, answer) = oneshot::channel();
                owe(&mut replies, reply);
                answer
            })
            .collect();
        for _ in 0..10_000 {
            owe(&mut replies, oneshot::channel().0);
        }
        assert!(replies.len() <= 32, "{} are kept", replies.len());
        let kept = replies.iter().filter(|reply| !reply.is_closed()).count();
        assert_eq!(kept, waiting.len());
    }
}
