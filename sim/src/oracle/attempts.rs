//! An attempt is lost with its process, or with its own actor, and with nothing else: no wake, eviction
//! or crash of a parent counts as one.

use crate::durable::Durable;
use crate::invariant::{Event, Invariant};
use crate::plan::Fault;

#[derive(Default)]
pub(super) struct Attempts {
    /// Lives of the process, and crashes of the actors of runs.
    lives: u32,
}

impl Invariant for Attempts {
    fn name(&self) -> &str {
        "an attempt is lost with its process alone"
    }

    fn check(&mut self, event: &Event<'_>, durable: &Durable) -> Result<(), String> {
        match event {
            Event::LifeBegan | Event::Fault(Fault::CrashRun) => self.lives += 1,
            Event::Committed { changes, .. } => {
                for change in changes.iter().filter(|change| change.key.kind() == "record") {
                    let run = change.key.run().and_then(|key| durable.run(key));
                    let Some(record) = run.and_then(|run| run.record.as_ref()) else { continue };
                    if record.attempt > self.lives {
                        return Err(format!(
                            "{} of {} is at attempt {}, and {} were begun",
                            record.run_id, record.parent, record.attempt, self.lives
                        ));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
