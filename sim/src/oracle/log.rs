//! A run has one sequence of frames: dense from 0, written by one owner at a time, begun once and
//! ended once, never renumbered.

use std::collections::BTreeMap;

use ghostlight::protocol::RunKey;
use ghostlight::storage::records::LogEntry;

use crate::durable::{Durable, DurableRun};
use crate::invariant::{Event, Invariant};

#[derive(Default)]
pub(super) struct Log {
    /// Every frame that was ever durable.
    frames: BTreeMap<RunKey, Vec<LogEntry>>,
    epochs: BTreeMap<RunKey, u64>,
}

impl Invariant for Log {
    fn name(&self) -> &str {
        "a run has one sequence of frames"
    }

    fn check(&mut self, event: &Event<'_>, durable: &Durable) -> Result<(), String> {
        let Event::Committed { changes, .. } = event else { return Ok(()) };
        let mut touched: Vec<RunKey> = changes
            .iter()
            .filter(|change| matches!(change.key.kind(), "log" | "head"))
            .filter_map(|change| change.key.run())
            .collect();
        touched.dedup();
        for key in touched {
            let Some(run) = durable.run(key).filter(|run| !run.cleared) else { continue };
            self.check_run(key, run).map_err(|text| match &run.path {
                Some(path) => format!("{path}: {text}"),
                None => text,
            })?;
        }
        Ok(())
    }
}

impl Log {
    fn check_run(&mut self, key: RunKey, run: &DurableRun) -> Result<(), String> {
        let known = self.frames.entry(key).or_default();
        for (number, entry) in run.frames.range(known.len() as u64..) {
            if *number != known.len() as u64 {
                return Err(format!("frame {number} follows {} frames", known.len()));
            }
            match (known.last(), entry) {
                (None, LogEntry::Started) => {}
                (None, _) => return Err("the first frame is not `started`".into()),
                (Some(_), LogEntry::Started) => return Err("it started twice".into()),
                (Some(last), _) if last.is_hard_end() => {
                    return Err(format!("frame {number} follows its end"));
                }
                _ => {}
            }
            known.push(entry.clone());
        }
        if let Some(number) = run.frames.iter().find_map(|(number, entry)| {
            let at = usize::try_from(*number).ok()?;
            (known.get(at) != Some(entry)).then_some(*number)
        }) {
            return Err(format!("frame {number} was another one before"));
        }
        if run.frames.len() != known.len() {
            return Err(format!("{} of {} frames are left", run.frames.len(), known.len()));
        }
        let milestones = known.iter().filter_map(|entry| match entry {
            LogEntry::Milestone { sequence, .. } => Some(*sequence),
            _ => None,
        });
        if milestones.zip(0..).any(|(sequence, expected)| sequence != expected) {
            return Err("its milestones are not numbered from 0 on".into());
        }
        let Some(head) = &run.head else { return Err("it has a log, and no head".into()) };
        if head.next_number != known.len() as u64 {
            return Err(format!("its head says {}, it has {}", head.next_number, known.len()));
        }
        let epoch = self.epochs.entry(key).or_default();
        if head.epoch < *epoch {
            return Err(format!("an owner of epoch {} wrote after {epoch}", head.epoch));
        }
        *epoch = head.epoch;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::{History, fires, key, record};
    use super::*;
    use ghostlight::protocol::run::Phase;
    use ghostlight::storage::Key;
    use ghostlight::storage::payload::Payload;
    use ghostlight::storage::records::{Head, LogRecord, Origin};

    fn chunk() -> LogEntry {
        LogEntry::Chunk { origin: Origin::Code, body: Payload::Inline(b"1".to_vec()) }
    }

    fn end() -> LogEntry {
        LogEntry::Finished { summary: String::new() }
    }

    fn milestone(sequence: u64) -> LogEntry {
        let (name, origin) = ("m".to_owned(), Origin::Code);
        LogEntry::Milestone { origin, name, sequence, at_ms: 1, data: None }
    }

    fn started(then: &[LogEntry]) -> (History<Log>, Result<(), String>) {
        let mut history = History::of(Log::default());
        history.run("r", &record("r", Phase::Running));
        let said = history.log("r", &[LogEntry::Started]).log("r", then).commit();
        (history, said)
    }

    #[test]
    fn a_log_begins_and_ends_once() {
        let mut history = History::of(Log::default());
        history.run("r", &record("r", Phase::Running));
        fires(history.log("r", &[chunk()]).commit(), "not `started`");
        fires(started(&[LogEntry::Started]).1, "started twice");
        fires(started(&[end(), chunk()]).1, "follows its end");
        fires(started(&[milestone(1)]).1, "not numbered from 0");
    }

    #[test]
    fn no_number_is_left_out_given_twice_or_taken_back() {
        let (mut history, _) = started(&[chunk()]);
        let head = Head { epoch: 1, next_number: 4, position: 3, next_milestone: 0 };
        let row = LogRecord { at_ms: 1, first_number: 3, entries: vec![chunk()] };
        history.put(Key::log_record(key("r"), 4, 2), &row).put(Key::head(key("r")), &head);
        fires(history.commit(), "frame 3 follows 2 frames");

        let (mut history, _) = started(&[chunk()]);
        let row = LogRecord { at_ms: 1, first_number: 1, entries: vec![milestone(0)] };
        fires(
            history.put(Key::log_record(key("r"), 2, 1), &row).commit(),
            "was another one before",
        );

        let (mut history, _) = started(&[chunk()]);
        fires(history.delete(Key::log_record(key("r"), 2, 1)).commit(), "1 of 2 frames are left");
    }

    #[test]
    fn an_owner_that_was_replaced_writes_no_more() {
        let (mut history, _) = started(&[]);
        let head = |epoch, next_number| Head { epoch, next_number, position: 2, next_milestone: 0 };
        history.put(Key::head(key("r")), &head(3, 1)).commit().unwrap();
        fires(history.put(Key::head(key("r")), &head(2, 1)).commit(), "an owner of epoch 2");
        fires(history.put(Key::head(key("r")), &head(3, 7)).commit(), "its head says 7");
    }
}
