//! What is done to many children, in order: the first starts, joint restarts, the shutdown.

use std::ops::Bound;

use tokio::time::{Instant, sleep_until};

use super::actor::{Msg, StopMode};
use super::child::Phase;
use super::job::Job;
use super::state::State;
use crate::exit::Escalated;
use crate::strategy::{Place, StopOrder};

/// What a supervisor does with its children as a whole.
pub(super) enum Mode {
    /// Each child is on its own.
    Steady,
    /// Children from a place on are stopped and started in order.
    Sweeping(Sweep),
    /// All are stopped, in order, and none is started any more.
    Closing {
        /// All from here on have ended.
        down_to: Place,
        escalated: Option<Escalated>,
    },
}

pub(super) struct Sweep {
    /// The first place concerned. Moves up while children are started: those before it run.
    from: Place,
    /// The earliest time of the first start.
    due: Instant,
    step: Step,
}

enum Step {
    Stopping {
        /// All from here on have ended.
        down_to: Place,
    },
    Waiting {
        _timer: Job,
    },
    Starting,
}

impl Mode {
    /// Returns when a child that ends now is started again, if a sweep is stopping it.
    pub(super) fn stops(&self, place: Place) -> Option<Instant> {
        match self {
            Self::Sweeping(Sweep { from, due, step: Step::Stopping { .. } }) if *from <= place => {
                Some(*due)
            }
            Self::Steady | Self::Sweeping(_) | Self::Closing { .. } => None,
        }
    }
}

impl State {
    /// Begins to start the children there are.
    pub(super) fn begin_boot(&mut self) {
        self.mode = Mode::Sweeping(Sweep { from: 0, due: Instant::now(), step: Step::Starting });
    }

    /// Begins to stop, then start, all children from a place on.
    pub(super) fn begin_sweep(&mut self, from: Place, due: Instant) {
        let due = match &self.mode {
            Mode::Steady => due,
            Mode::Sweeping(sweep) => {
                // Invariant: what the sweep under way has still to start cannot fail before it has
                // its turn, so all of it is started by the new sweep too.
                let left_out = sweep.from..from.max(sweep.from);
                debug_assert!(self.children.range(left_out).next().is_none());
                due.max(sweep.due)
            }
            Mode::Closing { .. } => return,
        };
        self.mode =
            Mode::Sweeping(Sweep { from, due, step: Step::Stopping { down_to: Place::MAX } });
        self.stop_together(from);
    }

    /// Begins to stop all children, and then the supervisor.
    pub(super) fn begin_close(&mut self, escalated: Option<Escalated>) {
        if matches!(self.mode, Mode::Closing { .. }) {
            return;
        }
        self.mode = Mode::Closing { down_to: Place::MAX, escalated };
        self.stop_together(0);
    }

    fn stop_together(&mut self, from: Place) {
        match self.stop_order {
            StopOrder::OneByOne => {}
            StopOrder::Together => {
                let places: Vec<Place> = self.children.range(from..).map(|(&at, _)| at).collect();
                for place in places.into_iter().rev() {
                    self.stop(place, StopMode::Drain);
                }
            }
        }
    }

    /// The wait before the starts is over.
    pub(super) fn sweep_due(&mut self) {
        if let Mode::Sweeping(sweep) = &mut self.mode
            && matches!(sweep.step, Step::Waiting { .. })
            // A report of an earlier wait, which a later failure has prolonged, is no reason.
            && sweep.due <= Instant::now()
        {
            sweep.step = Step::Starting;
        }
    }

    /// Takes all steps that are due.
    pub(super) fn advance(&mut self) {
        while self.step() {}
    }

    /// Takes one step; returns whether there may be another.
    fn step(&mut self) -> bool {
        let (from, down_to) = match &self.mode {
            Mode::Steady => return false,
            Mode::Closing { down_to, .. } => (0, *down_to),
            Mode::Sweeping(Sweep { from, step: Step::Stopping { down_to }, .. }) => {
                (*from, *down_to)
            }
            Mode::Sweeping(Sweep { step: Step::Waiting { .. }, .. }) => return false,
            Mode::Sweeping(Sweep { from, step: Step::Starting, .. }) => {
                return self.start_next(*from);
            }
        };
        match self.children.range(from..down_to).next_back() {
            Some((&place, _)) => self.stop_next(place),
            None => self.all_stopped(),
        }
    }

    fn stop_next(&mut self, place: Place) -> bool {
        self.stop(place, StopMode::Drain);
        let ends = |phase: &Phase| matches!(phase, Phase::Starting(_) | Phase::Alive(_));
        if self.children.get(&place).is_some_and(|child| ends(&child.phase)) {
            return false;
        }
        match &mut self.mode {
            Mode::Closing { down_to, .. }
            | Mode::Sweeping(Sweep { step: Step::Stopping { down_to }, .. }) => *down_to = place,
            Mode::Steady | Mode::Sweeping(_) => {}
        }
        true
    }

    fn all_stopped(&mut self) -> bool {
        let Mode::Sweeping(sweep) = &mut self.mode else {
            debug_assert!(self.children.is_empty(), "closing leaves no child behind");
            return false;
        };
        let (supervisor, due) = (self.myself.clone(), sweep.due);
        if due <= Instant::now() {
            sweep.step = Step::Starting;
            return true;
        }
        let timer = Job::spawn(async move {
            sleep_until(due).await;
            // A supervisor that has ended starts nothing.
            let _ = supervisor.send_message(Msg::SweepDue);
        });
        sweep.step = Step::Waiting { _timer: timer };
        false
    }

    /// Starts the first child that does not run, and waits for it: those after it need it.
    fn start_next(&mut self, from: Place) -> bool {
        let Some((&place, child)) = self.children.range(from..).next() else {
            self.mode = Mode::Steady;
            return false;
        };
        if child.ready().is_some() {
            let next = self.children.range((Bound::Excluded(place), Bound::Unbounded)).next();
            if let Mode::Sweeping(sweep) = &mut self.mode {
                sweep.from = next.map_or(Place::MAX, |(&next, _)| next);
            }
            return true;
        }
        if matches!(child.phase, Phase::Idle) {
            self.launch(place);
        }
        false
    }
}
