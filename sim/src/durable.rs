//! What the disk would still have after a power cut, decoded.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ghostlight::AgentPath;
use ghostlight::protocol::RunKey;
use ghostlight::storage::payload::Payload;
use ghostlight::storage::records::{Head, LiveRecord, LogEntry, LogRecord, RunRecord};
use ghostlight::storage::{Error, Key, Versioned, codec};

/// One key that a group of commits has changed.
#[derive(Debug, Clone)]
pub struct Change {
    /// The key.
    pub key: Key,
    /// What it held before.
    pub before: Option<Versioned>,
    /// What it holds now.
    pub after: Option<Versioned>,
}

/// The durable state of a simulated world, as far as it concerns runs.
#[derive(Debug, Clone, Default)]
pub struct Durable {
    runs: BTreeMap<RunKey, DurableRun>,
    caps: BTreeMap<String, usize>,
    hooked: BTreeSet<String>,
    cancel_grace: Duration,
}

/// What is durable of one run.
#[derive(Debug, Clone, Default)]
pub struct DurableRun {
    /// Its address as an agent; known as long as it has a record.
    pub path: Option<AgentPath>,
    /// Its record.
    pub record: Option<RunRecord>,
    /// The head of its log.
    pub head: Option<Head>,
    /// The frames of its log, by number.
    pub frames: BTreeMap<u64, LogEntry>,
    /// Its row in the index of live runs.
    pub live: Option<LiveRecord>,
    /// Its places in queues.
    pub queued: BTreeSet<u64>,
    /// When it is due to be woken.
    pub timers: BTreeSet<u64>,
    /// How many deliveries are owed for it.
    pub owed: usize,
    /// Whether it was cleared.
    pub cleared: bool,
    /// How many keys the store has of it, its tombstone aside.
    pub keys: usize,
    /// Whether keys of it still have to be removed.
    pub purging: bool,
    /// The parts of its large payloads, by key.
    pub(crate) parts: BTreeMap<Key, Vec<u8>>,
}

impl DurableRun {
    /// Whether nothing of the run is left to do.
    pub fn is_settled(&self) -> bool {
        self.live.is_none() && self.queued.is_empty() && self.owed == 0 && !self.purging
    }
}

impl Durable {
    /// All runs that were ever recorded, the cleared ones included.
    pub fn runs(&self) -> impl Iterator<Item = (RunKey, &DurableRun)> {
        self.runs.iter().map(|(key, run)| (*key, run))
    }

    /// The most runs that an agent of a type executes at once, for the types that have a cap.
    pub fn caps(&self) -> &BTreeMap<String, usize> {
        &self.caps
    }

    pub(crate) fn set_caps(&mut self, caps: BTreeMap<String, usize>) {
        self.caps = caps;
    }

    /// The types of agents that have a finish hook, which the end of every run of theirs is owed to.
    pub fn hooked(&self) -> &BTreeSet<String> {
        &self.hooked
    }

    pub(crate) fn set_hooked(&mut self, hooked: BTreeSet<String>) {
        self.hooked = hooked;
    }

    /// How long the code of a run may go on after its cancel, in this life.
    pub(crate) fn cancel_grace(&self) -> Duration {
        self.cancel_grace
    }

    pub(crate) fn set_cancel_grace(&mut self, grace: Duration) {
        self.cancel_grace = grace;
    }

    /// One run.
    pub fn run(&self, run: RunKey) -> Option<&DurableRun> {
        self.runs.get(&run)
    }

    /// One run, by its address as an agent.
    pub fn run_at(&self, path: &AgentPath) -> Option<&DurableRun> {
        let (parent, run_id) = path.parent()?;
        self.runs.get(&RunKey::new(&parent, &run_id))
    }

    /// The bytes of a payload of a run; `None` if not all of them are there.
    pub(crate) fn contents(&self, run: RunKey, payload: &Payload) -> Option<Vec<u8>> {
        let (number, bytes) = match payload {
            Payload::Inline(bytes) => return Some(bytes.clone()),
            Payload::Parts { number, bytes } => (*number, *bytes),
        };
        let first = Key::parts(run, number);
        let parts = self.run(run)?.parts.range(first.clone()..);
        let parts = parts.take_while(|(key, _)| key.as_bytes().starts_with(first.as_bytes()));
        let contents: Vec<u8> = parts.flat_map(|(_, part)| part).copied().collect();
        (contents.len() as u64 == bytes).then_some(contents)
    }

    /// Whether nothing is left to do.
    pub fn is_settled(&self) -> bool {
        self.runs.values().all(DurableRun::is_settled)
    }

    pub(crate) fn apply(&mut self, changes: &[Change]) -> Result<(), Error> {
        for change in changes {
            let Some(key) = change.key.run() else { continue };
            let run = self.runs.entry(key).or_default();
            let (key, after) = (&change.key, change.after.as_ref());
            if key.kind() != "tombstone" {
                run.keys += usize::from(after.is_some());
                run.keys -= usize::from(change.before.is_some());
            }
            match key.kind() {
                "record" => {
                    run.record = decoded(key, after)?;
                    if let Some(record) = &run.record {
                        run.path = address(record);
                    }
                }
                "head" => run.head = decoded(key, after)?,
                "log" => {
                    let gone: Option<LogRecord> = decoded(key, change.before.as_ref())?;
                    for (number, _) in gone.iter().flat_map(LogRecord::frames) {
                        run.frames.remove(&number);
                    }
                    let record: Option<LogRecord> = decoded(key, after)?;
                    for (number, entry) in record.iter().flat_map(LogRecord::frames) {
                        run.frames.insert(number, entry.clone());
                    }
                }
                "part" => {
                    match after {
                        Some(part) => run.parts.insert(key.clone(), part.value.clone()),
                        None => run.parts.remove(key),
                    };
                }
                "live" => run.live = decoded(key, after)?,
                "queue" => set(&mut run.queued, key.queue_number(), after.is_some()),
                "timer" => set(&mut run.timers, key.timer_due(), after.is_some()),
                "owed" => {
                    run.owed += usize::from(after.is_some());
                    run.owed -= usize::from(change.before.is_some());
                }
                "tombstone" => run.cleared = after.is_some(),
                "purge" => run.purging = after.is_some(),
                _ => {}
            }
        }
        Ok(())
    }
}

fn set(numbers: &mut BTreeSet<u64>, number: Option<u64>, there: bool) {
    let number = number.unwrap_or_default();
    match there {
        true => numbers.insert(number),
        false => numbers.remove(&number),
    };
}

fn decoded<R: codec::Record>(key: &Key, value: Option<&Versioned>) -> Result<Option<R>, Error> {
    value.map(|value| codec::decode(key, &value.value)).transpose()
}

fn address(record: &RunRecord) -> Option<AgentPath> {
    let parent: AgentPath = record.parent.parse().ok()?;
    parent.child(&record.agent_type, &record.run_id.parse().ok()?).ok()
}
