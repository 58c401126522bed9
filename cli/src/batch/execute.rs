//! Executes the launches of one command.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ghostlight::prelude::*;

use super::begin::{Begun, begin};
use super::launches::{Phase, Watched, stop, was_stopped};
use super::{
    Command, CommandInput, Launch, LaunchEnd, NOT_STARTED_WAIT, TERM_GRACE, TROUBLE_WAIT, Text,
    launch_folder,
};
use crate::inputs::substitute;
use crate::launch::{
    self, Cancelled, CommandEnd, Conclusion, LaunchDir, Offsets, OutputFollower, ShimClaim,
    ShimHandle, Spec, Status as LaunchStatus,
};
use crate::lines::Stream;
use crate::sweep::launches_of;

/// How often a launch is taken over anew when its run is cancelled and its command not known to live.
const CANCELLED_TRIES: u32 = 4;
/// The signal of our own kills.
const KILL: i32 = rustix::process::Signal::KILL.as_raw();

impl Command {
    /// Names a launch, as soon as the machine lets us.
    pub(super) async fn plan(&self, cx: &RunContext, number: u64) -> Result<Launch, RunError> {
        let mut wait = NOT_STARTED_WAIT;
        loop {
            if cx.is_cancelled() {
                // A run that was cancelled comes back to read what its command has written; nothing
                // is started for it.
                return Err(cancelled_error());
            }
            let error = match self.try_plan(cx, number).await {
                Err(error) if !error.is_permanent() => error,
                planned => return planned,
            };
            warn(cx, &error, wait, "a command is not planned yet");
            tokio::select! {
                biased;
                () = cx.cancelled() => {}
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(TROUBLE_WAIT),
            }
        }
    }

    async fn try_plan(&self, cx: &RunContext, number: u64) -> Result<Launch, RunError> {
        // Run ids are made from inputs alone: another batch has the same ones.
        let batch = cx.path().parent().map(|(batch, _)| batch.name()).unwrap_or_default();
        let folder = launches_of(Path::new(""), &batch).join(launch_folder(cx.run_id(), number));
        let boot_id = tokio::task::spawn_blocking(launch::boot_id).await??;
        Ok(Launch { folder: folder.to_string_lossy().into_owned(), boot_id })
    }

    /// Executes a planned launch to its end. Our own trouble in watching it is no failure of the
    /// command, and no reason to kill it or to begin it again: the launch is taken over anew, for as
    /// long as it takes.
    pub(super) async fn execute(
        &self,
        cx: &RunContext,
        dir: &LaunchDir,
        number: u64,
        attempt: u32,
        input: &CommandInput,
    ) -> Result<LaunchEnd, RunError> {
        let mut wait = NOT_STARTED_WAIT;
        // Kept while nobody watches: the command may live, and a stop has to find it.
        let mut made = None;
        let mut tried_cancelled = 0;
        loop {
            tried_cancelled += u32::from(cx.is_cancelled());
            let phase = self.launches.phase();
            let error = match self.try_execute(cx, dir, number, attempt, input, &mut made).await {
                Err(error) if !is_final(&error) => error,
                end => return end,
            };
            if tried_cancelled >= CANCELLED_TRIES && !lives(&error, dir).await {
                return Err(error);
            }
            // The run waits for it, and only the user can help.
            let said = if is_still_there(&error) { TROUBLE_WAIT } else { wait };
            warn(cx, &error, said, "a command is not watched for a while");
            tokio::select! {
                biased;
                // There is a command to be stopped, and output to be read.
                () = cx.cancelled(), if tried_cancelled == 0 => wait = NOT_STARTED_WAIT,
                () = self.launches.after(phase), if phase != Phase::Stopping => wait = NOT_STARTED_WAIT,
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(TROUBLE_WAIT),
            }
        }
    }

