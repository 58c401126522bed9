//! The actor of an agent in its role as a parent.
//!
//! The mailbox never waits, neither for user code nor for the disk. Each run has a *lane*: at most
//! one operation of ours at a time works on a run that is not in memory, and requests that come
//! meanwhile wait in the lane. While the run's actor lives, it owns the run, and requests are passed
//! on to it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ghostlight_protocol::{AgentPath, RunId, RunKey};
use ractor::{Actor, ActorProcessingErr, ActorRef, MessagingErr};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::Error;
use crate::agent::AtCap;
use crate::lanes::{self, LaneEnd, Operation};
use crate::messages::{AgentMsg, Reply, RunExit, RunMsg, RunRequest, StartRun, Started};
use crate::node::Node;
use crate::registry::Kind;
use crate::turns::Turns;

pub(crate) struct AgentActor;

#[derive(Clone)]
pub(crate) struct AgentArgs {
    pub(crate) node: Arc<Node>,
    pub(crate) path: AgentPath,
    pub(crate) kind: Arc<Kind>,
    pub(crate) operations: TaskTracker,
    /// Ends with this life of the agent; what runs user code ends with it, and begins anew.
    pub(crate) life: CancellationToken,
}

enum Lane {
    /// An operation of ours is at work.
    Busy(VecDeque<RunRequest>),
    /// The run is recorded, and waits for its start hook or for a place among the runnable runs.
    Entering(VecDeque<RunRequest>, Option<oneshot::Sender<(String, Reply<()>)>>),
    /// The run's actor owns the run.
    Live(VecDeque<RunRequest>),
}

pub(crate) struct AgentState {
    pub(crate) args: AgentArgs,
    lanes: BTreeMap<RunId, Lane>,
    /// The runs that hold a slot under the cap, those that are being dispatched included.
    slots: BTreeSet<RunKey>,
    /// The dispatches that are being recorded, or refused.
    starting: BTreeSet<RunId>,
    /// Those of them that were given a slot, and may turn out to need none.
    provisional: BTreeSet<RunId>,
    /// The dispatches that the cap refuses if none of those gives its slot back, in order.
    deferred: VecDeque<(RunId, Box<StartRun>, Reply<Started>)>,
    settling: Vec<(BTreeSet<RunId>, Reply<()>)>,
    _life: DropGuard,
    next_queue_number: u64,
    queued: usize,
    admitting: bool,
    pub(crate) turns: Turns,
    /// When the last message came that was no timer.
    active_at: Instant,
    /// A timer that judges idleness is under way.
    idle_timer: bool,
    evicting: Vec<Reply<()>>,
}

