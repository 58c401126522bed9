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
pub(crate) use show::show;
pub(crate) use tail::{Printer, tail};

use std::io::{BufWriter, Stdout, Write};
use std::process::ExitCode;

use crate::fatal::Fatal;
use crate::shown::one_line;

/// Standard output of a command that prints and ends. Nobody reading it any more is no error.
pub(crate) struct Out {
    out: BufWriter<Stdout>,
}

impl Out {
    pub(crate) fn new() -> Self {
        Self { out: BufWriter::new(std::io::stdout()) }
    }

    pub(crate) fn line(&mut self, line: impl std::fmt::Display) -> Result<(), Early> {
        Ok(writeln!(self.out, "{line}").map_err(Unwritten)?)
    }

    pub(crate) fn flush(&mut self) -> Result<(), Early> {
        Ok(self.out.flush().map_err(Unwritten)?)
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
