//! A system that is asked to stop waits for the runs that are being executed, as long as it may.

use std::collections::BTreeSet;

use ghostlight::AgentPath;
use ghostlight::protocol::run::Phase;
use ghostlight::testing::Seen;

use crate::durable::Durable;
use crate::invariant::{Event, Invariant};

#[derive(Default)]
pub(super) struct Stops {
    inside: BTreeSet<AgentPath>,
}

impl Invariant for Stops {
    fn name(&self) -> &str {
        "a stop waits for what is being executed"
    }

    fn check(&mut self, event: &Event<'_>, durable: &Durable) -> Result<(), String> {
        match event {
            Event::LifeBegan | Event::LifeEnded => self.inside.clear(),
            Event::System(Seen::Entered { run, .. }) => _ = self.inside.insert((*run).clone()),
            Event::System(Seen::Left { run }) => _ = self.inside.remove(*run),
            Event::Drained { timed_out: false } => {
                let is_executed = |run: &&AgentPath| {
                    let record = durable.run_at(run).and_then(|run| run.record.as_ref());
                    // What has ended is not waited for, even if its code is still to be gone.
                    record.is_some_and(|record| !matches!(record.state.phase, Phase::Ended(_)))
                };
                if let Some(run) = self.inside.iter().find(is_executed) {
                    return Err(format!("{run} was being executed when it had waited"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::{History, fires, path, record};
    use super::*;

    #[test]
    fn what_is_executed_is_waited_for() {
        let run = path("r");
        let mut history = History::of(Stops::default());
        history.run("r", &record("r", Phase::Running)).commit().unwrap();
        history.see(Seen::Entered { run: &run, attempt: 1 }).unwrap();
        history.tell(Event::Drained { timed_out: true }).unwrap();
        fires(history.tell(Event::Drained { timed_out: false }), "was being executed");
        history.see(Seen::Left { run: &run }).unwrap();
        history.tell(Event::Drained { timed_out: false }).unwrap();
    }
}
