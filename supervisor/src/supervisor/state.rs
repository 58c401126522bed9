//! The children a supervisor has, and what it answers about them.

use std::collections::{BTreeMap, HashMap};

use ractor::{ActorCell, ActorId, ActorRef, SupervisionEvent};
use tokio::time::Instant;

use super::Config;
use super::actor::{Msg, Reply, Report, StartError, StopMode, owe};
use super::child::{Alive, Child, Phase};
use super::job::Reporter;
use super::sweep::Mode;
use crate::child_spec::{ChildId, ChildSpec, Started};
use crate::error::Error;
use crate::exit::{Escalated, ExitCallback, ExitReason, classify, guarded};
use crate::restart::Decision;
use crate::strategy::{Place, StopOrder, Strategy};

pub(crate) struct State {
    pub(super) myself: ActorRef<Msg>,
    pub(super) strategy: Strategy,
    pub(super) stop_order: StopOrder,
    pub(super) on_exit: Option<ExitCallback>,
    seed: u64,
    /// Zero of the time that restart decisions see.
    pub(super) epoch: Instant,
    /// In start order, the only order anything is ever done in: the maps below are for look-ups.
    pub(super) children: BTreeMap<Place, Child>,
    next: Place,
    by_id: HashMap<ChildId, Place>,
    by_actor: HashMap<ActorId, Place>,
    /// Starts under way.
    starting: usize,
    /// Ends of actors whose start has not been reported yet: ractor prefers supervision events to
    /// messages. Each is taken by its report.
    early: HashMap<ActorId, ExitReason>,
    pub(super) mode: Mode,
    boot: Option<Boot>,
}

/// The first start of the static children.
struct Boot {
    /// How many have not been up yet.
    left: usize,
    reply: Reply<()>,
}

impl State {
    pub(super) fn new(myself: ActorRef<Msg>, config: Config, reply: Reply<()>) -> Self {
        let mut state = Self {
            myself,
            strategy: config.strategy,
            stop_order: config.stop_order,
            on_exit: config.on_exit,
            seed: config.seed,
            epoch: Instant::now(),
            children: BTreeMap::new(),
            next: 0,
            by_id: HashMap::new(),
            by_actor: HashMap::new(),
            starting: 0,
            early: HashMap::new(),
            mode: Mode::Steady,
            boot: None,
        };
        let left = config.children.len();
        for spec in config.children {
            if state.by_id.contains_key(&spec.id) {
                // Refused as a whole: what has no children yet has nothing to stop.
                let _ = reply.send(Err(Error::AlreadyExists { id: spec.id }));
                state.children.clear();
                state.by_id.clear();
                state.begin_close(None);
                return state;
            }
            state.insert(spec, true);
        }
        state.boot = Some(Boot { left, reply });
        state
    }

    /// Begins to start the static children.
    pub(super) fn boot(&mut self) {
        match &self.boot {
            Some(Boot { left: 0, .. }) => self.answer_boot(Ok(())),
            Some(_) => self.begin_boot(),
            None => {}
        }
    }

    fn insert(&mut self, spec: ChildSpec, booting: bool) -> Place {
        let place = self.next;
        self.next += 1;
        self.by_id.insert(spec.id.clone(), place);
        self.children.insert(place, Child::new(spec, self.seed, booting));
        place
    }

    pub(super) fn add(&mut self, spec: ChildSpec, reply: Reply<ActorCell>) {
        let refusal = if matches!(self.mode, Mode::Closing { .. }) {
            Some(Error::ShuttingDown)
        } else if self.by_id.contains_key(&spec.id) {
            Some(Error::AlreadyExists { id: spec.id.clone() })
        } else {
            None
        };
        if let Some(error) = refusal {
            guarded(|| drop(spec));
            let _ = reply.send(Err(error));
            return;
        }
        let place = self.insert(spec, false);
        if let Some(child) = self.children.get_mut(&place) {
            child.adder = Some(reply);
        }
        // During a sweep the new child waits for its turn, which comes last.
        if matches!(self.mode, Mode::Steady) {
            self.launch(place);
        }
    }

