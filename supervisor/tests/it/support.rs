//! An actor that does as it is told, and a log of what happened.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ghostlight_supervisor::{Backoff, ChildSpec, Config, Decision, ExitNotice, RestartPolicy};
use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef};
use tokio::sync::{mpsc, oneshot};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const DRAIN: Duration = Duration::from_secs(10);

/// What happened, in the order it did.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    Started(String, ActorId),
    /// `post_stop` was run.
    Stopped(String),
    /// The state was dropped: the actor has really ended.
    Dropped(String, ActorId),
    Exit(ExitNotice),
}

pub(crate) struct Log {
    tx: mpsc::UnboundedSender<Event>,
    rx: mpsc::UnboundedReceiver<Event>,
}

impl Log {
    pub(crate) fn new() -> Self {
        let (tx, rx) = mpsc::unbounded_channel();
        Self { tx, rx }
    }

    /// A configuration whose exit notices are logged.
    pub(crate) fn config(&self) -> Config {
        let tx = self.tx.clone();
        Config::new(1).on_exit(move |notice| drop(tx.send(Event::Exit(notice))))
    }

    /// A probe that comes up, with a backoff of exactly one second.
    pub(crate) fn spec(&self, id: &str, policy: RestartPolicy) -> ChildSpec {
        self.probe(id, policy, Start::Up)
    }

    pub(crate) fn probe(&self, id: &str, policy: RestartPolicy, start: Start) -> ChildSpec {
        let (name, tx) = (id.to_owned(), self.tx.clone());
        let make = move || {
            if let Start::PanicInMake = start {
                panic!("no probe today");
            }
            (Probe, Arguments { name: name.clone(), log: tx.clone(), start: start.clone() })
        };
        ChildSpec::new(id, policy, make).backoff(second()).drain(DRAIN)
    }

    pub(crate) async fn next(&mut self) -> Event {
        self.rx.recv().await.expect("the log is open")
    }

    pub(crate) async fn exit(&mut self) -> ExitNotice {
        loop {
            if let Event::Exit(notice) = self.next().await {
                return notice;
            }
        }
    }

    pub(crate) async fn started(&mut self, name: &str) -> ActorId {
        loop {
            match self.next().await {
                Event::Started(who, actor) if who == name => return actor,
                _ => {}
            }
        }
    }

    /// Takes what has been logged so far.
    pub(crate) fn take(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.rx.try_recv().ok()).collect()
    }

    pub(crate) fn exit_count(&mut self) -> usize {
        self.take().iter().filter(|event| matches!(event, Event::Exit(_))).count()
    }

    /// Takes what has been logged so far, as short lines.
    pub(crate) fn lines(&mut self) -> Vec<String> {
        self.take().iter().map(line).collect()
    }

    /// Waits for as many short lines.
    pub(crate) async fn await_lines(&mut self, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        while lines.len() < count {
            lines.push(line(&self.next().await));
        }
        lines
    }
}

fn line(event: &Event) -> String {
    match event {
        Event::Started(name, _) => format!("start {name}"),
        Event::Stopped(name) => format!("stop {name}"),
        Event::Dropped(name, _) => format!("drop {name}"),
        Event::Exit(ExitNotice { id, reason, decision, .. }) => match decision {
            Decision::Restart { after } => format!("exit {id} {reason}, again in {after:?}"),
            Decision::Remove => format!("exit {id} {reason}, removed"),
            Decision::Escalate => format!("exit {id} {reason}, escalated"),
        },
    }
}

/// One second, always.
pub(crate) fn second() -> Backoff {
    Backoff { first: SECOND, factor: 1, max: 60 * SECOND, jitter_percent: 0 }
}

/// What the start of a probe does.
#[derive(Clone)]
pub(crate) enum Start {
    Up,
    PanicInMake,
    Panic,
    Fail,
    /// Fails until the counter is down to zero.
    FailTimes(Arc<AtomicU32>),
    Hang,
    /// Comes up after a time.
    After(Duration),
    /// Comes up and stops by itself.
    StopAtOnce,
    /// Comes up and panics in `post_start`.
    PanicAtOnce,
    /// Comes up with a state that panics when dropped.
    PanicInDrop,
}

pub(crate) struct Probe;

pub(crate) struct Arguments {
    name: String,
    log: mpsc::UnboundedSender<Event>,
    start: Start,
}

pub(crate) struct State {
    name: String,
    actor: ActorId,
    log: mpsc::UnboundedSender<Event>,
    start: Start,
}

impl Drop for State {
    fn drop(&mut self) {
        let _ = self.log.send(Event::Dropped(self.name.clone(), self.actor));
        assert!(!matches!(self.start, Start::PanicInDrop), "boom in drop");
    }
}

pub(crate) enum Do {
    Ping(oneshot::Sender<()>),
    Panic,
    Fail,
    Stop,
    StopFor(&'static str),
    /// Handles this message for ever, and so ignores being told to stop.
    Hang,
}

impl Actor for Probe {
    type Msg = Do;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Do>,
        Arguments { name, log, start }: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        match &start {
            Start::Up
            | Start::PanicInMake
            | Start::StopAtOnce
            | Start::PanicAtOnce
            | Start::PanicInDrop => {}
            Start::Panic => panic!("boom at start"),
            Start::Fail => return Err("no start".into()),
            Start::FailTimes(left) => {
                if left
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                    .is_ok()
                {
                    return Err("not yet".into());
                }
            }
            Start::Hang => std::future::pending().await,
            Start::After(time) => tokio::time::sleep(*time).await,
        }
        let actor = myself.get_id();
        let _ = log.send(Event::Started(name.clone(), actor));
        Ok(State { name, actor, log, start })
    }

    async fn post_start(
        &self,
        myself: ActorRef<Do>,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match state.start {
            Start::StopAtOnce => myself.stop(None),
            Start::PanicAtOnce => panic!("boom"),
            _ => {}
        }
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<Do>,
        message: Do,
        _: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Do::Ping(reply) => drop(reply.send(())),
            Do::Panic => panic!("boom"),
            Do::Fail => return Err("oops".into()),
            Do::Stop => myself.stop(None),
            Do::StopFor(reason) => myself.stop(Some(reason.into())),
            Do::Hang => std::future::pending().await,
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        _: ActorRef<Do>,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let _ = state.log.send(Event::Stopped(state.name.clone()));
        Ok(())
    }
}

pub(crate) fn tell(cell: &ActorCell, message: Do) {
    cell.send_message(message).expect("the probe takes messages");
}

/// Returns when the probe has handled all it was told before.
pub(crate) async fn ping(cell: &ActorCell) {
    let (reply, pong) = oneshot::channel();
    tell(cell, Do::Ping(reply));
    pong.await.expect("the probe answers");
}

/// Makes a probe hang in its mailbox, and returns once it does.
pub(crate) async fn hang(cell: &ActorCell) {
    ping(cell).await;
    tell(cell, Do::Hang);
    tokio::task::yield_now().await;
}
