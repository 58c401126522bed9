//! The agents of `map`: a batch is the parent, each command a run.

mod begin;
mod input;
mod launches;
mod made;

use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ghostlight::prelude::*;

use self::begin::{Begun, begin};
pub(crate) use self::input::{CommandInput, Text};
pub(crate) use self::launches::Launches;
use self::launches::{Watched, remove, stop, stopped, was_stopped};
pub(crate) use self::made::{Bound, Made};
use crate::inputs::substitute;
use crate::launch::{
    self, CommandEnd, Conclusion, LaunchDir, Offsets, OutputFollower, OutputWatcher, ShimClaim,
    ShimHandle, Spec, Status as LaunchStatus,
};
use crate::lines::Stream;
use crate::sweep::launches_of;

/// How long a cancelled command has between TERM and KILL.
pub(crate) const TERM_GRACE: Duration = Duration::from_secs(5);
/// How long a cancelled run may take to stop its command and read what it has written.
pub(crate) const CANCEL_GRACE: Duration = Duration::from_secs(30);
/// How long a run waits, doubled each time, when its command could not be run.
const NOT_STARTED_WAIT: Duration = Duration::from_millis(500);
/// The longest wait of a run whose command cannot be run or watched.
const TROUBLE_WAIT: Duration = Duration::from_secs(60);
/// How long a run waits, durably and outside memory, when we have killed its command: the next owner
/// goes on with it.
const STOPPED_WAIT: Duration = Duration::from_millis(1500);
/// How often a launch is taken over anew when its run is cancelled: within [`CANCEL_GRACE`].
const CANCELLED_TRIES: u32 = 4;
/// The signal of our own kills.
const KILL: i32 = rustix::process::Signal::KILL.as_raw();

/// The parent of a batch of commands.
pub(crate) struct Batch {
    /// How many commands run at the same time.
    pub(crate) jobs: usize,
}

impl Agent for Batch {
    const TYPE: &'static str = "Batch";

    fn settings(&self) -> AgentSettings {
        AgentSettings {
            max_concurrent_runs: Some(self.jobs),
            at_cap: AtCap::Queue,
            ..AgentSettings::default()
        }
    }
}

/// What a completed command leaves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommandOutput {
    /// Its exit code: 0.
    pub(crate) exit_code: i32,
}

/// The durable name of a launch: enough to find it after the program is gone.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Launch {
    folder: String,
    boot_id: String,
}

/// What a launch came to.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum LaunchEnd {
    Ended(LaunchStatus),
    /// The command is gone without an exit status.
    Vanished,
    /// It was never executed, or an earlier owner killed it: no attempt is counted.
    Void,
    /// We have killed it ourselves, or not begun it, since the program stops.
    Stopped,
    /// It could not be started or watched, for want of something that may come back.
    NotStarted(String),
}

/// Executes one command under a shim that outlives the program.
pub(crate) struct Command {
    /// The data folder, under which each launch has a folder of its own.
    pub(crate) data: PathBuf,
    /// Whether output and status survive a power cut.
    pub(crate) sync: bool,
    /// How often a command is started when it vanishes.
    pub(crate) attempts_max: u32,
    /// Notices output.
    pub(crate) watcher: OutputWatcher,
    /// The launches that are being watched.
    pub(crate) launches: Arc<Launches>,
}

impl Agent for Command {
    const TYPE: &'static str = "Command";
}

impl Child for Command {
    type Input = CommandInput;
    type Output = CommandOutput;

    async fn run(&self, cx: &RunContext, input: CommandInput) -> Result<CommandOutput, RunError> {
        if let Some(refused) = &input.refused {
            return Err(RunError::new(refused).kind("input").permanent());
        }
        let mut attempt = 1;
        let mut not_started = 0;
        for number in 0u64.. {
            let planned = cx.step(("launch", number), async || self.plan(cx, number).await).await?;
            let dir = LaunchDir::known(&planned.folder, &planned.boot_id);
            let body = async || self.execute(cx, &dir, number, attempt, &input).await;
            let end = cx.step(("command", number), body).await;
            // Once its output is durable, nothing reads the folder any more.
            cx.flush().await;
            if end.is_ok() || stopped(&dir).await {
                remove(dir);
            }
            match end? {
                LaunchEnd::Ended(status) => return judge(&status),
                LaunchEnd::Void => {}
                LaunchEnd::Stopped => cx.sleep(STOPPED_WAIT).await,
                LaunchEnd::NotStarted(why) => {
                    // The machine is short of something, which is no failure of the command: give it
                    // time, as much as it takes.
                    not_started += 1;
                    let wait = (NOT_STARTED_WAIT * (1 << not_started.min(7))).min(TROUBLE_WAIT);
                    warn(cx, &why, wait, "a command is not started yet");
                    cx.sleep(wait).await;
                }
                LaunchEnd::Vanished if attempt >= self.attempts_max => {
                    let text =
                        format!("the command vanished without an exit status, {attempt} times");
                    return Err(RunError::new(text).kind("vanished"));
                }
                LaunchEnd::Vanished => attempt += 1,
            }
        }
        unreachable!("launches are not counted to the end of u64")
    }

    /// A command that outlives ten owners has not failed, and taking it over is no new attempt:
    /// launches have a bound and a count of their own.
    fn recovery(&self) -> RecoveryPolicy {
        RecoveryPolicy { count_attempts: false, ..RecoveryPolicy::unbounded() }
    }

