//! Compares what a store holds with what was acknowledged.

use std::collections::BTreeMap;

use ghostlight_storage::{Error, Limit, Store};

use crate::child::Line;
use crate::workload::{KEPT, event, event_key, event_prefix, row_key};

/// The latest acknowledged batch of each writer.
#[derive(Debug, Default, Clone)]
pub(crate) struct Acknowledged {
    pub(crate) latest: BTreeMap<u8, u64>,
    pub(crate) count: u64,
}

impl Acknowledged {
    pub(crate) fn note(&mut self, line: &Line) {
        if let Line::Acknowledged(writer, n) = *line {
            let latest = self.latest.entry(writer).or_default();
            assert!(n > *latest, "writer {writer} was told {n} after {latest}");
            *latest = n;
            self.count += 1;
        }
    }
}

/// Checks that every acknowledged batch is there, and that every batch is there whole or not at
/// all.
pub(crate) fn verify(store: &dyn Store, writers: u8, acknowledged: &Acknowledged) {
    try_verify(store, writers, acknowledged).unwrap();
}

/// As [`verify`], of a store that may say that it cannot read.
pub(crate) fn try_verify(
    store: &dyn Store,
    writers: u8,
    acknowledged: &Acknowledged,
) -> Result<(), Error> {
    for writer in 0..writers {
        let row = store.get(&row_key(writer))?;
        let n = row.as_ref().map_or(0, |row| row.revision);
        let told = acknowledged.latest.get(&writer).copied().unwrap_or(0);
        assert!(n >= told, "writer {writer}: {told} was acknowledged, {n} is there");
        if let Some(row) = row {
            assert_eq!(row.value, n.to_be_bytes(), "the row of writer {writer}");
        }
        let limit = Limit { entries: usize::MAX, bytes: usize::MAX };
        let events = store.scan(&event_prefix(writer), None, limit)?;
        let numbers = n.saturating_sub(KEPT) + 1..=n;
        let expected: Vec<_> = numbers.clone().map(|n| event_key(writer, n)).collect();
        let found: Vec<_> = events.iter().map(|event| event.key.clone()).collect();
        assert_eq!(found, expected, "the events of writer {writer} at {n}");
        for (number, found) in numbers.zip(events) {
            assert!(found.versioned.value == event(writer, number), "event {number} of {writer}");
            assert_eq!(found.versioned.revision, 1);
        }
    }
    Ok(())
}
