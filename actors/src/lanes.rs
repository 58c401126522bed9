//! Operations of a parent on one run that nobody executes: each reads what it needs, decides by the
//! pure rules, makes one commit, and acts on it only then.

mod cancel;
mod clear;
mod resume;
mod start;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use ghostlight_protocol::planted::{Planted, planted};
use ghostlight_protocol::{AgentKey, AgentPath, Outcome, RunId, RunKey, Status};
use ghostlight_storage as storage;
use ghostlight_supervisor::ChildSpec;
use storage::payload::PAGE;
use storage::records::{Head, LiveRecord, OwedRecord, QueuedRecord, RunRecord, TombstoneRecord};
use storage::{Committer, Key, codec};
use tokio::sync::oneshot;

use crate::Error;
use crate::agent_actor::AgentArgs;
use crate::finalise::Decided;
use crate::info::{Inspection, RawOutcome, not_completed, run_info};
use crate::log_writer::LogWriter;
use crate::messages::{Reply, StartRun, Started};
use crate::past::{Past, Signals};
use crate::place::Permit;
use crate::run_actor::{RunActor, RunArgs};
use crate::shared::Shared;

pub(crate) use cancel::{ends_by_cancel, request_cancel};
pub(crate) use clear::{bury, children, purge};
pub(crate) use start::{joins, start_existing};

/// What a lane does.
pub(crate) enum Operation {
    /// `held`: whether the run had a slot before.
    Start {
        start: Box<StartRun>,
        reply: Reply<Started>,
        held: bool,
    },
    StartAtCap {
        start: Box<StartRun>,
        reply: Reply<Started>,
        cap: usize,
        number: Option<u64>,
    },
    Admit,
    Enter {
        entering: Entering,
        cancelled: Cancelled,
    },
    Resume {
        cause: Cause,
        reply: Option<Reply<()>>,
    },
    Inspect {
        reply: Reply<Option<Inspection>>,
    },
    Cancel {
        reason: String,
        reply: Reply<()>,
    },
    Tail {
        reply: Reply<Option<()>>,
    },
    Clear {
        reply: Reply<bool>,
    },
}

/// Why a run is entered again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// What it waited for has come.
    Woken,
    /// It is live in the store, and nobody executes it.
    Orphaned,
}

/// A run on its way to its actor.
#[derive(Debug)]
pub(crate) enum Entering {
    /// It is ours: its start hook comes next, and its place.
    Owned(Box<Owned>),
    /// It waits for its place. Nothing is written before it has one, so that it loses no attempt
    /// if it is lost on the way.
    Again(Cause),
}

/// A run that is recorded, and that nobody else writes to.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) record: RunRecord,
    pub(crate) record_revision: u64,
    pub(crate) writer: LogWriter,
    pub(crate) past: Past,
    /// Its place, if it has one already.
    pub(crate) permit: Permit,
    /// An earlier life was lost, and may have entered the code.
    pub(crate) lost: bool,
}

/// Brings a cancel to a run that is on its way to its actor.
pub(crate) type Cancelled = oneshot::Receiver<(String, Reply<()>)>;

/// How an operation left its run.
#[derive(Debug, Default)]
pub(crate) struct LaneEnd {
    /// The run enters its code next.
    pub(crate) entering: Option<Entering>,
    /// The run's actor owns the run now.
    pub(crate) live: bool,
    /// Whether the run holds a slot; `None`: as before.
    pub(crate) holds_slot: Option<bool>,
    /// By how much the queue's length differs from what was counted.
    pub(crate) queued: isize,
    pub(crate) admission: Option<Admission>,
    /// Why the run, which goes on, was not cancelled.
    pub(crate) not_cancelled: Option<Error>,
}

/// What an admission from the queue came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The next one may follow.
    Done,
    /// Nothing has changed, and the same run would be next.
    Failed,
}

impl LaneEnd {
    pub(crate) const UNCHANGED: Self = Self {
        entering: None,
        live: false,
        holds_slot: None,
        queued: 0,
        admission: None,
        not_cancelled: None,
    };
    pub(crate) const LIVE: Self = Self { live: true, holds_slot: Some(true), ..Self::UNCHANGED };
    pub(crate) const FREE: Self = Self { holds_slot: Some(false), ..Self::UNCHANGED };

