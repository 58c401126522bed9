//! The words and rules of durable runs.
//!
//! Everything here is pure: no clock, no chance, no I/O. What a run may do next, what a re-entered
//! run is told, when a lost attempt is repeated: each is a plain function from state and event to
//! state and effect, so that it can be tested by the thousand.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test fails by a panic"))]

pub mod id;
pub mod journal;
pub mod json;
pub mod limits;
pub mod outcome;
#[doc(hidden)]
pub mod planted;
pub mod reason;
pub mod recovery;
pub mod run;
pub mod status;

pub use id::{AgentKey, AgentPath, IdError, RunId, RunKey};
pub use limits::{Limits, TooDeep, TooLarge};
pub use outcome::{Failure, FailureEnvelope, NotCompleted, Outcome};
pub use reason::InterruptReason;
pub use recovery::{NextAttempt, RecoveryPolicy, Retry};
pub use run::{End, Interruption, Phase, RunState};
pub use status::Status;

pub mod client;
pub mod frame;
pub mod preview;
pub mod text;
