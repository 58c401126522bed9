//! Notices a full disk before sled meets it.
//!
//! sled does not promise what it does when a write fails for want of space, and it writes at other
//! times than we ask it to: it pads whole segments, moves live pages out of old ones, and writes a
//! snapshot when it opens. So its disk is never let run full: below a reserve nothing is started.

use std::path::Path;

use super::open::SEGMENT_BYTES;

/// Free space below which nothing is written: eight segments (32 MiB), far more than one group
/// with all the pages it makes sled rewrite.
pub(super) const RESERVE_BYTES: u64 = 8 * SEGMENT_BYTES as u64;

/// Free space below which nothing is started that writes (40 MiB): the open itself takes some, and
/// a store that opens shall then write, too.
pub(super) const START_BYTES: u64 = RESERVE_BYTES + 2 * SEGMENT_BYTES as u64;

/// As [`RESERVE_BYTES`], for whoever only reads, deletes, and changes single records: two segments
/// (8 MiB), one to write to and one that sled moves pages to.
pub(super) const SPARE_BYTES: u64 = 2 * SEGMENT_BYTES as u64;

/// Says what is missing if less than that is free.
pub(super) fn check(folder: &Path, needed: u64) -> Result<(), String> {
    // A file system that cannot say counts as one with space: a failed write is still an error.
    match free(folder) {
        Some(free) if free < needed => Err(missing(folder, free, needed)),
        _ => Ok(()),
    }
}

/// Says that sled has found no space to open a store, and how much is enough.
pub(super) fn check_failed_open(folder: &Path, store: &Path) -> String {
    missing(folder, free(folder).unwrap_or(0), opening_bytes(store))
}

/// What sled writes at most when it opens: the rest of a segment, in zeros, and a snapshot, which is
/// its index. That has up to 20 bytes for each message of the log that still matters; an eighth of
/// the log is more.
pub(super) fn opening_bytes(store: &Path) -> u64 {
    let log = std::fs::metadata(store.join("db")).map_or(0, |log| log.len());
    SEGMENT_BYTES as u64 + log / 8
}

fn free(folder: &Path) -> Option<u64> {
    let state = rustix::fs::statvfs(folder).ok()?;
    (state.f_blocks > 0).then(|| state.f_bavail.saturating_mul(state.f_frsize))
}

fn missing(folder: &Path, free: u64, needed: u64) -> String {
    format!(
        "no space is left: {} MiB are free in {}, and {} MiB are needed; make space",
        free >> 20,
        folder.display(),
        needed.div_ceil(1 << 20),
    )
}
