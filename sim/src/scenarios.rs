//! Scenarios that come with the crate: what Ghostlight itself is proved with, and examples of how
//! scenarios are written.

mod batch;
mod cancel;
mod clear;
mod fan_out;
mod hooks;
mod nest;
mod order;
mod refuse;
mod retry;
mod tail;

pub use batch::Batch;
pub use cancel::Cancel;
pub use clear::Clear;
pub use fan_out::FanOut;
pub use hooks::Hooks;
pub use nest::Nest;
pub use order::OrderFulfilment;
pub use refuse::Refuse;
pub use retry::Retrying;
pub use tail::Tails;

use ghostlight::{Outcome, RunError};

use crate::life::Life;
use crate::simulation::Simulation;

/// Insists on an output, unless a fault of the plan may have changed how the run ends.
fn unless_changed<T: PartialEq + std::fmt::Debug>(
    life: &Life,
    outcome: Outcome<T>,
    expected: &T,
) -> Result<(), RunError> {
    match outcome.completed() {
        Ok(output) if output == *expected => Ok(()),
        Ok(_) | Err(_) if life.world().ends_may_change() => Ok(()),
        Ok(output) => panic!("the output is {output:?}, in place of {expected:?}"),
        Err(error) => Err(error.into()),
    }
}

/// A shipped scenario, by name.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Shipped {
    /// Its name.
    pub name: &'static str,
    /// What it is about, in a line.
    pub about: &'static str,
    /// Makes a simulation of it.
    pub simulation: fn() -> Simulation,
}

/// All shipped scenarios.
pub fn all() -> Vec<Shipped> {
    let shipped = |name, about, simulation| Shipped { name, about, simulation };
    vec![
        shipped("order", "nested children, a suspension, a payment", || {
            Simulation::new(OrderFulfilment)
        }),
        shipped("fan-out", "a cap and a queue; a child fails, one panics", || {
            Simulation::new(FanOut)
        }),
        shipped("cancel", "cancels of a run that waits, and of one that ends", || {
            Simulation::new(Cancel)
        }),
        shipped("hooks", "hooks that fail, panic, and dispatch runs", || Simulation::new(Hooks)),
        shipped("clear", "runs are cleared while others live", || Simulation::new(Clear)),
        shipped("retry", "retried steps, state, a stream, large payloads", || {
            Simulation::new(Retrying)
        }),
        shipped("batch", "many small runs, milestones with a time limit", || {
            Simulation::new(Batch)
        }),
        shipped("nest", "four levels that sleep while they wait for each other", || {
            Simulation::new(Nest)
        }),
        shipped("tail", "readers that fall behind, leave and come back", || Simulation::new(Tails)),
        shipped("refuse", "a cap that refuses, a cancel that makes room", || {
            Simulation::new(Refuse)
        }),
    ]
}