    pub(super) fn ready(&mut self, id: &ChildId, reply: Reply<ActorCell>) {
        let closing = matches!(self.mode, Mode::Closing { .. });
        let answer = match self.by_id.get(id).and_then(|place| self.children.get_mut(place)) {
            _ if closing => Err(Error::ShuttingDown),
            None => Err(Error::Unknown { id: id.clone() }),
            Some(child) => match child.ready() {
                Some(cell) => Ok(cell.clone()),
                None => {
                    owe(&mut child.waiters, reply);
                    return;
                }
            },
        };
        let _ = reply.send(answer);
    }

    pub(super) fn remove(&mut self, id: ChildId, mode: StopMode, reply: Reply<()>) {
        let Some(&place) = self.by_id.get(&id) else {
            let _ = reply.send(Err(Error::Unknown { id }));
            return;
        };
        let Some(child) = self.children.get_mut(&place) else { return };
        child.removing = true;
        owe(&mut child.removers, reply);
        self.stop(place, mode);
    }

    pub(super) fn child(&self, id: &ChildId) -> Option<ActorCell> {
        self.by_id.get(id).and_then(|place| self.children.get(place)?.cell().cloned())
    }

    pub(super) fn children(&self) -> Vec<(ChildId, ActorCell)> {
        let alive = |child: &Child| Some((child.spec.id.clone(), child.cell()?.clone()));
        self.children.values().filter_map(alive).collect()
    }

    pub(super) fn report(&mut self, place: Place, start: u64, report: Report) {
        if let Report::Started(outcome) = report {
            self.started(place, outcome);
            return;
        }
        let Some(child) = self.children.get_mut(&place).filter(|child| child.start == start) else {
            return;
        };
        let closing = matches!(self.mode, Mode::Closing { .. });
        match (report, &mut child.phase) {
            (Report::DrainOver, Phase::Starting(starting)) => starting.cancel(),
            (Report::BackoffOver, Phase::BackingOff { .. }) if !closing => self.launch(place),
            (Report::Ended, Phase::Alive(alive)) => {
                let reporter = Reporter { supervisor: self.myself.clone(), place, start };
                if alive.task_over(&reporter) {
                    self.end_alive(place);
                }
            }
            // It has moved on since the report was sent, or starts no more.
            _ => {}
        }
    }

    fn started(&mut self, place: Place, outcome: Result<Started, StartError>) {
        self.starting -= 1;
        // Invariant: a start is reported once, and its child is kept until then.
        let reporter = self.reporter(place);
        let Some(child) = self.children.get_mut(&place) else { return };
        let Phase::Starting(starting) = std::mem::replace(&mut child.phase, Phase::Idle) else {
            debug_assert!(false, "reported start was not under way");
            return;
        };
        match outcome {
            Ok(started) => {
                let cell = started.cell.clone();
                let mut alive = starting.up(started, child.stopping, &reporter);
                let early = self.early.remove(&cell.get_id());
                let over = early.is_some_and(|reason| alive.end(reason, &reporter));
                self.by_actor.insert(cell.get_id(), place);
                self.up(place, alive);
                if over {
                    self.end_alive(place);
                }
            }
            Err(StartError::Failed(error)) => {
                self.end_start(place, ExitReason::StartFailed(error));
            }
            Err(StartError::Cancelled) => self.end_start(place, ExitReason::Cancelled),
        }
        if self.starting == 0 {
            // What nobody has claimed by now was linked by hand.
            self.early.clear();
        }
    }

