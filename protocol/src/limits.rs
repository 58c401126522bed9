//! Every limit, with its unit and its default.

use std::time::Duration;

/// The most bytes of a name or run id.
pub const NAME_BYTES_MAX: usize = 256;
/// The most levels of an agent's address.
pub const DEPTH_MAX: usize = 16;
/// The most bytes of a summary or error text on the wire; longer ones are cut with a marker.
pub const TEXT_BYTES_MAX: usize = 4 << 10;

/// A payload over its limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {actual} bytes, over the limit of {limit}")]
pub struct TooLarge {
    /// What was too large.
    pub what: &'static str,
    /// Its size in bytes.
    pub actual: usize,
    /// The limit in bytes.
    pub limit: usize,
}

/// Fails when `actual` bytes are over `limit`.
///
/// # Errors
/// [`TooLarge`], naming `what`.
pub fn check(what: &'static str, actual: usize, limit: usize) -> Result<(), TooLarge> {
    if actual > limit { Err(TooLarge { what, actual, limit }) } else { Ok(()) }
}

/// The limits of a system; all settable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of a run's input as JSON: 1 MiB.
    pub input_bytes_max: usize,
    /// The most bytes of a run's output as JSON: 1 MiB.
    pub output_bytes_max: usize,
    /// The most bytes of one chunk: 256 KiB.
    pub chunk_bytes_max: usize,
    /// The most bytes of a milestone's data: 64 KiB.
    pub milestone_bytes_max: usize,
    /// The most bytes of a step's result: 1 MiB.
    pub step_bytes_max: usize,
    /// The most bytes of a state value: 1 MiB.
    pub state_bytes_max: usize,
    /// The most bytes of events that a run may have queued before `emit` waits: 1 MiB.
    pub queued_bytes_max: usize,
    /// The most runs that the root agents of a system have executed at once; then dispatch waits.
    /// What those runs dispatch goes with them, and is not counted; those that wait outside memory for
    /// what they have dispatched are: 100,000.
    pub runnable_runs_max: usize,
    /// Unread frames an observer may have before it is caught up from the log: 1,024.
    pub unread_frames_max: usize,
    /// How long a cancelled run may clean up before its task is dropped: 5 s.
    pub cancel_grace: Duration,
    /// How long a shutdown waits for running runs: 10 s.
    pub shutdown_drain: Duration,
    /// How long an agent without work stays in memory: 60 s.
    pub idle: Duration,
    /// The shortest time between two progress frames of a run: 200 ms.
    pub progress_interval: Duration,
    /// Sleeps longer than this let a run leave memory, and so does waiting as long for other runs: 1 s.
    pub suspend_after: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            input_bytes_max: 1 << 20,
            output_bytes_max: 1 << 20,
            chunk_bytes_max: 256 << 10,
            milestone_bytes_max: 64 << 10,
            step_bytes_max: 1 << 20,
            state_bytes_max: 1 << 20,
            queued_bytes_max: 1 << 20,
            runnable_runs_max: 100_000,
            unread_frames_max: 1024,
            cancel_grace: Duration::from_secs(5),
            shutdown_drain: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            progress_interval: Duration::from_millis(200),
            suspend_after: Duration::from_secs(1),
        }
    }
}
