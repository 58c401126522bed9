//! Actors whose work outlives them.
//!
//! A parent agent dispatches children as *runs*. Every run is durable, can be observed and cancelled,
//! and has an id; when the process is killed, the next one goes on exactly where it was.
//!
//! # A first run
//!
//! Two traits, and a system on a folder (here in memory):
//!
//! ```
//! use ghostlight::prelude::*;
//!
//! struct Sum;
//! impl Agent for Sum {
//!     const TYPE: &'static str = "Sum"; // durable: runs in the store refer to it
//! }
//! impl Child for Sum {
//!     type Input = Vec<u64>;
//!     type Output = u64;
//!
//!     async fn run(&self, cx: &RunContext, numbers: Vec<u64>) -> Result<u64, RunError> {
//!         let mut sum = 0;
//!         for (at, number) in numbers.iter().enumerate() {
//!             // Executed once, whatever happens to the process.
//!             sum += cx.step(("square", at as u64), async || Ok(number * number)).await?;
//!         }
//!         Ok(sum)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let system = System::in_memory().child(Sum).start().await?; // System::open("data") on disk
//! let parent = system.agent::<Sum>("me")?;
//! let sum = parent.run::<Sum>(vec![1, 2, 3]).id("first").await?.completed()?;
//! assert_eq!(sum, 14);
//! # Ok(())
//! # }
//! ```
//!
//! # Where to look
//!
//! - [`Agent`] and [`Child`] are what you implement; [`RunContext`] is what a run's code is given:
//!   steps, events, durable sleeps and state, and children of its own.
//! - [`System`] is built on a store; [`AgentHandle`] dispatches, with [`run`](AgentHandle::run) that
//!   waits and [`start`](AgentHandle::start) that returns a [`Run`]; [`Tail`] reads its frames.
//! - [`Callbacks`] registers the hooks of a parent.
//! - [`testing`] runs your agents without a store, and crashes a whole system at an exact point.
//! - [`semantics`] says what is promised, and what is not.
//! - What a run does is logged through `tracing`, with the fields `agent` (the address of the agent whose
//!   run it is), `run_id`, `attempt` and mostly `child` (its type); the code is in a span with all four.
//!
//! # Three things to know
//!
//! - **Code between steps must be deterministic.** After a crash it is entered again from the top, and
//!   everything recorded is told to it again. What is not deterministic goes into a step.
//! - **Where your logic lives matters.** In `main` it is lost with the process; with fixed ids, a
//!   second start joins the runs of the first. In [`Child::run`] it is durable.
//! - **Inputs, outputs and results of steps are JSON.** A program that derives serde's traits, which
//!   the [`prelude`] exports, needs `serde` among its own dependencies.

/// What is promised about order, durability, delivery and cancel, and what is not.
#[doc = include_str!("../docs/semantics.md")]
pub mod semantics {}

pub use ghostlight_actors::{
    After, Agent, AgentAddress, AgentContext, AgentHandle, AgentRef, AgentSettings, AtCap,
    Callbacks, Child, Clock, Cursor, DispatchOptions, Error, FinishHook, FramePage, Inspection,
    InvalidCursor, Key, LogEnd, Lookup, Milestone, Offline, Progress, Recorded, Run, RunCall,
    RunContext, RunError, RunFilter, RunInfo, RunPage, Sleep, Start, StartError, StartHook, State,
    Step, StepKey, System, SystemBuilder, Tail, VirtualClock, WallClock, testing,
};
pub use ghostlight_protocol as protocol;
pub use ghostlight_protocol::{
    AgentPath, Failure, FailureEnvelope, InterruptReason, Limits, NotCompleted, Outcome,
    RecoveryPolicy, Retry, RunId, Status, frame,
};
pub use ghostlight_storage as storage;

/// What a program that defines agents usually needs.
pub mod prelude {
    pub use std::time::Duration;

    pub use serde::{Deserialize, Serialize};
    pub use serde_json::{Value, json};

    pub use crate::{
        After, Agent, AgentContext, AgentHandle, AgentSettings, AtCap, Callbacks, Child, Key,
        NotCompleted, Outcome, Progress, RecoveryPolicy, Retry, Run, RunContext, RunError, RunInfo,
        Status, System,
    };
}
