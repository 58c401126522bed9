//! Which agents are in memory, and how one gets there.

mod open_tails;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ghostlight_protocol::AgentPath;
use ghostlight_supervisor::{Backoff, ChildSpec, Decision, Exhausted, ExitNotice};
use ractor::{ActorId, ActorRef};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Error;
use crate::agent_actor::{AgentActor, AgentArgs};
use crate::messages::{AgentMsg, Reply};
use crate::node::Node;
use crate::place;

pub(crate) use self::open_tails::{OpenTail, OpenTails};

type Hydrated = Result<ActorRef<AgentMsg>, Error>;

/// How an agent is in memory.
enum Presence {
    Up(ActorRef<AgentMsg>),
    /// Whoever waits for it to come up.
    Coming(Vec<oneshot::Sender<Hydrated>>),
}

/// The agents in memory, by address.
#[derive(Default)]
pub(crate) struct Agents {
    present: Mutex<HashMap<AgentPath, Presence>>,
    changed: Notify,
}

impl Agents {
    fn lock(&self) -> MutexGuard<'_, HashMap<AgentPath, Presence>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An agent's actor has come up, for the first time or again.
    pub(crate) fn up(&self, path: &AgentPath, actor: ActorRef<AgentMsg>) {
        let mut present = self.lock();
        let Some(agent) = present.get_mut(path) else { return };
        let before = std::mem::replace(agent, Presence::Up(actor.clone()));
        drop(present);
        self.changed.notify_waiters();
        if let Presence::Coming(waiting) = before {
            for waiter in waiting {
                let _ = waiter.send(Ok(actor.clone()));
            }
        }
    }

    /// An agent's actor has ended, or did not come up.
    pub(crate) fn down(&self, path: &AgentPath, notice: &ExitNotice) {
        let mut present = self.lock();
        let Some(agent) = present.get_mut(path) else { return };
        let current = match agent {
            Presence::Up(actor) => Some(actor.get_id()),
            Presence::Coming(_) => None,
        };
        if current.is_some() && current != notice.actor {
            return;
        }
        let before = std::mem::replace(agent, Presence::Coming(Vec::new()));
        if !matches!(notice.decision, Decision::Restart { .. }) {
            present.remove(path);
        }
        drop(present);
        self.changed.notify_waiters();
        if let Presence::Coming(waiting) = before {
            let error =
                || Error::AgentDown { agent: path.to_string(), why: notice.reason.to_string() };
            for waiter in waiting {
                let _ = waiter.send(Err(error()));
            }
        }
    }

    fn failed(&self, path: &AgentPath, error: &Error) {
        let before = self.lock().remove(path);
        self.changed.notify_waiters();
        if let Some(Presence::Coming(waiting)) = before {
            for waiter in waiting {
                let _ = waiter.send(Err(error.clone()));
            }
        }
    }

    /// Whether the agent is in memory, or on its way there.
    pub(crate) fn is_known(&self, path: &AgentPath) -> bool {
        self.lock().contains_key(path)
    }

    /// The agent in memory, if it is.
    pub(crate) fn get(&self, path: &AgentPath) -> Option<ActorRef<AgentMsg>> {
        match self.lock().get(path)? {
            Presence::Up(actor) => Some(actor.clone()),
            Presence::Coming(_) => None,
        }
    }

    /// Waits until the end of an agent's actor was noticed.
    async fn departed(&self, path: &AgentPath, actor: ActorId) {
        loop {
            let changed = self.changed.notified();
            if self.get(path).is_none_or(|up| up.get_id() != actor) {
                return;
            }
            changed.await;
        }
    }

    pub(crate) fn ids(&self) -> Vec<(AgentPath, ActorId)> {
        let mut ids: Vec<_> = self
            .lock()
            .iter()
            .filter_map(|(path, agent)| match agent {
                Presence::Up(actor) => Some((path.clone(), actor.get_id())),
                Presence::Coming(_) => None,
            })
            .collect();
        ids.sort_by(|a, b| a.0.cmp(&b.0));
        ids
    }
}

/// The agent that an exit notice is about.
pub(crate) fn path_of(notice: &ExitNotice) -> Option<AgentPath> {
    notice.id.as_str().parse().ok()
}

/// Who asks an agent for something.
#[derive(Clone, Copy)]
pub(crate) enum Asker {
    /// Refused while the system drains, unless it is the code of a run.
    Outside,
    /// The system itself, which finishes what it has begun.
    Inside,
}

enum Next {
    Up(ActorRef<AgentMsg>),
    Wait(oneshot::Receiver<Hydrated>),
    Start(oneshot::Receiver<Hydrated>),
}

impl Node {
    /// The agent's actor; brings the agent into memory if it is not.
    pub(crate) async fn agent(self: &Arc<Self>, path: &AgentPath) -> Hydrated {
        self.agent_for(Asker::Outside, path).await
    }

