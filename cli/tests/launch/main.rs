//! Launches of real commands under real shims.

mod cancel;
mod command;
mod crash;
mod follow;
mod group;
mod race;
mod recover;
mod support;