    pub(crate) fn enter(entering: Entering) -> Self {
        Self { entering: Some(entering), holds_slot: Some(true), ..Self::UNCHANGED }
    }

    pub(crate) fn slot(held: bool) -> Self {
        Self { holds_slot: Some(held), ..Self::UNCHANGED }
    }
}

pub(crate) async fn operate(args: &AgentArgs, run_id: &RunId, operation: Operation) -> LaneEnd {
    match operation {
        Operation::Start { start, reply, held } => start::start(args, &start, reply, held).await,
        Operation::StartAtCap { start, reply, cap, number } => {
            start::start_at_cap(args, &start, reply, cap, number).await
        }
        Operation::Admit => {
            let (admission, end) = match resume::admit(args, run_id).await {
                Ok(end) => (Admission::Done, end),
                Err(error) => {
                    tracing::error!(%run_id, agent = %args.path, %error, "run was not admitted");
                    (Admission::Failed, LaneEnd::FREE)
                }
            };
            LaneEnd { admission: Some(admission), ..end }
        }
        Operation::Enter { entering, cancelled } => match entering {
            Entering::Owned(owned) => start::enter(args, run_id, *owned, cancelled).await,
            Entering::Again(cause) => resume::enter_again(args, run_id, cause, cancelled).await,
        },
        Operation::Resume { cause, reply } => {
            let resumed = resume::resume(args, run_id, cause, None).await;
            if let Some(reply) = reply {
                let _ = reply.send(resumed.as_ref().map(|_| ()).map_err(Clone::clone));
            }
            resumed.unwrap_or_else(|error| not_entered(args, run_id, &error))
        }
        Operation::Inspect { reply } => {
            let _ = reply.send(inspect(&args.node.committer, &args.path, run_id).await);
            LaneEnd::UNCHANGED
        }
        Operation::Cancel { reason, reply } => cancel::cancel(args, run_id, reason, reply).await,
        Operation::Tail { reply } => {
            let stored = Stored::read(args, run_id).await;
            let _ = reply.send(stored.map(|stored| stored.map(|_| ())));
            LaneEnd::UNCHANGED
        }
        Operation::Clear { reply } => clear::clear(args, run_id, reply).await,
    }
}

/// Waits until a run is ready to be entered, unless a cancel comes first. `None` if this life of the
/// agent ends before: the next one finds the run in the store, and begins anew.
async fn unless_cancelled<T>(
    args: &AgentArgs,
    mut cancelled: Cancelled,
    ready: impl Future<Output = T>,
) -> Option<Result<T, (String, Reply<()>)>> {
    let ready = tokio::select! {
        biased;
        Ok(cancel) = &mut cancelled => Err(cancel),
        () = args.life.cancelled() => return None,
        ready = ready => Ok(ready),
    };
    // What comes from now on waits for the run's actor; what has just come is not lost.
    cancelled.close();
    match cancelled.try_recv() {
        Ok(cancel) => Some(Err(cancel)),
        Err(_) => Some(ready),
    }
}

/// Tells whoever waits for a run that it was not entered; it is recorded, and found again later.
fn not_entered(args: &AgentArgs, run_id: &RunId, error: &Error) -> LaneEnd {
    match error {
        Error::Stopped => {
            tracing::debug!(%run_id, agent = %args.path, "run is left to the next start")
        }
        error => tracing::error!(%run_id, agent = %args.path, %error, "run was not entered"),
    }
    let run = RunKey::new(&args.path, run_id);
    args.node.hub.failed(run, error);
    args.node.call_waiting(run);
    LaneEnd::UNCHANGED
}

/// A run as the store has it.
pub(crate) struct Stored {
    pub(crate) record: RunRecord,
    pub(crate) record_revision: u64,
    pub(crate) head: Head,
    pub(crate) head_revision: u64,
}

impl Stored {
    /// Reads a run; `None` if the id was never used, or was cleared.
    pub(crate) async fn read(args: &AgentArgs, run_id: &RunId) -> Result<Option<Self>, Error> {
        Self::read_key(&args.node.committer, RunKey::new(&args.path, run_id)).await
    }

