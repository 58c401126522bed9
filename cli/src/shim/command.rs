//! The command between fork and exec: it exists, but waits at a gate until its launch is claimed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, chdir, getpid, getppid, set_parent_process_death_signal,
    setpgid, waitid,
};

use super::job::Job;
use super::setup::Files;
use crate::launch::CommandEnd;
use crate::shown::shorten;
use crate::sys::{self, Fork};

/// The longest part of a command's name that is repeated in an error text.
const NAME_CHARS_MAX: usize = 200;

/// A forked command that has not been executed yet.
pub(super) struct GatedCommand {
    pid: Pid,
    gate: File,
    failure: File,
}

/// Why a command could not be executed.
pub(super) struct ExecFailure {
    stage: ExecStage,
    errno: i32,
}

#[derive(Clone, Copy)]
enum ExecStage {
    Cwd = 1,
    Exec = 2,
    Other = 3,
}

impl GatedCommand {
    pub(super) fn fork(job: &Job, files: &Files) -> io::Result<Self> {
        let (gate_out, gate_in) = pipe_with(PipeFlags::CLOEXEC)?;
        let (failure_out, failure_in) = pipe_with(PipeFlags::CLOEXEC)?;
        let shim = getpid();
        match sys::fork()? {
            Fork::Parent(pid) => {
                Ok(GatedCommand { pid, gate: gate_in.into(), failure: failure_out.into() })
            }
            Fork::Child => {
                drop((gate_in, failure_out));
                let mut gate = File::from(gate_out);
                if let Err(failure) = wait_and_exec(job, files, shim, &mut gate) {
                    let _ = File::from(failure_in).write_all(&failure.encode());
                }
                sys::exit_now(127)
            }
        }
    }

    /// The command's process, which is also its process group.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Ends the process, which executes nothing.
    pub(super) fn abandon(self) {
        let pid = self.pid;
        drop(self);
        // The end of the gate is the end of the process. There is nothing to do about an error.
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
    }

    /// Opens the gate, and waits until the command is executed or cannot be.
    pub(super) fn execute(mut self) -> io::Result<Option<ExecFailure>> {
        match self.gate.write_all(&[1]) {
            // A command that was killed at the gate has an end to be read all the same.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
            _ => {}
        }
        let mut failure = Vec::new();
        // Ends without a byte when exec closes the other end.
        self.failure.read_to_end(&mut failure)?;
        Ok(ExecFailure::decode(&failure))
    }
}

/// In the new process: returns only if the command cannot be executed.
fn wait_and_exec(job: &Job, files: &Files, shim: Pid, gate: &mut File) -> Result<(), ExecFailure> {
    let mut prepare = || -> io::Result<bool> {
        setpgid(None, None)?;
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // A shim that died before the line above sends no signal any more.
        if getppid() != Some(shim) {
            return Ok(false);
        }
        // Among others this closes the pipe to the starter, who waits for its end.
        files.give_streams()?;
        let is_open = gate.read(&mut [0])? == 1;
        if let Some(limit) = job.open_files {
            sys::set_open_files(Some(limit))?;
        }
        Ok(is_open)
    };
    if !prepare().map_err(ExecFailure::at(ExecStage::Other))? {
        return Ok(());
    }
    chdir(&job.cwd).map_err(|errno| ExecFailure::at(ExecStage::Cwd)(errno.into()))?;
    sys::restore_size_signal();
    // Besides looking up the command this takes back what the runtime did to signals.
    let error = Command::new(&job.program).args(&job.args).exec();
    Err(ExecFailure::at(ExecStage::Exec)(error))
}

impl ExecFailure {
    fn at(stage: ExecStage) -> impl FnOnce(io::Error) -> Self {
        move |error| ExecFailure {
            stage,
            // An error that is not the system's is an argument with a NUL.
            errno: error.raw_os_error().unwrap_or(libc::EINVAL),
        }
    }

    fn encode(&self) -> [u8; 5] {
        let [a, b, c, d] = self.errno.to_le_bytes();
        [self.stage as u8, a, b, c, d]
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let [stage, errno @ ..] = <[u8; 5]>::try_from(bytes).ok()?;
        let stage = match stage {
            1 => ExecStage::Cwd,
            2 => ExecStage::Exec,
            _ => ExecStage::Other,
        };
        Some(ExecFailure { stage, errno: i32::from_le_bytes(errno) })
    }

    pub(super) fn describe(&self, job: &Job) -> CommandEnd {
        let program = shorten(&job.program.to_string_lossy(), NAME_CHARS_MAX);
        let error = io::Error::from_raw_os_error(self.errno);
        let text = match (self.stage, self.errno) {
            (ExecStage::Cwd, _) => {
                format!(
                    "working directory {}: {error}",
                    shorten(&job.cwd.to_string_lossy(), NAME_CHARS_MAX)
                )
            }
            (ExecStage::Exec, libc::ENOENT) => format!("command not found: {program}"),
            (ExecStage::Exec, libc::EACCES) => format!("not executable: {program}"),
            (ExecStage::Exec, libc::E2BIG) => format!("argument list too long: {program}"),
            (ExecStage::Exec | ExecStage::Other, _) => format!("cannot execute {program}: {error}"),
        };
        CommandEnd::SpawnFailed { errno: self.errno, text }
    }
}
