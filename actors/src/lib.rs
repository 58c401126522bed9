//! Agents and runs as supervised actors.
//!
//! A parent dispatches children as durable runs. Every agent in memory and every run that is being
//! executed is an actor whose mailbox answers at once; user code runs beside it, never in it. The
//! rules are in `ghostlight-protocol`, the disk is behind `ghostlight-storage`, and supervision is
//! that of `ghostlight-supervisor`: this crate joins the three.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test fails by a panic"))]

mod agent;
mod agent_actor;
mod agent_ref;
mod agents;
mod cascade;
mod clock;
mod code;
mod context;
mod error;
mod finalise;
mod frame_page;
mod frames;
mod handle;
mod hooks;
mod hub;
mod info;
mod lanes;
mod list;
mod live_runs;
mod log;
mod log_writer;
mod messages;
mod node;
mod offline;
mod past;
mod place;
mod probe;
mod registry;
mod run_actor;
mod shared;
mod sleep;
mod state;
mod step;
mod system;
mod tail;
pub mod testing;
mod text;
mod timers;
mod turns;
mod waits;

pub use agent::{Agent, AgentSettings, AtCap, Child};
pub use agent_ref::{AgentRef, DispatchOptions};
pub use clock::{Clock, VirtualClock, WallClock};
pub use context::RunContext;
pub use error::{Error, RunError, StartError};
pub use frame_page::{FramePage, LogEnd};
pub use handle::{AgentHandle, Run, RunCall, Start};
pub use hooks::{Callbacks, FinishHook, StartHook};
pub use info::{AgentAddress, Inspection, Milestone, Progress, RunInfo};
pub use list::{Cursor, InvalidCursor, Lookup, RunFilter, RunPage};
pub use offline::Offline;
pub use sleep::Sleep;
pub use state::State;
pub use step::{Key, Recorded, Step, StepKey};
pub use system::{System, SystemBuilder};
pub use tail::{After, Tail};
pub use turns::AgentContext;
