//! What can stop a `map`.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::fatal::Fatal;

/// Why a `map` stops before its inputs are done.
pub(super) enum Stop {
    Interrupt,
    Term,
    Hangup,
    /// Nobody reads our output any more.
    ClosedOutput,
    Fatal(Fatal),
}

/// The exit status after Ctrl-C.
pub(super) const INTERRUPTED: u8 = 130;

impl Stop {
    /// The exit status that says so.
    pub(super) fn code(&self) -> u8 {
        match self {
            Self::Interrupt => INTERRUPTED,
            Self::Term => 143,
            Self::Hangup => 129,
            Self::ClosedOutput => 141,
            Self::Fatal(fatal) => fatal.code,
        }
    }
}

impl From<Fatal> for Stop {
    fn from(fatal: Fatal) -> Self {
        Self::Fatal(fatal)
    }
}

pub(super) struct Signals {
    interrupt: Signal,
    term: Signal,
    hangup: Signal,
}

impl Signals {
    pub(super) fn new() -> Result<Self, Fatal> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            term: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    pub(super) async fn next(&mut self) -> Stop {
        tokio::select! {
            _ = self.interrupt.recv() => Stop::Interrupt,
            _ = self.term.recv() => Stop::Term,
            _ = self.hangup.recv() => Stop::Hangup,
        }
    }
}
