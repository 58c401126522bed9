//! What a system tells of itself to a test or a simulation, as it happens.

use std::future::Future;
use std::pin::Pin;

use ghostlight_protocol::{AgentPath, Failure, Outcome, RunId};
use ghostlight_storage::records::LogEntry;

use crate::Error;
use crate::info::{Inspection, Milestone};

/// Sees what a system does. For tests and simulations: see
/// [`SystemBuilder::probe`](crate::SystemBuilder::probe).
pub trait Probe: Send + Sync + 'static {
    /// Called where it happens, in the middle of an actor or of user code: it returns soon, never
    /// blocks, and awaits nothing.
    ///
    /// The answer counts for [`Seen::Durable`] alone: `false` says that the system has just
    /// crashed, so that nobody is told of the entry.
    fn see(&self, seen: Seen<'_>) -> bool;

    /// What the code of a run has to wait for at a place of it. A panic of it is a panic of the code.
    fn before_code(&self, run: &AgentPath, at: At<'_>) -> Option<BeforeCode> {
        let _ = (run, at);
        None
    }
}

/// A place in the code of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum At<'a> {
    /// Before its first line, right after [`Seen::Entered`].
    Entry,
    /// Inside the step with this key, before the first line of its body, right after
    /// [`Seen::StepBegan`].
    Step(&'a str),
    /// After the step with this key, before the code goes on, right after [`Seen::StepTold`].
    AfterStep(&'a str),
}

/// What [`Probe::before_code`] puts before a run's code.
pub type BeforeCode = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One thing that happened.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Seen<'a> {
    /// The code of a run is about to be entered.
    Entered {
        /// The run's address as an agent.
        run: &'a AgentPath,
        /// The attempt, from 1.
        attempt: u32,
    },
    /// The code of a run is over, or was dropped, and so was every blocking call that it made.
    Left {
        /// The run's address as an agent.
        run: &'a AgentPath,
    },
    /// The code of a run is about to be polled, on this thread.
    Polling {
        /// The run's address as an agent.
        run: &'a AgentPath,
    },
    /// The code of a run was polled, or has panicked.
    Polled {
        /// The run's address as an agent.
        run: &'a AgentPath,
    },
    /// The body of a step is about to be executed.
    StepBegan {
        /// The run's address as an agent.
        run: &'a AgentPath,
        /// The step's key.
        key: &'a str,
    },
    /// The code of a run is told how a step ended.
    StepTold {
        /// The run's address as an agent.
        run: &'a AgentPath,
        /// The step's key.
        key: &'a str,
        /// Its result, as JSON.
        result: Result<&'a [u8], &'a Failure>,
    },
    /// An entry of a run's log is durable, and nobody was told of it yet.
    Durable {
        /// The run's address as an agent.
        run: &'a AgentPath,
        /// The entry.
        entry: &'a LogEntry,
    },
    /// A finish hook is about to be called.
    HookBegan {
        /// The agent whose hook it is.
        agent: &'a AgentPath,
        /// The run that it is told of.
        run_id: &'a RunId,
    },
    /// A finish hook has returned, has panicked, or was dropped with its agent.
    HookEnded {
        /// The agent whose hook it is.
        agent: &'a AgentPath,
        /// The run that it was told of.
        run_id: &'a RunId,
        /// Whether it succeeded.
        ok: bool,
    },
    /// A step is about to be executed on a thread of its own, where nothing is simulated.
    Blocking {
        /// The run's address as an agent.
        run: &'a AgentPath,
        /// The step's key.
        key: &'a str,
    },
    /// Code of the system itself has panicked, or has ended in an error that nobody expects.
    Panicked {
        /// Where, in words.
        place: &'a str,
    },
    /// Whoever asked an agent about a run is about to be told the answer.
    Answered {
        /// The agent.
        agent: &'a AgentPath,
        /// The run.
        run_id: &'a RunId,
        /// The answer.
        answer: Answer<'a>,
    },
    /// An agent's actor has handled a message: a request, an end, a turn.
    Handled {
        /// The agent.
        agent: &'a AgentPath,
    },
}

/// What somebody is told who asks about a run, from outside or from the code of another run.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Answer<'a> {
    /// The run is recorded.
    Dispatched {
        /// Whether it was before.
        already_existed: bool,
    },
    /// The dispatch has failed.
    NotDispatched(&'a Error),
    /// The run as it stands; `None` if it is not known.
    Inspected(Option<&'a Inspection>),
    /// A cancel is recorded, or there is nothing to cancel.
    Cancelled,
    /// The run is cleared.
    Cleared,
    /// How the run ended; the output is JSON.
    Outcome(&'a Outcome<Vec<u8>>),
    /// A milestone that the run has reached.
    Milestone(&'a Milestone),
}
