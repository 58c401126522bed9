//! The disk of a world: what reaches it, what is durable, and how it ends a life.

use std::sync::Arc;
use std::time::Duration;

use ghostlight::AgentPath;
use ghostlight::storage::{Batch, Error};

use super::World;
use crate::disk::Written;
use crate::durable::Change;
use crate::invariant::Event;

impl World {
    pub(crate) fn kill(&self, when: &str) {
        let mut inner = self.lock();
        inner.killed = true;
        inner.kills += 1;
        inner.line("fault", "", format!("the process is killed {when}"));
        drop(inner);
        self.shared.ended.notify_one();
    }

    /// Whether this life may go on to use the disk.
    pub(crate) fn is_alive(&self, life: u64) -> bool {
        let inner = self.lock();
        inner.life == life && !inner.killed
    }

    /// How often the process was killed.
    pub(crate) fn kills(&self) -> u64 {
        self.lock().kills
    }

    pub(crate) fn store_failed(&self) -> bool {
        self.lock().store_failed
    }

    pub(crate) fn fail_store(&self) {
        let mut inner = self.lock();
        inner.store_failed = true;
        inner.line("fault", "", "the disk fails".into());
    }

    /// Somebody uses the disk.
    pub(crate) fn used(&self) {
        if self.store_failed() {
            // What it has done to a group is unknown, so that nothing may build on it.
            self.violated("a disk that has failed is left alone", "it is used again".into());
        }
    }

    /// The life is lost in this group, of which the next one finds so many batches.
    pub(crate) fn leave(&self, group: u64, kept: u32) {
        self.lock().left = Some((group, kept));
    }

    pub(crate) fn note_group(&self, batches: usize) {
        self.lock().groups.push(u32::try_from(batches).unwrap_or(u32::MAX));
    }

    /// How many batches each group of commits had, in order.
    pub(crate) fn groups(&self) -> Vec<u32> {
        self.lock().groups.clone()
    }

    pub(crate) fn disk_busy(&self) -> Duration {
        self.lock().disk_busy
    }

    /// Lets the disk keep its user waiting.
    pub(crate) async fn busy(&self, time: Duration) {
        if !time.is_zero() {
            tokio::time::sleep(time).await;
            let mut inner = self.lock();
            inner.disk_busy = inner.disk_busy.saturating_add(time);
        }
    }

    /// Brings batches to the disk, where they can be read, and may be lost.
    pub(crate) fn write(&self, group: &[Batch]) -> Vec<Result<(), Error>> {
        self.lock().disk.write(group)
    }

    /// Makes everything that was written durable, as group `group`.
    pub(crate) fn sync(&self, group: u64) {
        let mut inner = self.lock();
        let changes = inner.disk.sync();
        if changes.is_empty() {
            return;
        }
        let known: Vec<bool> = changes.iter().map(|change| inner.knows(change)).collect();
        // What nothing refers to is swept by any start.
        let is_swept = |c: &Change| c.after.is_none() && matches!(c.key.kind(), "part" | "intent");
        let new = changes.iter().find(|change| change.key.run().is_some() && !is_swept(change));
        if let (true, Some(change)) = (inner.settled, new) {
            let run = change.key.run().and_then(|run| inner.durable.run(run));
            let name = run.and_then(|run| run.path.as_ref()).map_or("a new run", AgentPath::as_str);
            let text = format!("the {} of {name} is written", change.key.kind());
            inner.violate("the last life finds everything done", text);
        }
        if let Err(error) = Arc::make_mut(&mut inner.durable).apply(&changes) {
            inner.violate("every record can be read", error.to_string());
        }
        let begun: Vec<AgentPath> = changes
            .iter()
            .zip(known)
            .filter(|(change, known)| change.key.kind() == "record" && !known)
            .filter_map(|(change, _)| inner.durable.run(change.key.run()?)?.path.clone())
            .collect();
        for (who, text) in crate::trace::describe(&changes, &inner.durable) {
            inner.line("commit", &who, format!("{group}: {text}"));
        }
        if let Some(last) = begun.last() {
            inner.last_begun = Some(last.clone());
        }
        drop(inner);
        self.shared.observers.add(begun);
        self.tell(&Event::Committed { group, changes: &changes });
    }

    pub(crate) fn read<T>(&self, read: impl FnOnce(&Written) -> T) -> T {
        read(self.lock().disk.written())
    }
}
