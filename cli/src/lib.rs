//! The parts of the `ghostlight` program that stand between durable runs and real commands.
//!
//! - [`shim`]: the small process that outlives the program and keeps one command.
//! - [`launch`]: starts shims, finds them again, decides what became of a launch, follows its
//!   output, cancels it.
//! - [`lines`]: output as chunks, byte for byte.
//! - [`inputs`]: where inputs come from, and the run ids made from them.
//!
//! Linux only: a command is tied to its shim by a parent-death signal, a shim to its launch by a
//! file lock and a process file descriptor.

mod access;
pub mod app;
mod args;
mod batch;
mod fatal;
pub mod inputs;
mod intent;
pub mod launch;
pub mod lines;
mod look;
mod map;
pub mod shim;
mod shown;
mod sim;
mod sweep;
mod sys;
