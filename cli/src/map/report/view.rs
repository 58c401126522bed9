//! What the progress display says, without a terminal.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::Event;
use crate::shown::one_line;

/// How many running commands have a line.
pub(super) const CHILDREN_SHOWN: usize = 12;
/// The most characters of an output line that are shown.
const LAST_LINE_MAX: usize = 500;

/// A run that has not ended, as far as is known here.
struct Live {
    input: Arc<str>,
    /// The last line of its output.
    last: String,
}

/// How far a batch is.
#[derive(Default)]
pub(super) struct View {
    live: HashMap<Arc<str>, Live>,
    /// The runs whose commands have been started, in the order in which that was seen.
    running: Vec<Arc<str>>,
    seen: u64,
    ended: u64,
    /// Of the ended ones, those that had ended before this program looked.
    before: u64,
    all_are_seen: bool,
    /// How many inputs there are, where that was known before.
    inputs: Option<u64>,
    /// When the first command was seen running, from the beginning of the program.
    first_running: Option<Duration>,
}

impl View {
    pub(super) fn event(&mut self, event: &Event) {
        match event {
            Event::Began { run_id, input } => {
                self.seen += 1;
                let live = Live { input: input.text(), last: String::new() };
                self.live.insert(Arc::clone(run_id), live);
            }
            Event::Line { run_id, chunk, .. } if !chunk.truncated => {
                if let Some(live) = self.live.get_mut(run_id) {
                    let text = String::from_utf8_lossy(&chunk.bytes);
                    live.last = one_line(text.trim_end(), LAST_LINE_MAX);
                }
            }
            Event::Ended { run_id, before, .. } => {
                self.live.remove(run_id);
                self.running.retain(|running| running != run_id);
                self.ended += 1;
                self.before += u64::from(*before);
            }
            Event::Inputs(inputs) => self.inputs = Some(*inputs),
            Event::Read(_) => self.all_are_seen = true,
            Event::Line { .. } | Event::Unreadable(_) | Event::Note(_) => {}
        }
    }

    /// Takes note of which commands are running now, so long after the program began.
    pub(super) fn running(&mut self, now: &BTreeSet<Arc<str>>, elapsed: Duration) {
        if !now.is_empty() {
            self.first_running.get_or_insert(elapsed);
        }
        self.running.retain(|run_id| now.contains(run_id));
        for run_id in now {
            if !self.running.contains(run_id) {
                self.running.push(Arc::clone(run_id));
            }
        }
    }

    /// The commands that have a line: the run, its input, and the last line of its output.
    pub(super) fn children(&self) -> impl Iterator<Item = (&Arc<str>, &str, &str)> {
        let known = self.running.iter().filter_map(|run_id| {
            let live = self.live.get(run_id)?;
            Some((run_id, &*live.input, live.last.as_str()))
        });
        known.take(CHILDREN_SHOWN)
    }

    pub(super) fn ended(&self) -> u64 {
        self.ended
    }

    /// How many runs there are, or at least so many.
    pub(super) fn total(&self) -> u64 {
        // Once all are seen, runs count whose input has left the source.
        self.inputs.filter(|_| !self.all_are_seen).map_or(self.seen, |inputs| inputs.max(self.seen))
    }

    fn total_is_known(&self) -> bool {
        self.all_are_seen || self.inputs.is_some()
    }

    /// What follows the number of runs.
    pub(super) fn counts(&self) -> String {
        let more = if self.total_is_known() { "" } else { "+" };
        let running = self.running.len();
        let left = self.total().saturating_sub(self.ended);
        match left.saturating_sub(running as u64) {
            0 => format!("{more} {running} running"),
            waiting => format!("{more} {running} running, {waiting} waiting"),
        }
    }

    /// What is known of the pace.
    pub(super) fn pace(&self) -> Pace {
        let left = self.total().saturating_sub(self.ended);
        Pace {
            ended_here: self.ended - self.before,
            left: self.total_is_known().then_some(left),
            // Until then what is stored was read.
            since: self.first_running.unwrap_or_default(),
        }
    }
}

/// How many runs this program has seen end, and how many are left, where that is known. What was in the
/// store says nothing about how fast commands are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Pace {
    ended_here: u64,
    left: Option<u64>,
    since: Duration,
}

impl Pace {
    /// Runs a second; nothing before the first end.
    pub(super) fn rate(self, elapsed: Duration) -> String {
        match self.per_second(elapsed) {
            Some(rate) if rate < 1.0 => format!("{:.1}/min", rate * 60.0),
            Some(rate) => format!("{rate:.1}/s"),
            None => "-/s".to_owned(),
        }
    }

    /// How long the rest takes at this pace.
    pub(super) fn eta(self, elapsed: Duration) -> String {
        let (Some(rate), Some(left)) = (self.per_second(elapsed), self.left) else {
            return "--:--".to_owned();
        };
        let seconds = (left as f64 / rate).ceil() as u64;
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        match hours {
            0 => format!("{minutes:02}:{seconds:02}"),
            _ => format!("{hours}:{minutes:02}:{seconds:02}"),
        }
    }

