//! Makes and opens the folder of a store.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use super::acked::{self, Mark};
use super::engine::{Engine, Parts};
use super::explain::{self, damaged};
use super::log_check::{self, Damage};
use super::space::{self, RESERVE_BYTES, START_BYTES};
use crate::Error;
use crate::committer::panic_text;
use crate::folder::sync_folder;
use crate::lock::{FolderLock, is_full, why};

/// sled's segment. A page over a quarter of it is written to a file of its own, which sled never
/// syncs. A leaf page holds up to about 20 entries, so with the largest values and keys it needs
/// 700 KiB; sled's default of 512 KiB a segment would be passed by five large values in a row. The
/// size is fixed when a store is made.
pub(super) const SEGMENT_BYTES: usize = 4 << 20;

/// sled uses a multiple of what it is given.
const CACHE_BYTES: u64 = 32 << 20;
/// How often sled looks whether it can use space again. With none it never would.
const CLEANUP_MS: u64 = 500;

/// The format that this program writes and the newest that it reads.
pub(super) const FORMAT: u32 = 1;
/// Where the format is stored, as a number of 4 bytes, big-endian.
pub(super) const FORMAT_KEY: &[u8] = b"\0format";

/// Where the number of commits is stored, as a number of 8 bytes, big-endian. Every commit of the
/// store puts it.
pub(super) const COUNT_KEY: &[u8] = b"\0commits";
/// Keys without a meaning behind [`COUNT_KEY`]: they fill its page, so that this page, which every
/// commit rewrites a part of, holds nothing large. sled splits a page at 17 keys.
const FILLERS: RangeInclusive<u8> = 1..=24;

/// Opening takes long only after an unclean end of a large store.
const SLOW_OPEN: Duration = Duration::from_secs(1);

/// Opens the engine; also returns how many commits it holds.
///
/// An engine without the full reserve is opened whatever is free: what it needs for that is little,
/// and a start that finds no space changes nothing.
pub(super) fn open(lock: FolderLock, reserve: u64) -> Result<(Engine, u64), Error> {
    let folder = lock.folder().to_owned();
    let failed = |why: String| Error::Open { folder: folder.clone(), why };
    let store = folder.join("store");
    let exists = store.try_exists().map_err(|error| failed(why(&error)))?;
    if !exists || reserve == RESERVE_BYTES {
        space::check(&folder, START_BYTES).map_err(failed)?;
    }
    let lock = if exists { lock } else { make(lock, &store)? };
    remove_unfinished_snapshots(&store).map_err(|error| failed(why(&error)))?;
    let required = acknowledged(&folder, &store)?;
    #[expect(clippy::disallowed_methods, reason = "it decides a log line alone")]
    let begun = Instant::now();
    let engine = open_engine(lock, &store, reserve)?;
    if begun.elapsed() > SLOW_OPEN {
        tracing::info!(folder = %folder.display(), elapsed = ?begun.elapsed(), "opened the store");
    }
    check_format(&engine)?;
    let count = count(&engine)?;
    // What the look at the log leaves: damage of the very last commits, or a log that is cut.
    if let Some(missing) = required.checked_sub(count).filter(|missing| *missing > 0) {
        let why = format!("of {required} only {count} are in the log, which ends there now");
        return Err(Error::CommitsLost { folder, missing, why });
    }
    match Mark::open(&store, count) {
        Ok(mark) => *engine.parts().mark.borrow_mut() = Some(mark),
        Err(error) => tracing::warn!(%error, "damage of the log will not be noticed"),
    }
    Ok((engine, count))
}

/// How many commits the log must hold. Damage that sled would take for the end of the log is found
/// here, before sled overwrites what is behind it.
fn acknowledged(folder: &Path, store: &Path) -> Result<u64, Error> {
    let failed = |error: io::Error| Error::Open { folder: folder.into(), why: why(&error) };
    let (required, same_boot) = match acked::read(store) {
        Some(acked) => (acked.required(), acked.is_of_this_boot()),
        None => {
            tracing::warn!(
                folder = %folder.display(),
                "no word of what was acknowledged; losses before this start are not noticed"
            );
            (0, false)
        }
    };
    match log_check::check(store, required, same_boot) {
        Ok(None) => Ok(required),
        Ok(Some(Damage { at, commit })) => Err(Error::CommitsLost {
            folder: folder.into(),
            missing: (required - commit).saturating_add(1),
            why: format!("the log cannot be read at byte {at} of store/db; nothing was changed"),
        }),
        // sled would make an empty one.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(damaged(folder, "store/db is missing"))
        }
        Err(error) => Err(failed(error)),
    }
}

fn read(engine: &Engine, key: &[u8]) -> Result<Option<sled::IVec>, Error> {
    let found = engine.call("read", |db| db.get(key));
    found.map_err(|error| match error {
        Error::Poisoned { why } => damaged(engine.parts().lock.folder(), &why),
        other => other,
    })
}

