//! A finish hook that is owed is called until it succeeds, and not again after that; the hooks of an
//! agent run one at a time.

use std::collections::BTreeMap;

use ghostlight::protocol::RunKey;
use ghostlight::testing::Seen;
use ghostlight::{AgentPath, RunId};

use crate::durable::Durable;
use crate::invariant::{Event, Invariant};
use crate::plan::Fault;

#[derive(Default)]
pub(super) struct Deliveries {
    /// In which life the hook last succeeded.
    succeeded: BTreeMap<RunKey, u64>,
    life: u64,
    /// Whose hook is at work, and for which run.
    at_work: BTreeMap<AgentPath, RunId>,
}

impl Invariant for Deliveries {
    fn name(&self) -> &str {
        "what is owed is delivered"
    }

    fn check(&mut self, event: &Event<'_>, durable: &Durable) -> Result<(), String> {
        match event {
            // At least once across crashes of the process and of the agent.
            Event::Fault(Fault::CrashParent) => self.life += 1,
            Event::LifeBegan => {
                self.life += 1;
                self.at_work.clear();
            }
            Event::System(Seen::HookBegan { agent, run_id }) => {
                let (agent, run_id) = (*agent, *run_id);
                if let Some(other) = self.at_work.insert(agent.clone(), run_id.clone()) {
                    return Err(format!("{agent}: hooks for {other} and {run_id} at once"));
                }
                let run = RunKey::new(agent, run_id);
                if self.succeeded.get(&run) == Some(&self.life) {
                    return Err(format!(
                        "{agent}: the hook for {run_id} is called after it succeeded"
                    ));
                }
                if durable.run(run).is_none_or(|run| run.owed == 0) {
                    return Err(format!("{agent}: the hook for {run_id} is called, and not owed"));
                }
            }
            Event::System(Seen::HookEnded { agent, run_id, ok }) => {
                self.at_work.remove(*agent);
                if *ok {
                    self.succeeded.insert(RunKey::new(agent, run_id), self.life);
                }
            }
            Event::Committed { changes, .. } => {
                for change in *changes {
                    let (Some(run), "owed", None) =
                        (change.key.run(), change.key.kind(), &change.after)
                    else {
                        continue;
                    };
                    let cleared = durable.run(run).is_some_and(|run| run.cleared);
                    if !cleared && !self.succeeded.contains_key(&run) {
                        let path = durable.run(run).and_then(|run| run.path.as_ref());
                        return Err(format!("{path:?}: a delivery was dropped"));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
