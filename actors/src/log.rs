//! What is logged of runs, always under the same names.
//!
//! `agent` is the address of the agent whose registry has the run, or whose turn it is; `run_id` is the
//! run's id there, so that the two find it; `child` is the type of agent that executes it; `attempt`
//! is its attempt. Spans are of the level of errors, so that a filter that shows errors also shows
//! which run they are of.

use ghostlight_protocol::RunId;
use tracing::field::Empty;
use tracing::{Span, error_span};

use crate::agent_actor::AgentArgs;
use crate::shared::Shared;

/// An event of a run that has an actor, by its `Shared`.
macro_rules! of_run {
    ($level:ident, $shared:expr, $($rest:tt)+) => {
        tracing::$level!(
            agent = %$shared.parent,
            child = $shared.path.agent_type(),
            run_id = %$shared.run_id,
            attempt = $shared.attempt,
            $($rest)+
        )
    };
}

/// An event of a run by its record.
macro_rules! of_record {
    ($level:ident, $record:expr, $($rest:tt)+) => {
        tracing::$level!(
            agent = %$record.parent,
            child = %$record.agent_type,
            run_id = %$record.run_id,
            attempt = $record.attempt,
            $($rest)+
        )
    };
}

/// The request to cancel a run is durable.
macro_rules! cancel_requested {
    ($record:expr) => {
        $crate::log::of_record!(info, $record, "cancel requested")
    };
}

pub(crate) use {cancel_requested, of_record, of_run};

/// The span of the code of a run.
pub(crate) fn run(shared: &Shared) -> Span {
    error_span!(
        "run",
        agent = %shared.parent,
        child = shared.path.agent_type(),
        run_id = %shared.run_id,
        attempt = shared.attempt
    )
}

/// The span of an operation on a run that nobody executes. Its attempt is the one in the store when
/// the operation has read it: see [`read`].
pub(crate) fn operation(args: &AgentArgs, run_id: &RunId, name: &'static str) -> Span {
    error_span!("operation", name, agent = %args.path, %run_id, attempt = Empty)
}

/// The span of a turn of an agent; that of a delivery is inside.
pub(crate) fn turn(args: &AgentArgs) -> Span {
    error_span!("turn", agent = %args.path)
}

/// The span of a delivery.
pub(crate) fn delivery(args: &AgentArgs, run_id: &RunId) -> Span {
    error_span!("delivery", agent = %args.path, %run_id, attempt = Empty)
}

/// The span that this is in has learnt the run's attempt.
pub(crate) fn read(attempt: u32) {
    Span::current().record("attempt", attempt);
}
