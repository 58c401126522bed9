//! An agent never executes more than its cap, and whoever waits in its queue is admitted in the order of
//! the queue: nobody overtakes.

use std::collections::{BTreeMap, BTreeSet};

use ghostlight::protocol::RunKey;
use ghostlight::protocol::run::Phase;
use ghostlight::storage::records::RunRecord;
use ghostlight::storage::{Versioned, codec};
use ghostlight::testing::Seen;

use crate::durable::{Change, Durable};
use crate::invariant::{Event, Invariant};

#[derive(Default)]
pub(super) struct Cap {
    /// The runs whose code is inside, whatever is recorded of them.
    inside: BTreeSet<RunKey>,
    /// Who held a slot when that was last judged.
    held: BTreeMap<String, BTreeSet<RunKey>>,
}

impl Invariant for Cap {
    fn name(&self) -> &str {
        "executions never exceed the cap, and no run overtakes a queued one"
    }

    fn check(&mut self, event: &Event<'_>, durable: &Durable) -> Result<(), String> {
        if durable.caps().is_empty() {
            return Ok(());
        }
        let key = |run: &ghostlight::AgentPath| run.parent().map(|(p, id)| RunKey::new(&p, &id));
        match event {
            Event::LifeBegan | Event::LifeEnded => self.inside.clear(),
            Event::System(Seen::Left { run }) => {
                if let Some(run) = key(run) {
                    self.inside.remove(&run);
                }
            }
            Event::System(Seen::Entered { run, .. }) => {
                self.inside.extend(key(run));
                self.count(durable)?;
            }
            Event::Committed { changes, .. } => {
                let records = changes.iter().filter(|change| change.key.kind() == "record");
                let mut any = false;
                for change in records {
                    any = true;
                    in_order(change, durable)?;
                }
                if any {
                    self.count(durable)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Cap {
    fn count(&mut self, durable: &Durable) -> Result<(), String> {
        let mut holders = BTreeMap::<String, BTreeSet<RunKey>>::new();
        for (key, run) in durable.runs() {
            let Some(record) = &run.record else { continue };
            // A parked run waits for the next process, and holds no slot.
            let holds = record.state.holds_slot() && record.state.interrupted.is_none();
            if (holds && !run.cleared) || self.inside.contains(&key) {
                holders.entry(record.parent.clone()).or_default().insert(key);
            }
        }
        let before = std::mem::replace(&mut self.held, holders);
        for (parent, holders) in &self.held {
            let Some(cap) = cap(parent, durable) else { continue };
            let held = before.get(parent);
            // More than the cap is right under one thing: a cap that was lowered meanwhile.
            let is_new = |run: &RunKey| !held.is_some_and(|held| held.contains(run));
            if holders.len() > cap && holders.iter().any(is_new) {
                let executing = holders.len();
                return Err(format!("{parent} executes {executing} runs, and its cap is {cap}"));
            }
        }
        Ok(())
    }
}

fn cap(parent: &str, durable: &Durable) -> Option<usize> {
    let agent_type = parent.rsplit('/').next()?.split(':').next()?;
    durable.caps().get(agent_type).copied()
}

/// A run that comes to a slot leaves nobody behind who was queued before it.
fn in_order(change: &Change, durable: &Durable) -> Result<(), String> {
    let read = |row: &Option<Versioned>| -> Result<Option<RunRecord>, String> {
        let record = row.as_ref().map(|row| codec::decode(&change.key, &row.value)).transpose();
        record.map_err(|error| error.to_string())
    };
    let (before, Some(after)) = (read(&change.before)?, read(&change.after)?) else {
        return Ok(());
    };
    let had_slot = before.as_ref().is_some_and(|record| record.state.holds_slot());
    if had_slot || !after.state.holds_slot() || cap(&after.parent, durable).is_none() {
        return Ok(());
    }
    // One that never waited comes after all that do.
    let number = before.and_then(|record| record.queue_number).unwrap_or(u64::MAX);
    let overtaken = durable.runs().filter_map(|(_, run)| run.record.as_ref()).find(|other| {
        other.parent == after.parent
            && other.state.phase == Phase::Queued
            && other.queue_number.is_some_and(|other| other < number)
    });
    match overtaken {
        Some(other) => {
            let (id, parent, other) = (&after.run_id, &after.parent, &other.run_id);
            Err(format!("{id} of {parent} has overtaken {other}, which still waits"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::{History, fires, path, record};
    use super::*;
    use ghostlight::protocol::run::End;

    fn capped() -> History<Cap> {
        let mut history = History::of(Cap::default());
        history.durable.set_caps([("Boss".to_owned(), 1)].into());
        history.run("a", &record("a", Phase::Running)).commit().unwrap();
        history
    }

    fn queued(id: &str, number: u64) -> RunRecord {
        RunRecord { queue_number: Some(number), ..record(id, Phase::Queued) }
    }

    #[test]
    fn the_cap_holds_also_for_what_waits_outside_memory() {
        let mut history = capped();
        history.run("a", &record("a", Phase::Suspended)).commit().unwrap();
        fires(history.run("b", &record("b", Phase::Running)).commit(), "executes 2 runs");
    }

    #[test]
    fn code_that_has_not_returned_keeps_its_slot() {
        let mut history = capped();
        history.see(Seen::Entered { run: &path("a"), attempt: 1 }).unwrap();
        history.run("a", &record("a", Phase::Ended(End::Aborted))).commit().unwrap();
        fires(history.run("b", &record("b", Phase::Running)).commit(), "executes 2 runs");
    }

    #[test]
    fn a_cap_that_was_lowered_stops_nobody() {
        let mut history = History::of(Cap::default());
        history.durable.set_caps([("Boss".to_owned(), 2)].into());
        history.run("a", &record("a", Phase::Running)).commit().unwrap();
        history.run("b", &record("b", Phase::Running)).commit().unwrap();
        history.restart().unwrap();
        history.durable.set_caps([("Boss".to_owned(), 1)].into());
        history.run("b", &record("b", Phase::Running)).commit().unwrap();
    }

    #[test]
    fn nobody_overtakes() {
        let mut history = capped();
        history.run("b", &queued("b", 1)).run("c", &queued("c", 2)).commit().unwrap();
        history.run("a", &record("a", Phase::Ended(End::Completed))).commit().unwrap();
        let admitted = RunRecord { queue_number: None, ..record("c", Phase::Running) };
        fires(history.run("c", &admitted).commit(), "c of Boss:b has overtaken b");

        let mut history = capped();
        history.run("b", &queued("b", 1)).commit().unwrap();
        history.run("a", &record("a", Phase::Ended(End::Completed))).commit().unwrap();
        fires(history.run("new", &record("new", Phase::Running)).commit(), "new of Boss:b");
    }
}