impl Actor for AgentActor {
    type Msg = AgentMsg;
    type State = AgentState;
    type Arguments = AgentArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<AgentMsg>,
        mut args: AgentArgs,
    ) -> Result<AgentState, ActorProcessingErr> {
        // What an earlier life has begun is done before this one looks at the store. None of it
        // runs user code but what ends with that life, so that this does not take long.
        args.operations.wait().await;
        args.life = CancellationToken::new();
        let found = lanes::look_around(&args).await?;
        let mut state = AgentState {
            lanes: BTreeMap::new(),
            slots: found.slots,
            starting: BTreeSet::new(),
            provisional: BTreeSet::new(),
            deferred: VecDeque::new(),
            settling: Vec::new(),
            _life: args.life.clone().drop_guard(),
            next_queue_number: found.next_queue_number,
            queued: found.queued,
            admitting: false,
            turns: Turns::new(found.owed),
            active_at: Instant::now(),
            idle_timer: false,
            evicting: Vec::new(),
            args,
        };
        for run_id in &found.live {
            state.lanes.insert(run_id.clone(), Lane::Live(VecDeque::new()));
        }
        for run_id in found.lost {
            state.request(&myself, run_id, RunRequest::Recover(None));
        }
        state.after(&myself);
        let node = Arc::clone(&state.args.node);
        node.agents.up(&state.args.path, myself.clone());
        // An actor that ended while we were not to be found has told nobody.
        for run_id in found.live {
            if node.live.get(RunKey::new(&state.args.path, &run_id)).is_none() {
                let _ = myself.cast(AgentMsg::Exited(run_id, RunExit::Lost));
            }
        }
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<AgentMsg>,
        message: AgentMsg,
        state: &mut AgentState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            AgentMsg::Run(run_id, request) => state.request(&myself, run_id, request),
            AgentMsg::Exited(run_id, exit) => state.exited(&myself, run_id, exit),
            AgentMsg::ClearOverdue(run_id) => state.clear_overdue(&run_id),
            AgentMsg::LaneDone(run_id, end) => state.lane_done(&myself, run_id, end),
            AgentMsg::Owed(run_id) => state.turns.owe(run_id),
            AgentMsg::OwedAgain(run_id) => state.turns.owed_again(run_id),
            AgentMsg::Turn(turn) => state.turns.push(turn),
            AgentMsg::TurnDone(end) => state.turns.done(&state.args, &myself, end),
            AgentMsg::AdmitAgain => state.admitting = false,
            AgentMsg::Evict(reply) => state.evicting.push(reply),
            AgentMsg::Settle(reply) => {
                let deferred = state.deferred.iter().map(|(run_id, ..)| run_id);
                let waiting = state.starting.iter().chain(deferred).cloned().collect();
                state.settling.push((waiting, reply));
                state.settle();
            }
            AgentMsg::Idle => {
                state.idle_timer = false;
                match state.is_idle() && state.idle_left().is_zero() {
                    true => state.leave(&myself),
                    // Looking at the time is no activity.
                    false => state.watch_idleness(&myself),
                }
                return Ok(());
            }
        }
        state.after(&myself);
        Ok(())
    }
}

impl AgentState {
    fn request(&mut self, myself: &ActorRef<AgentMsg>, run_id: RunId, request: RunRequest) {
        match self.lanes.get_mut(&run_id) {
            Some(Lane::Busy(pending)) => pending.push_back(request),
            Some(Lane::Entering(..)) => self.while_entering(run_id, request),
            Some(Lane::Live(_)) => self.forward(myself, run_id, request),
            None => self.begin(myself, run_id, request),
        }
    }

