//! Code that was cancelled is gone when its grace time is over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ghostlight::AgentPath;
use ghostlight::protocol::run::Phase;
use ghostlight::testing::Seen;
use tokio::time::Instant;

use crate::durable::Durable;
use crate::invariant::{Event, Invariant};
use crate::plan::Fault;

/// What is cancelled with a run goes first, and has a grace time of its own; the rest is the disk's.
const SLACK: Duration = Duration::from_secs(60);

/// As many uses of the disk may lie between a cancel and the end.
const DISK_USES: u32 = 1000;

pub(super) struct Grace {
    /// How much longer than its grace time a cancelled run may take.
    slack: Duration,
    inside: BTreeSet<AgentPath>,
    cancelled: BTreeMap<AgentPath, Instant>,
}

impl Grace {
    /// With a disk that takes so long.
    pub(super) fn new(latency: Duration) -> Self {
        let slack = SLACK.saturating_add(latency.saturating_mul(DISK_USES));
        Self { slack, inside: BTreeSet::new(), cancelled: BTreeMap::new() }
    }

    fn forget(&mut self) {
        self.inside.clear();
        self.cancelled.clear();
    }

    /// The run is inside its code, and may have been cancelled.
    fn look_at(&mut self, run: &AgentPath, durable: &Durable) -> Result<(), String> {
        let record = durable.run_at(run).and_then(|run| run.record.as_ref());
        let Some(state) = record.map(|record| record.state).filter(|state| state.cancelling) else {
            return Ok(());
        };
        if !matches!(state.phase, Phase::Ended(_)) {
            self.cancelled.entry(run.clone()).or_insert_with(Instant::now);
            return Ok(());
        }
        let took = self.cancelled.remove(run).map_or(Duration::ZERO, |since| since.elapsed());
        match took > durable.cancel_grace().saturating_add(self.slack) {
            true => Err(format!("{run} ended {took:?} after its cancel")),
            false => Ok(()),
        }
    }
}

impl Invariant for Grace {
    fn name(&self) -> &str {
        "what is cancelled ends when its grace time is over"
    }

    fn check(&mut self, event: &Event<'_>, durable: &Durable) -> Result<(), String> {
        match event {
            Event::LifeBegan | Event::LifeEnded => self.forget(),
            // A run that is entered again has a new grace time.
            Event::AgentCrashed { .. } => self.forget(),
            Event::RunCrashed { run } => {
                self.inside.remove(*run);
                self.cancelled.remove(*run);
            }
            Event::Fault(Fault::Stall(ms) | Fault::StallRead(ms)) => {
                self.slack = self.slack.saturating_add(Duration::from_millis(*ms));
            }
            // Nobody can stop a thread.
            Event::System(Seen::Blocking { run, .. }) => _ = self.inside.remove(*run),
            Event::System(Seen::Entered { run, .. }) => {
                self.inside.insert((*run).clone());
                self.look_at(run, durable)?;
            }
            Event::System(Seen::Left { run }) => _ = self.inside.remove(*run),
            Event::Committed { changes, .. } => {
                for change in changes.iter().filter(|change| change.key.kind() == "record") {
                    let run = change.key.run().and_then(|run| durable.run(run)?.path.clone());
                    let looks = |run: &AgentPath| {
                        self.inside.contains(run) || self.cancelled.contains_key(run)
                    };
                    if let Some(run) = run.filter(looks) {
                        self.look_at(&run, durable)?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::{History, fires, path, record};
    use super::*;
    use ghostlight::protocol::run::End;
    use ghostlight::storage::records::RunRecord;

    fn cancelled(phase: Phase) -> RunRecord {
        let mut record = record("r", phase);
        record.state.cancelling = true;
        record
    }

    /// What is said of a run that ends so long after its cancel.
    async fn ended_after(secs: u64, stalled_ms: u64, crashes: bool) -> Result<(), String> {
        let run = path("r");
        let mut history = History::of(Grace::new(Duration::from_millis(1)));
        history.durable.set_cancel_grace(Duration::from_secs(5));
        history.run("r", &record("r", Phase::Running)).commit().unwrap();
        history.see(Seen::Entered { run: &run, attempt: 1 }).unwrap();
        history.run("r", &cancelled(Phase::Running)).commit().unwrap();
        history.tell(Event::Fault(Fault::Stall(stalled_ms))).unwrap();
        tokio::time::advance(Duration::from_secs(secs)).await;
        if crashes {
            history.restart().unwrap();
            history.see(Seen::Entered { run: &run, attempt: 2 }).unwrap();
        }
        history.see(Seen::Left { run: &run }).unwrap();
        history.run("r", &cancelled(Phase::Ended(End::Aborted))).commit()
    }

    #[tokio::test(start_paused = true)]
    async fn code_that_is_cancelled_does_not_go_on_for_ever() {
        ended_after(5, 0, false).await.unwrap();
        fires(ended_after(3600, 0, false).await, "after its cancel");
        ended_after(3600, 3_600_000, false).await.unwrap();
        ended_after(3600, 0, true).await.unwrap();
    }
}
