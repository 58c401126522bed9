//! Reads back what a run's code did before: the journal's log, and the signals for inspections.

use std::collections::{BTreeMap, VecDeque};

use ghostlight_protocol::journal::{Act, Recorded};
use ghostlight_protocol::planted::{Planted, planted};
use ghostlight_protocol::{Failure, RunKey};
use ghostlight_storage as storage;
use storage::payload::{PAGE, Payload};
use storage::records::{LogEntry, LogRecord, Origin};
use storage::{Committer, Key, codec};

use crate::frames;
use crate::info::{Milestone, parse_json};
use crate::shared::CallResult;

/// The signals of a run so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signals {
    pub(crate) progress: Option<serde_json::Value>,
    pub(crate) milestones: Vec<Milestone>,
}

impl Signals {
    /// Reads the signals out of a run's log, a page at a time; payloads of everything else stay where
    /// they are.
    pub(crate) async fn read(committer: &Committer, run: RunKey) -> Result<Self, storage::Error> {
        let mut signals = Self::default();
        let (mut newest, mut after) = (None, None);
        loop {
            let page = committer.scan(Key::log(run).into_bytes(), after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.key.clone());
            for entry in page {
                let key = Key::from_bytes(entry.key);
                let record: LogRecord = codec::decode(&key, &entry.versioned.value)?;
                for mut entry in record.entries {
                    match entry {
                        LogEntry::Progress { .. } => newest = Some(entry),
                        LogEntry::Milestone { .. } => {
                            frames::load(&mut entry, committer, run).await?;
                            signals.note(&entry);
                        }
                        _ => {}
                    }
                }
            }
        }
        if let Some(mut progress) = newest {
            frames::load(&mut progress, committer, run).await?;
            signals.note(&progress);
        }
        Ok(signals)
    }

    /// Takes note of an entry whose payload is inline.
    pub(crate) fn note(&mut self, entry: &LogEntry) {
        let inline = |payload: &Payload| match payload {
            Payload::Inline(bytes) => parse_json(bytes),
            Payload::Parts { .. } => serde_json::Value::Null,
        };
        match entry {
            LogEntry::Progress { body } => {
                self.progress = inline(body).get_mut("data").map(serde_json::Value::take);
            }
            LogEntry::Milestone { name, sequence, at_ms, data, .. } => {
                self.milestones.push(Milestone {
                    name: name.clone(),
                    sequence: *sequence,
                    at: *at_ms,
                    data: data.as_ref().map(inline),
                });
            }
            _ => {}
        }
    }
}

/// What a re-entry of the code starts with.
#[derive(Debug, Default)]
pub(crate) struct Past {
    pub(crate) log: Vec<Recorded<CallResult>>,
    /// Where the last chunk of each outside stream ends.
    pub(crate) sources: BTreeMap<String, u64>,
    /// The run's writes of its state, in order.
    pub(crate) states: VecDeque<(String, Option<Vec<u8>>)>,
    pub(crate) signals: Signals,
    /// The position after the last record that brought the run on. Reports of progress, and the
    /// events of steps that have not ended, do not: a step that takes the process down with it
    /// says the same in every attempt.
    pub(crate) progress_end: u64,
}

impl Past {
    /// Reads the whole log of a run, which has at least so many records, a page at a time; chunks are
    /// passed over.
    pub(crate) async fn read(
        committer: &Committer,
        run: RunKey,
        records: u64,
    ) -> Result<Self, storage::Error> {
        // Without a result that was recorded its step would be executed again.
        let missing = |key: &Key, record: u64| {
            let why = format!("record {record} of the log is missing");
            storage::Error::Corrupt { key: key.to_string(), why }
        };
        let mut past = Self::default();
        let (mut after, mut next) = (None, 0);
        loop {
            let page = committer.scan(Key::log(run).into_bytes(), after, PAGE).await?;
            let Some(last) = page.last() else {
                if next < records {
                    return Err(missing(&Key::log(run), next));
                }
                past.spoil();
                return Ok(past);
            };
            after = Some(last.key.clone());
            for entry in page {
                let key = Key::from_bytes(entry.key);
                if key.log_position() != Some(next) {
                    return Err(missing(&key, next));
                }
                next += 1;
                let record: LogRecord = codec::decode(&key, &entry.versioned.value)?;
                if record.entries.iter().any(brings_on) {
                    past.progress_end = next;
                }
                for mut entry in record.entries {
                    if !matches!(entry, LogEntry::Chunk { .. }) {
                        frames::load(&mut entry, committer, run).await?;
                    }
                    past.note(entry);
                }
            }
        }
    }

