//! Begins a launch, or finds out what became of it.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use ghostlight::RunError;
use ghostlight::storage::create_folder;

use super::execute::trouble;
use super::launches::{Launches, not_stopped};
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

/// Starts a launch that nobody has begun, unless nothing `may_start`, and recovers any other. Blocks.
///
/// `made`: the folder is known to have been there.
pub(super) fn begin(
    dir: &LaunchDir,
    spec: &Spec,
    made: bool,
    may_start: bool,
    launches: &Launches,
) -> Result<Begun, RunError> {
    let is_there = dir.path().try_exists()?;
    if made && !is_there {
        // Its command may still work, unseen: a second one must not be started beside it.
        return Err(missing(dir.path())?);
    }
    let mut not_started = None;
    // What was planned before the machine was started again may have been executed then, whether or
    // not its folder has lasted.
    if !is_there && dir.is_of_this_boot()? {
        if !may_start {
            return Ok(Begun::Not);
        }
        make_parents(dir.path(), spec.sync, launches)?;
        dir.create()?;
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
    Ok(match launch::recover(dir).map_err(trouble)? {
        Recovered::Alive(shim) => {
            // By whoever was stopped between the mark and the kill. Later ones are our own. A command
            // that is dead already was killed, and its shim has not said so yet.
            if !made && shim.command_lives()? {
                not_stopped(dir)?;
            }
            Begun::Alive(shim)
        }
        Recovered::Ended(status) => Begun::Ended(status),
        Recovered::Vanished(claim) => Begun::Vanished(claim),
        Recovered::NeverRan => not_started.map_or(Begun::Void, Begun::NotStarted),
    })
}

/// Why a launch folder is not where it was: it was removed, which is final, or what holds it was moved
/// or unmounted, which may be undone.
fn missing(dir: &Path) -> std::io::Result<RunError> {
    let parent = dir.parent().unwrap_or(dir);
    // Looked at again after its parent, which may just have come back.
    Ok(match parent.try_exists()? && !dir.try_exists()? {
        true => RunError::new(format!("the launch folder {} is gone", dir.display()))
            .kind("folder-gone"),
        false => RunError::new(format!("the folder {} was moved or unmounted", parent.display())),
    })
}

/// Makes the folder of the batch's launches and the one of all launches, and nothing above them: a
/// data folder that is not there was moved or unmounted, and an empty one in its place would hide
/// that its commands live.
///
/// Unless `sync` is off, their names are durable: a power cut that leaves a run leaves its launch.
fn make_parents(dir: &Path, sync: bool, launches: &Launches) -> std::io::Result<()> {
    let mut parents: Vec<&Path> = dir.ancestors().skip(1).take(2).collect();
    while let Some(parent) = parents.pop() {
        // Those that we find there may have been made by whoever was killed before the sync.
        if launches.have_folder() && parent.try_exists()? {
            continue;
        }
        match sync {
            true => create_folder(parent, 0o700)?,
            false => match DirBuilder::new().mode(0o700).create(parent) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            },
        }
    }
    launches.note_folder();
    Ok(())
}
