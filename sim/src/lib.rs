//! Deterministic simulation of crashes and evictions, for agents built on Ghostlight.
//!
//! A [`Scenario`] says which agents there are, what the outside does with them, and what must hold; a
//! [`Simulation`] executes it again and again, and kills the process at every commit, evicts agents at
//! every message, or does both at random. What Ghostlight promises is checked after every event, in any
//! case. The [`guide`] goes from zero to a proof.
//!
//! This agent is not crash-safe, and is caught:
//!
//! ```
//! use ghostlight::{SystemBuilder, prelude::*};
//! use ghostlight_sim::{Effects, Invariants, Life, Scenario, Simulation, World};
//!
//! struct Mailer(Effects);
//! impl Agent for Mailer { const TYPE: &'static str = "Mailer"; }
//! impl Child for Mailer {
//!     type Input = ();
//!     type Output = ();
//!     async fn run(&self, cx: &RunContext, (): ()) -> Result<(), RunError> {
//!         self.0.perform_unkeyed("mail"); // between steps: once more after every crash
//!         cx.step("archive", async || Ok(())).await
//!     }
//! }
//!
//! struct Mailing;
//! impl Scenario for Mailing {
//!     fn agents(&self, system: SystemBuilder, world: &World) -> SystemBuilder {
//!         system.child(Mailer(world.effects()))
//!     }
//!     async fn drive(&self, life: &Life) -> Result<(), RunError> {
//!         Ok(life.agent::<Mailer>("me")?.run::<Mailer>(()).id("m").await?.completed()?)
//!     }
//!     fn invariants(&self) -> Invariants {
//!         Invariants::none().always("one mail", |world| world.effects().count("mail") <= 1)
//!     }
//! }
//!
//! let failure = Simulation::new(Mailing).crash_at_every_commit().run().unwrap_err();
//! assert_eq!(failure.invariant, "one mail");
//! println!("{failure}"); // the timeline, the crash that shows it, and how to repeat it
//! ```
//!
//! A test calls [`check`](Simulation::check), which panics with that text. In a process that simulates,
//! panics on the thread of a simulated life are lines of the timeline, and are not printed.

/// From zero to a proof, and all that can go wrong.
#[doc = include_str!("../../docs/simulation.md")]
pub mod guide {}

mod calm;
mod disk;
mod disturb;
mod durable;
mod effects;
mod failure;
mod invariant;
mod life;
mod observers;
mod oracle;
mod plan;
mod repeat;
mod scenario;
pub mod scenarios;
mod shrink;
mod simulation;
mod thread;
mod trace;
mod world;

pub use durable::{Change, Durable, DurableRun};
pub use effects::Effects;
pub use failure::{Failure, Report};
pub use invariant::{Event, Invariant, Invariants};
pub use life::{LIFE_MAX, Life, SETTLE_MAX};
pub use plan::{BadPlan, Fault, Plan, PlannedFault};
pub use scenario::Scenario;
pub use simulation::Simulation;
pub use trace::Line;
pub use world::{Counts, World};
