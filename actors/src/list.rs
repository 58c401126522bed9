//! Lists of runs, straight from the store: no agent has to be in memory for it.

use futures_util::future::try_join_all;
use ghostlight_protocol::{AgentKey, AgentPath, RunId, RunKey, Status};
use ghostlight_storage as storage;
use storage::records::{LiveRecord, QueuedRecord, RegistryRecord, RunRecord};
use storage::{Committer, Key, Limit, codec};

use crate::Error;
use crate::info::{RunInfo, run_info};
use crate::lanes::{Stored, each, is_cleared};

/// What a registry has under an id.
#[derive(Debug, Clone, PartialEq)]
pub enum Lookup {
    /// Nothing: the id is free.
    Unknown,
    /// The tombstone of a cleared run: the id is never used again.
    Cleared,
    /// A run.
    Run(Box<RunInfo>),
}

/// Looks an id up in the registry of `parent`.
pub(crate) async fn lookup(
    committer: &Committer,
    parent: &AgentPath,
    run_id: &RunId,
) -> Result<Lookup, Error> {
    let run = RunKey::new(parent, run_id);
    match Stored::read_key(committer, run).await? {
        Some(stored) => Ok(Lookup::Run(Box::new(run_info(&stored.record)?))),
        None if is_cleared(committer, run).await? => Ok(Lookup::Cleared),
        None => Ok(Lookup::Unknown),
    }
}

/// Which runs are meant; all parts must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only runs that observers see in one of these; empty means all.
    pub status: Vec<Status>,
    /// Only runs of this type.
    pub agent_type: Option<String>,
    /// Only runs that were recorded before this time, in ms since the epoch.
    pub started_before: Option<u64>,
}

impl RunFilter {
    fn admits(&self, run: &RunInfo) -> bool {
        (self.status.is_empty() || self.status.contains(&run.status))
            && self.agent_type.as_ref().is_none_or(|wanted| *wanted == run.agent_type)
            && self.started_before.is_none_or(|before| run.started_at < before)
    }
}

/// A page of runs, oldest first.
#[derive(Debug, Clone, PartialEq)]
pub struct RunPage {
    /// The runs.
    pub runs: Vec<RunInfo>,
    /// Where the next page begins; `None` after the last one.
    pub next: Option<Cursor>,
}

/// A place in a list of runs. Its text form is for passing it through URLs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(Vec<u8>);

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A text that is no place in a list of runs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no cursor; pass one on as it was returned")]
pub struct InvalidCursor(String);

impl std::str::FromStr for Cursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let invalid = || InvalidCursor(text.chars().take(100).collect());
        if text.len() != 48 || !text.is_ascii() {
            return Err(invalid());
        }
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| invalid()))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// How many rows are looked at for one page: a filter that admits few does not read for ever.
const ROWS_PER_PAGE: usize = 10_000;

