//! What the framework promises, tested through the public API: a module a promise.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod support;

mod crash_points;
mod deliveries;
mod faults;
mod panics;
mod steps;
mod suspension;
mod syncs;
mod tails;
mod types;
