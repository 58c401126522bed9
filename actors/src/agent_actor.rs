//! The actor of an agent in its role as a parent.
//!
//! The mailbox never waits, neither for user code nor for the disk. Each run has a *lane*: at most
//! one operation of ours at a time works on a run that is not in memory, and requests that come
//! meanwhile wait in the lane. While the run's actor lives, it owns the run, and requests are passed
//! on to it.

mod requests;
mod slots;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ghostlight_protocol::planted::{Planted, planted};
use ghostlight_protocol::{AgentPath, RunId, RunKey};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::code::guarded;
use crate::lanes::{self, Admission, Cause, Entering, LaneEnd, Operation};
use crate::log;
use crate::messages::{AgentMsg, Reply, RunExit, RunRequest, StartRun, Started, hold};
use crate::node::Node;
use crate::probe::Seen;
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
    /// The run waits for its start hook, or for a place among the runnable runs.
    Entering {
        pending: VecDeque<RunRequest>,
        cancel: Option<oneshot::Sender<(String, Reply<()>)>>,
        /// It was entered before, and may be shown meanwhile.
        shown: bool,
    },
    /// The run's actor owns the run.
    Live(VecDeque<RunRequest>),
}

pub(crate) struct AgentState {
    pub(crate) args: AgentArgs,
    lanes: BTreeMap<RunId, Lane>,
    /// The runs that hold a slot under the cap, those that are being dispatched included.
    slots: BTreeSet<RunKey>,
    /// Live runs that this system does not go on with, unless it is to end them.
    resting: BTreeSet<RunId>,
    /// The dispatches that are being recorded, or refused, with their numbers in the queue.
    starting: BTreeMap<RunId, Option<u64>>,
    /// The runs that were given a slot, and may turn out to need none.
    provisional: BTreeSet<RunId>,
    /// The dispatches that the cap refuses if none of those gives its slot back, in order.
    deferred: VecDeque<(RunId, Box<StartRun>, Reply<Started>)>,
    settling: Vec<(BTreeSet<RunId>, Reply<()>)>,
    /// The readers of queued runs that are not shown yet.
    hidden: BTreeMap<RunId, Vec<Reply<Option<()>>>>,
    _life: DropGuard,
    next_queue_number: u64,
    queued: usize,
    admitting: bool,
    /// The queued runs whose admission has failed, and when.
    passed_over: BTreeMap<RunId, Instant>,
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
            resting: found.resting.into_iter().collect(),
            starting: BTreeMap::new(),
            provisional: BTreeSet::new(),
            deferred: VecDeque::new(),
            settling: Vec::new(),
            hidden: BTreeMap::new(),
            _life: args.life.clone().drop_guard(),
            next_queue_number: found.next_queue_number,
            queued: found.queued,
            admitting: false,
            passed_over: BTreeMap::new(),
            turns: Turns::new(&args.node, found.owed),
            active_at: Instant::now(),
            idle_timer: false,
            evicting: Vec::new(),
            args,
        };
        for run_id in &found.live {
            state.lanes.insert(run_id.clone(), Lane::Live(VecDeque::new()));
        }
        for run_id in found.lost {
            if planted(Planted::IgnoreLoss) {
                continue;
            }
            // Whoever needs it nevertheless asks for it.
            if state.args.node.is_draining() {
                continue;
            }
            if planted(Planted::LeakSlots)
                && let Ok(nobody) = RunId::new(format!("nobody beside {run_id}"))
            {
                state.slots.insert(RunKey::new(&state.args.path, &nobody));
            }
            // It may turn out to be parked, which takes no slot.
            state.provisional.insert(run_id.clone());
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
            AgentMsg::LaneDone(run_id, Ok(end)) => state.lane_done(&myself, run_id, end),
            // A bug. Nobody knows how far the operation came, but a new life looks at the store.
            AgentMsg::LaneDone(_, Err(panic)) => return Err(panic.into()),
            AgentMsg::Owed(run_id, work) => state.turns.owe(run_id, work),
            AgentMsg::OwedAgain(run_id) => {
                let work = state.args.node.turns.token();
                state.turns.owed_again(run_id, work);
            }
            AgentMsg::Turn(turn) => {
                let work = state.args.node.turns.token();
                state.turns.push(turn, work);
            }
            AgentMsg::TurnDone(end) => state.turns.done(&state.args, &myself, end),
            // That it has come is all: the idle time begins with it.
            AgentMsg::TailClosed => {}
            AgentMsg::AdmitAgain => state.admitting = false,
            AgentMsg::Evict(reply) => state.evicting.push(reply),
            AgentMsg::Settle(reply) => {
                let deferred = state.deferred.iter().map(|(run_id, ..)| run_id);
                let waiting = state.starting.keys().chain(deferred).cloned().collect();
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
        state.args.node.seen(Seen::Handled { agent: &state.args.path });
        Ok(())
    }
}

impl AgentState {
    fn request(&mut self, myself: &ActorRef<AgentMsg>, run_id: RunId, request: RunRequest) {
        match self.lanes.get_mut(&run_id) {
            Some(Lane::Busy(pending)) => hold(pending, request),
            Some(Lane::Entering { .. }) => self.while_entering(run_id, request),
            Some(Lane::Live(_)) => self.forward(myself, run_id, request),
            None => self.begin(myself, run_id, request),
        }
    }

