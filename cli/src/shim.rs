//! The shim: the small process that keeps one command when the program goes away.
//!
//! It is this very program, executed again and entered at the first line of `main`: single-threaded
//! from beginning to end, because a parent-death signal follows the forking thread. It holds the
//! launch's lock for life, so that "the lock is free" means "nobody keeps this command"; and the
//! command dies with it, so that then nobody runs it either.
//!
//! Signals to the shim itself have their usual effect: whoever kills it kills the command, and the
//! launch has vanished. That is the truth when a machine shuts down.

mod command;
mod end;
mod job;
mod report;
mod setup;

use std::io;
use std::process::ExitCode;

use rustix::process::getpid;

use crate::launch::{Claim, CommandEnd, ProcessStat, ShimClaim, Status, boot_id, pid_namespace};
use command::GatedCommand;
pub(crate) use job::Job;
pub(crate) use report::Report;
use setup::{Files, SetUpError};

/// Acts as a shim if this process was started as one; returns `None` if it was not.
///
/// To be called at the first line of `main`, before any thread or runtime exists. What it returns
/// is the process's exit code; whoever started the shim has been told through its standard output
/// by then, and everybody else reads the launch folder.
pub fn enter() -> Option<ExitCode> {
    let job = match Job::from_words(std::env::args_os())? {
        Ok(job) => job,
        Err(()) => return Some(ExitCode::from(2)),
    };
    Some(match run(&job) {
        Ok(()) => ExitCode::SUCCESS,
        // Standard error is the launch's log by now, or else nothing.
        Err(error) => {
            log(&error);
            ExitCode::FAILURE
        }
    })
}

fn run(job: &Job) -> io::Result<()> {
    let (files, command) = match claim(job) {
        Ok(Claimed::Ours(files, command)) => (files, command),
        Ok(Claimed::Lost) => {
            Report::Lost.send();
            return Ok(());
        }
        Err(error) => {
            Report::SetUpFailed { stage: error.stage.to_owned(), errno: error.errno }.send();
            return Ok(());
        }
    };
    // From here on nobody listens on standard output, and nothing may write to it.
    files.take_streams()?;
    let pid = command.pid();
    let end = match command.execute()? {
        None => end::wait_for(pid)?,
        Some(failure) => {
            end::wait_for(pid)?;
            failure.describe(job)
        }
    };
    // How the command ended is known: it is told, whatever becomes of what it has left.
    if let Err(error) = end::kill_group(pid) {
        log(&error);
    }
    store(job, &files, end)
}

fn log(error: &io::Error) {
    let _ = io::Write::write_all(&mut io::stderr(), format!("{error}\n").as_bytes());
}

enum Claimed {
    Ours(Files, GatedCommand),
    Lost,
}

/// Takes the launch: first the lock, then the claim. The command exists by then, so that the claim
/// can name its process group, but waits at a gate.
fn claim(job: &Job) -> Result<Claimed, SetUpError> {
    setup::isolate()?;
    let Some(files) = Files::open(&job.dir)? else {
        return Ok(Claimed::Lost);
    };
    let command = GatedCommand::fork(job, &files).map_err(SetUpError::at("fork"))?;
    let claimed =
        describe(&files, &command).map_err(SetUpError::at("read /proc")).and_then(|claim| {
            let linked = Claim::Shim(claim.clone()).link(files.folder());
            let ours = linked.and_then(|linked| Ok(linked && files.are_in_place(&job.dir)?));
            Ok(ours.map_err(SetUpError::at("claim"))?.then_some(claim))
        });
    match claimed {
        Ok(Some(claim)) => {
            Report::Claimed(claim).send();
            Ok(Claimed::Ours(files, command))
        }
        Ok(None) => {
            command.abandon();
            Ok(Claimed::Lost)
        }
        Err(error) => {
            command.abandon();
            Err(error)
        }
    }
}

fn describe(files: &Files, command: &GatedCommand) -> io::Result<ShimClaim> {
    let pid = getpid().as_raw_pid();
    let stat = ProcessStat::read(pid).map_err(io::Error::other)?;
    let stat = stat.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    Ok(ShimClaim {
        boot_id: boot_id().map_err(io::Error::other)?,
        pid_namespace: pid_namespace().map_err(io::Error::other)?,
        pid,
        start_time: stat.start_time,
        process_group: command.pid().as_raw_pid(),
        folder: files.folder_id()?,
    })
}

/// Stores how the command ended, after all that it wrote.
fn store(job: &Job, files: &Files, end: CommandEnd) -> io::Result<()> {
    let status = Status {
        end,
        stdout_bytes: files.stdout().metadata()?.len(),
        stderr_bytes: files.stderr().metadata()?.len(),
    };
    if job.sync {
        files.stdout().sync_data()?;
        files.stderr().sync_data()?;
    }
    files.publish_status(&status.encode()?, job.sync)?;
    if job.sync {
        files.sync_name()?;
    }
    Ok(())
}
