//! What the supervisor promises, shown on real actors. Time is paused: waits cost nothing.

mod dynamic;
mod escalation;
mod policies;
mod random;
mod scale;
mod shutdown;
mod strategies;
mod support;
