//! The HTTP and the control socket, over real sockets and a real system: a module a promise.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod events;
mod lifetime;
mod refusals;
mod runs;
mod socket;
mod support;
