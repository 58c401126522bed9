//! Begins a launch, or finds out what became of it.

use std::path::Path;

use ghostlight::RunError;

use super::launches::not_stopped;
use crate::launch::{self, LaunchDir, Recovered, ShimClaim, ShimHandle, SpawnError, Spec, Status};

/// Where a launch stands.
pub(super) enum Begun {
    /// Nobody has begun it, nor does now.
    Not,
    NotStarted(String),
    Alive(ShimHandle),
    Ended(Status),
    Vanished(Option<ShimClaim>),
    Void,
}

/// Starts a launch whose folder is not there yet, and recovers any other. Blocks.
///
/// `made`: the folder is known to have been there.
pub(super) fn begin(dir: &LaunchDir, spec: &Spec, made: bool) -> Result<Begun, RunError> {
    if made && !dir.path().exists() {
        // Its command may still work, unseen: a second one must not be started beside it.
        let text = format!("the launch folder {} is gone", dir.path().display());
        return Err(RunError::new(text).kind("folder-gone"));
    }
    let parent = dir.path().parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(parent)?;
    let fresh = match dir.create() {
        Ok(()) => true,
        Err(launch::Error::Io { source, .. })
            if source.kind() == std::io::ErrorKind::AlreadyExists =>
        {
            false
        }
        Err(error) => return Err(error.into()),
    };
    let mut not_started = None;
    if fresh {
        match launch::spawn(dir, spec) {
            Ok(shim) => return Ok(Begun::Alive(shim)),
            Err(error @ (SpawnError::TooLong | SpawnError::Nul)) => {
                return Err(RunError::from(error).kind("spawn-failed").permanent());
            }
            // Something else has the launch, or nobody: look.
            Err(SpawnError::Lost) => {}
            Err(error) => not_started = Some(RunError::from(error).to_string()),
        }
    }
    Ok(match launch::recover(dir)? {
        Recovered::Alive(shim) => {
            // By whoever was stopped between the mark and the kill. Later ones are our own.
            if !made {
                not_stopped(dir)?;
            }
            Begun::Alive(shim)
        }
        Recovered::Ended(status) => Begun::Ended(status),
        Recovered::Vanished(claim) => Begun::Vanished(claim),
        Recovered::NeverRan => not_started.map_or(Begun::Void, Begun::NotStarted),
    })
}
