//! Actors whose work outlives them.

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
    pub use serde_json::json;

    pub use crate::{
        After, Agent, AgentContext, AgentHandle, AgentSettings, AtCap, Callbacks, Child, Key,
        NotCompleted, Outcome, Progress, RecoveryPolicy, Retry, Run, RunContext, RunError, RunInfo,
        Status, System,
    };
}
