//! Who reads the frames of every run, beside the scenario.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ghostlight::{After, AgentPath, System};
use tokio::sync::Notify;

use crate::invariant::Event;
use crate::life::LIFE_MAX;
use crate::world::World;

/// The observers of a world.
#[derive(Debug, Default)]
pub(crate) struct Observers {
    inner: Mutex<Inner>,
    /// A run was recorded that nobody observes yet.
    begun: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    unobserved: VecDeque<AgentPath>,
    /// How many there were, in all lives.
    count: u64,
}

impl Observers {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A life begins, and so do the observers of all that is recorded.
    pub(crate) fn begin_life(&self, recorded: VecDeque<AgentPath>) {
        self.lock().unobserved = recorded;
    }

    /// Lets runs be observed that were recorded just now.
    pub(crate) fn add(&self, begun: Vec<AgentPath>) {
        self.lock().unobserved.extend(begun);
        self.begun.notify_one();
    }

    /// Waits for a run that nobody observes yet.
    async fn begun(&self) -> AgentPath {
        loop {
            if let Some(path) = self.lock().unobserved.pop_front() {
                return path;
            }
            self.begun.notified().await;
        }
    }

    fn next(&self) -> u64 {
        let mut inner = self.lock();
        inner.count += 1;
        inner.count
    }
}

/// Observes every run: one observer from its first frame on, one from the middle, one that is slow,
/// and one that reads a single frame and never goes on.
pub(crate) async fn observe(world: World, system: System) {
    loop {
        let path = world.observers().begun().await;
        let Some((parent, run_id)) = path.parent() else { continue };
        let seen =
            world.durable(|durable| durable.run_at(&path).map_or(0, |run| run.frames.len() as u64));
        for (after, pause) in [
            (After::START, Duration::ZERO),
            (After::number(seen / 2), Duration::ZERO),
            (After::START, Duration::from_millis(700)),
            (After::START, LIFE_MAX),
        ] {
            let Ok(agent) = system.agent_at(&parent) else { continue };
            let (world, path, run_id) = (world.clone(), path.clone(), run_id.to_string());
            let observer = world.observers().next();
            tokio::spawn(async move {
                // Cleared meanwhile, or the store has failed.
                let Ok(mut tail) = agent.tail(&run_id, after).await else { return };
                while let Some(Ok(frame)) = tail.next().await {
                    world.tell(&Event::Frame { observer, run: &path, frame: &frame });
                    tokio::time::sleep(pause).await;
                }
            });
        }
    }
}
