//! What the framework promises, tested through the public API: a module a promise.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod admission;
mod attempts;
mod bench;
mod blocking;
mod cancel;
mod cancelled_again;
mod cap;
mod captured;
mod clear_crashes;
mod combinators;
mod crash_points;
mod crash_points_on_sled;
mod deliveries;
mod deploys;
mod dispatch;
mod faults;
mod full_system;
mod healed;
mod hooks;
mod in_flight;
mod journal;
mod logged;
mod nesting;
mod panics;
mod parked;
mod places;
mod races;
mod registry;
mod replay;
mod resting;
mod restless;
mod start_up;
mod steps;
mod stopping;
mod support;
mod suspension;
mod syncs;
mod tails;
mod types;
mod unregistered;
mod waits;
