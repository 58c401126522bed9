//! A progress display on a terminal: the total, and a line for each of some running commands.

use std::collections::{BTreeSet, HashMap};
use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::view::{Pace, View};
use super::{Event, Print, Totals, is_hung_up, plain};
use crate::lines::Stream;
use crate::shown::one_line;
use ghostlight::Status;

pub(super) struct Bars {
    view: View,
    bars: MultiProgress,
    total: ProgressBar,
    /// Read whenever the line is drawn, events or not.
    pace: Arc<Mutex<Pace>>,
    children: HashMap<Arc<str>, ProgressBar>,
    out_is_terminal: bool,
}

impl Bars {
    pub(super) fn new() -> Self {
        let bars = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let total = bars.add(ProgressBar::new(0));
        let pace = Arc::new(Mutex::new(Pace::default()));
        let total_style = style("{bar:30} {pos}/{len}{msg} {rate} {elapsed_precise} eta {eta}")
            .with_key("rate", part(&pace, Pace::rate))
            .with_key("eta", part(&pace, Pace::eta));
        total.set_style(total_style);
        total.enable_steady_tick(Duration::from_millis(200));
        Self {
            view: View::default(),
            bars,
            total,
            pace,
            children: HashMap::new(),
            out_is_terminal: std::io::stdout().is_terminal(),
        }
    }

    fn print(&self, stream: Stream, bytes: &[u8]) -> std::io::Result<()> {
        // The display panics where it cannot be taken away.
        if is_hung_up(&std::io::stderr()) {
            return Err(rustix::io::Errno::IO.into());
        }
        match stream {
            Stream::Stdout if self.out_is_terminal => {
                self.bars.suspend(|| std::io::stdout().lock().write_all(bytes))
            }
            Stream::Stdout => std::io::stdout().lock().write_all(bytes),
            Stream::Stderr => self.bars.suspend(|| std::io::stderr().lock().write_all(bytes)),
        }
    }

    fn note(&self, text: &str) {
        // The display is for people; where it cannot be drawn, there are none.
        let _ = self.bars.println(format!("ghostlight: {text}"));
    }

    fn show(&mut self) {
        let shown: HashMap<_, _> =
            self.view.children().map(|(run_id, input, last)| (run_id, (input, last))).collect();
        self.children.retain(|run_id, bar| {
            let is_shown = shown.contains_key(run_id);
            if !is_shown {
                bar.finish_and_clear();
                self.bars.remove(bar);
            }
            is_shown
        });
        for (run_id, input, last) in self.view.children() {
            let bar = self.children.entry(Arc::clone(run_id)).or_insert_with(|| {
                let bar = self.bars.add(ProgressBar::new_spinner());
                bar.set_style(style("  {prefix:.cyan}  {wide_msg}"));
                bar.set_prefix(one_line(input, 40));
                bar
            });
            if bar.message() != last {
                bar.set_message(last.to_owned());
            }
        }
        *self.pace.lock().unwrap_or_else(PoisonError::into_inner) = self.view.pace();
        self.total.set_length(self.view.total());
        self.total.set_position(self.view.ended());
        self.total.set_message(self.view.counts());
    }
}

/// A part of the total's line.
fn part(
    pace: &Arc<Mutex<Pace>>,
    text: fn(Pace, Duration) -> String,
) -> impl Fn(&ProgressState, &mut dyn std::fmt::Write) + Clone + Send + Sync + 'static {
    let pace = Arc::clone(pace);
    move |state, out| {
        let pace = *pace.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing to the line's buffer cannot fail.
        let _ = out.write_str(&text(pace, state.elapsed()));
    }
}

fn style(template: &str) -> ProgressStyle {
    // Templates are ours; a wrong one would show in the first test.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl Print for Bars {
    fn event(&mut self, event: &Event) -> std::io::Result<()> {
        self.view.event(event);
        match event {
            Event::Line { input, chunk, .. } if chunk.truncated => {
                self.note(&format!("{}: {}", one_line(input, 200), chunk.truncation()));
            }
            Event::Line { chunk, .. } => self.print(chunk.stream, &chunk.bytes)?,
            Event::Ended { input, end, .. } if end.status != Status::Completed => {
                let error = end.error.as_deref().unwrap_or("no reason was given");
                self.note(&format!(
                    "{}: {}: {}",
                    one_line(input, 200),
                    end.status,
                    one_line(error, 2000)
                ));
            }
            Event::Note(text) | Event::Unreadable(text) => self.note(text),
            Event::Began { .. } | Event::Ended { .. } | Event::Inputs(_) | Event::Read(_) => {}
        }
        self.show();
        Ok(())
    }

    fn running(&mut self, now: &BTreeSet<Arc<str>>) {
        self.view.running(now, self.total.elapsed());
        self.show();
    }

    fn idle(&mut self) -> std::io::Result<()> {
        std::io::stdout().lock().flush()
    }

    fn end(&mut self, totals: &Totals) -> std::io::Result<()> {
        self.total.finish_and_clear();
        self.bars.clear()?;
        std::io::stdout().lock().flush()?;
        std::io::stderr().lock().write_all(plain::table(totals).as_bytes())
    }
}