fn count(engine: &Engine) -> Result<u64, Error> {
    let folder = engine.parts().lock.folder();
    let found = read(engine, COUNT_KEY)?;
    match found.as_deref().map(<[u8; 8]>::try_from) {
        Some(Ok(bytes)) => Ok(u64::from_be_bytes(bytes)),
        Some(Err(_)) => Err(damaged(folder, "the number of commits is not a number")),
        // An older version did not count.
        None => Ok(0),
    }
}

/// Makes an empty store beside its place and moves it there when it is whole: a crash on the way
/// leaves no store, not half of one.
fn make(lock: FolderLock, store: &Path) -> Result<FolderLock, Error> {
    let folder = lock.folder().to_owned();
    let failed = |error: &io::Error| Error::Open { folder: folder.clone(), why: why(error) };
    let unfinished = folder.join("store.new");
    match std::fs::remove_dir_all(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&error)),
        _ => {}
    }
    let engine = open_engine(lock, &unfinished, RESERVE_BYTES)?;
    let written = engine.call("write", |db| {
        db.insert(FORMAT_KEY, &FORMAT.to_be_bytes())?;
        db.insert(COUNT_KEY, &0_u64.to_be_bytes())?;
        for filler in FILLERS {
            db.insert([COUNT_KEY, &[filler]].concat(), &[])?;
        }
        db.flush()
    });
    written.map_err(|error| Error::Open { folder: folder.clone(), why: error.to_string() })?;
    let lock = engine.close()?;
    let synced = File::open(unfinished.join("db"))
        .and_then(|log| log.sync_all())
        .and_then(|()| File::open(unfinished.join("conf"))?.sync_all())
        .and_then(|()| sync_folder(&unfinished.join("blobs")))
        .and_then(|()| Mark::open(&unfinished, 0))
        .map(Mark::close)
        .and_then(|()| sync_folder(&unfinished))
        .and_then(|()| std::fs::rename(&unfinished, store))
        .and_then(|()| sync_folder(&folder));
    synced.map_err(|error| failed(&error))?;
    Ok(lock)
}

/// A kill while sled opens can leave `snap.<n>.generating`, which the next open takes for the
/// newest snapshot, and fails. It was never in use, so nothing is lost with it.
///
/// No other file is ever removed: without a real snapshot sled may open and silently miss what was
/// acknowledged.
pub(super) fn remove_unfinished_snapshots(store: &Path) -> io::Result<()> {
    let mut removed = false;
    for entry in std::fs::read_dir(store)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("snap.") && name.ends_with(".generating") {
            tracing::warn!(file = %entry.path().display(), "removing an unfinished snapshot");
            std::fs::remove_file(entry.path())?;
            removed = true;
        }
    }
    if removed { sync_folder(store) } else { Ok(()) }
}

pub(super) fn config(store: &Path) -> sled::Config {
    sled::Config::new()
        .path(store)
        .segment_size(SEGMENT_BYTES)
        .cache_capacity(CACHE_BYTES)
        .flush_every_ms(Some(CLEANUP_MS))
}

fn open_engine(lock: FolderLock, store: &Path, reserve: u64) -> Result<Engine, Error> {
    let folder = lock.folder().to_owned();
    let config = config(store);
    let opened = catch_unwind(AssertUnwindSafe(|| config.open()))
        .map_err(|panic| explain::mismatch(&folder, store, panic_text(&*panic)))?;
    let db = opened.map_err(|error| match error {
        sled::Error::Io(error) if is_full(&error) => {
            Error::Open { folder: folder.clone(), why: space::check_failed_open(&folder, store) }
        }
        sled::Error::Io(error) => Error::Open { folder: folder.clone(), why: why(&error) },
        sled::Error::Unsupported(what) => explain::other_settings(&folder, store, &what),
        other => explain::damaged_by(&folder, store, &other),
    })?;
    let failed = |error: io::Error| Error::Open { folder: folder.clone(), why: why(&error) };
    let log = OpenOptions::new().write(true).open(store.join("db")).map_err(failed)?;
    // Recovery itself writes, and puts a new snapshot in the place of the old one.
    log.sync_data().map_err(failed)?;
    sync_folder(store).map_err(failed)?;
    Ok(Engine::new(Parts { db, log, lock, mark: RefCell::new(None) }, reserve))
}

fn check_format(engine: &Engine) -> Result<(), Error> {
    let folder = engine.parts().lock.folder();
    let found = read(engine, FORMAT_KEY)?;
    let found = found.as_deref().and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
    match found {
        Some(FORMAT) => Ok(()),
        Some(found) if found > FORMAT => {
            Err(Error::TooNew { key: folder.display().to_string(), found, known: FORMAT })
        }
        Some(_) | None => Err(damaged(folder, "the format of the store is not written in it")),
    }
}
