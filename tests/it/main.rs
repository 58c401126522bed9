//! What the framework promises, tested through the public API: a module a promise.

mod support;

mod crash_points;
mod deliveries;
mod suspension;
mod types;
mod steps;
mod syncs;
