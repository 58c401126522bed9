//! An agent's executions never exceed its cap; runs that wait in its queue do not count.

use std::collections::BTreeMap;

use crate::durable::Durable;
use crate::invariant::{Event, Invariant};

pub(super) struct Cap;

impl Invariant for Cap {
    fn name(&self) -> &str {
        "executions never exceed the cap"
    }

    fn check(&mut self, event: &Event<'_>, durable: &Durable) -> Result<(), String> {
        let Event::Committed { changes, .. } = event else { return Ok(()) };
        if durable.caps().is_empty() || !changes.iter().any(|change| change.key.kind() == "live") {
            return Ok(());
        }
        let mut executing = BTreeMap::<&str, usize>::new();
        for (_, run) in durable.runs() {
            // A parked run waits for the next process, and holds no slot.
            let parked =
                run.record.as_ref().is_some_and(|record| record.state.interrupted.is_some());
            if let Some(live) = run.live.as_ref().filter(|_| !parked) {
                *executing.entry(&live.parent).or_default() += 1;
            }
        }
        for (parent, executing) in executing {
            let agent_type = parent.rsplit('/').next().and_then(|last| last.split(':').next());
            let cap = agent_type.and_then(|agent_type| durable.caps().get(agent_type));
            if let Some(cap) = cap.filter(|cap| executing > **cap) {
                return Err(format!("{parent} executes {executing} runs, and its cap is {cap}"));
            }
        }
        Ok(())
    }
}
