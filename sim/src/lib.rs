//! Deterministic simulation of crashes and evictions, for agents built on Ghostlight.

mod disk;
mod disturb;
mod durable;
mod effects;
mod failure;
mod invariant;
mod life;
mod oracle;
mod plan;
mod scenario;
pub mod scenarios;
mod simulation;
mod trace;
mod world;

pub use durable::{Change, Durable, DurableRun};
pub use effects::Effects;
pub use failure::{Failure, Report};
pub use invariant::{Event, Invariant, Invariants};
pub use life::Life;
pub use plan::{BadPlan, Fault, Plan, Planned};
pub use scenario::Scenario;
pub use simulation::Simulation;
pub use trace::Line;
pub use world::{Counts, World};