    /// Starts a planned launch or takes it over, stores its output, and returns its end.
    async fn try_execute(
        &self,
        cx: &RunContext,
        dir: &LaunchDir,
        number: u64,
        attempt: u32,
        input: &CommandInput,
        made: &mut Option<Watched>,
    ) -> Result<LaunchEnd, RunError> {
        #[cfg(test)]
        self.launches.tried().fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let spec = self.spec(cx, attempt, input)?;
        let (launch, known) = (dir.clone(), made.is_some());
        let may_start = !cx.is_cancelled() && self.launches.phase() == Phase::Starting;
        let launches = Arc::clone(&self.launches);
        let begin =
            move || (begin(&launch, &spec, known, may_start, &launches), launch.path().exists());
        let (begun, exists) = tokio::task::spawn_blocking(begin).await?;
        if exists || matches!(begun, Ok(Begun::Alive(_))) {
            made.get_or_insert_with(|| Watched::new(&self.launches, cx.run_id(), dir));
        }
        // Looked at once it is in the list: a stop before that has not seen it.
        if self.launches.are_stopping() && made.is_some() && may_live(&begun) {
            stop(dir.clone()).await;
        }
        match begun? {
            Begun::Not if cx.is_cancelled() => Err(cancelled_error()),
            Begun::Not => Ok(LaunchEnd::NotBegun),
            Begun::Void => Ok(LaunchEnd::Void),
            Begun::NotStarted(why) => Ok(LaunchEnd::NotStarted(why)),
            Begun::Ended(status) => {
                self.follow(cx, dir, number, false).await?;
                self.ended(dir, status).await
            }
            Begun::Vanished(claim) => self.vanished(cx, dir, number, claim).await,
            Begun::Alive(shim) => self.attend(cx, dir, number, shim).await,
        }
    }

    fn spec(&self, cx: &RunContext, attempt: u32, input: &CommandInput) -> Result<Spec, RunError> {
        let words: Vec<OsString> =
            input.command.iter().map(Text::to_os).collect::<Result<_, _>>()?;
        let words = substitute(&words, &input.input.to_os()?)
            .map_err(|error| RunError::from(error).kind("input").permanent())?;
        let mut words = words.into_iter();
        let program = words
            .next()
            .ok_or_else(|| RunError::new("there is no command").kind("input").permanent())?;
        Ok(Spec {
            shim: Spec::THIS_PROGRAM.into(),
            program,
            args: words.collect(),
            cwd: input.cwd.to_os()?.into(),
            run_id: cx.run_id().to_owned(),
            attempt,
            sync: self.sync,
            open_files: self.open_files,
        })
    }

    /// Stores the output of a living command until it ends, or is cancelled.
    async fn attend(
        &self,
        cx: &RunContext,
        dir: &LaunchDir,
        number: u64,
        shim: ShimHandle,
    ) -> Result<LaunchEnd, RunError> {
        if !shim.in_reach() {
            tracing::warn!(
                run_id = cx.run_id(),
                "the command cannot be reached, as in another pid namespace; it is waited for"
            );
        }
        let follow = async {
            let concluded = launch::conclude(dir, shim).await?;
            Ok::<_, RunError>(concluded)
        };
        let mut follow = std::pin::pin!(follow);
        let mut output = std::pin::pin!(self.follow(cx, dir, number, false));
        let mut out_of_reach = false;
        let concluded = loop {
            tokio::select! {
                biased;
                () = cx.cancelled(), if !out_of_reach => {
                    match launch::cancel(dir, TERM_GRACE).await.map_err(trouble)? {
                        Cancelled::OutOfReach => out_of_reach = true,
                        _ => {
                            self.follow(cx, dir, number, true).await?;
                            return Err(cancelled_error());
                        }
                    }
                    tracing::warn!(
                        run_id = cx.run_id(),
                        "a cancelled command cannot be stopped, as it is in another pid namespace \
                         or another user's; it is waited for"
                    );
                }
                concluded = &mut follow => break concluded?,
                // All output is stored; the end is a moment away.
                stored = &mut output => {
                    stored?;
                    break follow.await?;
                }
            }
        };
        match concluded {
            Conclusion::Ended(status) => {
                // Where the first follower got to is in the context, so that a second one goes on.
                self.follow(cx, dir, number, false).await?;
                if out_of_reach {
                    return Err(cancelled_error());
                }
                self.ended(dir, status).await
            }
            Conclusion::Vanished(claim) => self.vanished(cx, dir, number, Some(claim)).await,
        }
    }

