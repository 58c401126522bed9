//! Every end of a run is owed to its agent's finish hook; one that is owed is called until it succeeds, and not again after that; the hooks of an
//! agent run one at a time.

use std::collections::{BTreeMap, BTreeSet};

use ghostlight::protocol::RunKey;
use ghostlight::protocol::run::Phase;
use ghostlight::storage::codec;
use ghostlight::storage::records::RunRecord;
use ghostlight::testing::Seen;
use ghostlight::{AgentPath, RunId};

use crate::durable::{Change, Durable, DurableRun};
use crate::invariant::{Event, Invariant};
use crate::plan::Fault;

#[derive(Default)]
pub(super) struct Deliveries {
    /// Whose hook has succeeded, and of which agent it is.
    succeeded: BTreeMap<RunKey, AgentPath>,
    /// Those of them whose success was lost with the process or the agent before it was recorded:
    /// they are called again.
    lost: BTreeSet<RunKey>,
    /// Whose hook is at work, and for which run.
    at_work: BTreeMap<AgentPath, RunId>,
}

impl Invariant for Deliveries {
    fn name(&self) -> &str {
        "what is owed is delivered"
    }

    fn check(&mut self, event: &Event<'_>, durable: &Durable) -> Result<(), String> {
        match event {
            Event::LifeEnded | Event::Fault(Fault::Fail(_) | Fault::FailRead) => {
                self.lose(durable, |_| true)
            }
            Event::AgentCrashed { agent } => self.lose(durable, |of| of == *agent),
            Event::LifeBegan => self.at_work.clear(),
            Event::System(Seen::HookBegan { agent, run_id }) => {
                self.begins(agent, run_id, durable)?;
            }
            Event::System(Seen::HookEnded { agent, run_id, ok }) => {
                self.at_work.remove(*agent);
                if *ok {
                    let run = RunKey::new(agent, run_id);
                    self.lost.remove(&run);
                    self.succeeded.insert(run, (*agent).clone());
                }
            }
            Event::Committed { changes, .. } => {
                for change in *changes {
                    self.judge(change, durable)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn has_ended(run: &DurableRun) -> bool {
    let ended = |phase| matches!(phase, Phase::Ended(_));
    !run.cleared && run.record.as_ref().is_some_and(|record| ended(record.state.phase))
}

/// Whether a record was that of a run that had not ended yet.
fn was_open(change: &Change) -> bool {
    let before = change.before.as_ref();
    let before = before.map(|before| codec::decode::<RunRecord>(&change.key, &before.value));
    !before.is_some_and(|before| {
        before.is_ok_and(|record| matches!(record.state.phase, Phase::Ended(_)))
    })
}

impl Deliveries {
    fn judge(&self, change: &Change, durable: &Durable) -> Result<(), String> {
        let Some((key, run)) = change.key.run().and_then(|key| Some((key, durable.run(key)?)))
        else {
            return Ok(());
        };
        let path = run.path.as_ref();
        match (change.key.kind(), &change.after) {
            // In the same commit, or a crash would forget it.
            ("record", Some(_)) if run.owed == 0 && has_ended(run) && was_open(change) => {
                let parent = path.and_then(AgentPath::parent);
                match parent {
                    Some((parent, _)) if durable.hooked().contains(parent.agent_type()) => {
                        Err(format!("{path:?} has ended, and nothing is owed for it"))
                    }
                    _ => Ok(()),
                }
            }
            ("owed", None) if !run.cleared && !self.succeeded.contains_key(&key) => {
                Err(format!("{path:?}: a delivery was dropped"))
            }
            _ => Ok(()),
        }
    }

    fn begins(
        &mut self,
        agent: &AgentPath,
        run_id: &RunId,
        durable: &Durable,
    ) -> Result<(), String> {
        if let Some(other) = self.at_work.insert(agent.clone(), run_id.clone()) {
            return Err(format!("{agent}: hooks for {other} and {run_id} at once"));
        }
        let key = RunKey::new(agent, run_id);
        if self.succeeded.contains_key(&key) && !self.lost.contains(&key) {
            return Err(format!("{agent}: the hook for {run_id} is called after it succeeded"));
        }
        match durable.run(key) {
            Some(run) if run.owed > 0 && has_ended(run) => Ok(()),
            Some(run) if run.owed > 0 && run.cleared => Ok(()),
            Some(run) if run.owed > 0 => {
                Err(format!("{agent}: the hook for {run_id} is called before its end"))
            }
            _ => Err(format!("{agent}: the hook for {run_id} is called, and not owed")),
        }
    }

    /// What had succeeded, and is still owed, is called once more.
    fn lose(&mut self, durable: &Durable, of: impl Fn(&AgentPath) -> bool) {
        for (run, agent) in &self.succeeded {
            if of(agent) && durable.run(*run).is_some_and(|run| run.owed > 0) {
                self.lost.insert(*run);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::{History, boss, fires, key, record, run_id};
    use super::*;
    use ghostlight::protocol::AgentKey;
    use ghostlight::protocol::run::End;
    use ghostlight::storage::Key;
    use ghostlight::storage::records::OwedRecord;

    fn owed(id: &str) -> Key {
        Key::owed(AgentKey::from(&boss()), key(id), 0)
    }

    fn row(id: &str) -> OwedRecord {
        OwedRecord { parent: boss().to_string(), run_id: id.into(), tries: 0, due_ms: 0 }
    }

    fn ended(id: &str) -> History<Deliveries> {
        let mut history = History::of(Deliveries::default());
        history.run(id, &record(id, Phase::Ended(End::Completed))).put(owed(id), &row(id));
        history.commit().unwrap();
        history
    }

    fn begin(history: &mut History<Deliveries>, id: &str) -> Result<(), String> {
        history.see(Seen::HookBegan { agent: &boss(), run_id: &run_id(id) })
    }

    fn end(history: &mut History<Deliveries>, id: &str, ok: bool) {
        history.see(Seen::HookEnded { agent: &boss(), run_id: &run_id(id), ok }).unwrap();
    }

    #[test]
    fn a_delivery_is_not_dropped() {
        let mut history = ended("r");
        begin(&mut history, "r").unwrap();
        end(&mut history, "r", false);
        fires(history.delete(owed("r")).commit(), "dropped");
    }

    #[test]
    fn a_delivery_is_not_forgotten() {
        let mut history = History::of(Deliveries::default());
        // Nobody is there to be told of this one.
        history.run("r", &record("r", Phase::Ended(End::Completed))).commit().unwrap();
        history.durable.set_hooked(["Boss".to_owned()].into());
        history.run("r", &record("r", Phase::Ended(End::Completed))).commit().unwrap();
        history.run("other", &record("other", Phase::Running)).commit().unwrap();
        history.run("other", &record("other", Phase::Ended(End::Completed)));
        fires(history.commit(), "nothing is owed");
    }

    #[test]
    fn a_hook_that_succeeded_is_called_again_by_a_crash_of_its_own_agent_alone() {
        let other = "Boss:other".parse().unwrap();
        for (agent, again) in [(boss(), true), (other, false)] {
            let mut history = ended("r");
            begin(&mut history, "r").unwrap();
            end(&mut history, "r", true);
            history.tell(Event::AgentCrashed { agent: &agent }).unwrap();
            match again {
                true => begin(&mut history, "r").unwrap(),
                false => fires(begin(&mut history, "r"), "after it succeeded"),
            }
        }
    }

    #[test]
    fn a_crash_before_the_success_forgives_nothing() {
        let mut history = ended("r");
        history.restart().unwrap();
        begin(&mut history, "r").unwrap();
        end(&mut history, "r", true);
        fires(begin(&mut history, "r"), "after it succeeded");
    }

    #[test]
    fn a_crash_forgives_one_call() {
        let mut history = ended("r");
        begin(&mut history, "r").unwrap();
        end(&mut history, "r", true);
        history.restart().unwrap();
        begin(&mut history, "r").unwrap();
        end(&mut history, "r", true);
        fires(begin(&mut history, "r"), "after it succeeded");
    }

    #[test]
    fn hooks_are_called_one_at_a_time_and_only_if_owed() {
        let mut history = ended("r");
        begin(&mut history, "r").unwrap();
        fires(begin(&mut history, "r"), "at once");
        let mut history = ended("r");
        fires(begin(&mut history, "other"), "not owed");
        let mut history = History::of(Deliveries::default());
        history.run("r", &record("r", Phase::Running)).put(owed("r"), &row("r")).commit().unwrap();
        fires(begin(&mut history, "r"), "before its end");
    }
}
