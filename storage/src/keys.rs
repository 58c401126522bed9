//! Every key of a store. No other file knows how keys are laid out.
//!
//! | prefix | key | value |
//! |---|---|---|
//! | `00` | `"format"` | of the engine: the format of the store |
//! | `01` | name | system-wide counters |
//! | `02` | run | the run's record |
//! | `03` | run | the head of the run's log |
//! | `04` | run, last number, position | a record of the run's log |
//! | `05` | agent, run | a live run of that agent |
//! | `06` | agent, queue number, run | a run that waits for a slot of that agent |
//! | `07` | agent, start time, run | the agent's registry, oldest first |
//! | `08` | due time, run | a durable timer |
//! | `09` | run, payload, part | a part of a large payload |
//! | `0a` | run, payload | a large payload that nothing refers to yet |
//! | `0b` | run | the tombstone of a cleared run |
//! | `0c` | run | a cleared run whose keys still have to go |
//! | `0d` | agent, run, slot | a delivery owed |
//!
//! A run is 16 bytes, an agent is 16 bytes, numbers are big-endian, so that their order is that of
//! the keys. A retired prefix stays reserved.

use std::fmt;

use ghostlight_protocol::{AgentKey, RunKey};

const META: u8 = 0x01;
const RECORD: u8 = 0x02;
const HEAD: u8 = 0x03;
const LOG: u8 = 0x04;
const LIVE: u8 = 0x05;
const QUEUE: u8 = 0x06;
const REGISTRY: u8 = 0x07;
const TIMER: u8 = 0x08;
const PART: u8 = 0x09;
const INTENT: u8 = 0x0a;
const TOMBSTONE: u8 = 0x0b;
const PURGE: u8 = 0x0c;
const OWED: u8 = 0x0d;

/// A key, or the prefix of a range of keys.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Vec<u8>);

impl Key {
    fn new(prefix: u8, parts: &[&[u8]]) -> Self {
        let mut key = Vec::with_capacity(1 + parts.iter().map(|p| p.len()).sum::<usize>());
        key.push(prefix);
        for part in parts {
            key.extend_from_slice(part);
        }
        Self(key)
    }

    /// Wraps a key that a scan returned.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The key's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The key's bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// The incarnation counter.
    pub fn incarnation() -> Self {
        Self::new(META, &[b"incarnation"])
    }

    /// The record of a run.
    pub fn record(run: RunKey) -> Self {
        Self::new(RECORD, &[&run.0])
    }

    /// The head of a run's log.
    pub fn head(run: RunKey) -> Self {
        Self::new(HEAD, &[&run.0])
    }

    /// The whole log of a run.
    pub fn log(run: RunKey) -> Self {
        Self::new(LOG, &[&run.0])
    }

    /// One record of a run's log. `end` is the number that follows its last frame, so that all
    /// frames from `n` on are found after [`Key::log_before`]`(run, n)`.
    pub fn log_record(run: RunKey, end: u64, position: u64) -> Self {
        Self::new(LOG, &[&run.0, &end.to_be_bytes(), &position.to_be_bytes()])
    }

    /// The greatest key of the records that hold no frame numbered `number` or higher.
    pub fn log_before(run: RunKey, number: u64) -> Self {
        Self::log_record(run, number, u64::MAX)
    }

    /// The position of a record of a run's log.
    pub fn log_position(&self) -> Option<u64> {
        (self.0.first() == Some(&LOG)).then_some(())?;
        Some(u64::from_be_bytes(self.0.get(25..33)?.try_into().ok()?))
    }

    /// The live runs of an agent.
    pub fn live_of(agent: AgentKey) -> Self {
        Self::new(LIVE, &[&agent.0])
    }

    /// All live runs of the store.
    pub fn live_all() -> Self {
        Self::new(LIVE, &[])
    }

    /// One live run.
    pub fn live(agent: AgentKey, run: RunKey) -> Self {
        Self::new(LIVE, &[&agent.0, &run.0])
    }

    /// The queue of an agent, head first.
    pub fn queue_of(agent: AgentKey) -> Self {
        Self::new(QUEUE, &[&agent.0])
    }

    /// All queued runs of the store.
    pub fn queue_all() -> Self {
        Self::new(QUEUE, &[])
    }

    /// One queued run.
    pub fn queue(agent: AgentKey, number: u64, run: RunKey) -> Self {
        Self::new(QUEUE, &[&agent.0, &number.to_be_bytes(), &run.0])
    }

    /// The number of a queue's key.
    pub fn queue_number(&self) -> Option<u64> {
        (self.0.first() == Some(&QUEUE)).then_some(())?;
        Some(u64::from_be_bytes(self.0.get(17..25)?.try_into().ok()?))
    }

    /// The registry of an agent, oldest first.
    pub fn registry_of(agent: AgentKey) -> Self {
        Self::new(REGISTRY, &[&agent.0])
    }

    /// The registries of all agents.
    pub fn registry_all() -> Self {
        Self::new(REGISTRY, &[])
    }

    /// One run in the registry of an agent.
    pub fn registry(agent: AgentKey, started_ms: u64, run: RunKey) -> Self {
        Self::new(REGISTRY, &[&agent.0, &started_ms.to_be_bytes(), &run.0])
    }

    /// All timers, the earliest first.
    pub fn timers() -> Self {
        Self::new(TIMER, &[])
    }

