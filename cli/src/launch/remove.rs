//! Removes launch folders, and with them what keeps a late shim from executing its command.

use std::fs;
use std::io;
use std::path::Path;

use super::Error;
use super::claim::Claim;
use super::directory::{CLAIM, LOCK, STATUS, read_small};
use super::observe::lock_is_held;

/// What the name of a folder begins with whose removal has begun.
pub(crate) const REMOVED: &str = "removed.";

/// Removes a launch folder, or goes on removing one; a folder that is not there is no error.
///
/// The name goes first, in one step, and only then what is in the folder: a shim that was started
/// long ago and claims its launch while the claim that was in its way is being deleted sees that
/// its folder is not in its place, and executes nothing. What a crash leaves has a name that begins
/// with [`REMOVED`].
///
/// # Errors
///
/// A shim keeps the launch, or something cannot be removed.
pub(crate) fn remove(path: &Path) -> Result<(), Error> {
    let failed = |error| Error::io("remove", path, error);
    let Some(name) = path.file_name() else {
        return Err(failed(io::ErrorKind::InvalidInput.into()));
    };
    if name.as_encoded_bytes().starts_with(REMOVED.as_bytes()) {
        return remove_all(path).map_err(failed);
    }
    if !path.exists() {
        return Ok(());
    }
    if !is_over(path)? {
        return Err(Error::Kept { path: path.to_owned() });
    }
    let mut away = std::ffi::OsString::from(REMOVED);
    away.push(name);
    let away = path.with_file_name(away);
    // What an earlier removal has left there.
    remove_all(&away).map_err(failed)?;
    match fs::rename(path, &away) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    remove_all(&away).map_err(failed)
}

fn remove_all(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether the launch's command is not executed any more and never will be: it has ended, or was
/// given up, or its shim is gone. Gives a launch up that nobody has claimed.
pub(super) fn is_over(path: &Path) -> Result<bool, Error> {
    let claim = path.join(CLAIM);
    let bytes = match read_small(&claim)? {
        Some(bytes) => bytes,
        None => match Claim::Void.link_in(path) {
            Ok(true) => return Ok(true),
            Ok(false) => read_small(&claim)?.unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(error) => return Err(Error::io("claim", path, error)),
        },
    };
    // Whatever else the claim says, of whichever boot or namespace: a lock that is held is a shim.
    Ok(matches!(Claim::decode(&bytes, &claim), Ok(Claim::Void))
        || path.join(STATUS).exists()
        || !lock_is_held(&path.join(LOCK))?)
}