    fn summary(&self, output: &CommandOutput) -> String {
        format!("exit code {}", output.exit_code)
    }
}

impl Command {
    /// Names a launch, as soon as the machine lets us.
    async fn plan(&self, cx: &RunContext, number: u64) -> Result<Launch, RunError> {
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
        let folder = launches_of(&self.data, &batch).join(launch_folder(cx.run_id(), number));
        let dir = tokio::task::spawn_blocking(move || LaunchDir::plan(&folder)).await??;
        let folder = dir
            .path()
            .to_str()
            .ok_or_else(|| RunError::new("the data folder's path is no UTF-8").permanent())?;
        Ok(Launch { folder: folder.to_owned(), boot_id: dir.boot_id().to_owned() })
    }

    /// Executes a planned launch to its end. Our own trouble in watching it is no failure of the
    /// command, and no reason to kill it or to begin it again: the launch is taken over anew, for as
    /// long as it takes.
    async fn execute(
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
            let stopping = self.launches.are_stopping();
            let error = match self.try_execute(cx, dir, number, attempt, input, &mut made).await {
                Err(error) if !is_final(&error) && tried_cancelled < CANCELLED_TRIES => error,
                end => return end,
            };
            warn(cx, &error, wait, "a command is not watched for a while");
            tokio::select! {
                biased;
                // There is a command to be stopped, and output to be read.
                () = cx.cancelled(), if tried_cancelled == 0 => wait = NOT_STARTED_WAIT,
                () = self.launches.stopping(), if !stopping => wait = NOT_STARTED_WAIT,
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
        let (cancelled, stopping) = (cx.is_cancelled(), self.launches.are_stopping());
        let begin = move || {
            if (cancelled || stopping) && !known && !launch.path().exists() {
                let begun = if cancelled { Err(cancelled_error()) } else { Ok(Begun::Not) };
                return (begun, false);
            }
            (begin(&launch, &spec, known), launch.path().exists())
        };
        let (begun, exists) = tokio::task::spawn_blocking(begin).await?;
        if exists {
            made.get_or_insert_with(|| Watched::new(&self.launches, dir));
        }
        // Looked at once it is in the list: a stop before that has not seen it.
        if self.launches.are_stopping() && made.is_some() && may_live(&begun) {
            stop(dir.clone()).await;
        }
        match begun? {
            Begun::Not => Ok(LaunchEnd::Stopped),
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
        let concluded = tokio::select! {
            biased;
            () = cx.cancelled() => {
                launch::cancel(dir, TERM_GRACE).await?;
                self.follow(cx, dir, number, true).await?;
                return Err(cancelled_error());
            }
            concluded = &mut follow => concluded?,
            // All output is stored; the end is a moment away.
            stored = &mut output => {
                stored?;
                follow.await?
            }
        };
        match concluded {
            Conclusion::Ended(status) => {
                // Where the first follower got to is in the context, so that a second one goes on.
                self.follow(cx, dir, number, false).await?;
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
            tokio::task::spawn_blocking(move || launch::kill_leftover(&claim)).await??;
        }
        self.follow(cx, dir, number, true).await?;
        Ok(match (self.launches.are_stopping(), stopped) {
            (true, _) => LaunchEnd::Stopped,
            (false, true) => LaunchEnd::Void,
            (false, false) => LaunchEnd::Vanished,
        })
    }

    /// Whose doing an end is: ours are deaths by KILL, and no others.
    async fn ended(&self, dir: &LaunchDir, status: LaunchStatus) -> Result<LaunchEnd, RunError> {
        Ok(match status.end {
            CommandEnd::Signaled { signal: KILL, .. } if self.launches.are_stopping() => {
                LaunchEnd::Stopped
            }
            CommandEnd::Signaled { signal: KILL, .. } if was_stopped(dir).await? => LaunchEnd::Void,
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

/// The folder of a run's nth launch.
pub(crate) fn launch_folder(run_id: &str, number: u64) -> String {
    format!("{run_id}.{number}")
}

/// Says what keeps a command; loudly where that lasts.
fn warn(cx: &RunContext, error: &dyn Display, wait: Duration, what: &str) {
    if wait < TROUBLE_WAIT {
        tracing::warn!(run_id = cx.run_id(), %error, "{what}");
    } else {
        tracing::error!(run_id = cx.run_id(), %error, "{what}; it is tried again every minute");
    }
}

fn cancelled_error() -> RunError {
    RunError::new("cancelled").kind("cancelled")
}

/// Whether trying again is useless, or was not asked for.
fn is_final(error: &RunError) -> bool {
    matches!(error.kind_str(), Some("input" | "spawn-failed" | "cancelled" | "folder-gone"))
}

fn judge(status: &LaunchStatus) -> Result<CommandOutput, RunError> {
    match &status.end {
        CommandEnd::Exited { code: 0 } => Ok(CommandOutput { exit_code: 0 }),
        CommandEnd::Exited { code } => {
            Err(RunError::new(format!("exited with code {code}")).kind("exit"))
        }
        CommandEnd::Signaled { signal, core_dumped } => {
            let core = if *core_dumped { ", core dumped" } else { "" };
            Err(RunError::new(format!("killed by signal {signal}{core}")).kind("signal"))
        }
        CommandEnd::SpawnFailed { text, .. } => {
            Err(RunError::new(text).kind("spawn-failed").permanent())
        }
    }
}

#[cfg(test)]
mod tests;
