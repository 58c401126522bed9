//! What the code of a run is told of its steps was durable before, and is never something else; a
//! step whose result is durable is not executed again, whether anybody was told of it or not.

use std::collections::BTreeMap;

use ghostlight::protocol::{Failure, RunKey};
use ghostlight::storage::codec;
use ghostlight::storage::payload::Payload;
use ghostlight::storage::records::{LogEntry, LogRecord, StoredCall};
use ghostlight::testing::Seen;

use crate::durable::{Change, Durable};
use crate::invariant::{Event, Invariant};

#[derive(Default)]
pub(super) struct Journal {
    runs: BTreeMap<RunKey, Past>,
}

/// What a run's log has, beside frames.
#[derive(Default)]
struct Past {
    entries: Vec<LogEntry>,
    steps: BTreeMap<String, Result<Vec<u8>, String>>,
    sleeps: BTreeMap<u64, bool>,
    waits: BTreeMap<u64, bool>,
    tries: BTreeMap<String, u32>,
}

impl Invariant for Journal {
    fn name(&self) -> &str {
        "what was recorded of a step, a sleep or a wait stands"
    }

    fn check(&mut self, event: &Event<'_>, durable: &Durable) -> Result<(), String> {
        match event {
            Event::Committed { changes, .. } => {
                for change in changes.iter().filter(|change| change.key.kind() == "log") {
                    self.read(change, durable)?;
                }
            }
            Event::System(Seen::StepBegan { run, key })
                if self.of(run).is_some_and(|past| past.steps.contains_key(*key)) =>
            {
                return Err(format!("step {key:?} of {run} is executed after its end"));
            }
            Event::System(Seen::StepTold { run, key, result }) => {
                let Some(recorded) = self.of(run).and_then(|past| past.steps.get(*key)) else {
                    return Err(format!("step {key:?} of {run} is told, and not durable"));
                };
                if !is_the_same(recorded, *result) {
                    return Err(format!("step {key:?} of {run} is told otherwise than recorded"));
                }
            }
            Event::System(Seen::Durable { run, entry }) => {
                let entries = self.of(run).map_or(&[][..], |past| &past.entries);
                let key = run.parent().map(|(parent, run_id)| RunKey::new(&parent, &run_id));
                let contents = |payload: &Payload| durable.contents(key?, payload);
                if !entries.iter().rev().any(|stored| is_stored(entry, stored, contents)) {
                    let mut entry = format!("{entry:?}");
                    entry.truncate(entry.floor_char_boundary(200));
                    return Err(format!("{run} goes on after {entry}, which is not durable"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn is_the_same(recorded: &Result<Vec<u8>, String>, told: Result<&[u8], &Failure>) -> bool {
    match (recorded, told) {
        (Ok(recorded), Ok(told)) => recorded == told,
        (Err(recorded), Err(told)) => *recorded == told.message,
        _ => false,
    }
}

/// Whether this is the entry as it is stored: a large payload is stored beside it.
fn is_stored(
    entry: &LogEntry,
    stored: &LogEntry,
    contents: impl Fn(&Payload) -> Option<Vec<u8>>,
) -> bool {
    if entry == stored || std::mem::discriminant(entry) != std::mem::discriminant(stored) {
        return entry == stored;
    }
    let (mut entry, mut stored) = (entry.clone(), stored.clone());
    if let (Some(whole), Some(parts)) = (entry.payload_mut(), stored.payload_mut())
        && parts.len() == whole.len()
        && matches!(whole, Payload::Inline(_))
        && let Some(bytes) = contents(parts)
    {
        *parts = Payload::Inline(bytes);
    }
    entry == stored
}

impl Journal {
    fn of(&self, run: &ghostlight::AgentPath) -> Option<&Past> {
        let (parent, run_id) = run.parent()?;
        self.runs.get(&RunKey::new(&parent, &run_id))
    }

    fn read(&mut self, change: &Change, durable: &Durable) -> Result<(), String> {
        let Some(run) = change.key.run() else { return Ok(()) };
        let stored = durable.run(run);
        let name = || match stored.and_then(|run| run.path.as_ref()) {
            Some(path) => path.to_string(),
            None => change.key.to_string(),
        };
        match (&change.before, &change.after) {
            (None, Some(after)) => {
                let record: LogRecord = codec::decode(&change.key, &after.value)
                    .map_err(|error| format!("{}: {error}", name()))?;
                let past = self.runs.entry(run).or_default();
                for entry in record.entries {
                    let contents = |payload: &Payload| durable.contents(run, payload);
                    past.add(&entry, contents).map_err(|text| format!("{}: {text}", name()))?;
                    past.entries.push(entry);
                }
                Ok(())
            }
            (Some(before), Some(after)) if before.value != after.value => {
                Err(format!("{}: a part of its log was written again", name()))
            }
            (Some(_), None) if !stored.is_some_and(|run| run.cleared) => {
                Err(format!("{}: a part of its log is gone", name()))
            }
            _ => Ok(()),
        }
    }
}

impl Past {
    fn add(
        &mut self,
        entry: &LogEntry,
        contents: impl Fn(&Payload) -> Option<Vec<u8>>,
    ) -> Result<(), String> {
        let again = match entry {
            LogEntry::Completed { call: StoredCall::Step(step), result } => {
                let Some(bytes) = contents(result) else {
                    return Err(format!("parts of the result of step {step:?} are missing"));
                };
                self.steps.insert(step.clone(), Ok(bytes)).is_some()
            }
            LogEntry::StepFailed { step, message, .. } => {
                self.steps.insert(step.clone(), Err(message.clone())).is_some()
            }
            LogEntry::SleepSet { ordinal, .. } => self.sleeps.insert(*ordinal, false).is_some(),
            LogEntry::Completed { call: StoredCall::Sleep(ordinal), .. } => {
                self.sleeps.insert(*ordinal, true) == Some(true)
            }
            LogEntry::Completed { call: StoredCall::Wait(ordinal), .. } => {
                self.waits.insert(*ordinal, true).is_some()
            }
            LogEntry::Tried { step, tries } => {
                self.tries.insert(step.clone(), *tries).is_some_and(|before| before >= *tries)
            }
            _ => false,
        };
        if again {
            return Err(format!("{entry:?} is recorded a second time"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::{History, fires, path, record};
    use super::*;
    use ghostlight::protocol::run::Phase;
    use ghostlight::storage::Key;

    fn step(result: &[u8]) -> LogEntry {
        let result = Payload::Inline(result.to_vec());
        LogEntry::Completed { call: StoredCall::Step("a".into()), result }
    }

    fn recorded() -> History<Journal> {
        let mut history = History::of(Journal::default());
        history.run("r", &record("r", Phase::Running)).log("r", &[LogEntry::Started, step(b"1")]);
        history.commit().unwrap();
        history
    }

    #[test]
    fn a_step_that_is_durable_and_was_not_told_is_not_executed_again() {
        let mut history = recorded();
        history.restart().unwrap();
        fires(history.see(Seen::StepBegan { run: &path("r"), key: "a" }), "after its end");
    }

    #[test]
    fn a_step_is_told_as_it_is_recorded() {
        let mut history = recorded();
        let run = path("r");
        history.see(Seen::StepTold { run: &run, key: "a", result: Ok(b"1") }).unwrap();
        fires(
            history.see(Seen::StepTold { run: &run, key: "a", result: Ok(b"2") }),
            "otherwise than recorded",
        );
        fires(history.see(Seen::StepTold { run: &run, key: "b", result: Ok(b"1") }), "not durable");
    }

    #[test]
    fn a_large_result_is_told_as_it_is_recorded() {
        let run = super::super::history::key("r");
        let result = Payload::Parts { number: 1, bytes: 2 };
        let entry = LogEntry::Completed { call: StoredCall::Step("a".into()), result };
        let started = [LogEntry::Started, entry];
        let mut history = History::of(Journal::default());
        history.run("r", &record("r", Phase::Running)).log("r", &started);
        fires(history.commit(), "are missing");
        let mut history = History::of(Journal::default());
        history.raw(Key::part(run, 1, 0), b"1").raw(Key::part(run, 1, 1), b"2");
        history.run("r", &record("r", Phase::Running)).log("r", &started).commit().unwrap();
        let run = path("r");
        let told = |result| Seen::StepTold { run: &run, key: "a", result: Ok(result) };
        history.see(told(b"12")).unwrap();
        fires(history.see(told(b"13")), "otherwise than recorded");
        history.see(Seen::Durable { run: &run, entry: &step(b"12") }).unwrap();
        fires(history.see(Seen::Durable { run: &run, entry: &step(b"13") }), "not durable");
    }

    #[test]
    fn nobody_goes_on_before_the_disk_has_answered() {
        let mut history = recorded();
        history.see(Seen::Durable { run: &path("r"), entry: &step(b"1") }).unwrap();
        fires(history.see(Seen::Durable { run: &path("r"), entry: &step(b"2") }), "not durable");
    }

    #[test]
    fn nothing_is_recorded_twice_or_taken_back() {
        fires(recorded().log("r", &[step(b"1")]).commit(), "a second time");
        let due = LogEntry::SleepSet { ordinal: 0, due_ms: 5 };
        fires(recorded().log("r", &[due.clone(), due]).commit(), "a second time");
        let tried = |tries| LogEntry::Tried { step: "b".into(), tries };
        fires(recorded().log("r", &[tried(2), tried(2)]).commit(), "a second time");
        let row = Key::log_record(super::super::history::key("r"), 1, 0);
        fires(recorded().delete(row).commit(), "is gone");
    }
}
