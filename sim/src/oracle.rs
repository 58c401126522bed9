//! The built-in invariants: what Ghostlight promises of every system. A file each.

mod attempts;
mod cap;
mod clients;
mod deliveries;
mod ends;
mod executions;
mod index;
mod log;
mod observers;
mod panics;

use crate::invariant::Invariant;

pub(crate) fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::<attempts::Attempts>::default(),
        Box::new(cap::Cap),
        Box::<clients::Clients>::default(),
        Box::new(ends::Ends),
        Box::<executions::Executions>::default(),
        Box::<log::Log>::default(),
        Box::<observers::Observers>::default(),
        Box::new(panics::Panics),
        Box::new(index::Index),
        Box::<deliveries::Deliveries>::default(),
    ]
}
