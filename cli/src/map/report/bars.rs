//! A progress display on a terminal: the total, and a line for each of some running children.

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::sync::Arc;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{Event, Print, Totals, is_hung_up, plain};
use crate::lines::Stream;
use crate::shown::one_line;
use ghostlight::Status;

/// How many running children have a line.
const CHILDREN_SHOWN: usize = 12;

pub(super) struct Bars {
    bars: MultiProgress,
    total: ProgressBar,
    children: HashMap<Arc<str>, ProgressBar>,
    running: u64,
    seen: u64,
    known_total: bool,
    out_is_terminal: bool,
}

impl Bars {
    pub(super) fn new() -> Self {
        let bars = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let total = bars.add(ProgressBar::new(0));
        total.set_style(style(
            "{bar:30} {pos}/{len}{prefix} {msg} {per_sec} {elapsed_precise} eta {eta_precise}",
        ));
        total.enable_steady_tick(std::time::Duration::from_millis(200));
        Self {
            bars,
            total,
            children: HashMap::new(),
            running: 0,
            seen: 0,
            known_total: false,
            out_is_terminal: std::io::stdout().is_terminal(),
        }
    }

    fn child(&mut self, run_id: &Arc<str>, input: &str) -> Option<&ProgressBar> {
        if !self.children.contains_key(run_id) && self.children.len() < CHILDREN_SHOWN {
            let bar = self.bars.add(ProgressBar::new_spinner());
            bar.set_style(style("  {prefix:.cyan}  {wide_msg}"));
            bar.set_prefix(one_line(input, 40));
            self.children.insert(Arc::clone(run_id), bar);
        }
        self.children.get(run_id)
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

    fn show(&self) {
        self.total.set_message(format!("{} under way", self.running));
        let more = if self.known_total { "" } else { "+" };
        self.total.set_length(self.seen);
        self.total.set_prefix(more);
    }
}

fn style(template: &str) -> ProgressStyle {
    // Templates are ours; a wrong one would show in the first test.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl Print for Bars {
    fn event(&mut self, event: &Event) -> std::io::Result<()> {
        match event {
            Event::Began { run_id, input } => {
                self.seen += 1;
                self.running += 1;
                self.child(run_id, input);
            }
            Event::Line { input, chunk, .. } if chunk.truncated => {
                self.note(&format!("{}: {}", one_line(input, 200), chunk.truncation()));
            }
            Event::Line { run_id, input, chunk, .. } => {
                let last = one_line(String::from_utf8_lossy(&chunk.bytes).trim_end(), 500);
                if let Some(child) = self.child(run_id, input) {
                    child.set_message(last);
                }
                self.print(chunk.stream, &chunk.bytes)?;
            }
            Event::Ended { run_id, input, end, .. } => {
                self.running = self.running.saturating_sub(1);
                self.total.inc(1);
                if let Some(child) = self.children.remove(run_id) {
                    child.finish_and_clear();
                    self.bars.remove(&child);
                }
                if end.status != Status::Completed {
                    let error = end.error.as_deref().unwrap_or("no reason was given");
                    self.note(&format!(
                        "{}: {}: {}",
                        one_line(input, 200),
                        end.status,
                        one_line(error, 2000)
                    ));
                }
            }
            Event::Note(text) | Event::Unreadable(text) => self.note(text),
            Event::Read(_) => self.known_total = true,
        }
        self.show();
        Ok(())
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
