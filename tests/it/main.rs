//! What the framework promises, tested through the public API: a module a promise.

mod bench;
mod support;

mod blocking;
mod cancel;
mod cap;
mod deliveries;
mod dispatch;
mod hooks;
mod nesting;
mod races;
mod registry;
mod steps;
mod stopping;
mod suspension;
mod syncs;
mod types;
