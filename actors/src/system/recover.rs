//! Starting is recovering: finds what an earlier process has left behind, and sees to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ghostlight_protocol::AgentPath;
use ghostlight_protocol::planted::{Planted, planted};
use ghostlight_storage as storage;
use storage::records::{IncarnationRecord, LiveRecord, OwedRecord, QueuedRecord};
use storage::{Changes, Committer, Expect, Key, codec};
use tokio::sync::Semaphore;

use crate::StartError;
use crate::lanes::{each, purge};
use crate::node::Node;
use crate::registry::Kinds;

/// How many agents are brought into memory at the same time.
const AGENTS_AT_ONCE: usize = 64;

/// Takes the next incarnation.
pub(super) async fn next_incarnation(committer: &Committer) -> Result<u64, storage::Error> {
    let key = Key::incarnation();
    let (incarnation, expect) = match committer.get(key.clone().into_bytes()).await? {
        Some(read) => {
            let (record, revision): (IncarnationRecord, _) = codec::decode_versioned(&key, &read)?;
            (record.incarnation + 1, Expect::At(revision))
        }
        None => (1, Expect::Absent),
    };
    let mut changes = Changes::new();
    changes.expect(&key, expect);
    changes.put(&key, &IncarnationRecord { incarnation });
    committer.commit(changes.into_batch()).await?;
    Ok(incarnation)
}

/// What live runs lack in a type that they need.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Lack {
    /// It is not registered.
    Type,
    /// It is theirs, and not registered as a child.
    Child,
}

/// The agents that have something to do: runs to go on with, a queue, owed deliveries. Costs as
/// much as there is of those, whatever else is retained.
pub(super) async fn find_work(
    committer: &Committer,
    kinds: &Kinds,
    park_unregistered: bool,
) -> Result<BTreeSet<String>, StartError> {
    let mut parents = BTreeSet::new();
    let mut unknown: BTreeMap<(String, Lack), (usize, String)> = BTreeMap::new();
    let mut note = |run_id: &str, parent: &str, agent_type: Option<&str>| {
        let parent = parent.parse::<AgentPath>().ok();
        let parent_type = parent.as_ref().map(AgentPath::agent_type);
        // A run needs both types, and counts once where they are the same.
        for needed in BTreeSet::from([parent_type, agent_type]).into_iter().flatten() {
            let lack = if !kinds.contains(needed) {
                Lack::Type
            } else if agent_type == Some(needed) && !kinds.executes(needed) {
                Lack::Child
            } else {
                continue;
            };
            let key = (needed.to_owned(), lack);
            let (count, _) = unknown.entry(key).or_insert((0, run_id.to_owned()));
            *count += 1;
        }
    };
    each(committer, Key::live_all(), |key, value| {
        let live: LiveRecord = codec::decode(key, value)?;
        note(&live.run_id, &live.parent, Some(&live.agent_type));
        // What waits for a timer is woken by it.
        if !live.waiting && !planted(Planted::ForgetRunning) {
            parents.insert(live.parent);
        }
        Ok(())
    })
    .await?;
    each(committer, Key::queue_all(), |key, value| {
        let queued: QueuedRecord = codec::decode(key, value)?;
        note(&queued.run_id, &queued.parent, Some(&queued.agent_type));
        if kinds.executes(&queued.agent_type) {
            parents.insert(queued.parent);
        }
        Ok(())
    })
    .await?;
    each(committer, Key::owed_all(), |key, value| {
        let owed: OwedRecord = codec::decode(key, value)?;
        note(&owed.run_id, &owed.parent, None);
        parents.insert(owed.parent);
        Ok(())
    })
    .await?;
    if let Some(((agent_type, lack), (live_runs, example))) = unknown.into_iter().next()
        && !park_unregistered
    {
        return Err(match lack {
            Lack::Type => {
                let registered = kinds.names();
                StartError::Unregistered { agent_type, live_runs, example, registered }
            }
            Lack::Child => StartError::NotAChild { agent_type, live_runs, example },
        });
    }
    Ok(parents)
}

/// Brings the agents that have something to do into memory; each finds its own work.
pub(super) async fn recover(node: Arc<Node>, parents: BTreeSet<String>) {
    let places = Arc::new(Semaphore::new(AGENTS_AT_ONCE));
    for parent in parents {
        let Ok(path) = parent.parse::<AgentPath>() else {
            tracing::error!(parent, "an address in the store is not valid");
            continue;
        };
        if !node.kinds.contains(path.agent_type()) || node.rests(&path) {
            continue;
        }
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let agents = Arc::clone(&node);
        node.spawn(async move {
            if let Err(error) = agents.agent(&path).await {
                tracing::error!(agent = %path, %error, "an agent was not recovered");
            }
            drop(place);
        });
    }
}

/// Removes what a crash has left half-done, and then the keys of every run that is cleared.
pub(super) async fn sweep(node: Arc<Node>) {
    match storage::payload::sweep_orphans(&node.committer, node.incarnation).await {
        Ok(0) => {}
        Ok(swept) => tracing::info!(swept, "payloads that nothing refers to were removed"),
        Err(error) => tracing::error!(%error, "payloads that nothing refers to were not removed"),
    }
    if planted(Planted::ForgetPurge) {
        node.purge.notified().await;
    }
    loop {
        if let Err(error) = purge(&node.committer).await {
            tracing::error!(%error, "cleared runs were not removed; the next clear tries again");
        }
        node.purge.notified().await;
    }
}