    /// Answers what it can while the run is on its way to its actor; all else waits.
    fn while_entering(&mut self, run_id: RunId, request: RunRequest) {
        let Some(Lane::Entering(pending, cancel)) = self.lanes.get_mut(&run_id) else { return };
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
                let task = async move { lanes::start_existing(&args, &start, reply).await };
                self.args.node.spawn(self.args.operations.track_future(task));
            }
            RunRequest::Cancel(reason, reply) => match cancel.take() {
                Some(cancel) => {
                    if let Err((reason, reply)) = cancel.send((reason, reply)) {
                        pending.push_back(RunRequest::Cancel(reason, reply));
                    }
                }
                None => pending.push_back(RunRequest::Cancel(reason, reply)),
            },
            RunRequest::Clear(reply) => {
                if let Some(cancel) = cancel.take() {
                    // If it comes too late, the run is cancelled once it is live.
                    let _ = cancel.send(("cleared".to_owned(), oneshot::channel().0));
                }
                pending.push_back(RunRequest::Clear(reply));
            }
            // Frame 0 is shown after the start hook.
            RunRequest::Tail(reply) => pending.push_back(RunRequest::Tail(reply)),
            // It is on its way already.
            RunRequest::Recover(reply) => {
                if let Some(reply) = reply {
                    let _ = reply.send(Ok(()));
                }
            }
            RunRequest::Wake | RunRequest::Admit => {}
        }
    }

    /// Passes a request on to the run's actor.
    fn forward(&mut self, myself: &ActorRef<AgentMsg>, run_id: RunId, request: RunRequest) {
        let run = RunKey::new(&self.args.path, &run_id);
        let actor = self.args.node.live.get(run);
        let message = match request {
            RunRequest::Inspect(reply) => RunMsg::Inspect(reply),
            RunRequest::Cancel(reason, reply) => RunMsg::Cancel(reason, reply),
            RunRequest::Tail(reply) => RunMsg::Tail(reply),
            RunRequest::Start(start, reply) => {
                // Reads alone: the run's actor goes on meanwhile.
                let args = self.args.clone();
                let task = async move { lanes::start_existing(&args, &start, reply).await };
                self.args.node.spawn(self.args.operations.track_future(task));
                return;
            }
            RunRequest::Clear(reply) => return self.clear_live(myself, run_id, reply),
            // A live run needs none of it.
            RunRequest::Recover(Some(reply)) => {
                let _ = reply.send(Ok(()));
                return;
            }
            RunRequest::Wake | RunRequest::Recover(None) | RunRequest::Admit => return,
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
            RunMsg::Inspect(reply) => RunRequest::Inspect(reply),
            RunMsg::Cancel(reason, reply) => RunRequest::Cancel(reason, reply),
            RunMsg::Tail(reply) => RunRequest::Tail(reply),
            _ => return,
        };
        if let Some(Lane::Live(pending)) = self.lanes.get_mut(&run_id) {
            pending.push_back(request);
        }
    }

    /// Cancels a live run, and clears it when its task has ended.
    fn clear_live(&mut self, myself: &ActorRef<AgentMsg>, run_id: RunId, reply: Reply<bool>) {
        let (node, actor) = (Arc::clone(&self.args.node), myself.clone());
        let run = RunKey::new(&self.args.path, &run_id);
        if node.live.is_stopping(run) {
            let _ = reply.send(Err(Error::StillStopping(run_id.to_string())));
            return;
        }
        if let Some(Lane::Live(pending)) = self.lanes.get_mut(&run_id) {
            pending.push_back(RunRequest::Clear(reply));
        }
        if let Some(live) = node.live.get(run) {
            let (cancelled, _) = oneshot::channel();
            // An actor that is gone needs no cancel.
            let _ = live.cast(RunMsg::Cancel("cleared".to_owned(), cancelled));
        }
        let overdue = node.limits.cancel_grace * 2;
        self.args.node.spawn(async move {
            tokio::time::sleep(overdue).await;
            let _ = actor.cast(AgentMsg::ClearOverdue(run_id));
        });
    }

    fn clear_overdue(&mut self, run_id: &RunId) {
        let Some(Lane::Live(pending)) = self.lanes.get_mut(run_id) else { return };
        for request in std::mem::take(pending) {
            match request {
                RunRequest::Clear(reply) => {
                    let _ = reply.send(Err(Error::StillStopping(run_id.to_string())));
                }
                other => pending.push_back(other),
            }
        }
    }

    /// Begins an operation on a run that nobody executes.
    fn begin(&mut self, myself: &ActorRef<AgentMsg>, run_id: RunId, request: RunRequest) {
        let operation = match request {
            RunRequest::Start(start, reply) => match self.place(&run_id, start, reply) {
                Some(operation) => operation,
                None => return,
            },
            RunRequest::Inspect(reply) => Operation::Inspect { reply },
            RunRequest::Cancel(reason, reply) => Operation::Cancel { reason, reply },
            RunRequest::Tail(reply) => Operation::Tail { reply },
            RunRequest::Clear(reply) => Operation::Clear { reply },
            RunRequest::Wake => Operation::Resume { woken: true, reply: None },
            RunRequest::Recover(reply) => Operation::Resume { woken: false, reply },
            RunRequest::Admit => {
                self.slots.insert(RunKey::new(&self.args.path, &run_id));
                Operation::Admit
            }
        };
        self.lanes.entry(run_id.clone()).or_insert_with(|| Lane::Busy(VecDeque::new()));
        self.operate(myself, run_id, operation);
    }

    fn operate(&self, myself: &ActorRef<AgentMsg>, run_id: RunId, operation: Operation) {
        let (args, actor) = (self.args.clone(), myself.clone());
        let task = async move {
            let end = lanes::operate(&args, &run_id, operation).await;
            let _ = actor.cast(AgentMsg::LaneDone(run_id, end));
        };
        self.args.node.spawn(self.args.operations.track_future(task));
    }

    /// Finds a dispatch its place under the cap; `None` if that has to wait a moment.
    fn place(
        &mut self,
        run_id: &RunId,
        start: Box<StartRun>,
        reply: Reply<Started>,
    ) -> Option<Operation> {
        let run = RunKey::new(&self.args.path, run_id);
        let held = self.slots.contains(&run);
        let queues = self.args.kind.settings.at_cap == AtCap::Queue;
        match self.args.kind.settings.max_concurrent_runs {
            // A run that waits was first.
            Some(cap) if !held && (self.slots.len() >= cap || (queues && self.queued > 0)) => {
                if !queues && !self.provisional.is_empty() {
                    self.lanes.insert(run_id.clone(), Lane::Busy(VecDeque::new()));
                    self.deferred.push_back((run_id.clone(), start, reply));
                    return None;
                }
                let number = queues.then_some(self.next_queue_number);
                self.next_queue_number += u64::from(queues);
                self.queued += usize::from(queues);
                self.starting.insert(run_id.clone());
                Some(Operation::StartAtCap { start, reply, cap, number })
            }
            _ => {
                self.starting.insert(run_id.clone());
                if self.slots.insert(run) {
                    self.provisional.insert(run_id.clone());
                }
                Some(Operation::Start { start, reply, held })
            }
        }
    }

    /// A dispatch is recorded, or refused: decides those that waited for it.
    fn started(&mut self, myself: &ActorRef<AgentMsg>, run_id: &RunId) {
        if !self.starting.remove(run_id) {
            return;
        }
        self.provisional.remove(run_id);
        let cap = self.args.kind.settings.max_concurrent_runs.unwrap_or(usize::MAX);
        while (self.provisional.is_empty() || self.slots.len() < cap)
            && let Some((run_id, start, reply)) = self.deferred.pop_front()
        {
            self.begin(myself, run_id, RunRequest::Start(start, reply));
        }
        self.settle();
    }

    /// Answers whoever waits for the dispatches that came before.
    fn settle(&mut self) {
        let (starting, deferred) = (&self.starting, &self.deferred);
        let settled = |(waiting, _): &mut (BTreeSet<RunId>, _)| {
            waiting.is_disjoint(starting) && !deferred.iter().any(|(id, ..)| waiting.contains(id))
        };
        for (_, reply) in self.settling.extract_if(.., settled) {
            let _ = reply.send(Ok(()));
        }
    }

    fn lane_done(&mut self, myself: &ActorRef<AgentMsg>, run_id: RunId, end: LaneEnd) {
        let run = RunKey::new(&self.args.path, &run_id);
        let pending = match self.lanes.remove(&run_id) {
            Some(Lane::Busy(pending) | Lane::Entering(pending, _) | Lane::Live(pending)) => pending,
            None => VecDeque::new(),
        };
        match end.holds_slot {
            Some(true) => _ = self.slots.insert(run),
            Some(false) => _ = self.slots.remove(&run),
            None => {}
        }
        self.queued = self.queued.saturating_add_signed(end.queued);
        if end.admission {
            self.admitting = false;
        }
        if let Some(entering) = end.entering {
            let (cancel, cancelled) = oneshot::channel();
            self.lanes.insert(run_id.clone(), Lane::Entering(VecDeque::new(), Some(cancel)));
            self.operate(myself, run_id.clone(), Operation::Enter { entering, cancelled });
        }
        self.started(myself, &run_id);
        if end.live {
            self.lanes.insert(run_id.clone(), Lane::Live(VecDeque::new()));
            // It may have ended before we heard of its beginning.
            if self.args.node.live.get(run).is_none() {
                self.exited(myself, run_id.clone(), RunExit::Lost);
            }
        }
        for request in pending {
            self.request(myself, run_id.clone(), request);
        }
    }

    fn exited(&mut self, myself: &ActorRef<AgentMsg>, run_id: RunId, exit: RunExit) {
        if self.args.node.live.get(RunKey::new(&self.args.path, &run_id)).is_some() {
            // The notice of an earlier life of it.
            return;
        }
        // An operation that started the actor has not been heard of yet, and will look itself.
        let Some(Lane::Live(_)) = self.lanes.get(&run_id) else { return };
        let Some(Lane::Live(pending)) = self.lanes.remove(&run_id) else { return };
        match exit {
            RunExit::Ended => {
                self.slots.remove(&RunKey::new(&self.args.path, &run_id));
            }
            RunExit::Waiting => {}
            RunExit::Lost => self.begin(myself, run_id.clone(), RunRequest::Recover(None)),
        }
        for request in pending {
            self.request(myself, run_id.clone(), request);
        }
    }

    /// What may follow from any message: admission, the next turn, eviction, idleness.
    fn after(&mut self, myself: &ActorRef<AgentMsg>) {
        self.active_at = Instant::now();
        self.admit(myself);
        self.turns.next(&self.args, myself);
        // Last of the conditions: it looks at every run, and this comes after every message.
        let at_work = || self.lanes.values().any(|lane| !matches!(lane, Lane::Live(_)));
        if !self.evicting.is_empty() && !self.turns.is_at_work() && !at_work() {
            for reply in self.evicting.drain(..) {
                let _ = reply.send(Ok(()));
            }
            return self.leave(myself);
        }
        self.watch_idleness(myself);
    }

    /// Sets a timer, if none is set, after which an agent that has done nothing leaves memory.
    fn watch_idleness(&mut self, myself: &ActorRef<AgentMsg>) {
        if !self.is_idle() || std::mem::replace(&mut self.idle_timer, true) {
            return;
        }
        let (actor, left) = (myself.clone(), self.idle_left());
        self.args.node.spawn(async move {
            tokio::time::sleep(left).await;
            let _ = actor.cast(AgentMsg::Idle);
        });
    }

    fn idle_left(&self) -> Duration {
        let idle = self.args.kind.settings.idle.unwrap_or(self.args.node.limits.idle);
        idle.saturating_sub(self.active_at.elapsed())
    }

    fn leave(&self, myself: &ActorRef<AgentMsg>) {
        tracing::debug!(agent = %self.args.path, "agent leaves memory");
        self.args.node.bring_back_if_needed(self.args.clone(), myself.get_id());
        myself.stop(None);
    }

    fn is_idle(&self) -> bool {
        self.lanes.is_empty() && self.turns.is_empty() && self.queued == 0
    }

    fn admit(&mut self, myself: &ActorRef<AgentMsg>) {
        let Some(cap) = self.args.kind.settings.max_concurrent_runs else {
            // The cap was lifted since they were queued.
            return self.admit_one(myself);
        };
        if self.slots.len() < cap {
            self.admit_one(myself);
        }
    }

    fn admit_one(&mut self, myself: &ActorRef<AgentMsg>) {
        if self.admitting || self.queued == 0 || self.args.node.is_draining() {
            return;
        }
        self.admitting = true;
        let (args, actor) = (self.args.clone(), myself.clone());
        let task = async move {
            match lanes::queue_head(&args).await {
                Ok(Some(run_id)) => {
                    let _ = actor.cast(AgentMsg::Run(run_id, RunRequest::Admit));
                }
                // Counted, but not there yet: its dispatch is still on its way to the disk.
                Ok(None) => {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                    let _ = actor.cast(AgentMsg::AdmitAgain);
                }
                Err(error) => tracing::error!(agent = %args.path, %error, "the queue is stuck"),
            }
        };
        self.args.node.spawn(self.args.operations.track_future(task));
    }
}
