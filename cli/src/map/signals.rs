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
    /// None where it was ignored when the program started, as under `nohup`.
    hangup: Option<Signal>,
}

impl Signals {
    pub(super) fn new() -> Result<Self, Fatal> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            term: signal(SignalKind::terminate())?,
            hangup: match is_ignored(SignalKind::hangup()) {
                true => None,
                false => Some(signal(SignalKind::hangup())?),
            },
        })
    }

    pub(super) async fn next(&mut self) -> Stop {
        tokio::select! {
            _ = self.interrupt.recv() => Stop::Interrupt,
            _ = self.term.recv() => Stop::Term,
            () = received(self.hangup.as_mut()) => Stop::Hangup,
        }
    }

    /// Waits for a signal that is no Ctrl-C, after which nothing is left to be said by one.
    pub(super) async fn not_interrupt(&mut self) {
        while let Stop::Interrupt = self.next().await {}
    }
}

async fn received(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => _ = signal.recv().await,
        None => std::future::pending().await,
    }
}

/// Whether a signal was ignored by whoever started the program: installing a handler would end
/// that.
fn is_ignored(kind: SignalKind) -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return false };
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (kind.as_raw_value() - 1)) != 0
}
