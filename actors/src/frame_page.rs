//! Pages of a run's frames, straight from the log: for tails that catch up, and for readers that do
//! not wait.

use ghostlight_protocol::frame::{Frame, FrameEvent};
use ghostlight_protocol::{AgentPath, Phase, RunId, RunKey};
use ghostlight_storage as storage;
use storage::payload::PAGE;
use storage::records::LogRecord;
use storage::{Committer, Key, codec};

use crate::frames::{FrameMaker, load};
use crate::lanes::{Stored, is_cleared};
use crate::{After, Error};

/// The bytes of frames beyond which a page ends: 1 MiB. The frame that passes it is still there.
const PAGE_BYTES_MAX: usize = 1 << 20;

/// Some of a run's frames.
#[derive(Debug, Clone, PartialEq)]
pub struct FramePage {
    /// The frames, in order, each with the number that every reader sees.
    pub frames: Vec<Frame>,
    /// Whether the run has ended for good and no frame follows this page.
    pub ended: bool,
}

/// Where the log of a run ends, so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEnd {
    /// How many frames there are; the next one takes this number.
    pub frames: u64,
    /// Whether the run has ended for good, so that no frame follows.
    pub ended: bool,
}

impl From<&Stored> for LogEnd {
    fn from(stored: &Stored) -> Self {
        // The record was read before the head: if it says that the run has ended, the head is final.
        let ended = matches!(stored.record.state.phase, Phase::Ended(_));
        Self { frames: stored.head.next_number, ended }
    }
}

/// Reads frames from `next` on, as many as one page of the log holds, and about
/// [`PAGE_BYTES_MAX`] at most: a small page of the log may refer to large payloads. Empty when the
/// log has no more of them; there are at least `known`.
pub(crate) async fn read_log(
    committer: &Committer,
    run: RunKey,
    run_id: &RunId,
    maker: &FrameMaker,
    next: u64,
    known: u64,
) -> Result<Vec<Frame>, Error> {
    let read = read_frames(committer, run, maker, next, known).await;
    // A half-deleted log is no end, and no damage: the tombstone is there before the first key goes.
    if is_cleared(committer, run).await? {
        return Err(Error::Cleared(run_id.to_string()));
    }
    Ok(read?)
}

async fn read_frames(
    committer: &Committer,
    run: RunKey,
    maker: &FrameMaker,
    next: u64,
    known: u64,
) -> Result<Vec<Frame>, storage::Error> {
    let missing = |number: u64| storage::Error::Corrupt {
        key: Key::log(run).to_string(),
        why: format!("frame {number} is missing"),
    };
    let after = Key::log_before(run, next).into_bytes();
    let (mut frames, mut bytes, mut expected) = (Vec::new(), 0, next);
    for entry in committer.scan(Key::log(run).into_bytes(), Some(after), PAGE).await? {
        let key = Key::from_bytes(entry.key);
        let record: LogRecord = codec::decode(&key, &entry.versioned.value)?;
        let first = record.first_number;
        if first > expected {
            return Err(missing(expected));
        }
        expected = record.end_number().max(expected);
        let entries = record.entries.into_iter().filter(|entry| entry.is_frame());
        for (number, mut entry) in (first..).zip(entries) {
            if number < next {
                continue;
            }
            if bytes >= PAGE_BYTES_MAX {
                return Ok(frames);
            }
            load(&mut entry, committer, run).await?;
            bytes += entry.bytes();
            frames.extend(maker.frame(number, &entry));
        }
    }
    if frames.is_empty() && next < known {
        return Err(missing(next));
    }
    Ok(frames)
}

/// Reads a page of at most `limit` frames of a run, and at least one if there is one.
pub(crate) async fn read(
    committer: &Committer,
    parent: &AgentPath,
    run_id: &RunId,
    after: After,
    limit: usize,
) -> Result<FramePage, Error> {
    let run = RunKey::new(parent, run_id);
    let stored = stored(committer, run, run_id).await?;
    let maker = FrameMaker::new(&stored.record);
    let end = LogEnd::from(&stored);
    let mut next = after.next();
    if next > end.frames {
        return Err(Error::BeyondEnd { run_id: run_id.to_string(), frames: end.frames });
    }
    let limit = limit.max(1);
    let (mut frames, mut bytes) = (Vec::new(), 0);
    while next < end.frames && frames.len() < limit && bytes < PAGE_BYTES_MAX {
        for frame in read_log(committer, run, run_id, &maker, next, end.frames).await? {
            if frames.len() == limit || bytes >= PAGE_BYTES_MAX {
                break;
            }
            next = frame.sequence + 1;
            bytes += size(&frame);
            frames.push(frame);
        }
    }
    let all = end.ended && next >= end.frames;
    let ended = all || frames.last().is_some_and(|frame: &Frame| frame.event.is_hard_end());
    Ok(FramePage { frames, ended })
}

/// About how many bytes a frame takes.
fn size(frame: &Frame) -> usize {
    match &frame.event {
        FrameEvent::Chunk { body, .. } => body.len() + 256,
        FrameEvent::Started { .. }
        | FrameEvent::Finished { .. }
        | FrameEvent::Error { .. }
        | FrameEvent::Aborted { .. }
        | FrameEvent::Interrupted { .. } => 4096,
    }
}

/// Reads a run that must be there.
pub(crate) async fn stored(
    committer: &Committer,
    run: RunKey,
    run_id: &RunId,
) -> Result<Stored, Error> {
    match Stored::read_key(committer, run).await? {
        Some(stored) => Ok(stored),
        None if is_cleared(committer, run).await? => Err(Error::Cleared(run_id.to_string())),
        None => Err(Error::UnknownRun(run_id.to_string())),
    }
}
