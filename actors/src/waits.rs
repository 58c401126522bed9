//! Which runs wait for which others, so that one that has left memory to wait is woken.
//!
//! In memory only, and so a hint like the hub: a run that waited outside memory when the process was
//! lost is entered again by the next one, and looks itself. Within a process nothing is lost, since
//! a wait is registered before it reads how the awaited run stands, and stays registered from there
//! until the run has been entered again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ghostlight_protocol::planted::{Planted, planted};
use ghostlight_protocol::{AgentPath, RunId, RunKey};

use crate::messages::{AgentMsg, RunRequest};
use crate::node::Node;
use crate::shared::Shared;

#[cfg(test)]
mod tests;

/// How often a run that is to be entered again is told to an agent that has not taken it yet.
const TELL_AGAIN: Duration = Duration::from_secs(10);

/// A run that waits, as its parent knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) run: RunKey,
    pub(crate) parent: AgentPath,
    pub(crate) run_id: RunId,
}

/// The waits of all runs of a system for other runs.
#[derive(Default)]
pub(crate) struct Waits {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    next: u64,
    /// By the run that is waited for, in the order of registration.
    awaited: HashMap<RunKey, BTreeMap<u64, Wanted>>,
    waiting: HashMap<RunKey, Entry>,
}

/// What is waited for.
struct Wanted {
    waiter: RunKey,
    /// A milestone of this name, or the end; without a name the end alone.
    milestone: Option<Box<str>>,
}

struct Entry {
    parent: AgentPath,
    run_id: RunId,
    /// The waits, and the run that each is for.
    waits: BTreeMap<u64, RunKey>,
    /// Those that something has happened for.
    called: BTreeSet<u64>,
    /// The run has left memory, durably.
    outside: bool,
}

impl Waits {
    fn lock(&self) -> MutexGuard<'_, Table> {
        // Nothing panics while the lock is held; the table is whole even if something did.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(&self, waiter: Waiter, awaited: RunKey, milestone: Option<&str>) -> u64 {
        let mut table = self.lock();
        table.next += 1;
        let number = table.next;
        let wanted = Wanted { waiter: waiter.run, milestone: milestone.map(Box::from) };
        table.awaited.entry(awaited).or_default().insert(number, wanted);
        let entry = table.waiting.entry(waiter.run).or_insert_with(|| Entry {
            parent: waiter.parent,
            run_id: waiter.run_id,
            waits: BTreeMap::new(),
            called: BTreeSet::new(),
            outside: false,
        });
        entry.waits.insert(number, awaited);
        number
    }

    fn remove(&self, waiter: RunKey, number: u64) {
        let mut table = self.lock();
        let Some(entry) = table.waiting.get_mut(&waiter) else { return };
        let Some(awaited) = entry.waits.remove(&number) else { return };
        entry.called.remove(&number);
        if entry.waits.is_empty() {
            table.waiting.remove(&waiter);
        }
        table.forget(awaited, number);
    }

    /// Forgets the waits of a run: it is about to be entered again, or has ended.
    pub(crate) fn release(&self, waiter: RunKey) {
        let mut table = self.lock();
        let Some(entry) = table.waiting.remove(&waiter) else { return };
        for (number, awaited) in entry.waits {
            table.forget(awaited, number);
        }
    }

    /// The run's actor is gone: what it has not left outside memory, durably, is over.
    pub(crate) fn exited(&self, waiter: RunKey) {
        if !self.is_outside(waiter) {
            self.release(waiter);
        }
    }

    /// The run has left memory, durably. Returns whether it has to come back at once.
    pub(crate) fn suspended(&self, waiter: RunKey) -> bool {
        let mut table = self.lock();
        let Some(entry) = table.waiting.get_mut(&waiter) else { return false };
        entry.outside = true;
        !entry.called.is_empty()
    }

    pub(crate) fn is_outside(&self, waiter: RunKey) -> bool {
        self.lock().waiting.get(&waiter).is_some_and(|entry| entry.outside)
    }

    /// Whether something has happened that the run waits for.
    pub(crate) fn is_called(&self, waiter: RunKey) -> bool {
        self.lock().waiting.get(&waiter).is_some_and(|entry| !entry.called.is_empty())
    }

    /// Something has happened to a run. Returns the runs outside memory that waited for it, and for
    /// which nothing had happened before.
    fn call(&self, run: RunKey, milestone: Option<&str>) -> Vec<Waiter> {
        if planted(Planted::LoseCall) {
            return Vec::new();
        }
        let mut table = self.lock();
        let Table { awaited, waiting, .. } = &mut *table;
        let mut woken = Vec::new();
        for (number, wanted) in awaited.get(&run).into_iter().flatten() {
            if milestone.is_some() && wanted.milestone.as_deref() != milestone {
                continue;
            }
            let Some(entry) = waiting.get_mut(&wanted.waiter) else { continue };
            if entry.called.is_empty() && entry.outside {
                let (parent, run_id) = (entry.parent.clone(), entry.run_id.clone());
                woken.push(Waiter { run: wanted.waiter, parent, run_id });
            }
            entry.called.insert(*number);
        }
        woken
    }
}

