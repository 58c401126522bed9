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