    /// Begins an operation on a run that nobody executes.
    fn begin(&mut self, myself: &ActorRef<AgentMsg>, run_id: RunId, request: RunRequest) {
        let is_resting = self.resting.contains(&run_id);
        let operation = match request {
            RunRequest::Start(start, reply) => match self.slot_for(&run_id, start, reply) {
                Some(operation) => operation,
                None => return,
            },
            RunRequest::Inspect(reply) => Operation::Inspect { reply },
            RunRequest::Cancel(reason, reply) => {
                self.resting.remove(&run_id);
                Operation::Cancel { reason, reply }
            }
            RunRequest::Tail(reply) => Operation::Tail { reply },
            RunRequest::Clear(reply, due) if is_resting => {
                // What it has begun may be at work: it comes to its end first.
                self.resting.remove(&run_id);
                let pending = VecDeque::from([RunRequest::Clear(reply, due)]);
                self.lanes.insert(run_id.clone(), Lane::Busy(pending));
                Operation::Cancel { reason: lanes::CLEARED.to_owned(), reply: oneshot::channel().0 }
            }
            RunRequest::Clear(reply, _) => Operation::Clear { reply },
            RunRequest::Wake => Operation::Resume { cause: Cause::Woken, reply: None },
            RunRequest::Recover(reply) => Operation::Resume { cause: Cause::Orphaned, reply },
            RunRequest::Admit => match self.take_slot(&run_id) {
                true => Operation::Admit,
                // A dispatch has taken the last one meanwhile.
                false => return self.admitting = false,
            },
        };
        self.lanes.entry(run_id.clone()).or_insert_with(|| Lane::Busy(VecDeque::new()));
        self.operate(myself, run_id, operation);
    }

    fn operate(&self, myself: &ActorRef<AgentMsg>, run_id: RunId, operation: Operation) {
        let (args, actor) = (self.args.clone(), myself.clone());
        let task = async move {
            let operated = guarded({
                let run_id = run_id.clone();
                let span = log::operation(&args, &run_id, operation.name());
                let operated = async move { lanes::operate(&args, &run_id, operation).await };
                Box::pin(operated.instrument(span))
            });
            let _ = actor.cast(AgentMsg::LaneDone(run_id, operated.await));
        };
        self.args.node.spawn(self.args.operations.track_future(task));
    }

    fn lane_done(&mut self, myself: &ActorRef<AgentMsg>, run_id: RunId, end: LaneEnd) {
        let run = RunKey::new(&self.args.path, &run_id);
        let mut pending = match self.lanes.remove(&run_id) {
            Some(Lane::Busy(pending) | Lane::Entering { pending, .. } | Lane::Live(pending)) => {
                pending
            }
            None => VecDeque::new(),
        };
        if let Some(reply) = end.hidden {
            let readers = self.hidden.entry(run_id.clone()).or_default();
            readers.retain(|reader| !reader.is_closed());
            readers.push(reply);
        } else if end.entering.is_some() || end.holds_slot.is_some() {
            // It may have left the queue.
            let readers = self.hidden.remove(&run_id).into_iter().flatten();
            pending.extend(readers.map(RunRequest::Tail));
        }
        match end.holds_slot {
            Some(true) => _ = self.slots.insert(run),
            Some(false) => _ = self.slots.remove(&run),
            None => {}
        }
        self.queued = self.queued.saturating_add_signed(end.queued);
        match end.admission {
            Some(Admission::Done) => self.admitting = false,
            Some(Admission::Failed) => self.pass_over(&run_id),
            None => {}
        }
        if end.not_cancelled.is_some() && end.entering.is_none() {
            // Its code was not entered: what it has begun may be at work as before.
            self.resting.insert(run_id.clone());
        }
        if let Some(entering) = end.entering {
            let (cancel, cancelled) = oneshot::channel();
            let shown = matches!(entering, Entering::Again(_));
            let lane = Lane::Entering { pending: VecDeque::new(), cancel: Some(cancel), shown };
            self.lanes.insert(run_id.clone(), lane);
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
            match (&end.not_cancelled, request) {
                // It would only cancel it again, and again, or clear what was not cancelled.
                (Some(error), RunRequest::Clear(reply, _)) => _ = reply.send(Err(error.clone())),
                (_, request) => self.request(myself, run_id.clone(), request),
            }
        }
    }

    fn exited(&mut self, myself: &ActorRef<AgentMsg>, run_id: RunId, exit: RunExit) {
        let run = RunKey::new(&self.args.path, &run_id);
        if self.args.node.live.get(run).is_some() {
            // The notice of an earlier life of it.
            return;
        }
        // An operation that started the actor has not been heard of yet, and will look itself.
        let Some(Lane::Live(_)) = self.lanes.get(&run_id) else { return };
        let Some(Lane::Live(pending)) = self.lanes.remove(&run_id) else { return };
        match exit {
            RunExit::Ended => _ = self.slots.remove(&run),
            RunExit::Parked => {
                self.slots.remove(&run);
                self.args.node.live.set_left(run, true);
            }
            RunExit::Waiting => {
                // What it waits for has come while it was on its way out.
                if self.args.node.waits.is_called(run) {
                    self.begin(myself, run_id.clone(), RunRequest::Wake);
                }
            }
            RunExit::Lost if planted(Planted::IgnoreLoss) => {}
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
            if planted(Planted::SurviveEviction) {
                return;
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
        let Self { args, lanes, turns, queued, .. } = self;
        lanes.is_empty()
            && turns.is_empty()
            && *queued == 0
            && !args.node.open_tails.contains(&args.path)
    }
}
