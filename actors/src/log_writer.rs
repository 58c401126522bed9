//! Appends to a run's log: numbers, positions, and the fence against a second writer.

use ghostlight_protocol::RunKey;
use ghostlight_protocol::limits::NAME_BYTES_MAX;
use ghostlight_storage as storage;
use storage::payload::{INLINE_BYTES_MAX, Payload};
use storage::records::{Head, LogEntry, LogRecord};
use storage::{Batch, Changes, Expect, Key};

/// About how many bytes of entries go into one commit. With the rest of a batch it stays below the
/// batch's limit; a single larger entry goes in parts.
pub(crate) const COMMIT_BYTES_MAX: usize = 96 << 10;

/// At least as many bytes as an entry takes whose payload is elsewhere: it has up to two names.
const REFERENCE_BYTES: usize = 2 * NAME_BYTES_MAX + 64;

/// The one writer of a run's log. Every append expects the head at the revision that the append
/// before it gave it, so that a second writer gets a conflict and never a number.
#[derive(Debug, Clone)]
pub(crate) struct LogWriter {
    run: RunKey,
    incarnation: u64,
    pub(crate) head: Head,
    pub(crate) head_revision: u64,
    next_payload: u32,
}

impl LogWriter {
    pub(crate) fn new(run: RunKey, incarnation: u64, head: Head, head_revision: u64) -> Self {
        Self { run, incarnation, head, head_revision, next_payload: 0 }
    }

    pub(crate) fn run(&self) -> RunKey {
        self.run
    }

    /// A number for a payload that no other payload of the run has: the epoch is ours alone.
    fn payload_number(&mut self) -> u64 {
        let number = (self.head.epoch << 32) | u64::from(self.next_payload);
        self.next_payload += 1;
        number
    }

    /// Stores a payload in the record itself if it is small, and otherwise in `parts`, which have
    /// to be committed before `changes`.
    pub(crate) fn store(
        &mut self,
        bytes: Vec<u8>,
        inline_max: usize,
        changes: &mut Changes,
        parts: &mut Vec<Batch>,
    ) -> Payload {
        if bytes.len() <= inline_max {
            return Payload::Inline(bytes);
        }
        let number = self.payload_number();
        let (payload, batches) =
            Payload::split(self.run, number, self.incarnation, inline_max, bytes);
        payload.refer(self.run, changes);
        parts.extend(batches);
        payload
    }

    /// Adds `entries`, whose payloads are all inline, to `changes`. Fills in what is the writer's
    /// to say, and returns the number of the first frame among them.
    pub(crate) fn append(
        &mut self,
        entries: &mut [LogEntry],
        now_ms: u64,
        changes: &mut Changes,
        parts: &mut Vec<Batch>,
    ) -> u64 {
        let first_number = self.head.next_number;
        let mut record = LogRecord { at_ms: now_ms, first_number, entries: Vec::new() };
        let mut bytes = 0;
        for entry in entries {
            if let LogEntry::Milestone { sequence, at_ms, .. } = entry {
                *sequence = self.head.next_milestone;
                *at_ms = now_ms;
                self.head.next_milestone += 1;
            }
            let mut stored = entry.clone();
            if let Some(payload) = stored.payload_mut()
                && let Payload::Inline(inline) = payload
                && inline.len() > INLINE_BYTES_MAX
            {
                let inline = std::mem::take(inline);
                *payload = self.store(inline, INLINE_BYTES_MAX, changes, parts);
            }
            let in_parts = matches!(stored.payload_mut(), Some(Payload::Parts { .. }));
            let size = if in_parts { REFERENCE_BYTES } else { stored.bytes() };
            if !record.entries.is_empty() && bytes + size > INLINE_BYTES_MAX {
                self.put(&mut record, changes);
                bytes = 0;
            }
            bytes += size;
            record.entries.push(stored);
        }
        if !record.entries.is_empty() {
            self.put(&mut record, changes);
        }
        self.put_head(changes);
        first_number
    }

    fn put(&mut self, record: &mut LogRecord, changes: &mut Changes) {
        let end = record.end_number();
        changes.put(&Key::log_record(self.run, end, self.head.position), record);
        self.head.position += 1;
        self.head.next_number = end;
        record.first_number = end;
        record.entries.clear();
    }

    /// Adds the head alone: fences, and takes the next revision.
    pub(crate) fn put_head(&mut self, changes: &mut Changes) {
        let key = Key::head(self.run);
        let expected = match self.head_revision {
            0 => Expect::Absent,
            revision => Expect::At(revision),
        };
        changes.expect(&key, expected);
        changes.put(&key, &self.head);
        self.head_revision += 1;
    }
}
