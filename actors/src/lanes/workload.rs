//! What an agent has to do, as the store has it.

use std::collections::BTreeSet;

use ghostlight_protocol::planted::{Planted, planted};
use ghostlight_protocol::{AgentKey, AgentPath, RunId, RunKey};
use ghostlight_storage as storage;
use storage::payload::PAGE;
use storage::records::{LiveRecord, OwedRecord, QueuedRecord};
use storage::{Committer, Key, codec};

use crate::Error;
use crate::agent_actor::AgentArgs;

/// What a new life of an agent finds in the store.
pub(crate) struct Workload {
    pub(crate) slots: BTreeSet<RunKey>,
    /// Runs whose actors are alive.
    pub(crate) live: Vec<RunId>,
    /// Runs that nobody executes, and that neither a timer nor another run will wake.
    pub(crate) lost: Vec<RunId>,
    /// Such runs that are left to another system.
    pub(crate) resting: Vec<RunId>,
    /// How many runs wait in the queue, but for those of types that are not registered.
    pub(crate) queued: usize,
    pub(crate) next_queue_number: u64,
    pub(crate) owed: Vec<(RunId, OwedRecord)>,
}

impl Workload {
    /// Whether any of it is for the agent to do now, and can be done.
    pub(crate) fn needs_agent(&self, args: &AgentArgs) -> bool {
        let is_left = |run_id| args.node.live.is_left(RunKey::new(&args.path, run_id));
        let now_ms = args.node.clock.now_ms();
        !self.lost.iter().all(is_left)
            || (self.queued > 0 && !args.node.rests(&args.path))
            || self.owed.iter().any(|(_, owed)| owed.due_ms <= now_ms)
    }
}

/// Reads what an agent has to do: its live runs, its queue, its owed deliveries. Costs as much as
/// there is of those, whatever else is retained.
pub(crate) async fn look_around(args: &AgentArgs) -> Result<Workload, Error> {
    let (node, agent) = (&args.node, AgentKey::from(&args.path));
    let mut found = Workload {
        slots: BTreeSet::new(),
        live: Vec::new(),
        lost: Vec::new(),
        resting: Vec::new(),
        queued: 0,
        next_queue_number: 0,
        owed: Vec::new(),
    };
    each(&node.committer, Key::live_of(agent), |key, value| {
        let record: LiveRecord = codec::decode(key, value)?;
        let run_id = valid_id(key, &record.run_id)?;
        let run = RunKey::new(&args.path, &run_id);
        if !planted(Planted::ForgetSlots) {
            found.slots.insert(run);
        }
        if node.live.get(run).is_some() && !planted(Planted::ResumeExecuted) {
            found.live.push(run_id);
        } else if !record.waiting
            && (!node.waits.is_outside(run) || node.waits.is_called(run))
            && node.kinds.executes(&record.agent_type)
        {
            // As `Node::rests_run` has it.
            let rests = node.rests(&args.path) && record.incarnation != node.incarnation;
            if rests { &mut found.resting } else { &mut found.lost }.push(run_id);
        }
        Ok(())
    })
    .await?;
    // A run that has ended keeps its slot for as long as its code has not returned.
    for run_id in node.live.of(&args.path) {
        if found.slots.insert(RunKey::new(&args.path, &run_id)) {
            found.live.push(run_id);
        }
    }
    each(&node.committer, Key::queue_of(agent), |key, value| {
        let record: QueuedRecord = codec::decode(key, value)?;
        let counts = node.kinds.executes(&record.agent_type) && !planted(Planted::ForgetQueue);
        found.queued += usize::from(counts);
        found.next_queue_number = key.queue_number().unwrap_or(0) + 1;
        Ok(())
    })
    .await?;
    each(&node.committer, Key::owed_of(agent), |key, value| {
        let record: OwedRecord = codec::decode(key, value)?;
        if !planted(Planted::ForgetOwed) {
            found.owed.push((valid_id(key, &record.run_id)?, record));
        }
        Ok(())
    })
    .await?;
    Ok(found)
}

/// Calls `f` for every entry below a prefix, a page at a time.
pub(crate) async fn each(
    committer: &Committer,
    prefix: Key,
    mut f: impl FnMut(&Key, &[u8]) -> Result<(), storage::Error>,
) -> Result<(), storage::Error> {
    let mut after = None;
    loop {
        let page = committer.scan(prefix.clone().into_bytes(), after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.key.clone());
        for entry in page {
            f(&Key::from_bytes(entry.key), &entry.versioned.value)?;
        }
    }
}

pub(crate) fn valid_id(key: &Key, run_id: &str) -> Result<RunId, storage::Error> {
    RunId::new(run_id).map_err(|error| storage::Error::Corrupt {
        key: key.to_string(),
        why: format!("its run id: {error}"),
    })
}

/// The run that is admitted next: the first with a number below `before`, but for those that are
/// passed over, and those of types that are not registered. A row that cannot be read keeps none of
/// those behind it; its error is returned where there are none.
pub(crate) async fn queue_head(
    args: &AgentArgs,
    before: Option<u64>,
    passed_over: &BTreeSet<RunId>,
) -> Result<Option<RunId>, Error> {
    let prefix = Key::queue_of(AgentKey::from(&args.path)).into_bytes();
    let mut limit = storage::Limit { entries: 1, bytes: PAGE.bytes };
    let (mut after, mut unreadable) = (None, None);
    loop {
        let page = args.node.committer.scan(prefix.clone(), after, limit).await?;
        let Some(last) = page.last() else { return unreadable.map_or(Ok(None), Err) };
        after = Some(last.key.clone());
        for entry in page {
            let key = Key::from_bytes(entry.key);
            if before.is_some_and(|before| key.queue_number().is_some_and(|own| own >= before)) {
                return unreadable.map_or(Ok(None), Err);
            }
            match queued(&key, &entry.versioned.value) {
                Ok((run_id, agent_type)) => {
                    if args.node.kinds.executes(&agent_type) && !passed_over.contains(&run_id) {
                        return Ok(Some(run_id));
                    }
                }
                Err(error) => {
                    tracing::error!(agent = %args.path, %error, "a queued run is passed over");
                    unreadable = Some(Error::from(error));
                }
            }
        }
        // Almost always it is the first.
        limit = PAGE;
    }
}

fn queued(key: &Key, value: &[u8]) -> Result<(RunId, String), storage::Error> {
    let record: QueuedRecord = codec::decode(key, value)?;
    Ok((valid_id(key, &record.run_id)?, record.agent_type))
}

pub(super) async fn queue_position(
    committer: &Committer,
    parent: &AgentPath,
    number: u64,
) -> Result<usize, Error> {
    let mut position = 0;
    each(committer, Key::queue_of(AgentKey::from(parent)), |key, _| {
        position += usize::from(key.queue_number().is_some_and(|other| other < number));
        Ok(())
    })
    .await?;
    Ok(position)
}
