//! What a user writes to have a workflow simulated.

use std::future::Future;

use ghostlight::{RunError, SystemBuilder};

use crate::invariant::Invariants;
use crate::life::Life;
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
    /// An error is a failure of the simulation, unless the store of this life has failed.
    fn drive(&self, life: &Life) -> impl Future<Output = Result<(), RunError>>;

    /// What must hold beside the built-in invariants.
    fn invariants(&self) -> Invariants {
        Invariants::none()
    }

    /// Whether the outcome of the drive is still right when a run is cancelled from outside: then
    /// random plans do that, too.
    fn may_be_cancelled(&self) -> bool {
        false
    }
}
