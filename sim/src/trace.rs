//! The timeline of a simulated world, for people to read.

use std::fmt::{self, Write as _};

use ghostlight::AgentPath;
use ghostlight::protocol::journal::due_name;
use ghostlight::protocol::run::Phase;
use ghostlight::storage::Versioned;
use ghostlight::storage::records::{LogEntry, LogRecord, RunRecord, StoredCall};
use ghostlight::storage::{Key, codec};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, Subscriber};

use crate::durable::{Change, Durable, DurableRun};
use crate::world::World;

/// One line of a timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Line {
    /// Which life of the process, from 1.
    pub life: u64,
    /// Virtual time since the world began, in ms.
    pub at_ms: u64,
    /// The agent or run that it is about, by its address; empty if it is about none.
    pub who: String,
    /// What kind of thing happened, in a word.
    pub kind: &'static str,
    /// What happened.
    pub text: String,
}

/// The heading of a timeline, whose lines are padded to `width` with `{line:width$}`.
pub(crate) fn heading(width: usize) -> String {
    format!("    life       time  {:width$}  what", "agent or run")
}

/// As a line of a table. A width, as in `{line:30}`, is that of the agent or run. Faults and what they
/// lead to are marked in the margin.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { life, at_ms, who, kind, text } = self;
        let mark = match *kind {
            "fault" => ">>>",
            "panic" | "violated" => "!!!",
            _ => "",
        };
        let (seconds, ms, width) = (at_ms / 1000, at_ms % 1000, f.width().unwrap_or(0));
        write!(f, "{mark:3} {life:>4} {seconds:>6}.{ms:03}  {who:width$}  {kind:<8} {text}")
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

    /// Adds a line for a message that an agent has handled, or one more to the line before.
    pub(crate) fn push_message(&mut self, mut line: Line, number: u64) {
        if let Some(before) = self.lines.last_mut() {
            let same = (before.life, before.at_ms, &before.who, before.kind)
                == (line.life, line.at_ms, &line.who, line.kind);
            if same && let Some(first) = before.text.split(' ').next() {
                before.text = format!("{first} to {number} are handled");
                return;
            }
        }
        line.text = format!("{number} is handled");
        self.lines.push(line);
    }

    pub(crate) fn take(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.lines)
    }

    /// The last thing that closures over the world can see: of whom it was, and what.
    pub(crate) fn last_change(&self) -> (String, String) {
        let seen = |line: &&Line| matches!(line.kind, "commit" | "effect" | "life" | "note");
        let Some(line) = self.lines.iter().rev().find(seen) else { return Default::default() };
        let Line { life, who, kind, text, .. } = line;
        let of = if who.is_empty() { String::new() } else { format!(" of {who}") };
        (who.clone(), format!("it did until this {kind}{of} in life {life}: {text}"))
    }
}

/// What a group of commits did, in words: of whom, and what.
pub(crate) fn describe(changes: &[Change], durable: &Durable) -> Vec<(String, String)> {
    let mut told: Vec<(String, Vec<String>)> = Vec::new();
    for change in changes {
        let run = change.key.run().and_then(|run| durable.run(run));
        let who = run.and_then(|run| run.path.as_ref()).map_or("", AgentPath::as_str);
        let place = told.iter().position(|(of, _)| of == who);
        let place = place.unwrap_or_else(|| {
            told.push((who.to_owned(), Vec::new()));
            told.len() - 1
        });
        let words = &mut told[place].1;
        let is_there = change.after.is_some();
        match (change.key.kind(), &change.after) {
            // What happened comes before what it makes of the run.
            ("log", Some(after)) => words.insert(0, entries(&change.key, after)),
            ("record", Some(_)) => words.extend(run.and_then(|run| status(change, run))),
            ("head" | "registry", _) => {}
            ("live", _) if is_there == change.before.is_some() => {}
            ("live", _) => words.push(either(is_there, "live", "no longer live")),
            ("queue", _) => words.push(either(is_there, "in the queue", "out of the queue")),
            ("timer", _) => words.push(either(is_there, "a timer is set", "its timer is gone")),
            ("owed", Some(_)) if change.before.is_some() => words.push("owed later".into()),
            ("owed", _) => words.push(either(is_there, "a delivery is owed", "delivered")),
            ("tombstone", Some(_)) => words.push("cleared".into()),
            ("meta", _) => words.push("rows of the system".into()),
            (kind, _) => words.push(either(is_there, &format!("+{kind}"), &format!("-{kind}"))),
        }
    }
    let line = |(who, mut words): (String, Vec<String>)| {
        words.dedup();
        (who, words.join("; "))
    };
    told.into_iter().filter(|(_, words)| !words.is_empty()).map(line).collect()
}

