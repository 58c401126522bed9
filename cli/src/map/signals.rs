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

/// The signals that stop a `map`. `None` is one that was ignored when the program started, as under
/// `nohup`, or by a shell that starts it in the background.
pub(super) struct Signals {
    interrupt: Option<Signal>,
    term: Option<Signal>,
    hangup: Option<Signal>,
}

impl Signals {
    pub(super) fn new() -> Result<Self, Fatal> {
        let ignored = ignored();
        let unless_ignored = |kind: SignalKind| match ignored & (1 << (kind.as_raw_value() - 1)) {
            0 => signal(kind).map(Some),
            _ => Ok(None),
        };
        Ok(Self {
            interrupt: unless_ignored(SignalKind::interrupt())?,
            term: unless_ignored(SignalKind::terminate())?,
            hangup: unless_ignored(SignalKind::hangup())?,
        })
    }

    pub(super) async fn next(&mut self) -> Stop {
        tokio::select! {
            () = received(self.interrupt.as_mut()) => Stop::Interrupt,
            () = received(self.term.as_mut()) => Stop::Term,
            () = received(self.hangup.as_mut()) => Stop::Hangup,
        }
    }

    /// Waits for a signal that is no Ctrl-C. One of those is there for [`Signals::next`] still.
    pub(super) async fn not_interrupt(&mut self) -> Stop {
        tokio::select! {
            () = received(self.term.as_mut()) => Stop::Term,
            () = received(self.hangup.as_mut()) => Stop::Hangup,
        }
    }
}

async fn received(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => _ = signal.recv().await,
        None => std::future::pending().await,
    }
}

/// The signals that were ignored by whoever started the program, as a mask: installing a handler would
/// end that.
fn ignored() -> u64 {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return 0 };
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
