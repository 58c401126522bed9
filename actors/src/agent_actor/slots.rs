//! Slots under the cap: who gets one at once, who waits, who is refused.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use ghostlight_protocol::planted::{Planted, planted};
use ghostlight_protocol::{RunId, RunKey};
use ractor::ActorRef;
use tokio::time::Instant;

use super::{AgentState, Lane};
use crate::agent::AtCap;
use crate::lanes::{self, Operation};
use crate::messages::{AgentMsg, Reply, RunRequest, StartRun, Started};

/// After an admission that has failed.
const RETRY: Duration = Duration::from_secs(1);

impl AgentState {
    /// Finds a dispatch its slot under the cap; `None` if that has to wait a moment.
    pub(super) fn slot_for(
        &mut self,
        run_id: &RunId,
        start: Box<StartRun>,
        reply: Reply<Started>,
    ) -> Option<Operation> {
        let run = RunKey::new(&self.args.path, run_id);
        let held = self.slots.contains(&run);
        let queues = self.args.kind.settings.at_cap == AtCap::Queue;
        match self.args.kind.settings.max_concurrent_runs {
            Some(_) if planted(Planted::IgnoreCap) => {
                self.starting.insert(run_id.clone(), None);
                self.slots.insert(run);
                Some(Operation::Start { start, reply, held })
            }
            // A run that waits was first.
            Some(cap)
                if !held
                    && (self.slots.len() >= cap
                        || (queues && (self.queued > 0 || self.rests()))) =>
            {
                if !queues && !self.provisional.is_empty() {
                    self.lanes.insert(run_id.clone(), Lane::Busy(VecDeque::new()));
                    self.deferred.push_back((run_id.clone(), start, reply));
                    return None;
                }
                let number = queues.then_some(self.next_queue_number);
                self.next_queue_number += u64::from(queues);
                self.queued += usize::from(queues);
                self.starting.insert(run_id.clone(), number);
                Some(Operation::StartAtCap { start, reply, cap, number })
            }
            _ => {
                self.starting.insert(run_id.clone(), None);
                if self.slots.insert(run) {
                    self.provisional.insert(run_id.clone());
                }
                Some(Operation::Start { start, reply, held })
            }
        }
    }

    /// A dispatch is recorded, or refused: decides those that waited for it.
    pub(super) fn started(&mut self, myself: &ActorRef<AgentMsg>, run_id: &RunId) {
        if !(self.starting.remove(run_id).is_some() | self.provisional.remove(run_id)) {
            return;
        }
        let cap = self.args.kind.settings.max_concurrent_runs.unwrap_or(usize::MAX);
        while (self.provisional.is_empty() || self.slots.len() < cap)
            && let Some((run_id, start, reply)) = self.deferred.pop_front()
        {
            self.begin(myself, run_id, RunRequest::Start(start, reply));
        }
        self.settle();
    }

    /// Answers whoever waits for the dispatches that came before.
    pub(super) fn settle(&mut self) {
        let (starting, deferred) = (&self.starting, &self.deferred);
        let settled = |(waiting, _): &mut (BTreeSet<RunId>, _)| {
            !starting.keys().any(|id| waiting.contains(id))
                && !deferred.iter().any(|(id, ..)| waiting.contains(id))
        };
        for (_, reply) in self.settling.extract_if(.., settled) {
            let _ = reply.send(Ok(()));
        }
    }

    /// Takes a slot for a run that is admitted, if there still is one.
    pub(super) fn take_slot(&mut self, run_id: &RunId) -> bool {
        let cap = self.args.kind.settings.max_concurrent_runs.unwrap_or(usize::MAX);
        self.slots.len() < cap && {
            self.slots.insert(RunKey::new(&self.args.path, run_id));
            true
        }
    }

    pub(super) fn rests(&self) -> bool {
        self.args.node.rests(&self.args.path)
    }

    pub(super) fn admit(&mut self, myself: &ActorRef<AgentMsg>) {
        let Some(cap) = self.args.kind.settings.max_concurrent_runs else {
            // The cap was lifted since they were queued.
            return self.admit_one(myself);
        };
        if self.slots.len() < cap {
            self.admit_one(myself);
        }
    }

    pub(super) fn admit_one(&mut self, myself: &ActorRef<AgentMsg>) {
        if self.admitting || self.queued == 0 || self.args.node.is_draining() || self.rests() {
            return;
        }
        self.admitting = true;
        self.passed_over.retain(|_, failed_at| failed_at.elapsed() < RETRY);
        let passed_over: BTreeSet<RunId> = self.passed_over.keys().cloned().collect();
        // The commit of a dispatch may be overtaken by those of later ones.
        let before = self.starting.values().flatten().min().copied();
        let (args, actor) = (self.args.clone(), myself.clone());
        self.args.node.spawn(async move {
            let head = lanes::queue_head(&args, before, &passed_over);
            // The next life of the agent waits for the reading alone.
            let wait = match args.operations.track_future(head).await {
                Ok(Some(run_id)) => {
                    let _ = actor.cast(AgentMsg::Run(run_id, RunRequest::Admit));
                    return;
                }
                Ok(None) if before.is_none() && !passed_over.is_empty() => RETRY,
                // Counted, but not there yet: its dispatch is still on its way to the disk.
                Ok(None) => Duration::from_millis(5),
                Err(error) => {
                    tracing::error!(agent = %args.path, %error, "the queue cannot be read");
                    RETRY
                }
            };
            tokio::time::sleep(wait).await;
            let _ = actor.cast(AgentMsg::AdmitAgain);
        });
    }

    /// An admission has failed: those behind it are not held up, and it is tried again after a while.
    pub(super) fn pass_over(&mut self, run_id: &RunId) {
        self.admitting = false;
        self.passed_over.insert(run_id.clone(), Instant::now());
    }
}