    /// Plants what is wrong with it, if anything is.
    fn spoil(&mut self) {
        let is_result =
            |recorded: &Recorded<CallResult>| matches!(recorded, Recorded::Completed(..));
        if planted(Planted::ForgetStep) && self.log.last().is_some_and(is_result) {
            self.log.pop();
        } else if planted(Planted::SwapResults) {
            let pair = self.log.windows(2).rposition(|pair| pair.iter().all(is_result));
            if let Some(first) = pair {
                self.log.swap(first, first + 1);
            }
        } else if planted(Planted::ForgetState) {
            self.states.iter_mut().for_each(|(_, value)| *value = None);
        } else if planted(Planted::ForgetSource) {
            self.sources.clear();
        }
    }

    /// The past that these entries make.
    pub(crate) fn of(entries: Vec<LogEntry>) -> Self {
        let mut past = Self::default();
        entries.into_iter().for_each(|entry| past.note(entry));
        past
    }

    fn note(&mut self, entry: LogEntry) {
        self.signals.note(&entry);
        let recorded = match entry {
            LogEntry::Chunk { origin, .. } => match origin {
                Origin::Code => act(Act::Chunk),
                Origin::Step(step) => Recorded::StepEvent(step),
                Origin::Source { name, end } => {
                    self.sources.insert(name, end);
                    return;
                }
            },
            LogEntry::Milestone { origin, name, .. } => match origin {
                Origin::Code | Origin::Source { .. } => act(Act::Milestone(name)),
                Origin::Step(step) => Recorded::StepEvent(step),
            },
            LogEntry::Completed { call, result } => {
                Recorded::Completed(call.into(), Ok(bytes(result)))
            }
            LogEntry::StepFailed { step, message, kind, permanent } => Recorded::Completed(
                ghostlight_protocol::journal::Call::Step(step),
                Err(Failure { message, kind, permanent }),
            ),
            LogEntry::SleepSet { ordinal, due_ms } => Recorded::SleepSet(ordinal, due_ms),
            LogEntry::Tried { step, tries } => Recorded::Tried(step, tries),
            LogEntry::State { key, value } => {
                self.states.push_back((key.clone(), value.map(bytes)));
                act(Act::State(key))
            }
            LogEntry::Started
            | LogEntry::Progress { .. }
            | LogEntry::Mark { .. }
            | LogEntry::Finished { .. }
            | LogEntry::Failed { .. }
            | LogEntry::Aborted { .. }
            | LogEntry::Interrupted { .. } => return,
        };
        self.log.push(recorded);
    }
}

fn brings_on(entry: &LogEntry) -> bool {
    match entry {
        LogEntry::Chunk { origin, .. } | LogEntry::Milestone { origin, .. } => {
            matches!(origin, Origin::Code | Origin::Source { .. })
        }
        LogEntry::Completed { .. }
        | LogEntry::StepFailed { .. }
        | LogEntry::SleepSet { .. }
        | LogEntry::Tried { .. }
        | LogEntry::State { .. } => true,
        LogEntry::Started
        | LogEntry::Progress { .. }
        | LogEntry::Mark { .. }
        | LogEntry::Finished { .. }
        | LogEntry::Failed { .. }
        | LogEntry::Aborted { .. }
        | LogEntry::Interrupted { .. } => false,
    }
}

fn act(act: Act) -> Recorded<CallResult> {
    Recorded::Act(act, Ok(Vec::new()))
}

fn bytes(payload: Payload) -> Vec<u8> {
    match payload {
        Payload::Inline(bytes) => bytes,
        // Parts were loaded before.
        Payload::Parts { .. } => Vec::new(),
    }
}
