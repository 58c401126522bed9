//! An attempt is lost with its process, and with nothing else: no wake, eviction or crash of a parent
//! counts as one.

use crate::durable::Durable;
use crate::invariant::{Event, Invariant};

#[derive(Default)]
pub(super) struct Attempts {
    life: u32,
}

impl Invariant for Attempts {
    fn name(&self) -> &str {
        "an attempt is lost with its process alone"
    }

    fn check(&mut self, event: &Event<'_>, durable: &Durable) -> Result<(), String> {
        match event {
            Event::LifeBegan => self.life += 1,
            Event::Committed { changes, .. } => {
                for change in changes.iter().filter(|change| change.key.kind() == "record") {
                    let run = change.key.run().and_then(|key| durable.run(key));
                    let Some(record) = run.and_then(|run| run.record.as_ref()) else { continue };
                    if record.attempt > self.life {
                        return Err(format!(
                            "{} of {} is at attempt {} in life {}",
                            record.run_id, record.parent, record.attempt, self.life
                        ));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
