//! No run is executed twice at once, nothing is executed before it is recorded, and a step that was
//! acknowledged is never executed again.

use std::collections::BTreeSet;

use ghostlight::AgentPath;
use ghostlight::protocol::run::Phase;
use ghostlight::testing::Seen;

use crate::durable::Durable;
use crate::invariant::{Event, Invariant};

#[derive(Default)]
pub(super) struct Executions {
    inside: BTreeSet<AgentPath>,
    told: BTreeSet<(AgentPath, String)>,
}

impl Invariant for Executions {
    fn name(&self) -> &str {
        "a run is executed by one, and an acknowledged step once"
    }

    fn check(&mut self, event: &Event<'_>, durable: &Durable) -> Result<(), String> {
        match event {
            Event::LifeBegan | Event::LifeEnded => self.inside.clear(),
            Event::System(Seen::Entered { run, .. }) => {
                let record = durable.run_at(run).and_then(|run| run.record.as_ref());
                let Some(record) = record else {
                    return Err(format!("{run} is entered, and has no record"));
                };
                if let Phase::Ended(end) = record.state.phase {
                    return Err(format!("{run} is entered, and has ended as {end:?}"));
                }
                if !self.inside.insert((*run).clone()) {
                    return Err(format!("{run} is entered a second time at once"));
                }
            }
            Event::System(Seen::Left { run }) => {
                self.inside.remove(*run);
            }
            Event::System(Seen::StepBegan { run, key })
                if self.told.contains(&((*run).clone(), (*key).to_owned())) =>
            {
                return Err(format!("step {key:?} of {run} is executed after its end was told"));
            }
            Event::System(Seen::StepTold { run, key, .. }) => {
                self.told.insert(((*run).clone(), (*key).to_owned()));
            }
            _ => {}
        }
        Ok(())
    }
}
