//! The disk as one life of the process uses it: with latency, and with the faults of the plan.

use std::time::Duration;

use ghostlight::protocol::planted::{Planted, planted};
use ghostlight::storage::{Backend, Batch, Entry, Error, Limit, Versioned};

use super::page;
use crate::plan::{Counter, Fault};
use crate::world::World;

/// The largest group of commits: that of the engine below a real system, so that a simulated one makes
/// the same groups.
const UNSYNCED_MAX: Limit = Limit { entries: 64, bytes: 200 << 10 };

/// What every error says that comes of a failure of the disk.
pub(crate) const DISK_FAILED: &str = "the simulated disk has failed";

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

    /// Kills the process in the middle of a group, of which the first `kept` batches survive.
    async fn kill(&self, fault: Fault, group: u64, kept: u32, when: &str) {
        if planted(Planted::SurviveKill) {
            return;
        }
        self.world.strike(fault);
        self.world.leave(group, kept);
        self.world.kill(&format!("{when} commit {group}"));
        std::future::pending::<()>().await;
    }

    fn fail(&self) -> Error {
        self.world.fail_store();
        Error::Poisoned { why: DISK_FAILED.into() }
    }

    async fn stall(&self, ms: u64) {
        self.world.trace("fault", format!("the disk stalls for {ms} ms"));
        self.world.busy(Duration::from_millis(ms)).await;
    }

    /// Takes the time of a read, and fails it if that is planned.
    async fn read(&self) -> Result<(), Error> {
        self.alive().await;
        self.world.used();
        let (_, faults, latency) = self.world.count(Counter::Read);
        for fault in faults {
            self.world.strike(fault);
            match fault {
                Fault::StallRead(ms) => self.stall(ms).await,
                _ if planted(Planted::SurviveFailure) => {}
                _ => return Err(self.fail()),
            }
        }
        self.world.busy(latency).await;
        self.alive().await;
        Ok(())
    }
}

impl Backend for DiskOfLife {
    async fn commit(&mut self, group: Vec<Batch>) -> Result<Vec<Result<(), Error>>, Error> {
        self.alive().await;
        self.world.used();
        let (number, faults, latency) = self.world.count(Counter::Commit);
        self.world.note_group(group.len());
        for fault in &faults {
            match *fault {
                Fault::Stall(ms) => {
                    self.world.strike(*fault);
                    self.stall(ms).await;
                }
                Fault::KillBefore => self.kill(*fault, number, 0, "before").await,
                _ => {}
            }
        }
        let answers = self.world.write(&group);
        self.world.busy(latency).await;
        self.alive().await;
        for fault in &faults {
            match *fault {
                Fault::KillTorn(kept) => self.kill(*fault, number, kept, "in the middle of").await,
                Fault::Fail(kept) => {
                    self.world.strike(*fault);
                    if planted(Planted::SurviveFailure) {
                        continue;
                    }
                    self.world.leave(number, kept);
                    return Err(self.fail());
                }
                _ => {}
            }
        }
        self.world.sync(number);
        for fault in &faults {
            match *fault {
                Fault::KillAfter => self.kill(*fault, number, 0, "after").await,
                Fault::Jump(ms) => {
                    self.world.strike(*fault);
                    self.world.jump(ms);
                }
                Fault::Stop => {
                    self.world.strike(*fault);
                    self.world.stop();
                }
                Fault::Duplicate => crate::disturb::duplicate(&self.world),
                Fault::Cancel => crate::disturb::cancel(&self.world),
                _ => {}
            }
        }
        Ok(answers)
    }

    async fn get(&mut self, key: Vec<u8>) -> Result<Option<Versioned>, Error> {
        self.read().await?;
        Ok(self.world.read(|written| written.get(&key).cloned()))
    }

    async fn scan(
        &mut self,
        prefix: Vec<u8>,
        after: Option<Vec<u8>>,
        limit: Limit,
    ) -> Result<Vec<Entry>, Error> {
        self.read().await?;
        Ok(self.world.read(|written| page(written, &prefix, after.as_deref(), limit)))
    }

    fn unsynced_max(&self) -> Limit {
        UNSYNCED_MAX
    }
}