    fn up(&mut self, place: Place, alive: Alive) {
        let Some(child) = self.children.get_mut(&place) else { return };
        tracing::debug!(child = %child.spec.id, actor = %alive.cell.get_id(), "child started");
        let cell = alive.cell.clone();
        child.phase = Phase::Alive(alive);
        if child.stopping.is_some() {
            return;
        }
        // Also if it has ended since: it did come up.
        for waiter in child.adder.take().into_iter().chain(child.waiters.drain(..)) {
            let _ = waiter.send(Ok(cell.clone()));
        }
        if std::mem::take(&mut child.booting) {
            self.booted();
        }
    }

    pub(super) fn event(&mut self, event: SupervisionEvent) {
        let Some((cell, reason)) = classify(event) else { return };
        match self.by_actor.get(&cell.get_id()) {
            Some(&place) => {
                let reporter = self.reporter(place);
                let Some(child) = self.children.get_mut(&place) else { return };
                if let Phase::Alive(alive) = &mut child.phase
                    && alive.end(reason, &reporter)
                {
                    self.end_alive(place);
                }
            }
            None if self.starting > 0 => {
                self.early.insert(cell.get_id(), reason);
            }
            None => {}
        }
    }

    pub(super) fn reporter(&self, place: Place) -> Reporter {
        let start = self.children.get(&place).map_or(0, |child| child.start);
        Reporter { supervisor: self.myself.clone(), place, start }
    }

    /// Notes that an actor of a child has really ended.
    pub(super) fn unregister(&mut self, actor: ActorId) {
        self.by_actor.remove(&actor);
    }

    pub(super) fn note_start(&mut self) {
        self.starting += 1;
    }

    /// Forgets a child after its last notice, and answers all who wait for it.
    pub(super) fn forget(&mut self, place: Place, reason: &ExitReason) {
        let Some(child) = self.children.remove(&place) else { return };
        self.by_id.remove(&child.spec.id);
        let id = child.spec.id.clone();
        // What its constructor has captured is foreign, down to its `Drop`.
        guarded(|| drop(child.spec));
        let error = match reason {
            ExitReason::StartFailed(error) => {
                Error::StartFailed { id, error: error.clone(), retry_after: None }
            }
            _ => Error::Removed { id },
        };
        for waiter in child.adder.into_iter().chain(child.waiters) {
            let _ = waiter.send(Err(error.clone()));
        }
        for remover in child.removers {
            let _ = remover.send(Ok(()));
        }
        if child.booting {
            self.booted();
        }
    }

    /// Tells the one who added a child that its first start has failed and another follows.
    pub(super) fn answer_adder(&mut self, place: Place, reason: &ExitReason, decision: Decision) {
        if let Some(child) = self.children.get_mut(&place)
            && let ExitReason::StartFailed(error) = reason
            && let Decision::Restart { after } = decision
            && let Some(adder) = child.adder.take()
        {
            let (id, error) = (child.spec.id.clone(), error.clone());
            let _ = adder.send(Err(Error::StartFailed { id, error, retry_after: Some(after) }));
        }
    }

    fn booted(&mut self) {
        if let Some(boot) = &mut self.boot {
            boot.left -= 1;
            // While closing the answer waits for the end of all children.
            if boot.left == 0 && !matches!(self.mode, Mode::Closing { .. }) {
                self.answer_boot(Ok(()));
            }
        }
    }

    fn answer_boot(&mut self, answer: Result<(), Error>) {
        if let Some(boot) = self.boot.take() {
            let _ = boot.reply.send(answer);
        }
    }

    /// Returns why the supervisor is to end now, if it is.
    pub(super) fn closed(&mut self) -> Option<Option<Escalated>> {
        let Mode::Closing { escalated, .. } = &self.mode else { return None };
        if !self.children.is_empty() {
            return None;
        }
        debug_assert!(self.by_id.is_empty() && self.by_actor.is_empty() && self.starting == 0);
        let escalated = escalated.clone();
        self.answer_boot(Err(escalated.clone().map_or(Error::Stopped, Error::Escalated)));
        Some(escalated)
    }
}
