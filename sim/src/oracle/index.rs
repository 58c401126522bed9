//! A run that has not ended is found by the next start: by its row among the live runs, or by its
//! place in a queue. One that has ended is in neither, and has no timer.

use ghostlight::protocol::RunKey;
use ghostlight::protocol::run::Phase;

use crate::durable::{Durable, DurableRun};
use crate::invariant::{Event, Invariant};

pub(super) struct Index;

impl Invariant for Index {
    fn name(&self) -> &str {
        "the index of live runs tells the truth"
    }

    fn check(&mut self, event: &Event<'_>, durable: &Durable) -> Result<(), String> {
        let Event::Committed { changes, .. } = event else { return Ok(()) };
        let mut touched: Vec<RunKey> =
            changes.iter().filter_map(|change| change.key.run()).collect();
        touched.dedup();
        for run in touched.into_iter().filter_map(|key| durable.run(key)) {
            check(run)?;
        }
        Ok(())
    }
}

fn check(run: &DurableRun) -> Result<(), String> {
    let (Some(record), Some(path), false) = (&run.record, &run.path, run.cleared) else {
        return Ok(());
    };
    let phase = record.state.phase;
    let (live, queued) = (run.live.is_some(), !run.queued.is_empty());
    let expected = match phase {
        Phase::Queued => (false, true),
        Phase::Ended(_) => (false, false),
        _ => (true, false),
    };
    if (live, queued) != expected {
        return Err(format!("{path} is {phase:?}; live row: {live}, in a queue: {queued}"));
    }
    let timers: Vec<u64> = run.timers.iter().copied().collect();
    if timers != Vec::from_iter(record.wake_at_ms) {
        let due = record.wake_at_ms;
        return Err(format!("{path} is due at {due:?}, and has timers {timers:?}"));
    }
    let waits = run.live.as_ref().is_some_and(|live| live.waiting);
    if waits && timers.is_empty() {
        return Err(format!("{path} waits for a timer, and has none"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::history::{History, boss, fires, key, record};
    use super::*;
    use ghostlight::protocol::AgentKey;
    use ghostlight::protocol::run::End;
    use ghostlight::storage::Key;
    use ghostlight::storage::records::TimerRecord;

    #[test]
    fn what_lives_is_in_the_index_and_what_has_ended_is_not() {
        let mut history = History::of(Index);
        history.run("r", &record("r", Phase::Running)).commit().unwrap();
        let live = Key::live(AgentKey::from(&boss()), key("r"));
        fires(history.delete(live).commit(), "live row: false");
        let mut history = History::of(Index);
        history.run("r", &record("r", Phase::Running)).commit().unwrap();
        let ended = record("r", Phase::Ended(End::Completed));
        fires(history.put(Key::record(key("r")), &ended).commit(), "live row: true");
    }

    #[test]
    fn what_is_due_has_one_timer() {
        let mut history = History::of(Index);
        let mut sleeps = record("r", Phase::Suspended);
        sleeps.wake_at_ms = Some(5);
        fires(history.run("r", &sleeps).commit(), "has timers []");
        let timer = TimerRecord { parent: boss().to_string(), run_id: "r".into() };
        history.put(Key::timer(5, key("r")), &timer).commit().unwrap();
        fires(history.put(Key::timer(6, key("r")), &timer).commit(), "has timers [5, 6]");
    }
}
