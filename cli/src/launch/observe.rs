//! Gathers the facts of a launch, and acts on what is decided from them.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::claim::{Claim, FolderId, ShimClaim};
use super::decide::{ClaimSeen, Decision, Facts, decide};
use super::directory::{CLAIM, LOCK, LaunchDir, read_small};
use super::{Error, ShimHandle, Status, boot_id, pid_namespace};

/// What became of a launch.
#[derive(Debug)]
pub enum Recovered {
    /// The command ended.
    Ended(Status),
    /// The command is gone and its end unknown; or the folder is a copy, whose command never ran,
    /// and the original's is left alone. Its output so far is in the folder. Before the launch is followed by another one or by an error, [`kill_leftover`](super::kill_leftover)
    /// must have succeeded for the claim, if there is one.
    Vanished(Option<ShimClaim>),
    /// The command was not executed, and will not be by this launch: launch again in a new folder,
    /// without counting an attempt.
    NeverRan,
    /// A shim keeps the command; see [`ShimHandle::in_reach`].
    Alive(ShimHandle),
}

/// Finds out what became of a launch, giving it up if nobody has claimed it.
///
/// Safe to repeat, and safe while the launch's shim is at any point of its life; only one process
/// at a time may recover a given launch.
///
/// # Errors
///
/// The folder cannot be read, or holds a corrupt file, or a shim is there without a claim, until it
/// ends. Nothing is decided then.
pub fn recover(dir: &LaunchDir) -> Result<Recovered, Error> {
    let mut second_look = false;
    loop {
        let (facts, claim) = observe(dir, second_look)?;
        match (decide(&facts), claim) {
            (Decision::Ended(status), _) => return Ok(Recovered::Ended(status)),
            (Decision::Vanished, claim) => return Ok(Recovered::Vanished(claim)),
            (Decision::NeverRan, _) => return Ok(Recovered::NeverRan),
            (Decision::Undecided, _) => {
                return Err(Error::Kept { path: dir.path().to_owned() });
            }
            (Decision::LinkVoid, _) => {
                // Won or lost, there is a claim now.
                link_void(dir)?;
            }
            (Decision::LookAgain, _) => second_look = true,
            (decision, Some(claim)) => {
                let same_namespace = decision == Decision::Alive;
                return Ok(Recovered::Alive(ShimHandle::attach(dir, claim, same_namespace)?));
            }
            (_, None) => unreachable!("a launch is alive only under a shim's claim"),
        }
    }
}

/// Gives a launch up; returns whether its command has not been executed and never will be.
///
/// `false` says that a shim has been faster: the launch has begun, and must be recovered.
///
/// # Errors
///
/// The claim can be neither made nor read.
pub fn give_up(dir: &LaunchDir) -> Result<bool, Error> {
    if link_void(dir)? {
        return Ok(true);
    }
    let path = dir.file(CLAIM);
    let bytes = read_small(&path)?.unwrap_or_default();
    Ok(Claim::decode(&bytes, &path)? == Claim::Void)
}

fn link_void(dir: &LaunchDir) -> Result<bool, Error> {
    let failed = |error| Error::io("claim", dir.path(), error);
    // A folder that was planned but not made has no shim; with the claim it never gets one.
    match fs::DirBuilder::new().mode(0o700).create(dir.path()) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    Claim::Void.link_in(dir.path()).map_err(failed)
}

fn observe(dir: &LaunchDir, second_look: bool) -> Result<(Facts, Option<ShimClaim>), Error> {
    let boot_id = boot_id()?;
    let mut facts = Facts {
        status: None,
        same_boot: dir.boot_id() == boot_id,
        claim: ClaimSeen::None,
        second_look,
    };
    match dir.status() {
        Ok(status) => facts.status = status,
        // Without syncs a power cut may leave an empty status behind. In the boot that wrote it,
        // a status is whole or absent.
        Err(Error::Corrupt { .. }) if !facts.same_boot => {}
        Err(error) => return Err(error),
    }
    if facts.status.is_some() || !facts.same_boot {
        return Ok((facts, None));
    }
    let path = dir.file(CLAIM);
    let claim = match read_small(&path)? {
        None => None,
        Some(bytes) => match Claim::decode(&bytes, &path)? {
            Claim::Void => {
                facts.claim = ClaimSeen::Void { lock_held: lock_is_held(&dir.file(LOCK))? };
                None
            }
            Claim::Shim(claim) if claim.boot_id != boot_id => {
                facts.same_boot = false;
                None
            }
            Claim::Shim(claim)
                if FolderId::at(dir.path())?.is_some_and(|here| here != claim.folder) =>
            {
                facts.claim = ClaimSeen::Copied;
                None
            }
            Claim::Shim(claim) => {
                facts.claim = ClaimSeen::Shim {
                    same_namespace: claim.pid_namespace == pid_namespace()?,
                    lock_held: lock_is_held(&dir.file(LOCK))?,
                };
                Some(claim)
            }
        },
    };
    Ok((facts, claim))
}

/// Probes a shim's lock. The probe shares the lock for an instant, so that probes do not take one
/// another for a shim.
pub(super) fn lock_is_held(path: &Path) -> Result<bool, Error> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(Error::io("open", path, error)),
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(false),
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(Error::io("probe", path, error)),
    }
}
