//! How many commits have been acknowledged, beside the log, so that a log that has lost some of
//! them is noticed.
//!
//! The file is written after the log is durable, and without a sync of its own: after a power cut
//! it may be behind the log, never ahead of it; after a killed process it is exact.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::folder::sync_folder;

/// Two slots, written in turn, a page apart: a write that is torn spoils one of them.
pub(super) const SLOTS: [u64; 2] = [0, 4096];
const FILE_BYTES: usize = 8192;
const MAGIC: &[u8; 8] = b"glacked1";
/// The text of a boot id.
const BOOT_BYTES: usize = 36;
/// Magic, generation, acknowledged, synced, boot, checksum.
const SLOT_BYTES: usize = 8 + 8 + 8 + 8 + BOOT_BYTES + 4;

/// What was acknowledged, at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Acked {
    /// Commits that were acknowledged.
    pub(super) count: u64,
    /// How many of them a power cut cannot take back.
    pub(super) synced: u64,
    /// The boot of the machine in which they were acknowledged.
    boot: [u8; BOOT_BYTES],
}

/// The open file.
#[derive(Debug)]
pub(super) struct Mark {
    file: File,
    generation: u64,
    boot: [u8; BOOT_BYTES],
    last: Acked,
    broken: bool,
}

impl Acked {
    /// How many commits the log must hold now. Those that were not synced count until the machine
    /// starts again.
    pub(super) fn required(&self) -> u64 {
        if self.is_of_this_boot() { self.count } else { self.synced }
    }

    /// Whether the machine surely has not started again since.
    pub(super) fn is_of_this_boot(&self) -> bool {
        boot_id() == self.boot && self.boot != [0; BOOT_BYTES]
    }
}

/// Reads the file of a store. `None` if there is none, or if it says nothing.
pub(super) fn read(store: &Path) -> Option<Acked> {
    let found = File::open(path(store)).and_then(|file| newest(&file));
    found.ok().flatten().map(|(_, acked)| acked)
}

impl Mark {
    /// Opens the file of a store, or makes it; `count` commits are in the log, and durable.
    pub(super) fn open(store: &Path, count: u64) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path(store))?;
        let boot = boot_id();
        let found = newest(&file)?;
        let last = Acked { count, synced: count, boot };
        let generation = found.map_or(0, |(generation, _)| generation);
        let mut mark = Self { file, generation, boot, last, broken: false };
        if found.is_none() {
            // All blocks are there from now on, so that no later write needs space.
            mark.file.set_len(0)?;
            mark.file.write_all_at(&[0; FILE_BYTES], 0)?;
            mark.write(last)?;
            mark.file.sync_all()?;
            sync_folder(store)?;
        }
        Ok(mark)
    }

    /// Notes what has been acknowledged. Without a sync: this is in the path of every commit.
    pub(super) fn note(&mut self, count: u64, synced: u64) {
        if self.broken {
            return;
        }
        if let Err(error) = self.write(Acked { count, synced, boot: self.boot }) {
            // What is written stays true; what is missing is only not watched over.
            tracing::warn!(%error, "cannot note what was acknowledged");
            self.broken = true;
        }
    }

    /// Notes that all of it is durable, durably.
    pub(super) fn close(mut self) {
        let Acked { count, .. } = self.last;
        self.note(count, count);
        if let Err(error) = self.file.sync_data() {
            tracing::warn!(%error, "cannot sync what was acknowledged");
        }
    }

    #[cfg(test)]
    pub(super) fn unwritable(store: &Path, count: u64) -> Self {
        let mut mark = Self::open(store, count).expect("the store has one");
        mark.file = File::open(path(store)).expect("the store has one");
        mark
    }

    fn write(&mut self, acked: Acked) -> io::Result<()> {
        let generation = self.generation + 1;
        self.file.write_all_at(&encode(generation, &acked), SLOTS[(generation % 2) as usize])?;
        self.generation = generation;
        self.last = acked;
        Ok(())
    }
}

fn path(store: &Path) -> std::path::PathBuf {
    store.join("acked")
}

fn newest(file: &File) -> io::Result<Option<(u64, Acked)>> {
    let mut found = Vec::new();
    for at in SLOTS {
        let mut slot = [0; SLOT_BYTES];
        match file.read_exact_at(&mut slot, at) {
            Ok(()) => found.extend(decode(&slot)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found.into_iter().max_by_key(|(generation, _)| *generation))
}

fn encode(generation: u64, acked: &Acked) -> Vec<u8> {
    let mut slot = [
        &MAGIC[..],
        &generation.to_be_bytes(),
        &acked.count.to_be_bytes(),
        &acked.synced.to_be_bytes(),
        &acked.boot,
    ]
    .concat();
    let checksum = crc32fast::hash(&slot);
    slot.extend_from_slice(&checksum.to_be_bytes());
    slot
}

fn decode(slot: &[u8; SLOT_BYTES]) -> Option<(u64, Acked)> {
    let (body, checksum) = slot.split_last_chunk::<4>()?;
    let body = body.strip_prefix(MAGIC)?;
    if crc32fast::hash(&slot[..SLOT_BYTES - 4]).to_be_bytes() != *checksum {
        return None;
    }
    let (generation, body) = body.split_first_chunk()?;
    let (count, body) = body.split_first_chunk()?;
    let (synced, boot) = body.split_first_chunk()?;
    let acked = Acked {
        count: u64::from_be_bytes(*count),
        synced: u64::from_be_bytes(*synced),
        boot: boot.try_into().ok()?,
    };
    Some((u64::from_be_bytes(*generation), acked))
}

/// Which start of the machine this is; zeros where nobody says.
fn boot_id() -> [u8; BOOT_BYTES] {
    let id = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.first_chunk().copied().unwrap_or([0; BOOT_BYTES])
}
