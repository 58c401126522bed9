//! The simulated disk, which knows written from synced, and its use by one life of the process.

use std::collections::BTreeMap;
use std::ops::Bound;

use ghostlight::protocol::planted::{Planted, planted};
use ghostlight::storage::{Backend, Batch, Entry, Error, Judge, Key, Limit, Versioned};

use crate::durable::Change;
use crate::invariant::Event;
use crate::plan::{Counter, Fault};
use crate::world::World;

pub(crate) type Written = BTreeMap<Vec<u8>, Versioned>;

/// What was written, and how to get back to what was synced.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    written: Written,
    /// What the keys that were written since the last sync held at that time.
    unsynced: BTreeMap<Vec<u8>, Option<Versioned>>,
}

impl Disk {
    pub(crate) fn written(&self) -> &Written {
        &self.written
    }

    /// Applies batches; from then on they can be read.
    pub(crate) fn write(&mut self, group: &[Batch]) -> Vec<Result<(), Error>> {
        let mut judge = Judge::default();
        let read = |key: &[u8]| Ok(self.written.get(key).cloned());
        let answers =
            group.iter().map(|batch| judge.accept(batch, read).unwrap_or_else(Err)).collect();
        for (key, change) in judge.into_changes() {
            let before = match change {
                Some(versioned) => self.written.insert(key.clone(), versioned),
                None => self.written.remove(&key),
            };
            self.unsynced.entry(key).or_insert(before);
        }
        answers
    }

    /// Makes durable what was written, and returns what that changes.
    pub(crate) fn sync(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.unsynced)
            .into_iter()
            .map(|(key, before)| {
                let after = self.written.get(&key).cloned();
                Change { key: Key::from_bytes(key), before, after }
            })
            .collect()
    }

    /// What a power cut does.
    pub(crate) fn forget_unsynced(&mut self) {
        for (key, before) in std::mem::take(&mut self.unsynced) {
            match before {
                Some(versioned) => self.written.insert(key, versioned),
                None => self.written.remove(&key),
            };
        }
    }
}

/// The disk as one life of the process uses it.
pub(crate) struct DiskOfLife {
    world: World,
    life: u64,
}

impl DiskOfLife {
    pub(crate) fn new(world: &World) -> Self {
        Self { world: world.clone(), life: world.life() }
    }

    /// Lets nobody go on in a life that is over.
    async fn alive(&self) {
        if !self.world.is_alive(self.life) {
            std::future::pending::<()>().await;
        }
    }

    async fn kill(&self, when: String) {
        if planted(Planted::SurviveKill) {
            return;
        }
        self.world.kill(&when);
        std::future::pending::<()>().await;
    }
}

impl Backend for DiskOfLife {
    async fn commit(&mut self, group: Vec<Batch>) -> Result<Vec<Result<(), Error>>, Error> {
        self.alive().await;
        let (number, faults, latency) = self.world.count(Counter::Commit);
        for fault in &faults {
            self.world.tell(&Event::Fault(*fault));
            match *fault {
                Fault::Stall(ms) => {
                    self.world.trace("fault", format!("the disk stalls for {ms} ms"));
                    self.world.busy(std::time::Duration::from_millis(ms)).await;
                }
                Fault::KillBefore => self.kill(format!("before commit {number}")).await,
                Fault::KillTorn(batches) => {
                    let batches = group.len().min(batches as usize);
                    self.world.write(&group[..batches]);
                    self.world.sync(number);
                    self.kill(format!("in the middle of commit {number}")).await;
                }
                Fault::Fail => {
                    self.world.fail_store();
                    return Err(Error::Poisoned { why: "the simulated disk has failed".into() });
                }
                _ => {}
            }
        }
        let answers = self.world.write(&group);
        self.world.busy(latency).await;
        self.alive().await;
        if !planted(Planted::SkipSync) {
            self.world.sync(number);
        }
        for fault in &faults {
            match *fault {
                Fault::KillAfter => self.kill(format!("after commit {number}")).await,
                Fault::Jump(ms) => self.world.jump(ms),
                Fault::Duplicate => crate::disturb::duplicate(&self.world),
                Fault::Cancel => crate::disturb::cancel(&self.world),
                _ => {}
            }
        }
        Ok(answers)
    }

    async fn get(&mut self, key: Vec<u8>) -> Result<Option<Versioned>, Error> {
        self.alive().await;
        Ok(self.world.read(|written| written.get(&key).cloned()))
    }

    async fn scan(
        &mut self,
        prefix: Vec<u8>,
        after: Option<Vec<u8>>,
        limit: Limit,
    ) -> Result<Vec<Entry>, Error> {
        self.alive().await;
        Ok(self.world.read(|written| page(written, &prefix, after.as_deref(), limit)))
    }
}

fn page(written: &Written, prefix: &[u8], after: Option<&[u8]>, limit: Limit) -> Vec<Entry> {
    let start = match after {
        Some(after) if after >= prefix => Bound::Excluded(after),
        _ => Bound::Included(prefix),
    };
    let mut page = Vec::new();
    let mut bytes = 0;
    for (key, versioned) in written.range::<[u8], _>((start, Bound::Unbounded)) {
        let size = key.len() + versioned.value.len();
        let full = page.len() >= limit.entries || (!page.is_empty() && bytes + size > limit.bytes);
        if !key.starts_with(prefix) || full {
            break;
        }
        bytes += size;
        page.push(Entry { key: key.clone(), versioned: versioned.clone() });
    }
    page
}
