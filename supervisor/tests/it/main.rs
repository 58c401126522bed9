//! What the supervisor promises, shown on real actors. Time is paused: waits cost nothing.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod dynamic;
mod escalation;
mod policies;
mod random;
mod scale;
mod shutdown;
mod strategies;
mod support;