    pub(crate) async fn read_key(
        committer: &Committer,
        run: RunKey,
    ) -> Result<Option<Self>, Error> {
        // All three in one go of the committer.
        let (record_key, head_key) = (Key::record(run), Key::head(run));
        let (cleared, record, head) = tokio::try_join!(
            is_cleared(committer, run),
            async { Ok(committer.get(record_key.clone().into_bytes()).await?) },
            async { Ok(committer.get(head_key.clone().into_bytes()).await?) },
        )?;
        let (false, Some(record)) = (cleared, record) else { return Ok(None) };
        let (record, record_revision) = codec::decode_versioned::<RunRecord>(&record_key, &record)?;
        let Some(head) = head else {
            let why = "the run has a record, but no head".to_owned();
            return Err(storage::Error::Corrupt { key: head_key.to_string(), why }.into());
        };
        let (head, head_revision) = codec::decode_versioned::<Head>(&head_key, &head)?;
        Ok(Some(Self { record, record_revision, head, head_revision }))
    }

    /// The log's next writer.
    pub(crate) fn writer(&self, incarnation: u64, run: RunKey) -> LogWriter {
        let mut head = Head { epoch: self.head.epoch + 1, ..self.head };
        if planted(Planted::ReuseNumber) {
            head.next_number -= 1;
        }
        LogWriter::new(run, incarnation, head, self.head_revision)
    }
}

pub(crate) async fn is_cleared(committer: &Committer, run: RunKey) -> Result<bool, Error> {
    let key = Key::tombstone(run);
    match committer.get(key.clone().into_bytes()).await? {
        Some(read) => {
            codec::decode::<TombstoneRecord>(&key, &read.value)?;
            Ok(true)
        }
        None => Ok(false),
    }
}

/// How a run ended, with its output; `None` while it has not.
pub(crate) async fn outcome(
    committer: &Committer,
    run: RunKey,
    record: &RunRecord,
) -> Result<Option<RawOutcome>, Error> {
    if let Some(end) = not_completed(record) {
        return Ok(Some(Outcome::NotCompleted(end)));
    }
    if record.state.status() != Status::Completed {
        return Ok(None);
    }
    let output = record.end.as_ref().and_then(|end| end.output.clone());
    match output {
        Some(output) => Ok(Some(Outcome::Completed(output.read(committer, run).await?))),
        None => Ok(Some(Outcome::Completed(crate::context::nothing()))),
    }
}

/// A run that is not in memory, as it stands.
pub(crate) async fn inspect(
    committer: &Committer,
    parent: &AgentPath,
    run_id: &RunId,
) -> Result<Option<Inspection>, Error> {
    let run = RunKey::new(parent, run_id);
    let Some(stored) = Stored::read_key(committer, run).await? else { return Ok(None) };
    let position = match stored.record.queue_number {
        Some(number) => Some(queue_position(committer, parent, number).await?),
        None => None,
    };
    inspect_stored(committer, run, stored, position).await.map(Some)
}

pub(crate) async fn inspect_stored(
    committer: &Committer,
    run: RunKey,
    stored: Stored,
    queue_position: Option<usize>,
) -> Result<Inspection, Error> {
    let output = match outcome(committer, run, &stored.record).await? {
        Some(Outcome::Completed(output)) => Some(crate::info::parse_json(&output)),
        Some(Outcome::NotCompleted(_)) | None => None,
    };
    let signals = Signals::read(committer, run).await?;
    Ok(Inspection {
        run: run_info(&stored.record)?,
        output,
        progress: signals.progress,
        milestones: signals.milestones,
        queue_position,
        next_sequence: stored.head.next_number,
    })
}