    async fn vanished(
        &self,
        cx: &RunContext,
        dir: &LaunchDir,
        number: u64,
        claim: Option<ShimClaim>,
    ) -> Result<LaunchEnd, RunError> {
        let stopped = was_stopped(dir).await?;
        if let Some(claim) = claim {
            let killed = tokio::task::spawn_blocking(move || launch::kill_leftover(&claim));
            killed.await?.map_err(trouble)?;
        }
        self.follow(cx, dir, number, true).await?;
        Ok(match stopped {
            true if self.launches.are_stopping() => LaunchEnd::Stopped,
            true => LaunchEnd::Killed,
            false => LaunchEnd::Vanished,
        })
    }

    /// Whose doing an end is: ours are deaths by KILL, and no others.
    async fn ended(&self, dir: &LaunchDir, status: LaunchStatus) -> Result<LaunchEnd, RunError> {
        Ok(match status.end {
            CommandEnd::Signaled { signal: KILL, .. } if self.launches.are_stopping() => {
                LaunchEnd::Stopped
            }
            CommandEnd::Signaled { signal: KILL, .. } if was_stopped(dir).await? => {
                LaunchEnd::Killed
            }
            CommandEnd::SpawnFailed { text, .. } if status.end.is_retryable() => {
                LaunchEnd::NotStarted(text)
            }
            _ => LaunchEnd::Ended(status),
        })
    }

    /// Stores output lines as chunks, each with the offset after it, up to the end of the launch;
    /// or to where the files end now.
    async fn follow(
        &self,
        cx: &RunContext,
        dir: &LaunchDir,
        number: u64,
        to_file_end: bool,
    ) -> Result<(), RunError> {
        let source = |stream: Stream| format!("{}#{number}", stream.as_str());
        let from = Offsets {
            stdout: cx.source_offset(&source(Stream::Stdout)),
            stderr: cx.source_offset(&source(Stream::Stderr)),
        };
        let (opened, watcher) = (dir.clone(), self.watcher.clone());
        // Opens two files of our own folder.
        let mut follower = tokio::task::spawn_blocking({
            let runtime = tokio::runtime::Handle::current();
            move || {
                let _runtime = runtime.enter();
                OutputFollower::open(&opened, from, &watcher)
            }
        })
        .await??;
        if to_file_end {
            follower.stop_at_end();
        }
        while let Some(line) = follower.next().await? {
            let body = serde_json::value::RawValue::from_string(line.chunk.encode())?;
            cx.emit_from(&source(line.chunk.stream), line.end, body).await?;
        }
        Ok(())
    }
}

/// Whether there may be a command to be killed.
fn may_live(begun: &Result<Begun, RunError>) -> bool {
    matches!(begun, Ok(Begun::Alive(_)) | Err(_))
}

/// Says what keeps a command; loudly where that lasts.
pub(super) fn warn(cx: &RunContext, error: &dyn Display, wait: Duration, what: &str) {
    if wait < TROUBLE_WAIT {
        tracing::warn!(run_id = cx.run_id(), %error, "{what}");
    } else {
        tracing::error!(run_id = cx.run_id(), %error, "{what}; it is tried again every minute");
    }
}

fn cancelled_error() -> RunError {
    RunError::new("cancelled").kind("cancelled")
}

/// The kind of an error of processes that are known to be there still.
const STILL_THERE: &str = "still-there";

pub(super) fn trouble(error: launch::Error) -> RunError {
    use launch::Error::{Kept, ShimStuck, StillThere};
    let is_still_there = matches!(error, StillThere { .. } | ShimStuck { .. } | Kept { .. });
    let error = RunError::from(error);
    if is_still_there { error.kind(STILL_THERE) } else { error }
}

fn is_still_there(error: &RunError) -> bool {
    error.kind_str() == Some(STILL_THERE)
}

/// Whether a launch that there is trouble with is known to have a command that lives: whatever was
/// asked for, its run has not ended.
async fn lives(error: &RunError, dir: &LaunchDir) -> bool {
    let dir = dir.clone();
    is_still_there(error)
        || matches!(tokio::task::spawn_blocking(move || dir.is_over()).await, Ok(Ok(false)))
}

/// Whether trying again is useless, or was not asked for.
fn is_final(error: &RunError) -> bool {
    matches!(error.kind_str(), Some("input" | "spawn-failed" | "cancelled" | "folder-gone"))
}
