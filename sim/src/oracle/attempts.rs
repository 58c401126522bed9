//! An attempt is lost with the process that has it, or with the run's own actor, and with nothing else: no
//! wake, eviction or crash of a parent counts as one, nor does a process that never came to the run.

use std::collections::{BTreeMap, BTreeSet};

use ghostlight::protocol::RunKey;
use ghostlight::protocol::run::{End, Phase};
use ghostlight::storage::records::RunRecord;

use crate::durable::Durable;
use crate::invariant::{Event, Invariant};

/// What an end says when a run has lost too many attempts.
const EXHAUSTED: &str = "attempts-exhausted";

/// How many attempts in a row a run has lost, as its end says, if it has ended by that.
pub(crate) fn exhausted_after(record: &RunRecord) -> Option<u32> {
    let end = record.end.as_ref().filter(|_| record.state.phase == Phase::Ended(End::Error))?;
    let error = end.error.as_ref().filter(|_| end.kind.as_deref() == Some(EXHAUSTED))?;
    error.split(' ').next()?.parse().ok()
}

#[derive(Default)]
pub(super) struct Attempts {
    /// The runs that this life has begun, or taken over.
    owned: BTreeSet<RunKey>,
    lost: BTreeMap<RunKey, u32>,
    attempts: BTreeMap<RunKey, u32>,
    /// The attempts that an actor was lost in while it executed the code.
    crashed: BTreeMap<RunKey, u32>,
}

impl Invariant for Attempts {
    fn name(&self) -> &str {
        "an attempt is lost with its process or actor alone"
    }

    fn check(&mut self, event: &Event<'_>, durable: &Durable) -> Result<(), String> {
        match event {
            // By then all is on the disk that the life before has left there.
            Event::LifeBegan => {
                for run in std::mem::take(&mut self.owned) {
                    self.lose(run, durable);
                }
            }
            Event::RunCrashed { run } => {
                if let Some((parent, run_id)) = run.parent() {
                    let key = RunKey::new(&parent, &run_id);
                    if self.lose(key, durable) {
                        let attempt = self.attempts.get(&key).copied().unwrap_or(1);
                        self.crashed.insert(key, attempt);
                    }
                }
            }
            Event::Committed { changes, .. } => {
                for change in *changes {
                    let Some(key) = change.key.run() else { continue };
                    match change.key.kind() {
                        "live" if change.after.is_some() => _ = self.owned.insert(key),
                        "record" => self.judge(key, durable)?,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Attempts {
    /// Whether there was an attempt to lose.
    fn lose(&mut self, run: RunKey, durable: &Durable) -> bool {
        let record = durable.run(run).and_then(|run| run.record.as_ref());
        // What waits has no attempt to lose; what is parked keeps its own.
        let has_attempt = |record: &RunRecord| {
            record.state.phase == Phase::Running && record.state.interrupted.is_none()
        };
        let loses = record.is_some_and(has_attempt);
        if loses {
            *self.lost.entry(run).or_default() += 1;
        }
        loses
    }

    fn judge(&mut self, key: RunKey, durable: &Durable) -> Result<(), String> {
        let Some(record) = durable.run(key).and_then(|run| run.record.as_ref()) else {
            return Ok(());
        };
        let (id, parent, attempt) = (&record.run_id, &record.parent, record.attempt);
        let lost = self.lost.get(&key).copied().unwrap_or(0);
        if attempt > 1 + lost {
            return Err(format!("{id} of {parent} is at attempt {attempt}, and has lost {lost}"));
        }
        if let Some(said) = exhausted_after(record).filter(|said| *said > lost) {
            return Err(format!("{id} of {parent} gave up after {said} attempts, and lost {lost}"));
        }
        match record.state.phase {
            // What was on its way to the disk as the actor crashed had no attempt to lose any more.
            Phase::Suspended => _ = self.crashed.remove(&key),
            Phase::Ended(End::Completed) if self.crashed.get(&key) == Some(&attempt) => {
                return Err(format!(
                    "{id} of {parent} is completed by attempt {attempt}, whose actor had crashed"
                ));
            }
            _ => {}
        }
        let before = self.attempts.insert(key, attempt).unwrap_or(0);
        if attempt < before {
            return Err(format!("{id} of {parent} was at attempt {before}, and is at {attempt}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::{History, fires, path, record};
    use super::*;

    fn at(attempt: u32, phase: Phase) -> ghostlight::storage::records::RunRecord {
        let mut record = record("r", phase);
        record.attempt = attempt;
        record
    }

    #[test]
    fn a_process_that_is_lost_takes_one_attempt() {
        let mut history = History::of(Attempts::default());
        history.run("r", &at(1, Phase::Running)).commit().unwrap();
        history.restart().unwrap();
        history.run("r", &at(2, Phase::Running)).commit().unwrap();
        fires(history.run("r", &at(3, Phase::Running)).commit(), "has lost 1");
        fires(history.run("r", &at(1, Phase::Running)).commit(), "was at attempt 2");
    }

    #[test]
    fn an_actor_that_is_lost_takes_one_attempt_of_its_own_run() {
        for (crashed, said) in [("r", None), ("other", Some("has lost 0"))] {
            let mut history = History::of(Attempts::default());
            history.run("r", &at(1, Phase::Running)).commit().unwrap();
            history.tell(Event::RunCrashed { run: &path(crashed) }).unwrap();
            let again = history.run("r", &at(2, Phase::Running)).commit();
            match said {
                None => again.unwrap(),
                Some(said) => fires(again, said),
            }
        }
    }

    #[test]
    fn an_actor_that_is_lost_completes_nothing() {
        for (attempt, again) in [(1, false), (2, true)] {
            let mut history = History::of(Attempts::default());
            history.run("r", &at(1, Phase::Running)).commit().unwrap();
            history.tell(Event::RunCrashed { run: &path("r") }).unwrap();
            let ended = history.run("r", &at(attempt, Phase::Ended(End::Completed))).commit();
            match again {
                true => ended.unwrap(),
                false => fires(ended, "whose actor had crashed"),
            }
        }
    }

    #[test]
    fn a_run_does_not_give_up_before_it_has_lost_what_it_may() {
        let mut ended = at(1, Phase::Ended(End::Error));
        ended.end = Some(ghostlight::storage::records::EndRecord {
            error: Some("2 attempts in a row made no progress".into()),
            kind: Some(EXHAUSTED.into()),
            ..Default::default()
        });
        let mut history = History::of(Attempts::default());
        history.run("r", &at(1, Phase::Running)).commit().unwrap();
        history.restart().unwrap();
        fires(history.run("r", &ended).commit(), "gave up after 2 attempts, and lost 1");
        let mut history = History::of(Attempts::default());
        history.run("r", &at(1, Phase::Running)).commit().unwrap();
        history.restart().unwrap();
        history.run("r", &at(2, Phase::Running)).commit().unwrap();
        history.restart().unwrap();
        ended.attempt = 2;
        history.run("r", &ended).commit().unwrap();
    }

    #[test]
    fn what_waits_outside_memory_loses_none() {
        let mut history = History::of(Attempts::default());
        history.run("r", &at(1, Phase::Suspended)).commit().unwrap();
        history.restart().unwrap();
        fires(history.run("r", &at(2, Phase::Running)).commit(), "has lost 0");
    }

    #[test]
    fn a_life_that_never_came_to_the_run_takes_none() {
        let mut history = History::of(Attempts::default());
        history.run("r", &at(1, Phase::Running)).commit().unwrap();
        history.restart().unwrap();
        history.restart().unwrap();
        fires(history.run("r", &at(3, Phase::Running)).commit(), "has lost 1");
    }
}