/// Hands a run over to an actor of its own: the epoch is durable, and from here on the actor alone
/// writes to it.
pub(crate) async fn spawn(
    args: &AgentArgs,
    run_id: &RunId,
    owned: Owned,
    decided: Option<Decided>,
) -> Result<LaneEnd, Error> {
    let Owned { record, record_revision, writer, past, permit, lost: _ } = owned;
    let node = &args.node;
    let run = RunKey::new(&args.path, run_id);
    let child = node.kinds.child(&record.agent_type)?;
    let input = record.input.clone().read(&node.committer, run).await?;
    let path = args.path.child(&record.agent_type, run_id)?;
    let signals = past.signals.clone();
    let shared = Arc::new(Shared::new(
        Arc::clone(node),
        args.path.clone(),
        path.clone(),
        run_id.clone(),
        record.attempt,
        past,
    ));
    let run_args =
        RunArgs { shared, child, input, record, record_revision, writer, signals, decided, permit };
    let once = Mutex::new(Some(run_args));
    let spec = ChildSpec::temporary(path.as_str(), move || {
        let args = once.lock().unwrap_or_else(PoisonError::into_inner).take();
        (RunActor, args.expect("a temporary child is started once"))
    });
    let supervisors = node.supervisors.get().ok_or(Error::Stopped)?;
    match supervisors.runs.add(spec).await {
        Ok(_) => Ok(LaneEnd::LIVE),
        Err(ghostlight_supervisor::Error::Stopped) => Err(Error::Stopped),
        Err(error) => Err(Error::AgentDown { agent: path.to_string(), why: error.to_string() }),
    }
}

/// What a new life of an agent finds in the store.
pub(crate) struct Found {
    pub(crate) slots: BTreeSet<RunKey>,
    /// Runs whose actors are alive.
    pub(crate) live: Vec<RunId>,
    /// Runs that nobody executes, and that neither a timer nor another run will wake.
    pub(crate) lost: Vec<RunId>,
    /// How many runs wait in the queue, but for those of types that are not registered.
    pub(crate) queued: usize,
    pub(crate) next_queue_number: u64,
    pub(crate) owed: Vec<(RunId, OwedRecord)>,
}

impl Found {
    /// Whether any of it is for the agent to do now.
    pub(crate) fn needs_agent(&self, now_ms: u64) -> bool {
        !self.lost.is_empty()
            || self.queued > 0
            || self.owed.iter().any(|(_, owed)| owed.due_ms <= now_ms)
    }
}

/// Reads what an agent has to do: its live runs, its queue, its owed deliveries. Costs as much as
/// there is of those, whatever else is retained.
pub(crate) async fn look_around(args: &AgentArgs) -> Result<Found, Error> {
    let (node, agent) = (&args.node, AgentKey::from(&args.path));
    let mut found = Found {
        slots: BTreeSet::new(),
        live: Vec::new(),
        lost: Vec::new(),
        queued: 0,
        next_queue_number: 0,
        owed: Vec::new(),
    };
    each(&node.committer, Key::live_of(agent), |key, value| {
        let record: LiveRecord = codec::decode(key, value)?;
        let run_id = valid_id(key, &record.run_id)?;
        let run = RunKey::new(&args.path, &run_id);
        found.slots.insert(run);
        if node.live.get(run).is_some() {
            found.live.push(run_id);
        } else if !record.waiting
            && (!node.waits.is_outside(run) || node.waits.is_called(run))
            && node.kinds.contains(&record.agent_type)
        {
            found.lost.push(run_id);
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
        found.queued += usize::from(node.kinds.executes(&record.agent_type));
        found.next_queue_number = key.queue_number().unwrap_or(0) + 1;
        Ok(())
    })
    .await?;
    each(&node.committer, Key::owed_of(agent), |key, value| {
        let record: OwedRecord = codec::decode(key, value)?;
        found.owed.push((valid_id(key, &record.run_id)?, record));
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

/// The run that is admitted next: the first, but for those of types that are not registered.
pub(crate) async fn queue_head(args: &AgentArgs) -> Result<Option<RunId>, Error> {
    let prefix = Key::queue_of(AgentKey::from(&args.path)).into_bytes();
    let mut limit = storage::Limit { entries: 1, bytes: PAGE.bytes };
    let mut after = None;
    loop {
        let page = args.node.committer.scan(prefix.clone(), after, limit).await?;
        let Some(last) = page.last() else { return Ok(None) };
        after = Some(last.key.clone());
        for entry in page {
            let key = Key::from_bytes(entry.key);
            let record: QueuedRecord = codec::decode(&key, &entry.versioned.value)?;
            if args.node.kinds.executes(&record.agent_type) {
                return Ok(Some(valid_id(&key, &record.run_id)?));
            }
        }
        // Almost always it is the first.
        limit = PAGE;
    }
}

async fn queue_position(
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
