use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{LaunchDir, ShimHandle, SpawnError};
use crate::shim::{Job, Report};

/// The variable that tells a command which run it is for.
const RUN_ID: &str = "GHOSTLIGHT_RUN_ID";

/// The variable that tells a command how often it has been started, from 1.
const ATTEMPT: &str = "GHOSTLIGHT_ATTEMPT";

/// What to execute, and how.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The program that becomes the shim: one whose `main` begins with
    /// [`shim::enter`](crate::shim::enter). Normally [`Spec::THIS_PROGRAM`].
    pub shim: PathBuf,
    /// The command, looked up in `PATH` if it has no slash.
    pub program: OsString,
    /// Its arguments, without its name.
    pub args: Vec<OsString>,
    /// Its working directory.
    pub cwd: PathBuf,
    /// The run it is for; the command finds it in `GHOSTLIGHT_RUN_ID`.
    pub run_id: String,
    /// Which start of the command this is, from 1; the command finds it in `GHOSTLIGHT_ATTEMPT`.
    pub attempt: u32,
    /// Whether output and status must survive a power cut, not just a killed process.
    pub sync: bool,
    /// The soft limit of open files that the command gets, where this program has raised its own.
    pub open_files: Option<u64>,
}

impl Spec {
    /// The running program itself, even if its file has been replaced since.
    pub const THIS_PROGRAM: &'static str = "/proc/self/exe";
}

/// Starts a shim for a command in a launch folder, and waits until the launch is its own.
///
/// The command runs with the environment of this process and the two variables above, in a session
/// and process group of its own, with standard input from `/dev/null` and its output going to the
/// folder's files. A command that cannot be executed is no error here but the launch's
/// [status](super::CommandEnd::SpawnFailed).
///
/// Takes about as long as starting two processes. Once it returns `Ok`, nothing that happens to
/// this program touches the command.
///
/// # Errors
///
/// See [`SpawnError`].
pub fn spawn(dir: &LaunchDir, spec: &Spec) -> Result<ShimHandle, SpawnError> {
    // The shim leaves this process's working directory, so nothing may be relative to it.
    let absolute = |path: &Path| std::path::absolute(path).map_err(SpawnError::Start);
    let job = Job {
        dir: absolute(dir.path())?,
        sync: spec.sync,
        open_files: spec.open_files,
        cwd: absolute(&spec.cwd)?,
        program: spec.program.clone(),
        args: spec.args.clone(),
    };
    let mut words = job.into_words();
    let mut child = Command::new(&spec.shim)
        .arg0(words.next().unwrap_or_default())
        .args(words)
        .env(RUN_ID, &spec.run_id)
        .env(ATTEMPT, spec.attempt.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| match error.raw_os_error() {
            Some(libc::E2BIG) => SpawnError::TooLong,
            None if error.kind() == std::io::ErrorKind::InvalidInput => SpawnError::Nul,
            _ => SpawnError::Start(error),
        })?;

    let mut report = Vec::new();
    if let Some(pipe) = child.stdout.take() {
        // A pipe that cannot be read says as much as an empty one.
        let _ = pipe.take(Report::BYTES_MAX).read_to_end(&mut report);
    }
    let error = match Report::decode(&report) {
        Some(Report::Claimed(claim)) => return Ok(ShimHandle::of_child(dir, claim)),
        Some(Report::Lost) => SpawnError::Lost,
        Some(Report::SetUpFailed { stage, errno }) => {
            SpawnError::SetUp { stage, source: std::io::Error::from_raw_os_error(errno) }
        }
        None => SpawnError::Died,
    };
    // Whatever it was, the shim is ending. Reaped here, it leaves no zombie.
    let _ = child.wait();
    Err(error)
}
