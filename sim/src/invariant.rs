//! What must hold, and what is told to whoever checks it.

use ghostlight::frame::Frame;
use ghostlight::testing::Seen;
use ghostlight::{AgentPath, Error};

use crate::durable::{Change, Durable};
use crate::plan::Fault;
use crate::world::World;

/// One thing that happened in a simulated world.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A life of the process begins.
    LifeBegan,
    /// A group of commits is durable.
    Committed {
        /// Its number, from 1 over all lives.
        group: u64,
        /// What it has changed.
        changes: &'a [Change],
    },
    /// The system tells of itself.
    System(Seen<'a>),
    /// A tail of a run begins.
    TailBegan {
        /// Which observer: every tail is one.
        observer: u64,
        /// The run's address as an agent.
        run: &'a AgentPath,
        /// The number of the frame that its reader has; none if it has nothing.
        after: Option<u64>,
    },
    /// A tail has ended by itself: after the run's end, or with an error. Nothing tells of one that its
    /// reader drops.
    TailEnded {
        /// Which observer.
        observer: u64,
        /// The run's address as an agent.
        run: &'a AgentPath,
        /// The error.
        error: Option<&'a Error>,
    },
    /// An observer has received a frame.
    Frame {
        /// Which observer: every tail is one.
        observer: u64,
        /// The run's address as an agent.
        run: &'a AgentPath,
        /// The frame.
        frame: &'a Frame,
    },
    /// A fault of the plan strikes.
    Fault(Fault),
    /// An agent's actor is killed by a fault of the plan.
    AgentCrashed {
        /// The agent.
        agent: &'a AgentPath,
    },
    /// A run's actor is killed by a fault of the plan.
    RunCrashed {
        /// The run's address as an agent.
        run: &'a AgentPath,
    },
    /// The system was asked to stop, and has waited for what it was executing.
    Drained {
        /// Whether it waited as long as it may: then something may be left.
        timed_out: bool,
    },
    /// A life of the process has ended, by a kill or in peace.
    LifeEnded,
    /// The drive has returned, and nothing is left to do.
    Settled,
}

/// Checks something after every event.
pub trait Invariant: Send {
    /// Its name, in words: what holds.
    fn name(&self) -> &str;

    /// Judges an event; `durable` is the durable state after it.
    ///
    /// # Errors
    /// What does not hold, in words.
    fn check(&mut self, event: &Event<'_>, durable: &Durable) -> Result<(), String>;
}

type Holds = Box<dyn Fn(&World) -> bool + Send + Sync>;

/// The invariants of a scenario.
#[must_use]
#[derive(Default)]
pub struct Invariants {
    pub(crate) always: Vec<(String, Holds)>,
    pub(crate) finally: Vec<(String, Holds)>,
    pub(crate) others: Vec<Box<dyn Invariant>>,
}

impl Invariants {
    /// None but the built-in ones.
    pub fn none() -> Self {
        Self::default()
    }

    /// Something that holds after every event. The closure only looks: one that performs an effect fails.
    pub fn always(
        mut self,
        name: &str,
        holds: impl Fn(&World) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.always.push((name.to_owned(), Box::new(holds)));
        self
    }

    /// Something that holds when all is over.
    pub fn finally(
        mut self,
        name: &str,
        holds: impl Fn(&World) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.finally.push((name.to_owned(), Box::new(holds)));
        self
    }

    /// An invariant that keeps a state of its own.
    pub fn with(mut self, invariant: impl Invariant + 'static) -> Self {
        self.others.push(Box::new(invariant));
        self
    }
}
