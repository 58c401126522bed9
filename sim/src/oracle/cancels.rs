//! A cancel that is durable is not taken back: the run ends as aborted, and whoever it has dispatched and
//! waits for is cancelled before.

use ghostlight::AgentPath;
use ghostlight::protocol::run::{End, Phase};
use ghostlight::storage::records::RunRecord;
use ghostlight::storage::{Versioned, codec};

use crate::durable::{Change, Durable};
use crate::invariant::{Event, Invariant};

pub(super) struct Cancels;

impl Invariant for Cancels {
    fn name(&self) -> &str {
        "a cancel that is recorded ends the run"
    }

    fn check(&mut self, event: &Event<'_>, durable: &Durable) -> Result<(), String> {
        let Event::Committed { changes, .. } = event else { return Ok(()) };
        for change in changes.iter().filter(|change| change.key.kind() == "record") {
            let (before, Some(after)) =
                (read(change, &change.before)?, read(change, &change.after)?)
            else {
                continue;
            };
            let (id, parent, state) = (&after.run_id, &after.parent, after.state);
            if before.as_ref().is_some_and(|before| before.state.cancelling) && !state.cancelling {
                return Err(format!("the cancel of {id} of {parent} was taken back"));
            }
            match state.phase {
                Phase::Ended(End::Aborted) if state.cancelling => cascaded(change, durable)?,
                Phase::Ended(end) if state.cancelling => {
                    return Err(format!("{id} of {parent} was cancelled, and ended as {end:?}"));
                }
                Phase::Ended(End::Aborted) => {
                    return Err(format!(
                        "{id} of {parent} was aborted, and nobody has cancelled it"
                    ));
                }
                _ if before.is_none() => adopted(&after, durable)?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// A run is recorded whose parent is not aborted yet: nobody would cancel it any more.
fn adopted(child: &RunRecord, durable: &Durable) -> Result<(), String> {
    let parent = child.parent.parse().ok();
    let parent = parent.and_then(|path: AgentPath| durable.run_at(&path)?.record.as_ref());
    let is_aborted = parent.is_some_and(|p| p.state.phase == Phase::Ended(End::Aborted));
    match is_aborted && is_left(child) {
        true => Err(format!("{} was aborted, and its {} begins", child.parent, child.run_id)),
        false => Ok(()),
    }
}

/// A run that has to be cancelled with its parent.
fn is_left(child: &RunRecord) -> bool {
    !child.detached && !child.state.cancelling && !matches!(child.state.phase, Phase::Ended(_))
}

fn read(change: &Change, row: &Option<Versioned>) -> Result<Option<RunRecord>, String> {
    let record = row.as_ref().map(|row| codec::decode(&change.key, &row.value)).transpose();
    record.map_err(|error| error.to_string())
}

fn cascaded(change: &Change, durable: &Durable) -> Result<(), String> {
    let path = change.key.run().and_then(|key| durable.run(key)?.path.as_ref());
    let Some(path) = path else { return Ok(()) };
    let left = durable.runs().filter(|(_, run)| !run.cleared).find_map(|(_, run)| {
        let child = run.record.as_ref()?;
        (child.parent == path.as_str() && is_left(child)).then(|| child.run_id.clone())
    });
    match left {
        Some(child) => Err(format!("{path} was aborted, and its {child} goes on")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::{History, fires, key, path, record};
    use super::*;
    use ghostlight::protocol::RunKey;
    use ghostlight::storage::Key;

    fn cancelled(phase: Phase) -> RunRecord {
        let mut record = record("r", phase);
        record.state.cancelling = true;
        record
    }

    fn history() -> History<Cancels> {
        let mut history = History::of(Cancels);
        history.run("r", &cancelled(Phase::Running)).commit().unwrap();
        history
    }

    #[test]
    fn a_cancel_is_not_taken_back() {
        fires(history().run("r", &record("r", Phase::Running)).commit(), "taken back");
    }

    #[test]
    fn a_cancelled_run_ends_as_aborted_and_no_other_does() {
        let ended = cancelled(Phase::Ended(End::Completed));
        fires(history().run("r", &ended).commit(), "ended as Completed");
        history().run("r", &cancelled(Phase::Ended(End::Aborted))).commit().unwrap();
        let aborted = record("s", Phase::Ended(End::Aborted));
        fires(history().run("s", &aborted).commit(), "nobody has cancelled it");
    }

    #[test]
    fn what_it_waits_for_is_cancelled_before_it_ends() {
        let mut history = history();
        let child = RunRecord { parent: path("r").to_string(), ..record("c", Phase::Running) };
        let child_key = RunKey::new(&path("r"), &"c".parse().unwrap());
        history.put(Key::record(child_key), &child).commit().unwrap();
        let mut end =
            || history.put(Key::record(key("r")), &cancelled(Phase::Ended(End::Aborted))).commit();
        fires(end(), "its c goes on");
        let detached = RunRecord { detached: true, ..child };
        history.put(Key::record(child_key), &detached).commit().unwrap();
        history
            .put(Key::record(key("r")), &cancelled(Phase::Ended(End::Aborted)))
            .commit()
            .unwrap();
    }

    #[test]
    fn nothing_begins_below_it_once_it_has_ended() {
        let child = RunRecord { parent: path("r").to_string(), ..record("c", Phase::Running) };
        let child_key = RunKey::new(&path("r"), &"c".parse().unwrap());
        for (child, said) in
            [(RunRecord { detached: true, ..child.clone() }, None), (child, Some("its c begins"))]
        {
            let mut history = history();
            history.run("r", &cancelled(Phase::Ended(End::Aborted))).commit().unwrap();
            let begun = history.put(Key::record(child_key), &child).commit();
            match said {
                None => begun.unwrap(),
                Some(said) => fires(begun, said),
            }
        }
    }
}
