//! An agent's turns: finish hooks and turns of the program, one at a time, first come first served.
//!
//! A failed delivery leaves the queue, and re-enters at the tail when its timer fires. What is owed
//! is a row of the store from the very commit that ended the run, so that no crash loses it.

mod delivery;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ghostlight_protocol::planted::{Planted, planted};
use ghostlight_protocol::{AgentPath, RunId};
use ghostlight_storage as storage;
use ghostlight_supervisor::RESTART;
use ractor::ActorRef;
use storage::records::OwedRecord;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::Instrument;

use self::delivery::deliver;
use crate::agent_actor::AgentArgs;
use crate::code::{caught, guarded};
use crate::handle::AgentHandle;
use crate::log;
use crate::messages::AgentMsg;
use crate::node::Node;
use crate::place::{self, Awaiting};
use crate::registry::BoxFuture;
use crate::{Agent, Error};

/// The context of a hook or a turn: the agent that it belongs to.
#[derive(Clone)]
pub struct AgentContext {
    node: Arc<Node>,
    path: AgentPath,
}

impl AgentContext {
    pub(crate) fn new(node: Arc<Node>, path: AgentPath) -> Self {
        Self { node, path }
    }

    /// The agent's address.
    pub fn path(&self) -> &AgentPath {
        &self.path
    }

    /// The agent's handle, to dispatch and await runs.
    pub fn agent<A: Agent>(&self) -> AgentHandle<A> {
        AgentHandle::outside(Arc::clone(&self.node), self.path.clone())
    }
}

/// A turn of the user's program.
pub(crate) struct AdHoc(pub(crate) Box<dyn FnOnce(AgentContext) -> BoxFuture<()> + Send>);

impl std::fmt::Debug for AdHoc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AdHoc")
    }
}

#[derive(Debug)]
enum Turn {
    Finish(RunId),
    AdHoc(AdHoc),
}

/// A turn that is due: a shutdown waits for it.
struct Due {
    turn: Turn,
    work: TaskTrackerToken,
}

/// How a turn ended.
#[derive(Debug)]
pub(crate) struct TurnEnd {
    /// The delivery it was, and when it is tried again.
    delivery: Option<(RunId, Option<Duration>)>,
    /// The turn panicked: what the agent had in memory is not to be trusted.
    panicked: bool,
}

tokio::task_local! {
    /// The agent whose turn this task is.
    static TURN_OF: AgentPath;
}

/// Fails if this task is a turn of `agent`, which would then wait for itself.
pub(crate) fn refuse_own_queue(agent: &AgentPath) -> Result<(), Error> {
    match TURN_OF.try_with(|turn| turn == agent) {
        Ok(true) => Err(Error::OwnQueue(agent.to_string())),
        Ok(false) | Err(_) => Ok(()),
    }
}

pub(crate) struct Turns {
    queue: VecDeque<Due>,
    /// Every delivery that is queued, running, or waiting for its next try.
    owed: BTreeSet<RunId>,
    waiting: BTreeMap<RunId, u64>,
    running: bool,
}

impl Turns {
    pub(crate) fn new(node: &Node, owed: Vec<(RunId, OwedRecord)>) -> Self {
        let mut turns = Self {
            queue: VecDeque::new(),
            owed: BTreeSet::new(),
            waiting: BTreeMap::new(),
            running: false,
        };
        for (run_id, record) in owed {
            if record.tries == 0 {
                turns.owe(run_id, node.turns.token());
            } else {
                turns.owed.insert(run_id.clone());
                turns.waiting.insert(run_id, record.due_ms);
            }
        }
        turns
    }

    pub(crate) fn owe(&mut self, run_id: RunId, work: TaskTrackerToken) {
        let waited = self.waiting.remove(&run_id).is_some();
        if self.owed.insert(run_id.clone()) || waited {
            self.queue.push_back(Due { turn: Turn::Finish(run_id), work });
        }
    }

    pub(crate) fn push(&mut self, turn: AdHoc, work: TaskTrackerToken) {
        self.queue.push_back(Due { turn: Turn::AdHoc(turn), work });
    }

    /// Whether a turn is running or queued; a delivery that waits for its next try is neither.
    pub(crate) fn is_at_work(&self) -> bool {
        self.running || !self.queue.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.running && self.queue.is_empty() && self.owed.is_empty()
    }

    /// Begins the next turn, if none is running.
    pub(crate) fn next(&mut self, args: &AgentArgs, myself: &ActorRef<AgentMsg>) {
        self.wake_waiting(args, myself);
        if self.running && !planted(Planted::TurnsAtOnce) {
            return;
        }
        let Some(Due { turn, work }) = self.queue.pop_front() else { return };
        self.running = true;
        let (args, actor) = (args.clone(), myself.clone());
        let node = Arc::clone(&args.node);
        let (scope, operations) = (args.path.clone(), args.operations.clone());
        let task = async move {
            // It ends with this life, and the next one waits for that: otherwise the turns of two
            // lives would run at once.
            tokio::select! {
                biased;
                () = args.life.cancelled() => {}
                end = execute(&args, turn).instrument(log::turn(&args)) => {
                    drop(work);
                    let _ = actor.cast(AgentMsg::TurnDone(end));
                }
            }
        };
        node.spawn(operations.track_future(TURN_OF.scope(scope, task)));
    }