    /// The timer of a run.
    pub fn timer(due_ms: u64, run: RunKey) -> Self {
        Self::new(TIMER, &[&due_ms.to_be_bytes(), &run.0])
    }

    /// The due time of a timer's key.
    pub fn timer_due(&self) -> Option<u64> {
        (self.0.first() == Some(&TIMER)).then_some(())?;
        Some(u64::from_be_bytes(self.0.get(1..9)?.try_into().ok()?))
    }

    /// The run that the key ends with; for those of live, queue, registry and timers.
    pub fn trailing_run(&self) -> Option<RunKey> {
        let start = self.0.len().checked_sub(16).filter(|start| *start > 0)?;
        Some(RunKey(self.0[start..].try_into().ok()?))
    }

    /// All parts of a run's payloads.
    pub fn parts_of(run: RunKey) -> Self {
        Self::new(PART, &[&run.0])
    }

    /// All parts of one payload.
    pub fn parts(run: RunKey, payload: u64) -> Self {
        Self::new(PART, &[&run.0, &payload.to_be_bytes()])
    }

    /// One part of one payload.
    pub fn part(run: RunKey, payload: u64, part: u32) -> Self {
        Self::new(PART, &[&run.0, &payload.to_be_bytes(), &part.to_be_bytes()])
    }

    /// All payloads that nothing refers to yet.
    pub fn intents() -> Self {
        Self::new(INTENT, &[])
    }

    /// A payload that nothing refers to yet.
    pub fn intent(run: RunKey, payload: u64) -> Self {
        Self::new(INTENT, &[&run.0, &payload.to_be_bytes()])
    }

    /// The run and the payload of an intent's key.
    pub fn intent_payload(&self) -> Option<(RunKey, u64)> {
        (self.0.first() == Some(&INTENT)).then_some(())?;
        let run = RunKey(self.0.get(1..17)?.try_into().ok()?);
        Some((run, u64::from_be_bytes(self.0.get(17..)?.try_into().ok()?)))
    }

    /// The tombstone of a cleared run.
    pub fn tombstone(run: RunKey) -> Self {
        Self::new(TOMBSTONE, &[&run.0])
    }

    /// All cleared runs whose keys still have to go.
    pub fn purges() -> Self {
        Self::new(PURGE, &[])
    }

    /// A cleared run whose keys still have to go.
    pub fn purge(run: RunKey) -> Self {
        Self::new(PURGE, &[&run.0])
    }

    /// The deliveries that an agent owes.
    pub fn owed_of(agent: AgentKey) -> Self {
        Self::new(OWED, &[&agent.0])
    }

    /// All deliveries owed.
    pub fn owed_all() -> Self {
        Self::new(OWED, &[])
    }

    /// A delivery owed for a run.
    pub fn owed(agent: AgentKey, run: RunKey, slot: u8) -> Self {
        Self::new(OWED, &[&agent.0, &run.0, &[slot]])
    }
}

impl Key {
    /// What the key is of, in a word: `record`, `log`, `live` and so on.
    pub fn kind(&self) -> &'static str {
        match self.0.first() {
            Some(0x00) => "format",
            Some(&META) => "meta",
            Some(&RECORD) => "record",
            Some(&HEAD) => "head",
            Some(&LOG) => "log",
            Some(&LIVE) => "live",
            Some(&QUEUE) => "queue",
            Some(&REGISTRY) => "registry",
            Some(&TIMER) => "timer",
            Some(&PART) => "part",
            Some(&INTENT) => "intent",
            Some(&TOMBSTONE) => "tombstone",
            Some(&PURGE) => "purge",
            Some(&OWED) => "owed",
            _ => "unknown",
        }
    }

    /// The run that the key is of, if it is of one.
    pub fn run(&self) -> Option<RunKey> {
        let start = match *self.0.first()? {
            RECORD | HEAD | LOG | PART | INTENT | TOMBSTONE | PURGE => 1,
            OWED => 17,
            LIVE | QUEUE | REGISTRY | TIMER => return self.trailing_run(),
            _ => return None,
        };
        Some(RunKey(self.0.get(start..start + 16)?.try_into().ok()?))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        f.write_str("/")?;
        self.0.iter().skip(1).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_from_a_number_on_come_after_one_key() {
        let run = RunKey([7; 16]);
        // A record with frames 3 and 4, then one without frames, then one with frame 5.
        let records = [(5, 1), (5, 2), (6, 3)].map(|(end, at)| Key::log_record(run, end, at));
        let from = |number| records.iter().filter(|k| **k > Key::log_before(run, number)).count();
        assert_eq!([from(3), from(4), from(5), from(6)], [3, 3, 1, 0]);
    }

    #[test]
    fn keys_give_back_what_they_hold() {
        let (agent, run) = (AgentKey([1; 16]), RunKey([2; 16]));
        assert_eq!(Key::timer(77, run).timer_due(), Some(77));
        assert_eq!(Key::live(agent, run).trailing_run(), Some(run));
        assert_eq!(Key::timer(77, run).trailing_run(), Some(run));
        assert_eq!(Key::intent(run, 9).intent_payload(), Some((run, 9)));
        assert_eq!(Key::record(run).intent_payload(), None);
        assert_eq!(Key::from_bytes(vec![8, 1]).timer_due(), None);
        assert_eq!(Key::from_bytes(vec![]).trailing_run(), None);
        assert_eq!(Key::record(run).to_string(), format!("record/{}", "02".repeat(16)));
    }
}
