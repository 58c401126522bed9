//! The commands' output as they wrote it, and a table at the end.

use std::io::{BufWriter, Stderr, Stdout, Write};

use super::{Event, Print, Totals};
use crate::lines::Stream;
use crate::shown::one_line;
use ghostlight::Status;

pub(super) struct Plain {
    out: BufWriter<Stdout>,
    err: BufWriter<Stderr>,
}

impl Plain {
    pub(super) fn new() -> Self {
        Self { out: BufWriter::new(std::io::stdout()), err: BufWriter::new(std::io::stderr()) }
    }
}

impl Print for Plain {
    fn event(&mut self, event: &Event) -> std::io::Result<()> {
        match event {
            Event::Line { input, chunk, .. } if chunk.truncated => {
                let text = chunk.truncation();
                writeln!(self.err, "ghostlight: {}: {text}", one_line(input, 200))
            }
            Event::Line { chunk, .. } => match chunk.stream {
                Stream::Stdout => self.out.write_all(&chunk.bytes),
                Stream::Stderr => self.err.write_all(&chunk.bytes),
            },
            Event::Ended { input, end, .. } if end.status != Status::Completed => {
                let error = end.error.as_deref().unwrap_or("no reason was given");
                writeln!(
                    self.err,
                    "ghostlight: {}: {}: {}",
                    one_line(input, 200),
                    end.status,
                    one_line(error, 2000)
                )
            }
            Event::Note(text) | Event::Unreadable(text) => writeln!(self.err, "ghostlight: {text}"),
            Event::Ended { .. } | Event::Began { .. } | Event::Inputs(_) | Event::Read(_) => Ok(()),
        }
    }

    fn idle(&mut self) -> std::io::Result<()> {
        self.out.flush()?;
        self.err.flush()
    }

    fn end(&mut self, totals: &Totals) -> std::io::Result<()> {
        self.out.flush()?;
        self.err.write_all(table(totals).as_bytes())?;
        self.err.flush()
    }
}

fn plural<'a>(count: u64, one: &'a str, many: &'a str) -> &'a str {
    if count == 1 { one } else { many }
}

/// The final table.
pub(super) fn table(totals: &Totals) -> String {
    let mut table = String::new();
    let mut row = |count: u64, what: &str| {
        if count > 0 {
            table.push_str(&format!("{count:>9}  {what}\n"));
        }
    };
    let runs = totals.completed + totals.failed + totals.cancelled;
    row(totals.completed - totals.before, "completed");
    row(totals.before, "completed before");
    row(totals.failed, "failed");
    row(totals.cancelled, "cancelled");
    row(totals.unreadable, "unreadable");
    row(
        totals.notes.blank,
        plural(totals.notes.blank, "blank line skipped", "blank lines skipped"),
    );
    let links = totals.notes.broken_links;
    row(links, plural(links, "broken link skipped", "broken links skipped"));
    let links = totals.notes.linked_folders;
    row(links, plural(links, "link to a folder not followed", "links to folders not followed"));
    if runs == 0 && !totals.stopped {
        table.push_str("        0  inputs\n");
    }
    for (input, error) in &totals.failures {
        table.push_str(&format!("  {}: {}\n", one_line(input, 200), one_line(error, 2000)));
    }
    let named = totals.failures.len() as u64;
    if totals.failed + totals.cancelled > named {
        table.push_str(&format!("  and {} more\n", totals.failed + totals.cancelled - named));
    }
    if totals.notes.all_end_in_cr {
        table.push_str("every input ends in a carriage return: was the list written on Windows?\n");
    }
    if totals.stopped {
        table.push_str("stopped before the end; the same command line goes on\n");
    }
    table.push_str(&format!("in {:.1} s\n", totals.elapsed.as_secs_f64()));
    table
}