fn either(is_there: bool, there: &str, gone: &str) -> String {
    if is_there { there } else { gone }.to_owned()
}

/// What a run has become, if that has changed.
fn status(change: &Change, run: &DurableRun) -> Option<String> {
    let before = change.before.as_ref();
    let before =
        before.and_then(|before| codec::decode::<RunRecord>(&change.key, &before.value).ok());
    let now = run.record.as_ref()?;
    let phase = match now.state.phase {
        Phase::Ended(end) => format!("{end:?}"),
        phase => format!("{phase:?}"),
    };
    let phase = phase.to_lowercase();
    match before {
        None => Some(format!("recorded, {phase}")),
        Some(before) if before.state.phase != now.state.phase => Some(format!("now {phase}")),
        Some(before) if before.attempt != now.attempt => Some(format!("attempt {}", now.attempt)),
        Some(before) if !before.state.cancelling && now.state.cancelling => {
            Some("to be cancelled".to_owned())
        }
        Some(_) => None,
    }
}

fn entries(key: &Key, value: &Versioned) -> String {
    let Ok(record) = codec::decode::<LogRecord>(key, &value.value) else {
        return "unreadable".to_owned();
    };
    let words: Vec<String> = record.entries.iter().map(entry).collect();
    words.join(", ")
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

/// The actor library, whose ids count for the whole process, and differ each time.
const ACTORS: &str = "ractor";

/// Adds what is logged to the timeline: warnings and errors of Ghostlight, whose other events are lines
/// of their own, and what everybody else logs, as the code of users does.
pub(crate) struct Collect(pub(crate) World);

fn is_ours(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    target.split("::").next().is_some_and(|name| {
        let rest = name.strip_prefix("ghostlight");
        matches!(rest, Some("" | "_actors" | "_protocol" | "_server" | "_storage" | "_supervisor"))
    })
}

impl Subscriber for Collect {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let least = if is_ours(metadata) { Level::WARN } else { Level::INFO };
        metadata.is_event() && *metadata.level() <= least && !metadata.target().starts_with(ACTORS)
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut logged = Logged::default();
        event.record(&mut logged);
        if !is_ours(event.metadata()) {
            return self.0.trace("log", logged.all());
        }
        let (who, text) = logged.of_a_run();
        if text.contains(FOREIGN) {
            self.0.warn(format!("{who}: {text}"));
        }
        self.0.trace_of("system", &who, text);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The message and the fields of an event.
#[derive(Default)]
struct Logged {
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl Logged {
    fn all(self) -> String {
        let mut text = self.message;
        for (name, value) in self.fields {
            let gap = if text.is_empty() { "" } else { " " };
            let _ = write!(text, "{gap}{name}={value}");
        }
        text
    }

    /// Takes the address out of the fields: the run's, if its type is among them.
    fn of_a_run(mut self) -> (String, String) {
        let mut who = self.take("agent").unwrap_or_default();
        if let Some(child) = self.take("child") {
            let run_id = self.take("run_id").unwrap_or_default();
            who = format!("{who}/{child}:{run_id}");
        }
        (who, self.all())
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.fields.iter().position(|(field, _)| *field == name)?;
        Some(self.fields.remove(at).1)
    }
}

impl Visit for Logged {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.fields.push((name, format!("{value:?}"))),
        }
    }
}
