//! Payloads of any size over an engine that wants small values.
//!
//! Up to 24 KiB a payload lies in the record that refers to it. A larger one is cut into parts,
//! which are written first together with an *intent*; the commit that refers to the payload removes
//! the intent. A crash in between leaves an intent, and the next start sweeps what it names.

use ghostlight_protocol::RunKey;
use serde::{Deserialize, Serialize};

use crate::codec;
use crate::records::IntentRecord;
use crate::{Batch, Changes, Committer, Error, Key, Limit};

/// The largest payload that lies in the record itself: 24 KiB.
pub const INLINE_BYTES_MAX: usize = 24 << 10;

/// The largest payload that lies in a run's record, which holds two and some texts: 4 KiB.
pub const RECORD_INLINE_BYTES_MAX: usize = 4 << 10;

/// How many parts go into one batch, below the limit of 192 KiB a batch.
const PARTS_PER_BATCH: usize = 7;

/// A payload, or where its parts are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Payload {
    /// The bytes themselves.
    Inline(Vec<u8>),
    /// Under the keys of this payload number.
    Parts {
        /// The payload's number, unique within its run.
        number: u64,
        /// How many bytes it has.
        bytes: u64,
    },
}

impl Payload {
    /// The size of the payload in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Parts { bytes, .. } => *bytes,
        }
    }

    /// Whether the payload has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes the intent of a payload in parts; belongs into the commit that refers to it.
    pub fn refer(&self, run: RunKey, changes: &mut Changes) {
        if let Self::Parts { number, .. } = self {
            changes.delete(&Key::intent(run, *number));
        }
    }

    /// Cuts `bytes` into parts, in batches that have to be committed, in order, before anything
    /// refers to the payload. One of at most `inline_max` bytes needs none.
    pub fn split(
        run: RunKey,
        number: u64,
        incarnation: u64,
        inline_max: usize,
        bytes: Vec<u8>,
    ) -> (Self, Vec<Batch>) {
        if bytes.len() <= inline_max.min(INLINE_BYTES_MAX) {
            return (Self::Inline(bytes), Vec::new());
        }
        let payload = Self::Parts { number, bytes: bytes.len() as u64 };
        let parts: Vec<&[u8]> = bytes.chunks(INLINE_BYTES_MAX).collect();
        let mut index = 0;
        let batches = parts.chunks(PARTS_PER_BATCH).enumerate().map(|(nth, parts)| {
            let mut changes = Changes::new();
            if nth == 0 {
                changes.put(&Key::intent(run, number), &IntentRecord { incarnation });
            }
            for part in parts {
                changes.put_raw(&Key::part(run, number, index), part.to_vec());
                index += 1;
            }
            changes.into_batch()
        });
        (payload, batches.collect())
    }

    /// Reads the payload.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when parts are missing; any failure of the store.
    ///
    /// # Cancel safety
    /// Reads only; may be dropped at any time.
    pub async fn read(self, committer: &Committer, run: RunKey) -> Result<Vec<u8>, Error> {
        let (number, expected) = match self {
            Self::Inline(bytes) => return Ok(bytes),
            Self::Parts { number, bytes } => (number, bytes),
        };
        let prefix = Key::parts(run, number);
        let mut bytes = Vec::new();
        let mut after = None;
        while (bytes.len() as u64) < expected {
            let page = committer.scan(prefix.clone().into_bytes(), after, PAGE).await?;
            let Some(last) = page.last() else {
                let why = format!("{} of {expected} bytes of a payload are there", bytes.len());
                return Err(Error::Corrupt { key: prefix.to_string(), why });
            };
            after = Some(last.key.clone());
            for entry in page {
                bytes.extend_from_slice(&entry.versioned.value);
            }
        }
        if bytes.len() as u64 != expected {
            let why = format!("{} bytes where {expected} were expected", bytes.len());
            return Err(Error::Corrupt { key: prefix.to_string(), why });
        }
        Ok(bytes)
    }
}

/// One page of a scan: 256 KiB.
pub const PAGE: Limit = Limit { entries: 1000, bytes: 256 << 10 };

/// Removes every payload of earlier incarnations that nothing came to refer to. Returns how many.
///
/// # Errors
/// Any failure of the store; what was removed stays removed.
///
/// # Cancel safety
/// May be dropped at any time; the next sweep goes on.
pub async fn sweep_orphans(committer: &Committer, incarnation: u64) -> Result<usize, Error> {
    let mut swept = 0;
    let mut after = None;
    loop {
        let page = committer.scan(Key::intents().into_bytes(), after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(swept) };
        after = Some(last.key.clone());
        for entry in page {
            let key = Key::from_bytes(entry.key);
            let intent: IntentRecord = codec::decode(&key, &entry.versioned.value)?;
            let Some((run, number)) = key.intent_payload() else {
                return Err(Error::Corrupt { key: key.to_string(), why: "no intent".into() });
            };
            if intent.incarnation >= incarnation {
                continue;
            }
            delete_range(committer, &Key::parts(run, number)).await?;
            let mut changes = Changes::new();
            changes.delete(&key);
            committer.commit(changes.into_batch()).await?;
            swept += 1;
        }
    }
}

/// Deletes every key that starts with `prefix`, in batches of at most 64.
///
/// # Errors
/// Any failure of the store; what was deleted stays deleted.
///
/// # Cancel safety
/// May be dropped at any time; calling it again goes on.
pub async fn delete_range(committer: &Committer, prefix: &Key) -> Result<(), Error> {
    loop {
        let limit = Limit { entries: crate::BATCH_OPERATIONS_MAX, bytes: PAGE.bytes };
        let page = committer.scan(prefix.clone().into_bytes(), None, limit).await?;
        if page.is_empty() {
            return Ok(());
        }
        let mut changes = Changes::new();
        for entry in page {
            changes.delete(&Key::from_bytes(entry.key));
        }
        committer.commit(changes.into_batch()).await?;
    }
}
