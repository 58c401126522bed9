//! The tasks that work for a supervisor, and how they report to it.

use ractor::ActorRef;
use tokio::task::JoinHandle;

use super::actor::{Msg, Report, StartError};
use crate::child_spec::Started;
use crate::strategy::Place;

/// Reports to the supervisor about one start of one child.
#[derive(Clone)]
pub(super) struct Reporter {
    pub(super) supervisor: ActorRef<Msg>,
    pub(super) place: Place,
    pub(super) start: u64,
}

impl Reporter {
    pub(super) fn report(&self, report: Report) {
        let (place, start) = (self.place, self.start);
        // A supervisor that has ended needs no report.
        let _ = self.supervisor.send_message(Msg::Report { place, start, report });
    }
}

/// Reports a start exactly once, even if its task unwinds or is aborted.
pub(super) struct StartReporter(Option<Reporter>);

impl StartReporter {
    pub(super) fn new(reporter: Reporter) -> Self {
        Self(Some(reporter))
    }

    pub(super) fn report(mut self, outcome: Result<Started, StartError>) {
        if let Some(reporter) = self.0.take() {
            reporter.report(Report::Started(outcome));
        }
    }
}

impl Drop for StartReporter {
    fn drop(&mut self) {
        if let Some(reporter) = self.0.take() {
            let error = StartError::Failed("start was aborted".into());
            reporter.report(Report::Started(Err(error)));
        }
    }
}

/// A task of the supervisor, aborted when no longer wanted.
pub(super) struct Job(JoinHandle<()>);

impl Job {
    pub(super) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }

    /// Waits until the task has ended, however it did.
    pub(super) async fn ended(&mut self) {
        drop((&mut self.0).await);
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.0.abort();
    }
}
