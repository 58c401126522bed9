//! A hard end never changes: neither the record, nor the log after the last frame.

use ghostlight::protocol::run::Phase;
use ghostlight::storage::Versioned;
use ghostlight::storage::records::RunRecord;
use ghostlight::storage::{Key, codec};

use crate::durable::Durable;
use crate::invariant::{Event, Invariant};

pub(super) struct Ends;

impl Invariant for Ends {
    fn name(&self) -> &str {
        "a hard end never changes"
    }

    fn check(&mut self, event: &Event<'_>, _: &Durable) -> Result<(), String> {
        let Event::Committed { changes, .. } = event else { return Ok(()) };
        for change in *changes {
            if change.key.kind() != "record" {
                continue;
            }
            let Some(before) = read(&change.key, change.before.as_ref())? else { continue };
            if !matches!(before.state.phase, Phase::Ended(_)) {
                continue;
            }
            // A cleared run is gone; its id is another invariant's business.
            let Some(after) = read(&change.key, change.after.as_ref())? else { continue };
            let end = |record: &RunRecord| {
                (record.state.phase, record.end.clone(), record.completed_at_ms)
            };
            if end(&before) != end(&after) {
                return Err(format!(
                    "{} of {} had ended as {:?}, and is {:?}",
                    before.run_id, before.parent, before.state.phase, after.state.phase
                ));
            }
        }
        Ok(())
    }
}

fn read(key: &Key, value: Option<&Versioned>) -> Result<Option<RunRecord>, String> {
    let record = value.map(|value| codec::decode(key, &value.value)).transpose();
    record.map_err(|error| error.to_string())
}
