//! The built-in invariants: what Ghostlight promises of every system, judged after every event. A file
//! each; every one has tests that tell it of a broken history.
//!
//! Which promise is whose:
//!
//! | promise | checked by |
//! |---|---|
//! | a hard end never changes; record and log end in one commit | `ends` |
//! | a stop waits for what is being executed | `stops` |
//! | no run is executed twice at once, or before it is recorded | `executions` |
//! | a step that was acknowledged, or is durable, is not executed again; a step, sleep or wait is told as it was recorded, and not before | `journal` |
//! | a run's code is entered once a life that is lost, no more | `attempts` |
//! | what an observer saw is durable, and keeps its number over every crash | `observers`, `log` |
//! | no gap and no repeat, at any cut; a slow reader is caught up from the log | `observers` |
//! | dropping a tail affects neither the run nor other tails; a slow one slows nobody | `observers`, beside readers that drop theirs, are slow, or stop |
//! | a client's picture is the same however often it connects | `clients` |
//! | whatever a caller was told (dispatch, cancel, clear, outcome, inspection, milestone) stays true | `callers` |
//! | a recorded cancel ends the run as aborted, and reaches what it waits for | `cancels` |
//! | code that is cancelled is gone after its grace time | `grace`, to a minute |
//! | every end is owed to the finish hook; at most one successful delivery a slot; an undelivered one is tried again for ever | `deliveries` |
//! | executions never exceed the cap; the queue is first come, first served | `cap` |
//! | what lives is found by the next start, what has ended is in no index | `index` |
//! | a cleared run is gone, and its id is not used again | `tombstones` |
//! | nothing makes the system panic | `panics` |
//! | starting takes as long as the disk, whatever the children do | `life` |
//! | a refused dispatch records nothing | the scenario `refuse` |
//! | how a run ends does not depend on what goes wrong | `calm` |
//!
//! Not here, since what they are about does not exist yet: the late success after a give-up, what a
//! missing inspection may seal, and that recovering children take the longest of their budgets and not
//! the sum (detached runs and their budgets). That a denial at the gate creates nothing is the server's,
//! which no simulation has.

pub(crate) mod attempts;
mod callers;
mod cancels;
mod cap;
mod clients;
mod deliveries;
mod ends;
mod executions;
mod grace;
#[cfg(test)]
mod history;
mod index;
mod journal;
mod log;
mod observers;
mod panics;
mod stops;
mod tombstones;

use std::time::Duration;

use crate::invariant::Invariant;

/// All of them, for a world with a disk that takes so long.
pub(crate) fn all(latency: Duration) -> Vec<Box<dyn Invariant>> {
    vec![
        Box::<attempts::Attempts>::default(),
        Box::<cap::Cap>::default(),
        Box::new(ends::Ends),
        Box::new(cancels::Cancels),
        Box::<executions::Executions>::default(),
        Box::new(grace::Grace::new(latency)),
        Box::<journal::Journal>::default(),
        Box::<log::Log>::default(),
        Box::<observers::Observers>::default(),
        // What is not durable is for whoever was shown it first.
        Box::<clients::Clients>::default(),
        Box::<callers::Callers>::default(),
        Box::new(panics::Panics),
        Box::<stops::Stops>::default(),
        Box::new(index::Index),
        Box::<tombstones::Tombstones>::default(),
        Box::<deliveries::Deliveries>::default(),
    ]
}