    pub(crate) async fn agent_for(self: &Arc<Self>, asker: Asker, path: &AgentPath) -> Hydrated {
        let is_refused = matches!(asker, Asker::Outside) && self.is_draining();
        // A run that is at work is let come to its end, with all that it needs for that.
        if is_refused && !place::is_run(self) {
            return Err(Error::Stopped);
        }
        let next = {
            let mut present = self.agents.lock();
            match present.get_mut(path) {
                Some(Presence::Up(actor)) => Next::Up(actor.clone()),
                Some(Presence::Coming(waiting)) => {
                    let (sender, receiver) = oneshot::channel();
                    waiting.push(sender);
                    Next::Wait(receiver)
                }
                None => {
                    let (sender, receiver) = oneshot::channel();
                    present.insert(path.clone(), Presence::Coming(vec![sender]));
                    Next::Start(receiver)
                }
            }
        };
        let receiver = match next {
            Next::Up(actor) => return Ok(actor),
            Next::Wait(receiver) => receiver,
            Next::Start(receiver) => {
                let (node, path) = (Arc::clone(self), path.clone());
                self.spawn(async move {
                    if let Err(error) = node.start_agent(&path).await {
                        node.agents.failed(&path, &error);
                    }
                });
                receiver
            }
        };
        receiver.await.unwrap_or(Err(Error::Stopped))
    }

    async fn start_agent(self: &Arc<Self>, path: &AgentPath) -> Result<(), Error> {
        // Of all the lives that the supervisor gives this entry: the next one begins when the
        // operations of the one before are done. Entered anew, the agent has others.
        let operations = TaskTracker::new();
        operations.close();
        let kind = Arc::clone(self.kinds.get(path.agent_type())?);
        let supervisors = self.supervisors.get().ok_or(Error::Stopped)?;
        let life = CancellationToken::new();
        let args = AgentArgs { node: Arc::clone(self), path: path.clone(), kind, operations, life };
        let spec = ChildSpec::transient(path.as_str(), move || (AgentActor, args.clone()))
            .backoff(Backoff::default())
            .on_exhausted(Exhausted::RetryAtMax);
        match supervisors.agents.add(spec).await {
            // `up` was called by the actor itself.
            Ok(_) => Ok(()),
            Err(ghostlight_supervisor::Error::Stopped) => Err(Error::Stopped),
            // An earlier life is still on its way out, or on its way back.
            Err(ghostlight_supervisor::Error::AlreadyExists { .. }) => {
                match supervisors.agents.ready(path.as_str()).await {
                    Ok(cell) => {
                        self.agents.up(path, cell.into());
                        Ok(())
                    }
                    Err(error) => Err(down(path, &error)),
                }
            }
            Err(error) => {
                // Whoever asks next tries anew; nothing is retried that nobody waits for.
                let _ = supervisors.agents.remove(path.as_str()).await;
                Err(down(path, &error))
            }
        }
    }

    /// Asks an agent, again if it goes away before it has answered: every request is idempotent.
    pub(crate) async fn ask<T>(
        self: &Arc<Self>,
        path: &AgentPath,
        message: impl FnMut(Reply<T>) -> AgentMsg,
    ) -> Result<T, Error> {
        self.ask_as(Asker::Outside, path, message).await
    }

    /// As [`Node::ask`], also while the system drains.
    pub(crate) async fn ask_inside<T>(
        self: &Arc<Self>,
        path: &AgentPath,
        message: impl FnMut(Reply<T>) -> AgentMsg,
    ) -> Result<T, Error> {
        self.ask_as(Asker::Inside, path, message).await
    }

    async fn ask_as<T>(
        self: &Arc<Self>,
        asker: Asker,
        path: &AgentPath,
        message: impl FnMut(Reply<T>) -> AgentMsg,
    ) -> Result<T, Error> {
        let answer = self.answer(asker, path, message).await;
        place::unless_stopped(self, answer).await
    }

    async fn answer<T>(
        self: &Arc<Self>,
        asker: Asker,
        path: &AgentPath,
        mut message: impl FnMut(Reply<T>) -> AgentMsg,
    ) -> Result<T, Error> {
        let _stays = place::asking(self);
        loop {
            let actor = self.agent_for(asker, path).await?;
            let (reply, answer) = oneshot::channel();
            match actor.cast(message(reply)) {
                Ok(()) => {
                    // No answer: the actor is about to end, and takes no message once it has; or the
                    // run's has, and the agent decides anew.
                    if let Some(answer) = unless_gone(&actor, answer).await {
                        return answer;
                    }
                }
                Err(_) => self.departed(path, actor.get_id()).await?,
            }
        }
    }

    /// Waits until the end of an agent's actor was noticed, and the next one may be asked for.
    pub(crate) async fn departed(&self, path: &AgentPath, actor: ActorId) -> Result<(), Error> {
        tokio::select! {
            biased;
            // Nobody notices anything any more.
            () = self.stopped() => Err(self.gone()),
            () = self.agents.departed(path, actor) => Ok(()),
        }
    }
}

/// Waits for an answer, as long as it can come; `None` if the asked actor ended without one.
///
/// A message that is sent in the very moment in which its actor ends may stay in the mailbox, neither
/// handled nor dropped, until the last reference to the actor is gone: an answer that never comes is
/// not enough to go by.
pub(crate) async fn unless_gone<M, T>(
    actor: &ActorRef<M>,
    mut answer: oneshot::Receiver<T>,
) -> Option<T> {
    tokio::select! {
        biased;
        answer = &mut answer => answer.ok(),
        // It waits without a limit, so that it cannot fail.
        _ = actor.wait(None) => answer.try_recv().ok(),
    }
}

fn down(path: &AgentPath, error: &ghostlight_supervisor::Error) -> Error {
    Error::AgentDown { agent: path.to_string(), why: error.to_string() }
}
