//! An end is one commit, of the record and of the log alike, and a hard one never changes. What a dispatch
//! has recorded of a run stays as it is, too.

use ghostlight::protocol::run::{End, Phase};
use ghostlight::storage::payload::Payload;
use ghostlight::storage::records::{LogEntry, RunRecord};
use ghostlight::storage::{Key, Versioned, codec};

use crate::durable::{Change, Durable, DurableRun};
use crate::invariant::{Event, Invariant};

pub(super) struct Ends;

impl Invariant for Ends {
    fn name(&self) -> &str {
        "a hard end never changes"
    }

    fn check(&mut self, event: &Event<'_>, durable: &Durable) -> Result<(), String> {
        let Event::Committed { changes, .. } = event else { return Ok(()) };
        changes.iter().try_for_each(|change| keeps_parts(change, durable))?;
        for change in changes.iter().filter(|change| matches!(change.key.kind(), "record" | "log"))
        {
            let stored = change.key.run().and_then(|run| durable.run(run));
            if let Some(run) = stored.filter(|run| !run.cleared) {
                agrees(run)?;
            }
        }
        for change in changes.iter().filter(|change| change.key.kind() == "record") {
            let before = read(&change.key, change.before.as_ref())?;
            // A cleared run is gone: that is the business of tombstones.
            let after = read(&change.key, change.after.as_ref())?;
            let (Some(before), Some(after)) = (before, after) else { continue };
            let (id, parent) = (&before.run_id, &before.parent);
            if dispatched(&before) != dispatched(&after) {
                return Err(format!("{id} of {parent} was dispatched otherwise"));
            }
            let end = |record: &RunRecord| {
                (record.state.phase, record.end.clone(), record.completed_at_ms)
            };
            if matches!(before.state.phase, Phase::Ended(_)) && end(&before) != end(&after) {
                let (before, after) = (before.state.phase, after.state.phase);
                return Err(format!("{id} of {parent} had ended as {before:?}, and is {after:?}"));
            }
        }
        Ok(())
    }
}

/// The parts of an output are as they were when the run ended.
fn keeps_parts(change: &Change, durable: &Durable) -> Result<(), String> {
    let Some(run) = change.key.run().filter(|_| change.key.kind() == "part") else { return Ok(()) };
    let stored = durable.run(run).filter(|stored| !stored.cleared);
    let Some(record) = stored.and_then(|stored| stored.record.as_ref()) else { return Ok(()) };
    let output = record.end.as_ref().and_then(|end| end.output.as_ref());
    let Some(Payload::Parts { number, .. }) = output else { return Ok(()) };
    let (before, after) = (&change.before, &change.after);
    let changed = before
        .as_ref()
        .is_some_and(|before| after.as_ref().is_none_or(|after| after.value != before.value));
    if changed && change.key.as_bytes().starts_with(Key::parts(run, *number).as_bytes()) {
        return Err(format!("the output of {} of {} was changed", record.run_id, record.parent));
    }
    Ok(())
}

/// What a dispatch decides for ever.
fn dispatched(record: &RunRecord) -> impl PartialEq + use<> {
    let RunRecord { run_id, parent, agent_type, input, input_digest, .. } = record.clone();
    let RunRecord { display, input_preview, detached, started_at_ms, .. } = record.clone();
    (
        (run_id, parent, agent_type, input, input_digest),
        (display, input_preview, detached, started_at_ms),
    )
}

/// The record has ended as the last frame says.
fn agrees(run: &DurableRun) -> Result<(), String> {
    let Some(record) = &run.record else { return Ok(()) };
    let last = run.frames.values().next_back();
    let logged = match last {
        Some(LogEntry::Finished { .. }) => Some(End::Completed),
        Some(LogEntry::Failed { .. }) => Some(End::Error),
        Some(LogEntry::Aborted { .. }) => Some(End::Aborted),
        _ => None,
    };
    let recorded = match record.state.phase {
        Phase::Ended(end) => Some(end),
        _ => None,
    };
    let (id, parent) = (&record.run_id, &record.parent);
    if recorded != logged {
        return Err(format!("{id} of {parent} is {recorded:?}, and its log says {logged:?}"));
    }
    let complete = record.end.is_some() && record.completed_at_ms.is_some();
    if recorded.is_some() && !complete {
        return Err(format!("{id} of {parent} has ended, and nobody knows how or when"));
    }
    Ok(())
}

fn read(key: &Key, value: Option<&Versioned>) -> Result<Option<RunRecord>, String> {
    let record = value.map(|value| codec::decode(key, &value.value)).transpose();
    record.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::history::{History, fires, record};
    use super::*;

    fn completed() -> History<Ends> {
        let mut history = History::of(Ends);
        history.run("r", &record("r", Phase::Ended(End::Completed)));
        history.log("r", &[LogEntry::Started, LogEntry::Finished { summary: String::new() }]);
        history.commit().unwrap();
        history
    }

    #[test]
    fn a_hard_end_stands() {
        let mut later = record("r", Phase::Ended(End::Completed));
        later.completed_at_ms = Some(3);
        fires(completed().run("r", &later).commit(), "had ended as Ended(Completed)");
        let mut other = record("r", Phase::Ended(End::Completed));
        other.end = Some(ghostlight::storage::records::EndRecord {
            summary: "another".into(),
            ..Default::default()
        });
        fires(completed().run("r", &other).commit(), "had ended as Ended(Completed)");
    }

    #[test]
    fn a_large_output_stands() {
        let part = || Key::part(super::super::history::key("r"), 1, 0);
        let large = || {
            let mut ended = record("r", Phase::Ended(End::Completed));
            ended.end = Some(ghostlight::storage::records::EndRecord {
                output: Some(Payload::Parts { number: 1, bytes: 1 }),
                ..Default::default()
            });
            let mut history = History::of(Ends);
            history.raw(part(), b"1").run("r", &ended);
            history.log("r", &[LogEntry::Started, LogEntry::Finished { summary: String::new() }]);
            history.commit().unwrap();
            history
        };
        fires(large().raw(part(), b"2").commit(), "was changed");
        fires(large().delete(part()).commit(), "was changed");
    }

    #[test]
    fn record_and_log_end_together() {
        let running = record("r", Phase::Running);
        fires(completed().run("r", &running).commit(), "its log says Some(Completed)");
        let mut history = History::of(Ends);
        history.run("r", &record("r", Phase::Ended(End::Error))).log("r", &[LogEntry::Started]);
        fires(history.commit(), "its log says None");
        let mut history = History::of(Ends);
        history.run("r", &record("r", Phase::Running)).log("r", &[LogEntry::Started]);
        history.commit().unwrap();
        history.log("r", &[LogEntry::Finished { summary: String::new() }]);
        fires(history.commit(), "its log says Some(Completed)");
    }

    #[test]
    fn a_run_stays_what_was_dispatched() {
        let mut history = History::of(Ends);
        history.run("r", &record("r", Phase::Running)).log("r", &[LogEntry::Started]);
        history.commit().unwrap();
        let other = RunRecord { input_digest: [1; 16], ..record("r", Phase::Running) };
        fires(history.run("r", &other).commit(), "dispatched otherwise");
    }
}