/// Lists the runs of `parent`, or of all agents, oldest first within an agent.
pub(crate) async fn list(
    committer: &Committer,
    parent: &AgentPath,
    filter: &RunFilter,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<RunPage, Error> {
    let prefix = Key::registry_of(AgentKey::from(parent));
    let mut page = RunPage { runs: Vec::new(), next: None };
    let mut after = after.map(|cursor| [prefix.as_bytes(), cursor.0.as_slice()].concat());
    let mut looked_at = 0;
    while page.runs.len() < limit.max(1) {
        let entries = (limit.max(1) - page.runs.len()).min(500);
        let rows = committer
            .scan(prefix.as_bytes().to_vec(), after.clone(), Limit { entries, bytes: 256 << 10 })
            .await?;
        let Some(last) = rows.last() else {
            page.next = None;
            return Ok(page);
        };
        after = Some(last.key.clone());
        page.next = last.key.get(prefix.as_bytes().len()..).map(|rest| Cursor(rest.to_vec()));
        looked_at += rows.len();
        for run in read_runs(committer, rows).await? {
            if filter.admits(&run) {
                page.runs.push(run);
            }
        }
        if looked_at >= ROWS_PER_PAGE {
            return Ok(page);
        }
    }
    Ok(page)
}

/// How many records are asked for at once: each read alone may have to wait for a group of commits.
const READS: usize = 64;

/// Reads the records of registry rows.
async fn read_runs(
    committer: &Committer,
    rows: Vec<storage::Entry>,
) -> Result<Vec<RunInfo>, Error> {
    let mut runs = Vec::with_capacity(rows.len());
    for rows in rows.chunks(READS) {
        let read = rows.iter().map(|row| read_row(committer, row));
        for record in try_join_all(read).await?.into_iter().flatten() {
            runs.push(run_info(&record)?);
        }
    }
    Ok(runs)
}

async fn read_row(committer: &Committer, row: &storage::Entry) -> Result<Option<RunRecord>, Error> {
    let key = Key::from_bytes(row.key.clone());
    codec::decode::<RegistryRecord>(&key, &row.versioned.value)?;
    match key.trailing_run() {
        Some(run) => read_record(committer, run).await,
        None => Ok(None),
    }
}

async fn read_record(committer: &Committer, run: RunKey) -> Result<Option<RunRecord>, Error> {
    let key = Key::record(run);
    match committer.get(key.clone().into_bytes()).await? {
        Some(read) => Ok(Some(codec::decode(&key, &read.value)?)),
        None => Ok(None),
    }
}

/// The ids of the runs of `parent` that have not ended: those that have begun, then the queue.
pub(crate) async fn unfinished(
    committer: &Committer,
    parent: &AgentPath,
) -> Result<Vec<String>, Error> {
    let agent = AgentKey::from(parent);
    let mut ids = Vec::new();
    each(committer, Key::live_of(agent), |key, value| {
        ids.push(live_id(key, value)?);
        Ok(())
    })
    .await?;
    each(committer, Key::queue_of(agent), |key, value| {
        ids.push(queued_id(key, value)?);
        Ok(())
    })
    .await?;
    Ok(ids)
}

/// The run id of a row of the live index.
pub(crate) fn live_id(key: &Key, value: &[u8]) -> Result<String, storage::Error> {
    Ok(codec::decode::<LiveRecord>(key, value)?.run_id)
}

/// The run id of a row of the queue.
pub(crate) fn queued_id(key: &Key, value: &[u8]) -> Result<String, storage::Error> {
    Ok(codec::decode::<QueuedRecord>(key, value)?.run_id)
}

/// How many addresses are read at a time where all are asked for.
const PARENTS: usize = 1000;

/// The addresses of all agents that have runs, in the order of their addresses.
pub(crate) async fn parents(committer: &Committer) -> Result<Vec<AgentPath>, Error> {
    let mut all: Vec<AgentPath> = Vec::new();
    loop {
        let page = parents_after(committer, all.last(), PARENTS).await?;
        let is_last = page.len() < PARENTS;
        all.extend(page);
        if is_last {
            all.sort();
            return Ok(all);
        }
    }
}

/// At most `limit` addresses of agents that have runs, after another one. The order is that of their
/// keys: always the same, and no other.
pub(crate) async fn parents_after(
    committer: &Committer,
    after: Option<&AgentPath>,
    limit: usize,
) -> Result<Vec<AgentPath>, Error> {
    let mut parents = Vec::new();
    let prefix = Key::registry_all();
    // Past all runs of an agent, however many it has.
    let past = |agent: &AgentPath| {
        let mut past = Key::registry_of(AgentKey::from(agent)).into_bytes();
        past.extend_from_slice(&[0xff; 24]);
        past
    };
    let mut after = after.map(past);
    while parents.len() < limit {
        let one = Limit { entries: 1, bytes: 64 << 10 };
        let rows = committer.scan(prefix.as_bytes().to_vec(), after, one).await?;
        let Some(row) = rows.into_iter().next() else { break };
        let key = Key::from_bytes(row.key);
        let record: RegistryRecord = codec::decode(&key, &row.versioned.value)?;
        let parent: AgentPath = record.parent.parse()?;
        after = Some(past(&parent));
        parents.push(parent);
    }
    Ok(parents)
}
