//! How a `map` ends: all done, drained, or told to stop at once.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ghostlight::System;
use tokio::task::JoinSet;

use super::Watching;
use super::owner::{Control, Files};
use super::report::{Reporter, Totals};
use super::signals::{INTERRUPTED, Signals, Stop};
use super::spool::Spooled;
use super::store_folder::StoreFolder;
use crate::batch::Launches;
use crate::fatal::Fatal;

/// How long a program that was told to stop goes on printing.
const PRINT_WAIT: Duration = Duration::from_secs(1);

/// How long killed commands may take to be gone, and their runs to record it.
const STOP_WAIT: Duration = Duration::from_secs(10);

/// What is left when nothing more is dispatched.
pub(super) struct Ending {
    pub(super) system: System,
    pub(super) store: StoreFolder,
    pub(super) files: Files,
    pub(super) control: Control,
    pub(super) launches: Arc<Launches>,
    pub(super) reporter: Reporter,
    pub(super) watching: Watching,
    pub(super) signals: Signals,
    pub(super) spooled: Option<Spooled>,
}

impl Ending {
    pub(super) async fn finish(self, stop: Result<bool, Stop>) -> Result<ExitCode, Fatal> {
        let stop = match stop {
            // Nothing is reported as done that the next `map` would do again.
            Ok(whole) => self.store.check().await.map(|()| whole).map_err(Stop::Fatal),
            stop => stop,
        };
        match stop {
            Ok(whole) => {
                let Self { files, control, reporter, system, mut signals, spooled, .. } = self;
                let ending = async {
                    if let Some(spooled) = spooled.filter(|_| whole) {
                        spooled.done().await;
                    }
                    control.close().await;
                    // What was ended by others, such as a cancel while nobody owned the folder, and
                    // what was cleared meanwhile.
                    files.sweep(&files.batch).await;
                    files.forget_without_runs(&files.batch).await;
                    // Everything of this batch is durable.
                    system.crash().await;
                    reporter.finish(true).await
                };
                let finished = tokio::select! {
                    biased;
                    // Whoever reads our output may have stopped reading.
                    stop = signals.next() => Err(stop),
                    finished = ending => finished,
                };
                match finished {
                    Ok(totals) => Ok(exit_code(&totals)),
                    Err(Stop::Fatal(fatal)) => Err(fatal),
                    Err(stop) => Ok(ExitCode::from(stop.code())),
                }
            }
            Err(Stop::Interrupt) => self.drain().await,
            // The commands go on under their shims, and the next `map` takes them over.
            Err(stop) => {
                let Self { control, reporter, system, signals, watching, .. } = self;
                let closing = async {
                    control.close().await;
                    system.crash().await;
                };
                let code = ExitCode::from(stop.code());
                let printed = close(closing, reporter, watching, signals, true).await;
                match stop {
                    Stop::Fatal(fatal) => Err(fatal),
                    _ => printed.map(|()| code),
                }
            }
        }
    }

    /// Waits for the running commands; a second interrupt kills them.
    async fn drain(mut self) -> Result<ExitCode, Fatal> {
        self.launches.drain();
        match self.launches.count() {
            0 if self.system.live_runs() == 0 => {}
            // A command may have been started just now, and not be in the list yet.
            0 => self.reporter.note("waiting for what is at work; Ctrl-C again kills it"),
            n => {
                let text = format!("waiting for {n} running commands; Ctrl-C again kills them");
                self.reporter.note(&text);
            }
        }
        // The control socket answers until the store is closed: one command that hangs can be cancelled.
        let system = self.system.clone();
        let mut drained = std::pin::pin!(system.drain());
        let stop = tokio::select! {
            biased;
            stop = self.signals.next() => Some(stop),
            () = &mut drained => None,
            fatal = self.store.removed() => Some(Stop::Fatal(fatal)),
        };
        let code = stop.as_ref().map_or(INTERRUPTED, Stop::code);
        let mut recorded = stop.is_none();
        let mut stops = JoinSet::new();
        if let Some(Stop::Interrupt) = stop {
            // Their runs record it and leave memory, which is what is waited for.
            stops = self.launches.stop_all();
            let stopped = async {
                // A panic in one is no reason to leave the others alone.
                while stops.join_next().await.is_some() {}
                drained.await;
            };
            recorded = tokio::select! {
                biased;
                _ = self.signals.not_interrupt() => false,
                () = tokio::time::sleep(STOP_WAIT) => false,
                () = stopped => true,
            };
        }
        let Self { control, reporter, system, signals, watching, .. } = self;
        let closing = async {
            // Before the next owner takes over what is not killed yet.
            stops.shutdown().await;
            // Before the folder is let go, whose next owner has a socket of its own.
            control.close().await;
            match recorded {
                true => _ = system.shutdown().await,
                false => system.crash().await,
            }
        };
        let at_once = code != INTERRUPTED;
        close(closing, reporter, watching, signals, at_once).await?;
        match stop {
            Some(Stop::Fatal(fatal)) => Err(fatal),
            _ => Ok(ExitCode::from(code)),
        }
    }
}

/// Stops the system, by `closing`, lets those who watched it print what they have, and says that this
/// is not all. The disk may hang, and whoever reads our output may have stopped reading: a signal ends
/// those waits. So does time that of printing, `at_once`.
async fn close(
    closing: impl Future<Output = ()>,
    reporter: Reporter,
    mut watching: Watching,
    mut signals: Signals,
    at_once: bool,
) -> Result<(), Fatal> {
    let printed = async {
        while watching.join_next().await.is_some() {}
        reporter.finish(false).await
    };
    let closed = async {
        closing.await;
        tokio::select! {
            biased;
            () = tokio::time::sleep(PRINT_WAIT), if at_once => Ok(()),
            printed = printed => match printed {
                Err(Stop::Fatal(fatal)) => Err(fatal),
                _ => Ok(()),
            }
        }
    };
    tokio::select! {
        biased;
        _ = signals.next() => Ok(()),
        closed = closed => closed,
    }
}

fn exit_code(totals: &Totals) -> ExitCode {
    match totals.failed + totals.cancelled + totals.unreadable {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal, getpid, kill_process};

    use super::*;
    use crate::map::report::Mode;

    #[tokio::test]
    async fn a_signal_ends_the_wait_for_a_disk_that_hangs() {
        let signals = Signals::new().unwrap();
        let reporter = Reporter::start(Mode::Json, &Arc::new(Launches::default()));
        kill_process(getpid(), Signal::TERM).unwrap();
        let closing = std::future::pending();
        assert!(close(closing, reporter, JoinSet::new(), signals, true).await.is_ok());
    }
}
