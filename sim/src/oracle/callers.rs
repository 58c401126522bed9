//! What a caller was told is so, and stays so: that a run is dispatched, cancelled or cleared, how it
//! ended, how it stands, and which milestone it has reached.

use std::collections::BTreeMap;

use ghostlight::protocol::run::{End, Phase};
use ghostlight::protocol::{NotCompleted, Outcome, RunKey, Status};
use ghostlight::storage::payload::Payload;
use ghostlight::storage::records::{LogEntry, RunRecord};
use ghostlight::testing::{Answer, Seen};
use ghostlight::{Error, Inspection, Milestone};

use crate::durable::{Durable, DurableRun};
use crate::invariant::{Event, Invariant};

#[derive(Default)]
pub(super) struct Callers {
    told: BTreeMap<RunKey, Told>,
}

/// What all callers together were told of a run.
#[derive(Default)]
struct Told {
    dispatched: bool,
    /// Somebody was told that the run had not been there before.
    began: bool,
    /// A cancel was answered while the run lived.
    cancelled: bool,
    cleared: bool,
    end: Option<Outcome<Vec<u8>>>,
    milestones: BTreeMap<String, Milestone>,
}

impl Invariant for Callers {
    fn name(&self) -> &str {
        "what callers were told stays true"
    }

    fn check(&mut self, event: &Event<'_>, durable: &Durable) -> Result<(), String> {
        match event {
            Event::System(Seen::Answered { agent, run_id, answer }) => {
                let key = RunKey::new(agent, run_id);
                let told = self.told.entry(key).or_default();
                let run = durable.run(key).filter(|run| run.record.is_some() || run.cleared);
                let contents = |payload: &Payload| durable.contents(key, payload);
                told.hear(*answer, run, contents)
                    .map_err(|text| format!("{run_id} of {agent}: {text}"))
            }
            Event::Committed { changes, .. } => {
                for change in changes.iter().filter(|change| change.key.kind() == "record") {
                    let Some(key) = change.key.run() else { continue };
                    let record = durable.run(key).and_then(|run| run.record.as_ref());
                    let told = self.told.get(&key);
                    let (Some(record), Some(told)) = (record, told) else { continue };
                    let other = |end| end != End::Aborted;
                    if told.cancelled
                        && matches!(record.state.phase, Phase::Ended(end) if other(end))
                    {
                        let (id, parent) = (&record.run_id, &record.parent);
                        return Err(format!(
                            "{id} of {parent}: a cancel was answered before it ended otherwise"
                        ));
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Told {
    fn hear(
        &mut self,
        answer: Answer<'_>,
        run: Option<&DurableRun>,
        contents: impl Fn(&Payload) -> Option<Vec<u8>>,
    ) -> Result<(), String> {
        let is_cleared = run.is_some_and(|run| run.cleared);
        let record = run.and_then(|run| run.record.as_ref()).filter(|_| !is_cleared);
        match answer {
            Answer::Dispatched { already_existed } => {
                if self.cleared {
                    return Err("a dispatch was accepted after its clear was answered".into());
                }
                if run.is_none() {
                    return Err("a dispatch was accepted, and is not durable".into());
                }
                if !already_existed && std::mem::replace(&mut self.began, true) {
                    return Err("it was dispatched twice, and began twice".into());
                }
                self.dispatched = true;
            }
            Answer::NotDispatched(Error::Cleared(_)) if !is_cleared => {
                return Err("a dispatch was refused as cleared, and it is not".into());
            }
            Answer::Inspected(None) if self.dispatched && record.is_some() => {
                return Err("it was dispatched, and an inspection does not know it".into());
            }
            Answer::Inspected(Some(inspection)) => match run {
                Some(run) if !is_cleared => self.inspected(inspection, run)?,
                Some(_) => {}
                None => return Err("an inspection shows what is not durable".into()),
            },
            Answer::Cancelled => {
                let Some(record) = record else { return Ok(()) };
                match record.state.phase {
                    Phase::Ended(_) => {}
                    _ if record.state.cancelling => self.cancelled = true,
                    _ => return Err("a cancel was answered, and is not durable".into()),
                }
            }
            Answer::Cleared => {
                if record.is_some() {
                    return Err("a clear was answered, and is not durable".into());
                }
                self.cleared = true;
            }
            Answer::Outcome(outcome) if outcome.status().is_hard() => {
                if let Some(before) = self.end.as_ref().filter(|before| *before != outcome) {
                    return Err(format!("it was told as {before:?}, and is as {outcome:?}"));
                }
                if let Some(record) = record.filter(|record| !ended_so(record, outcome, contents)) {
                    let phase = record.state.phase;
                    return Err(format!("its end is told as {outcome:?}, and it is {phase:?}"));
                }
                if run.is_none() {
                    return Err("an end is told that is not durable".into());
                }
                self.end = Some(outcome.clone());
            }
            Answer::Outcome(Outcome::NotCompleted(NotCompleted::Interrupted { .. }))
                if self.end.is_some() =>
            {
                return Err("it was told as ended, and is told as interrupted".into());
            }
            Answer::Outcome(Outcome::NotCompleted(NotCompleted::Interrupted { .. })) => {
                let state = record.map(|record| record.state);
                let has_ended = |phase| matches!(phase, Phase::Ended(_));
                if state.is_some_and(|s| s.interrupted.is_none() && !has_ended(s.phase)) {
                    return Err("it is told as interrupted, and that is not durable".into());
                }
            }
            Answer::Milestone(milestone) => {
                self.reached(milestone)?;
                if let Some(run) = run.filter(|run| !is_cleared && !has(run, milestone)) {
                    let frames = run.frames.len();
                    return Err(format!("{milestone:?} is told, and in none of {frames} frames"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn inspected(&self, inspection: &Inspection, run: &DurableRun) -> Result<(), String> {
        let Some(record) = &run.record else { return Ok(()) };
        let (shown, stored) = (inspection.run.status, record.state.status());
        if shown.is_hard() && shown != stored {
            return Err(format!("an inspection shows it as {shown}, and it is {stored}"));
        }
        if inspection.run.attempt > record.attempt {
            let (shown, stored) = (inspection.run.attempt, record.attempt);
            return Err(format!("an inspection shows attempt {shown}, and it is at {stored}"));
        }
        let frames = run.frames.len() as u64;
        if inspection.next_sequence > frames {
            let shown = inspection.next_sequence;
            return Err(format!("an inspection shows {shown} frames, and {frames} are durable"));
        }
        if let Some(milestone) = inspection.milestones.iter().find(|m| !has(run, m)) {
            return Err(format!("an inspection shows {milestone:?}, which is not durable"));
        }
        if shown == Status::Completed
            && let (Some(output), Some(Outcome::Completed(told))) = (&inspection.output, &self.end)
            && serde_json::from_slice(told).ok().as_ref() != Some(output)
        {
            return Err(format!("an inspection shows {output}, and another output was told"));
        }
        Ok(())
    }

    /// The first milestone of a name is what everybody is told who waits for it.
    fn reached(&mut self, milestone: &Milestone) -> Result<(), String> {
        let known = self.milestones.entry(milestone.name.clone());
        let before = known.or_insert_with(|| milestone.clone());
        if before != milestone {
            return Err(format!("it was told as {before:?}, and is as {milestone:?}"));
        }
        Ok(())
    }
}

fn has(run: &DurableRun, milestone: &Milestone) -> bool {
    run.frames.values().any(|entry| match entry {
        LogEntry::Milestone { name, sequence, at_ms, .. } => {
            (name, *sequence, *at_ms) == (&milestone.name, milestone.sequence, milestone.at)
        }
        _ => false,
    })
}

/// Whether a record has ended as somebody is told.
fn ended_so(
    record: &RunRecord,
    outcome: &Outcome<Vec<u8>>,
    contents: impl Fn(&Payload) -> Option<Vec<u8>>,
) -> bool {
    let Some(end) = &record.end else { return false };
    let text = |text: &str| end.error.as_deref().unwrap_or_default() == text;
    match (record.state.phase, outcome) {
        (Phase::Ended(End::Completed), Outcome::Completed(told)) => match &end.output {
            Some(output) => contents(output).as_ref() == Some(told),
            None => true,
        },
        (Phase::Ended(End::Error), Outcome::NotCompleted(NotCompleted::Error(failure))) => {
            text(&failure.message)
        }
        (Phase::Ended(End::Aborted), Outcome::NotCompleted(NotCompleted::Aborted { reason })) => {
            text(reason)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::{History, fires, key, record};
    use super::*;
    use ghostlight::protocol::Failure;
    use ghostlight::storage::Key;
    use ghostlight::storage::records::{EndRecord, TombstoneRecord};

    const BEGAN: Answer<'_> = Answer::Dispatched { already_existed: false };

    fn with(phase: Phase) -> History<Callers> {
        let mut history = History::of(Callers::default());
        history.run("r", &record("r", phase)).log("r", &[LogEntry::Started]).commit().unwrap();
        history
    }

    fn completed(output: &[u8]) -> RunRecord {
        let end =
            EndRecord { output: Some(Payload::Inline(output.into())), ..EndRecord::default() };
        RunRecord { end: Some(end), ..record("r", Phase::Ended(End::Completed)) }
    }

    #[test]
    fn a_dispatch_is_durable_and_begins_once() {
        let mut history = with(Phase::Running);
        fires(history.answer("other", BEGAN), "not durable");
        history.answer("r", BEGAN).unwrap();
        history.answer("r", Answer::Dispatched { already_existed: true }).unwrap();
        fires(history.answer("r", Answer::Inspected(None)), "does not know it");
        history.restart().unwrap();
        fires(history.answer("r", BEGAN), "began twice");
    }

    #[test]
    fn a_cancel_is_durable_and_decides_the_end() {
        fires(with(Phase::Running).answer("r", Answer::Cancelled), "not durable");
        let mut history = with(Phase::Running);
        let mut cancelled = record("r", Phase::Running);
        cancelled.state.cancelling = true;
        history.run("r", &cancelled).commit().unwrap();
        history.answer("r", Answer::Cancelled).unwrap();
        fires(history.run("r", &completed(b"1")).commit(), "ended otherwise");
        with(Phase::Ended(End::Completed)).answer("r", Answer::Cancelled).unwrap();
    }

    #[test]
    fn an_end_is_told_as_it_is_and_always_the_same() {
        let told = Outcome::Completed(b"1".to_vec());
        fires(with(Phase::Running).answer("r", Answer::Outcome(&told)), "it is Running");
        let mut history = with(Phase::Running);
        history.run("r", &completed(b"1")).commit().unwrap();
        history.answer("r", Answer::Outcome(&told)).unwrap();
        let other = Outcome::Completed(b"2".to_vec());
        fires(history.answer("r", Answer::Outcome(&other)), "it was told as");
        let failed = Outcome::NotCompleted(NotCompleted::Error(Failure {
            message: "no".into(),
            kind: None,
            permanent: false,
        }));
        fires(history.answer("r", Answer::Outcome(&failed)), "it was told as");
    }

    #[test]
    fn an_interruption_is_told_as_it_is() {
        let (error, reason, child_still_running) = ("lost".into(), None, Some(true));
        let told = NotCompleted::Interrupted { error, reason, child_still_running };
        let told = Outcome::NotCompleted(told);
        fires(with(Phase::Running).answer("r", Answer::Outcome(&told)), "as interrupted");
        let mut parked = record("r", Phase::Running);
        parked.state.interrupted =
            Some(ghostlight::protocol::run::Interruption { reason, child_still_running });
        let mut history = with(Phase::Running);
        history.run("r", &parked).commit().unwrap();
        history.answer("r", Answer::Outcome(&told)).unwrap();
    }

    #[test]
    fn a_large_output_is_told_as_it_is() {
        let mut history = with(Phase::Running);
        let mut ended = completed(b"");
        let output = Some(Payload::Parts { number: 1, bytes: 1 });
        ended.end = Some(EndRecord { output, ..EndRecord::default() });
        history.raw(Key::part(key("r"), 1, 0), b"1").run("r", &ended).commit().unwrap();
        let other = Outcome::Completed(b"2".to_vec());
        fires(history.answer("r", Answer::Outcome(&other)), "its end is told as");
        history.answer("r", Answer::Outcome(&Outcome::Completed(b"1".to_vec()))).unwrap();
    }

    #[test]
    fn a_milestone_is_told_as_it_is() {
        let told = Milestone { name: "m".into(), sequence: 0, at: 1, data: None };
        fires(with(Phase::Running).answer("r", Answer::Milestone(&told)), "in none of");
    }

    #[test]
    fn a_clear_is_durable_and_for_ever() {
        fires(with(Phase::Ended(End::Error)).answer("r", Answer::Cleared), "not durable");
        let refused = Error::Cleared("r".into());
        let refused = Answer::NotDispatched(&refused);
        fires(with(Phase::Running).answer("r", refused), "it is not");
        let mut history = with(Phase::Ended(End::Error));
        history
            .put(Key::tombstone(key("r")), &TombstoneRecord { cleared_at_ms: 1, aborted: false });
        history.commit().unwrap();
        history.answer("r", Answer::Cleared).unwrap();
        history.answer("r", refused).unwrap();
        let joined = Answer::Dispatched { already_existed: true };
        fires(history.answer("r", joined), "after its clear");
    }
}
