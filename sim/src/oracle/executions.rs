//! No run is executed twice at once, nothing is executed before it is recorded, and nothing after its
//! end.

use std::collections::BTreeSet;

use ghostlight::AgentPath;
use ghostlight::protocol::run::Phase;
use ghostlight::testing::Seen;

use crate::durable::Durable;
use crate::invariant::{Event, Invariant};

#[derive(Default)]
pub(super) struct Executions {
    inside: BTreeSet<AgentPath>,
}

impl Invariant for Executions {
    fn name(&self) -> &str {
        "a run is executed by one at a time"
    }

    fn check(&mut self, event: &Event<'_>, durable: &Durable) -> Result<(), String> {
        match event {
            Event::LifeBegan | Event::LifeEnded => self.inside.clear(),
            Event::System(Seen::Entered { run, .. }) => {
                let record = durable.run_at(run).and_then(|run| run.record.as_ref());
                let Some(record) = record else {
                    return Err(format!("{run} is entered, and has no record"));
                };
                if let Phase::Ended(end) = record.state.phase {
                    return Err(format!("{run} is entered, and has ended as {end:?}"));
                }
                if record.state.phase == Phase::Queued {
                    return Err(format!("{run} is entered, and waits for a slot"));
                }
                if !self.inside.insert((*run).clone()) {
                    return Err(format!("{run} is entered a second time at once"));
                }
            }
            Event::System(Seen::Left { run }) => {
                self.inside.remove(*run);
            }
            Event::System(Seen::StepBegan { run, key }) if !self.inside.contains(*run) => {
                return Err(format!(
                    "step {key:?} of {run} is executed, and nobody has entered it"
                ));
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

    fn entered(phase: Phase) -> (History<Executions>, AgentPath) {
        let mut history = History::of(Executions::default());
        let mut stored = record("r", phase);
        stored.queue_number = Some(1);
        history.run("r", &stored).commit().unwrap();
        (history, path("r"))
    }

    #[test]
    fn a_run_is_entered_by_one_at_a_time() {
        let (mut history, run) = entered(Phase::Running);
        let enter = Seen::Entered { run: &run, attempt: 1 };
        history.see(enter).unwrap();
        fires(history.see(enter), "a second time");
        history.see(Seen::Left { run: &run }).unwrap();
        history.see(enter).unwrap();
        history.restart().unwrap();
        history.see(enter).unwrap();
    }

    #[test]
    fn only_what_is_recorded_and_has_not_ended_is_entered() {
        let run = path("other");
        let (mut history, _) = entered(Phase::Running);
        fires(history.see(Seen::Entered { run: &run, attempt: 1 }), "no record");
        let (mut history, run) = entered(Phase::Ended(End::Completed));
        fires(history.see(Seen::Entered { run: &run, attempt: 1 }), "has ended");
        let (mut history, run) = entered(Phase::Queued);
        fires(history.see(Seen::Entered { run: &run, attempt: 1 }), "waits for a slot");
    }

    #[test]
    fn no_step_is_executed_outside() {
        let (mut history, run) = entered(Phase::Running);
        history.see(Seen::Entered { run: &run, attempt: 1 }).unwrap();
        history.see(Seen::StepBegan { run: &run, key: "a" }).unwrap();
        history.see(Seen::Left { run: &run }).unwrap();
        fires(history.see(Seen::StepBegan { run: &run, key: "a" }), "nobody has entered");
    }
}
