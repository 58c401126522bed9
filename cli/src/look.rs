//! The commands that look at runs, and end or remove them: `runs`, `show`, `tail`, `cancel`, `clear`.

mod cancel;
mod clear;
mod find;
mod list;
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
struct Out {
    out: BufWriter<Stdout>,
}

impl Out {
    fn new() -> Self {
        Self { out: BufWriter::new(std::io::stdout()) }
    }

    fn line(&mut self, line: impl std::fmt::Display) -> Result<(), Closed> {
        writeln!(self.out, "{line}").map_err(|_| Closed)
    }

    fn flush(&mut self) -> Result<(), Closed> {
        self.out.flush().map_err(|_| Closed)
    }
}

/// Standard output is closed.
pub(crate) struct Closed;

/// What makes a command end early.
pub(crate) enum Early {
    Closed,
    Fatal(Fatal),
}

impl From<Closed> for Early {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<Fatal> for Early {
    fn from(fatal: Fatal) -> Self {
        Self::Fatal(fatal)
    }
}

fn end(result: Result<ExitCode, Early>) -> Result<ExitCode, Fatal> {
    match result {
        Ok(code) => Ok(code),
        Err(Early::Closed) => Ok(ExitCode::from(141)),
        Err(Early::Fatal(fatal)) => Err(fatal),
    }
}
