//! A run that is cleared is gone for good: nothing of it is left but its tombstone, nothing is recorded
//! of it again, and its id is never used again. Nothing else makes a run go.

use std::collections::BTreeSet;

use ghostlight::protocol::RunKey;

use crate::durable::{Change, Durable};
use crate::invariant::{Event, Invariant};

#[derive(Default)]
pub(super) struct Tombstones {
    /// Those that were cleared in an earlier group.
    cleared: BTreeSet<RunKey>,
}

impl Invariant for Tombstones {
    fn name(&self) -> &str {
        "a cleared run is gone, and no other one"
    }

    fn check(&mut self, event: &Event<'_>, durable: &Durable) -> Result<(), String> {
        match event {
            Event::Committed { changes, .. } => {
                for change in *changes {
                    let Some(run) = change.key.run() else { continue };
                    self.judge(run, change, durable).map_err(|text| {
                        match durable.run(run).and_then(|run| run.path.as_ref()) {
                            Some(path) => format!("{path}: {text}"),
                            None => format!("{}: {text}", change.key),
                        }
                    })?;
                }
                let cleared = |change: &&Change| change.key.kind() == "tombstone";
                self.cleared.extend(changes.iter().filter(cleared).filter_map(|c| c.key.run()));
            }
            Event::Settled => {
                for run in self.cleared.iter().filter_map(|run| durable.run(*run)) {
                    if run.keys > 0 {
                        let (keys, path) = (run.keys, &run.path);
                        return Err(format!("{path:?} is cleared, and {keys} keys of it are left"));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Tombstones {
    fn judge(&self, run: RunKey, change: &Change, durable: &Durable) -> Result<(), String> {
        let is_cleared = durable.run(run).is_some_and(|run| run.cleared);
        match (change.key.kind(), &change.before, &change.after) {
            ("tombstone", Some(_), _) => Err("its tombstone was touched".into()),
            ("record" | "head" | "log", Some(_), None) if !is_cleared => {
                Err(format!("its {} is gone, and it was not cleared", change.key.kind()))
            }
            // What a dispatch has written before it found the tombstone is swept.
            ("part" | "intent" | "tombstone", _, _) => Ok(()),
            // A purge may be done twice.
            (kind, None, Some(_)) if kind != "purge" && self.cleared.contains(&run) => {
                Err(format!("its {kind} is written after it was cleared"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::{History, fires, key, record};
    use super::*;
    use ghostlight::protocol::run::{End, Phase};
    use ghostlight::storage::Key;
    use ghostlight::storage::records::TombstoneRecord;

    fn cleared() -> History<Tombstones> {
        let mut history = History::of(Tombstones::default());
        history.run("r", &record("r", Phase::Ended(End::Completed))).commit().unwrap();
        history
            .put(Key::tombstone(key("r")), &TombstoneRecord { cleared_at_ms: 1, aborted: false });
        history.commit().unwrap();
        history
    }

    #[test]
    fn a_run_goes_by_a_clear_alone() {
        let mut history = History::of(Tombstones::default());
        history.run("r", &record("r", Phase::Ended(End::Completed))).commit().unwrap();
        fires(history.delete(Key::record(key("r"))).commit(), "was not cleared");
        cleared().delete(Key::record(key("r"))).commit().unwrap();
    }

    #[test]
    fn its_id_is_never_used_again() {
        let mut history = cleared();
        history.delete(Key::record(key("r"))).commit().unwrap();
        fires(history.run("r", &record("r", Phase::Running)).commit(), "after it was cleared");
        fires(cleared().delete(Key::tombstone(key("r"))).commit(), "tombstone was touched");
    }

    #[test]
    fn nothing_of_it_is_left() {
        fires(cleared().tell(Event::Settled), "1 keys of it are left");
    }
}
