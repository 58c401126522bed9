//! A run as the store has it.

use ghostlight_protocol::planted::{Planted, planted};
use ghostlight_protocol::{AgentPath, NotCompleted, Outcome, RunId, RunKey, Status};
use ghostlight_storage as storage;
use storage::records::{Head, RunRecord, TombstoneRecord};
use storage::{Committer, Key, codec};

use super::workload::queue_position;
use crate::Error;
use crate::agent_actor::AgentArgs;
use crate::info::{Inspection, RawOutcome, not_completed, run_info};
use crate::log;
use crate::log_writer::LogWriter;
use crate::past::Signals;

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
        let stored = Self::read_key(&args.node.committer, RunKey::new(&args.path, run_id)).await?;
        if let Some(stored) = &stored {
            log::read(stored.record.attempt);
        }
        Ok(stored)
    }

    pub(crate) async fn read_key(
        committer: &Committer,
        run: RunKey,
    ) -> Result<Option<Self>, Error> {
        let (record_key, head_key) = (Key::record(run), Key::head(run));
        let (cleared, record, head) = tokio::try_join!(
            is_cleared(committer, run),
            async { Ok(committer.get(record_key.clone().into_bytes()).await?) },
            async { Ok(committer.get(head_key.clone().into_bytes()).await?) },
        )?;
        let (false, Some(record)) = (cleared, record) else { return Ok(None) };
        let (record, record_revision) = codec::decode_versioned::<RunRecord>(&record_key, &record)?;
        let Some(head) = head else {
            // The reads are no snapshot: a clear may have come in between.
            if is_cleared(committer, run).await? {
                return Ok(None);
            }
            let why = "the run has a record, but no head".to_owned();
            return Err(storage::Error::Corrupt { key: head_key.to_string(), why }.into());
        };
        let (head, head_revision) = codec::decode_versioned::<Head>(&head_key, &head)?;
        Ok(Some(Self { record, record_revision, head, head_revision }))
    }

    /// The log's next writer.
    pub(crate) fn writer(&self, incarnation: u64, run: RunKey) -> LogWriter {
        let mut head = Head { epoch: self.head.epoch + 1, ..self.head };
        if planted(Planted::ReuseNumber) && incarnation > 1 {
            head.next_number -= 1;
        }
        LogWriter::new(run, incarnation, head, self.head_revision)
    }
}

/// The reason of a cancel that comes with a clear.
pub(crate) const CLEARED: &str = "cleared";

async fn tombstone(
    committer: &Committer,
    run: RunKey,
) -> Result<Option<TombstoneRecord>, storage::Error> {
    let key = Key::tombstone(run);
    let Some(read) = committer.get(key.clone().into_bytes()).await? else { return Ok(None) };
    codec::decode(&key, &read.value).map(Some)
}

pub(crate) async fn is_cleared(committer: &Committer, run: RunKey) -> Result<bool, Error> {
    Ok(tombstone(committer, run).await?.is_some())
}

/// What whoever waits for a run is told when nothing is left of it: `aborted` where that was its end,
/// with [`CLEARED`] for its reason, since the first one is gone.
pub(crate) async fn outcome_of_cleared(
    committer: &Committer,
    run: RunKey,
    run_id: &RunId,
) -> Result<RawOutcome, Error> {
    match tombstone(committer, run).await? {
        Some(TombstoneRecord { aborted: true, .. }) => {
            Ok(Outcome::NotCompleted(NotCompleted::Aborted { reason: CLEARED.to_owned() }))
        }
        Some(_) => Err(Error::Cleared(run_id.to_string())),
        None => Err(Error::UnknownRun(run_id.to_string())),
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

async fn inspect_stored(
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