    fn per_second(self, elapsed: Duration) -> Option<f64> {
        let rate = self.ended_here as f64 / elapsed.saturating_sub(self.since).as_secs_f64();
        Some(rate).filter(|rate| *rate > 0.0 && rate.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use ghostlight::Status;

    use super::super::{Input, RunEnd};
    use super::*;
    use crate::batch::Text;
    use crate::inputs::Notes;
    use crate::lines::{LineChunk, Stream};

    fn shown(input: &str) -> Input {
        Input::new(&Text::Text(input.to_owned()))
    }

    fn began(run_id: &str) -> Event {
        Event::Began { run_id: run_id.into(), input: shown(&format!("input of {run_id}")) }
    }

    fn line(run_id: &str, text: &str) -> Event {
        let chunk = LineChunk {
            stream: Stream::Stdout,
            bytes: text.into(),
            partial: false,
            truncated: false,
        };
        Event::Line { run_id: run_id.into(), input: shown(""), sequence: 1, chunk }
    }

    fn ended(run_id: &str, before: bool) -> Event {
        let end = RunEnd { status: Status::Completed, error: None };
        Event::Ended { run_id: run_id.into(), input: shown(""), end, before }
    }

    fn view(events: impl IntoIterator<Item = Event>) -> View {
        let mut view = View::default();
        events.into_iter().for_each(|event| view.event(&event));
        view
    }

    fn ids(ids: &[&str]) -> BTreeSet<Arc<str>> {
        ids.iter().map(|id| Arc::from(*id)).collect()
    }

    fn lines(view: &View) -> Vec<(String, String)> {
        view.children().map(|(_, input, last)| (input.to_owned(), last.to_owned())).collect()
    }

    #[test]
    fn what_is_dispatched_is_running_once_its_command_is_started() {
        let mut view = view(["a", "b", "c"].map(began));
        assert_eq!((lines(&view), view.counts().as_str()), (vec![], "+ 0 running, 3 waiting"));
        view.running(&ids(&["b"]), Duration::ZERO);
        // What was stored of a run before it is started again is no sign of life.
        view.event(&line("a", "old\n"));
        view.event(&line("b", "one\ntab\t\n"));
        let only_b = vec![("input of b".to_owned(), "one\\ntab".to_owned())];
        assert_eq!((lines(&view), view.counts().as_str()), (only_b, "+ 1 running, 2 waiting"));
        // Between its end and that of its run, another command has its place.
        view.running(&ids(&["a"]), Duration::ZERO);
        let only_a = vec![("input of a".to_owned(), "old".to_owned())];
        assert_eq!((lines(&view), view.counts().as_str()), (only_a, "+ 1 running, 2 waiting"));
        for id in ["a", "b", "c"] {
            view.event(&ended(id, false));
        }
        view.running(&ids(&[]), Duration::ZERO);
        view.event(&Event::Read(Notes::default()));
        assert_eq!((lines(&view), view.counts().as_str()), (vec![], " 0 running"));
        assert_eq!((view.ended(), view.total()), (3, 3));
    }

    #[test]
    fn lines_keep_their_order_and_those_without_one_move_up() {
        let names: Vec<String> = (0..CHILDREN_SHOWN + 2).map(|n| format!("{n:02}")).collect();
        let mut all: BTreeSet<Arc<str>> = names.iter().map(|name| name.as_str().into()).collect();
        let mut view = view(names.iter().map(|name| began(name)));
        view.running(&all, Duration::ZERO);
        all.remove("00");
        view.running(&all, Duration::ZERO);
        all.insert("00".into());
        view.running(&all, Duration::ZERO);
        let lines: Vec<&str> = view.children().map(|(run_id, ..)| &**run_id).collect();
        let expected: Vec<&str> = names[1..=CHILDREN_SHOWN].iter().map(String::as_str).collect();
        assert_eq!(lines, expected, "the one started again comes last");
    }

    #[test]
    fn the_pace_is_that_of_what_ends_here() {
        let elapsed = Duration::from_secs(10);
        let mut view = view(["a", "b", "c", "d", "e"].map(began));
        for id in ["a", "b"] {
            view.event(&ended(id, true));
        }
        view.event(&Event::Read(Notes::default()));
        let pace = view.pace();
        assert_eq!((pace.rate(elapsed), pace.eta(elapsed)), ("-/s".into(), "--:--".into()));
        view.event(&ended("c", false));
        let pace = view.pace();
        assert_eq!((pace.rate(elapsed), pace.eta(elapsed)), ("6.0/min".into(), "00:20".into()));
        assert_eq!(pace.eta(Duration::ZERO), "--:--");
        // The time in which the store was read does not count.
        view.running(&ids(&["d"]), Duration::from_secs(8));
        assert_eq!(view.pace().eta(elapsed), "00:04");
        let fast = Pace { ended_here: 25, left: Some(10_000), ..Pace::default() };
        assert_eq!((fast.rate(elapsed), fast.eta(elapsed)), ("2.5/s".into(), "1:06:40".into()));
    }

    #[test]
    fn what_is_known_to_come_counts() {
        let mut view = view([Event::Inputs(10), began("a"), began("b")]);
        view.event(&ended("a", false));
        assert_eq!((view.total(), view.counts().as_str()), (10, " 0 running, 9 waiting"));
        assert_eq!(view.pace().eta(Duration::from_secs(1)), "00:09");
        // As when the last ones are those that no input is for any more.
        view.event(&Event::Read(Notes::default()));
        view.event(&began("c"));
        assert_eq!(view.total(), 3);
    }

    #[test]
    fn nobody_knows_when_an_unread_list_is_done() {
        let mut view = view(["a", "b"].map(began));
        view.event(&ended("a", false));
        assert_eq!(view.pace().eta(Duration::from_secs(1)), "--:--");
        view.event(&Event::Read(Notes::default()));
        assert_eq!(view.pace().eta(Duration::from_secs(1)), "00:01");
    }
}
