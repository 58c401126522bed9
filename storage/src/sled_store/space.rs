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

/// As [`RESERVE_BYTES`], for whoever only reads, deletes, and changes single records: two segments
/// (8 MiB), one to write to and one that sled moves pages to.
pub(super) const SPARE_BYTES: u64 = 2 * SEGMENT_BYTES as u64;

/// Says what is missing if less than the reserve is free.
pub(super) fn check(folder: &Path, reserve: u64) -> Result<(), String> {
    // A file system that cannot say counts as one with space: a failed write is still an error.
    let Ok(state) = rustix::fs::statvfs(folder) else { return Ok(()) };
    if state.f_blocks == 0 {
        return Ok(());
    }
    let free = state.f_bavail.saturating_mul(state.f_frsize);
    if free >= reserve {
        return Ok(());
    }
    Err(format!(
        "no space is left: {} MiB are free in {}, and {} MiB are needed; make space",
        free >> 20,
        folder.display(),
        reserve >> 20,
    ))
}
