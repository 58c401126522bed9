//! The commands that look at runs, and end or remove them: `runs`, `show`, `tail`, `cancel`, `clear`.

mod cancel;
mod clear;
mod find;
mod list;
mod merge;
mod show;
mod tail;

pub(crate) use cancel::cancel;
pub(crate) use clear::clear;
pub(crate) use list::list;
#[cfg(test)]
pub(crate) use merge::tests::run;
pub(crate) use show::show;
pub(crate) use tail::{Printer, tail};

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use crate::fatal::Fatal;
use crate::shown::one_line;

/// What a command prints. Whoever reads it may be slow: it is gathered while the folder is held, and
/// printed once that is let go. Nobody reading it any more is no error.
#[derive(Default)]
pub(crate) struct Out {
    text: String,
}

/// How much is gathered before the folder is let go.
const GATHERED_BYTES: usize = 4 << 20;

impl Out {
    pub(crate) fn line(&mut self, line: impl std::fmt::Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }

    /// Whether it should be printed before more is gathered.
    pub(crate) fn is_full(&self) -> bool {
        self.text.len() >= GATHERED_BYTES
    }

    /// Prints what was gathered.
    pub(crate) fn print(&mut self) -> Result<(), Early> {
        let text = std::mem::take(&mut self.text);
        let mut out = std::io::stdout().lock();
        Ok(out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Unwritten)?)
    }
}

/// Standard output takes no more.
pub(crate) struct Unwritten(pub(crate) std::io::Error);

/// What makes a command end early.
pub(crate) enum Early {
    /// Nobody reads standard output any more.
    Closed,
    Fatal(Fatal),
}

impl From<Unwritten> for Early {
    fn from(Unwritten(error): Unwritten) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Fatal(Fatal::from(error).while_doing("write the output")),
        }
    }
}

impl From<Fatal> for Early {
    fn from(fatal: Fatal) -> Self {
        Self::Fatal(fatal)
    }
}

pub(crate) fn end(result: Result<ExitCode, Early>) -> Result<ExitCode, Fatal> {
    match result {
        Ok(code) => Ok(code),
        Err(Early::Closed) => Ok(ExitCode::from(141)),
        Err(Early::Fatal(fatal)) => Err(fatal),
    }
}
