//! What the framework promises, tested through the public API: a module a promise.

mod support;

mod attempts;
mod crash_points;
mod deliveries;
mod faults;
mod journal;
mod panics;
mod steps;
mod suspension;
mod syncs;
mod tails;
mod types;
