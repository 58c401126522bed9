//! `ghostlight map` as its users see it: real commands, real signals, real kills.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod basics;
mod detach;
mod drain;
mod folder;
mod full_disk;
mod interruptions;
mod kills;
mod lazy;
mod left_over;
mod look;
mod support;
mod surroundings;
mod trouble;
mod unreadable;
