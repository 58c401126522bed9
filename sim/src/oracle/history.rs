//! Histories that are made up: what each invariant says when its promise is broken.

use std::collections::BTreeMap;

use ghostlight::protocol::run::{Phase, RunState};
use ghostlight::protocol::{AgentKey, RunKey};
use ghostlight::storage::codec::{self, Record};
use ghostlight::storage::payload::Payload;
use ghostlight::storage::records::{
    EndRecord, Head, LiveRecord, LogEntry, LogRecord, QueuedRecord, RunRecord,
};
use ghostlight::storage::{Key, Versioned};
use ghostlight::testing::{Answer, Seen};
use ghostlight::{AgentPath, RunId};

use crate::durable::{Change, Durable};
use crate::invariant::{Event, Invariant};

/// An invariant, and what it was told of so far.
pub(super) struct History<I> {
    invariant: I,
    pub(super) durable: Durable,
    rows: BTreeMap<Key, Versioned>,
    pending: Vec<Change>,
    group: u64,
}

/// What the invariant says.
pub(super) type Said = Result<(), String>;

impl<I: Invariant> History<I> {
    pub(super) fn of(invariant: I) -> Self {
        let mut history = Self {
            invariant,
            durable: Durable::default(),
            rows: BTreeMap::new(),
            pending: Vec::new(),
            group: 0,
        };
        history.tell(Event::LifeBegan).unwrap();
        history
    }

    /// Adds a row to the next group of commits.
    pub(super) fn put<R: Record>(&mut self, key: Key, record: &R) -> &mut Self {
        let revision = self.rows.get(&key).map_or(1, |row| row.revision + 1);
        self.change(key, Some(Versioned { revision, value: codec::encode(record) }))
    }

    /// Adds a part of a payload.
    pub(super) fn raw(&mut self, key: Key, value: &[u8]) -> &mut Self {
        let revision = self.rows.get(&key).map_or(1, |row| row.revision + 1);
        self.change(key, Some(Versioned { revision, value: value.to_vec() }))
    }

    pub(super) fn delete(&mut self, key: Key) -> &mut Self {
        self.change(key, None)
    }

    fn change(&mut self, key: Key, after: Option<Versioned>) -> &mut Self {
        let before = match &after {
            Some(row) => self.rows.insert(key.clone(), row.clone()),
            None => self.rows.remove(&key),
        };
        self.pending.push(Change { key, before, after });
        self
    }

    /// Makes the group durable.
    pub(super) fn commit(&mut self) -> Said {
        let changes = std::mem::take(&mut self.pending);
        self.durable.apply(&changes).unwrap();
        self.group += 1;
        self.tell(Event::Committed { group: self.group, changes: &changes })
    }

    pub(super) fn tell(&mut self, event: Event<'_>) -> Said {
        self.invariant.check(&event, &self.durable)
    }

    pub(super) fn see(&mut self, seen: Seen<'_>) -> Said {
        self.tell(Event::System(seen))
    }

    pub(super) fn answer(&mut self, id: &str, answer: Answer<'_>) -> Said {
        self.see(Seen::Answered { agent: &boss(), run_id: &run_id(id), answer })
    }

    /// The process is killed, and started again.
    pub(super) fn restart(&mut self) -> Said {
        self.tell(Event::LifeEnded)?;
        self.tell(Event::LifeBegan)
    }

    /// Adds a run's record, and the rows that belong to its phase.
    pub(super) fn run(&mut self, id: &str, record: &RunRecord) -> &mut Self {
        let (run, agent) = (key(id), AgentKey::from(&boss()));
        self.put(Key::record(run), record);
        let live = Key::live(agent, run);
        match record.state.phase {
            Phase::Queued => {
                let queued = QueuedRecord {
                    parent: record.parent.clone(),
                    run_id: id.into(),
                    agent_type: record.agent_type.clone(),
                };
                self.put(Key::queue(agent, record.queue_number.unwrap(), run), &queued)
            }
            Phase::Ended(_) if self.rows.contains_key(&live) => self.delete(live),
            Phase::Ended(_) => self,
            _ => {
                let queued =
                    self.rows.keys().find(|row| row.kind() == "queue" && row.run() == Some(run));
                if let Some(queued) = queued.cloned() {
                    self.delete(queued);
                }
                let row = LiveRecord {
                    parent: record.parent.clone(),
                    run_id: id.into(),
                    agent_type: record.agent_type.clone(),
                    waiting: false,
                    incarnation: 1,
                };
                self.put(live, &row)
            }
        }
    }

    /// Adds a record to a run's log, and its head.
    pub(super) fn log(&mut self, id: &str, entries: &[LogEntry]) -> &mut Self {
        let run = key(id);
        let mut head: Head = self.rows.get(&Key::head(run)).map_or_else(
            || Head { epoch: 1, ..Head::default() },
            |row| codec::decode(&Key::head(run), &row.value).unwrap(),
        );
        let record =
            LogRecord { at_ms: 1, first_number: head.next_number, entries: entries.to_vec() };
        head.next_number = record.end_number();
        let key = Key::log_record(run, head.next_number, head.position);
        head.position += 1;
        self.put(Key::head(run), &head).put(key, &record)
    }
}

pub(super) fn boss() -> AgentPath {
    "Boss:b".parse().unwrap()
}

pub(super) fn run_id(id: &str) -> RunId {
    RunId::new(id).unwrap()
}

pub(super) fn key(id: &str) -> RunKey {
    RunKey::new(&boss(), &run_id(id))
}

pub(super) fn path(id: &str) -> AgentPath {
    boss().child("Worker", &run_id(id)).unwrap()
}

/// A record of a run of the boss.
pub(super) fn record(id: &str, phase: Phase) -> RunRecord {
    let ended = matches!(phase, Phase::Ended(_));
    RunRecord {
        run_id: id.into(),
        parent: boss().to_string(),
        agent_type: "Worker".into(),
        input: Payload::Inline(b"null".to_vec()),
        input_digest: [0; 16],
        input_preview: None,
        display: None,
        display_order: 0,
        parent_tool_call_id: None,
        detached: false,
        started_at_ms: 1,
        completed_at_ms: ended.then_some(2),
        state: RunState::new(phase),
        attempt: 1,
        futile: 0,
        attempt_began_at: 0,
        cancel: None,
        wake_at_ms: None,
        queue_number: None,
        end: ended.then(EndRecord::default),
        interrupted_error: None,
        ext: BTreeMap::new(),
    }
}

/// Fails unless the invariant says this.
#[track_caller]
pub(super) fn fires(said: Said, with: &str) {
    let text = said.expect_err("the invariant has not noticed");
    assert!(text.contains(with), "it says {text:?}");
}