    /// Sets timers for the deliveries that an earlier life has tried.
    fn wake_waiting(&mut self, args: &AgentArgs, myself: &ActorRef<AgentMsg>) {
        let now_ms = args.node.clock.now_ms();
        for (run_id, due_ms) in std::mem::take(&mut self.waiting) {
            let wait = Duration::from_millis(due_ms.saturating_sub(now_ms));
            self.owed.remove(&run_id);
            self.owe_later(args, myself, run_id, wait);
        }
    }

    fn owe_later(
        &mut self,
        args: &AgentArgs,
        myself: &ActorRef<AgentMsg>,
        run_id: RunId,
        wait: Duration,
    ) {
        self.owed.insert(run_id.clone());
        let (actor, args) = (myself.clone(), args.clone());
        args.node.clone().spawn(async move {
            tokio::time::sleep(wait).await;
            if actor.cast(AgentMsg::OwedAgain(run_id)).is_err() {
                // The agent was evicted. Its next life finds the delivery in the store, and that
                // it is due; if the system is stopping, the next system does.
                let _ = args.node.agent(&args.path).await;
            }
        });
    }

    pub(crate) fn owed_again(&mut self, run_id: RunId, work: TaskTrackerToken) {
        if self.owed.contains(&run_id) {
            self.queue.push_back(Due { turn: Turn::Finish(run_id), work });
        }
    }

    pub(crate) fn done(&mut self, args: &AgentArgs, myself: &ActorRef<AgentMsg>, end: TurnEnd) {
        if end.panicked {
            tracing::error!(agent = %args.path, "a turn panicked: the agent is restarted");
            // It counts as running, so that no turn of this life goes on beside the next life.
            return myself.stop(Some(RESTART.to_owned()));
        }
        self.running = false;
        match end.delivery {
            Some((run_id, None)) => _ = self.owed.remove(&run_id),
            Some((run_id, Some(wait))) => self.owe_later(args, myself, run_id, wait),
            None => {}
        }
    }
}

async fn execute(args: &AgentArgs, turn: Turn) -> TurnEnd {
    match turn {
        Turn::Finish(run_id) => deliver(args, run_id).await,
        Turn::AdHoc(AdHoc(body)) => {
            let cx = AgentContext::new(Arc::clone(&args.node), args.path.clone());
            let panicked = match caught(|| body(cx)) {
                Ok(body) => guarded(body).await.is_err(),
                Err(_) => true,
            };
            TurnEnd { delivery: None, panicked }
        }
    }
}

/// Runs `body` as a turn of an agent, and waits for what it returns.
pub(crate) async fn turn<T, F, Fut>(
    node: &Arc<Node>,
    agent: &AgentPath,
    body: F,
) -> Result<T, Error>
where
    T: Send + 'static,
    F: FnOnce(AgentContext) -> Fut + Send + 'static,
    Fut: Future<Output = T> + Send + 'static,
{
    let turned = queued(node, agent, body).await;
    place::unless_stopped(node, turned).await
}

async fn queued<T, F, Fut>(node: &Arc<Node>, agent: &AgentPath, body: F) -> Result<T, Error>
where
    T: Send + 'static,
    F: FnOnce(AgentContext) -> Fut + Send + 'static,
    Fut: Future<Output = T> + Send + 'static,
{
    refuse_own_queue(agent)?;
    // The turn, or one before it, may wait for runs.
    let _awaiting = Awaiting::begin(node);
    let _stays = place::asking(node);
    let (sender, mut receiver) = tokio::sync::oneshot::channel();
    // Whatever becomes of the agent's lives, the turn is taken once.
    let turn = Arc::new(Mutex::new(Some((body, sender))));
    let take = |turn: &Mutex<Option<_>>| turn.lock().unwrap_or_else(PoisonError::into_inner).take();
    loop {
        let queued = Arc::clone(&turn);
        let message = AdHoc(Box::new(move |cx| {
            Box::pin(async move {
                if let Some((body, sender)) = take(&queued) {
                    let body: F = body;
                    // Nobody may be waiting any more.
                    let _ = sender.send(body(cx).await);
                }
            })
        }));
        let actor = node.agent(agent).await?;
        if actor.cast(AgentMsg::Turn(message)).is_ok() {
            let ended = tokio::select! {
                biased;
                ended = &mut receiver => Some(ended),
                _ = actor.wait(None) => None,
            };
            let begun = turn.lock().unwrap_or_else(PoisonError::into_inner).is_none();
            let ended = match ended {
                Some(ended) => ended,
                None if begun => (&mut receiver).await,
                // The agent left memory, or another turn panicked, before it was this one's turn.
                None => continue,
            };
            return ended.map_err(|_| match node.is_draining() {
                true => Error::Stopped,
                false => down(agent, "the turn did not end: it panicked, or the agent crashed"),
            });
        }
        node.departed(agent, actor.get_id()).await?;
    }
}

fn down(agent: &AgentPath, why: &str) -> Error {
    Error::AgentDown { agent: agent.to_string(), why: why.to_owned() }
}
