//! What a user writes to have a workflow simulated.

use std::future::Future;
use std::pin::Pin;

use ghostlight::{RunError, SystemBuilder};

use crate::invariant::Invariants;
use crate::life::Life;
use crate::plan::Fault;
use crate::world::World;

/// A workflow to be proved: its agents, and what the outside does with them.
///
/// See the [crate's text](crate) for one in full.
pub trait Scenario: Send + Sync + 'static {
    /// What failures call it.
    fn name(&self) -> String {
        std::any::type_name::<Self>().rsplit("::").next().unwrap_or_default().to_owned()
    }

    /// Registers the agents of one life of the process. Whatever they know of the outside has to be
    /// part of `world`, which outlives them.
    fn agents(&self, system: SystemBuilder, world: &World) -> SystemBuilder;

    /// What the outside does: called at the start of every life of the process until it returns, and
    /// once more when all is over. So it dispatches with fixed ids, and joins what is there.
    ///
    /// An error or a panic is a failure of the simulation, unless the store of this life has failed, and its
    /// text has that of the store's error in it.
    fn drive(&self, life: &Life) -> impl Future<Output = Result<(), RunError>>;

    /// What must hold beside the built-in invariants.
    fn invariants(&self) -> Invariants {
        Invariants::none()
    }

    /// Whether everything of the scenario still holds under a fault that changes how runs end: then
    /// random plans have it, too. Asked for [`Fault::Cancel`], [`Fault::PanicChild`], and
    /// [`Fault::StallChild`], which changes what a time limit decides; none is tolerated by default.
    fn tolerates(&self, fault: Fault) -> bool {
        let _ = fault;
        false
    }

    /// Whether every run ends in all worlds as it does in the one in which nothing goes wrong, with the
    /// same status, output or error; then that is checked, except under the faults of
    /// [`Scenario::tolerates`]. Say no where time decides: where a cancel races an end, or a time limit
    /// what it waits for.
    fn is_deterministic(&self) -> bool {
        true
    }
}

/// A scenario without its type.
pub(crate) trait Erased: Send + Sync {
    fn name(&self) -> String;
    fn agents(&self, system: SystemBuilder, world: &World) -> SystemBuilder;
    fn drive<'a>(&'a self, life: &'a Life) -> Drive<'a>;
    fn invariants(&self) -> Invariants;
    fn tolerates(&self, fault: Fault) -> bool;
    fn is_deterministic(&self) -> bool;
}

/// What a drive is, without the type of its scenario.
pub(crate) type Drive<'a> = Pin<Box<dyn Future<Output = Result<(), RunError>> + 'a>>;

impl<S: Scenario> Erased for S {
    fn name(&self) -> String {
        Scenario::name(self)
    }

    fn agents(&self, system: SystemBuilder, world: &World) -> SystemBuilder {
        Scenario::agents(self, system, world)
    }

    fn drive<'a>(&'a self, life: &'a Life) -> Drive<'a> {
        Box::pin(Scenario::drive(self, life))
    }

    fn invariants(&self) -> Invariants {
        Scenario::invariants(self)
    }

    fn tolerates(&self, fault: Fault) -> bool {
        Scenario::tolerates(self, fault)
    }

    fn is_deterministic(&self) -> bool {
        Scenario::is_deterministic(self)
    }
}
