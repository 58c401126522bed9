//! The timeline of a simulated world, for people to read.

use std::fmt::{self, Write as _};

use ghostlight::protocol::journal::due_name;
use ghostlight::storage::Versioned;
use ghostlight::storage::records::{LogEntry, LogRecord, StoredCall};
use ghostlight::storage::{Key, codec};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, Subscriber};

use crate::durable::{Change, Durable};
use crate::world::World;

/// One line of a timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Which life of the process, from 1.
    pub life: u64,
    /// Virtual time since the world began, in ms.
    pub at_ms: u64,
    /// What kind of thing happened, in a word.
    pub kind: &'static str,
    /// What happened.
    pub text: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, ms) = (self.at_ms / 1000, self.at_ms % 1000);
        write!(f, "{:>2} {seconds:>6}.{ms:03} {:<8} {}", self.life, self.kind, self.text)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Trace {
    lines: Vec<Line>,
}

impl Trace {
    pub(crate) fn push(&mut self, line: Line) {
        self.lines.push(line);
    }

    pub(crate) fn take(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.lines)
    }
}

/// What a group of commits did, in words.
pub(crate) fn describe(changes: &[Change], durable: &Durable) -> String {
    let mut text = String::new();
    for change in changes {
        let run = change.key.run();
        let path = run.and_then(|run| durable.run(run)?.path.as_ref());
        let name = path.map_or_else(String::new, |path| format!(" {path}"));
        let what = match (change.key.kind(), &change.after) {
            ("head" | "registry", _) => continue,
            ("record", Some(_)) => match run.and_then(|run| durable.run(run)?.record.as_ref()) {
                Some(record) => format!("record{name} {:?}", record.state.phase),
                None => format!("record{name}"),
            },
            ("log", Some(after)) => format!("log{name} {}", entries(&change.key, after)),
            (kind, Some(_)) => format!("+{kind}{name}"),
            (kind, None) => format!("-{kind}{name}"),
        };
        let _ = write!(text, "{}{what}", if text.is_empty() { "" } else { "; " });
    }
    text
}

fn entries(key: &Key, value: &Versioned) -> String {
    let Ok(record) = codec::decode::<LogRecord>(key, &value.value) else {
        return "unreadable".to_owned();
    };
    let words: Vec<String> = record.entries.iter().map(entry).collect();
    format!("#{} [{}]", record.first_number, words.join(", "))
}

fn entry(entry: &LogEntry) -> String {
    match entry {
        LogEntry::Started => "started".into(),
        LogEntry::Chunk { .. } => "chunk".into(),
        LogEntry::Progress { .. } => "progress".into(),
        LogEntry::Milestone { name, .. } => format!("milestone {name:?}"),
        LogEntry::Mark { step, attempt } => format!("attempt {attempt} of step {step:?}"),
        LogEntry::Finished { .. } => "finished".into(),
        LogEntry::Failed { error } => format!("failed: {error}"),
        LogEntry::Aborted { .. } => "aborted".into(),
        LogEntry::Interrupted { error, .. } => format!("interrupted: {error}"),
        LogEntry::Completed { call: StoredCall::Step(key), .. } => format!("step {key:?}"),
        LogEntry::Completed { call: StoredCall::Sleep(n), .. } => format!("sleep {n} over"),
        LogEntry::Completed { call: StoredCall::Wait(n), .. } => format!("wait {n} over"),
        LogEntry::StepFailed { step, message, .. } => format!("step {step:?} failed: {message}"),
        LogEntry::SleepSet { ordinal, due_ms } => format!("{} due {due_ms}", due_name(*ordinal)),
        LogEntry::Tried { step, tries } => format!("step {step:?} failed {tries} times"),
        LogEntry::State { key, .. } => format!("state {key:?}"),
    }
}

/// What the system says of code that awaits what is not recorded.
const FOREIGN: &str = "awaited something that is not recorded";

/// Adds what the system logs to the timeline: Ghostlight's own events alone, so that no id of the
/// actor library, which counts for the whole process, gets in.
pub(crate) struct Collect(pub(crate) World);

impl Subscriber for Collect {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && *metadata.level() <= Level::INFO
            && metadata.target().starts_with("ghostlight")
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        if text.0.contains(FOREIGN) {
            self.0.warn(text.0.clone());
        }
        self.0.trace("system", text.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let gap = if self.0.is_empty() { "" } else { " " };
        let _ = match field.name() {
            "message" => write!(self.0, "{gap}{value:?}"),
            name => write!(self.0, "{gap}{name}={value:?}"),
        };
    }
}
