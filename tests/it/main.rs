//! What the framework promises, tested through the public API: a module a promise.

mod support;

mod crash_points;
mod deliveries;
mod steps;
mod suspension;
mod syncs;
mod types;
