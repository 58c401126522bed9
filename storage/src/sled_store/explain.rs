//! Says in words of our own what sled finds wrong with its files.

use std::path::Path;

use super::log_check::newest_snapshot;
use crate::Error;

/// How much of sled's own words is passed on.
const TAIL_CHARS_MAX: usize = 100;

/// Nothing is repaired or removed: what looks like a repair may lose what was acknowledged.
pub(super) fn damaged(folder: &Path, what: &str) -> Error {
    refused(folder, what, "")
}

/// As [`damaged`], with what sled says where that means something.
fn refused(folder: &Path, what: &str, tail: &str) -> Error {
    let why = format!(
        "its files are damaged ({what}); keep a copy of the folder, and restore a backup or use \
         another folder{tail}"
    );
    Error::Open { folder: folder.into(), why }
}

/// sled has refused the files of this store.
pub(super) fn damaged_by(folder: &Path, store: &Path, error: &sled::Error) -> Error {
    match error {
        sled::Error::Corruption { at: Some(at), .. } => damaged(folder, &unreadable(at.lid())),
        sled::Error::Corruption { at: None, .. } => damaged(folder, &without_place(store)),
        other => mismatch(folder, store, &other.to_string()),
    }
}

/// sled asserts on some kinds of damage.
pub(super) fn mismatch(folder: &Path, store: &Path, engine: &str) -> Error {
    let engine = engine.lines().next().unwrap_or_default();
    let shown: String = engine.chars().take(TAIL_CHARS_MAX).collect();
    refused(folder, &without_place(store), &format!("; the engine says: {shown}"))
}

/// Why a call of the open sled failed.
pub(super) fn failure(error: &sled::Error) -> String {
    match error {
        sled::Error::Corruption { at: Some(at), .. } => {
            format!("the files are damaged: {}", unreadable(at.lid()))
        }
        sled::Error::Corruption { at: None, .. } => "the files are damaged".into(),
        other => other.to_string(),
    }
}

fn unreadable(byte: u64) -> String {
    format!("what was written at byte {byte} of store/db cannot be read")
}

/// Which file it is, as far as that can be told from outside.
fn without_place(store: &Path) -> String {
    if let Some(what) = damaged_conf(store) {
        return what.into();
    }
    let Ok(Some(path)) = newest_snapshot(store) else {
        return "store/db is not what was written".into();
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match is_sound_snapshot(&path) {
        Some(true) => format!("store/db is cut off, or not the one that store/{name} was made of"),
        Some(false) => format!("store/{name} is not what was written"),
        None => format!("store/{name} cannot be read"),
    }
}

/// A snapshot ends in the length of its content before compression, and its checksum.
fn is_sound_snapshot(path: &Path) -> Option<bool> {
    let bytes = std::fs::read(path).ok()?;
    let Some((rest, checksum)) = bytes.split_last_chunk() else { return Some(false) };
    let Some((content, _)) = rest.split_last_chunk::<8>() else { return Some(false) };
    Some(crc32fast::hash(content) == u32::from_le_bytes(*checksum))
}

/// What is wrong with the settings, if anything is. They end in their checksum, which sled looks at and
/// does not refuse them for.
fn damaged_conf(store: &Path) -> Option<&'static str> {
    // Without one sled makes a new one.
    let bytes = std::fs::read(store.join("conf")).ok()?;
    let is_sound = bytes.split_last_chunk().is_some_and(|(content, checksum)| {
        crc32fast::hash(content) == u32::from_le_bytes(*checksum)
    });
    (!is_sound).then_some("store/conf is not what was written")
}

/// sled finds settings that are not its own.
pub(super) fn other_settings(folder: &Path, store: &Path, what: &str) -> Error {
    match damaged_conf(store) {
        Some(damage) => damaged(folder, damage),
        None => {
            Error::Open { folder: folder.into(), why: format!("another version made it: {what}") }
        }
    }
}