impl Table {
    fn forget(&mut self, awaited: RunKey, number: u64) {
        if let Some(wanted) = self.awaited.get_mut(&awaited) {
            wanted.remove(&number);
            if wanted.is_empty() {
                self.awaited.remove(&awaited);
            }
        }
    }
}

impl Node {
    /// Wakes whoever waits outside memory for the end of a run, or for anything that it can no
    /// longer come to. Only once that is durable.
    pub(crate) fn call_waiting(self: &Arc<Self>, run: RunKey) {
        self.waits.call(run, None).into_iter().for_each(|waiter| self.wake(waiter));
    }

    /// As [`Node::call_waiting`], for whoever waits for a milestone of this name.
    pub(crate) fn call_waiting_for(self: &Arc<Self>, run: RunKey, milestone: &str) {
        self.waits.call(run, Some(milestone)).into_iter().for_each(|waiter| self.wake(waiter));
    }

    /// Tells the parent of a run outside memory to enter it again, until it has.
    pub(crate) fn wake(self: &Arc<Self>, waiter: Waiter) {
        let node = Arc::clone(self);
        self.spawn(async move {
            // A system that drains leaves it to the next one.
            while node.waits.is_called(waiter.run) && !node.is_draining() {
                node.send(&waiter.parent, AgentMsg::Run(waiter.run_id.clone(), RunRequest::Wake));
                tokio::time::sleep(TELL_AGAIN).await;
            }
        });
    }
}

/// Keeps a run in memory while its code waits for what nothing would wake it for.
pub(crate) struct Stays(Arc<Shared>);

impl Stays {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        shared.lock().waits += 1;
        Self(Arc::clone(shared))
    }
}

impl Drop for Stays {
    fn drop(&mut self) {
        self.0.lock().waits -= 1;
    }
}

/// A recorded wait of a run for another one, from before it reads how that one stands.
pub(crate) struct Waiting {
    shared: Arc<Shared>,
    number: u64,
    settled: bool,
}

impl Waiting {
    pub(crate) fn register(shared: &Arc<Shared>, awaited: RunKey, milestone: Option<&str>) -> Self {
        let waiter = shared.waiter();
        let number = shared.node.waits.register(waiter, awaited, milestone);
        Self { shared: Arc::clone(shared), number, settled: false }
    }

    /// There is nothing yet of what is waited for: the run may leave memory.
    pub(crate) fn settle(&mut self) {
        if !std::mem::replace(&mut self.settled, true) {
            self.shared.settled();
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // One that is dropped since the run leaves memory goes on outside.
        if !self.shared.unsettled(self.settled) {
            self.shared.node.waits.remove(self.shared.run, self.number);
        }
    }
}
