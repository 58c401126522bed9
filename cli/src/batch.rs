//! The agents of `map`: a batch is the parent, each command a run.

mod begin;
mod execute;
mod input;
mod launches;
mod made;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ghostlight::prelude::*;

use self::execute::warn;
pub(crate) use self::input::{CommandInput, EXACT_INPUT, Text, exact_input};
pub(crate) use self::launches::{Launches, Running};
use self::launches::{remove, stopped};
pub(crate) use self::made::{Bound, Made, no_batch};
use crate::launch::{CommandEnd, LaunchDir, OutputWatcher, Status as LaunchStatus};

/// How long a cancelled command has between TERM and KILL.
pub(crate) const TERM_GRACE: Duration = Duration::from_secs(5);
/// How long a run waits, doubled each time, when its command could not be run.
const NOT_STARTED_WAIT: Duration = Duration::from_millis(500);
/// The longest wait of a run whose command cannot be run or watched.
const TROUBLE_WAIT: Duration = Duration::from_secs(60);
/// How long a run waits, durably and outside memory, when we have killed its command: the next owner
/// goes on with it.
const STOPPED_WAIT: Duration = Duration::from_millis(1500);

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
    /// Within the data folder, which may be found under another path next time.
    folder: String,
    boot_id: String,
}

/// What a launch came to.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum LaunchEnd {
    Ended(LaunchStatus),
    /// The command is gone without an exit status.
    Vanished,
    /// It was never executed.
    Void,
    /// An earlier owner killed it: no attempt is counted.
    Killed,
    /// We have killed it ourselves, since the program stops: no attempt is counted.
    Stopped,
    /// We have not begun it, since the program stops.
    NotBegun,
    /// It could not be started or watched, for want of something that may come back.
    NotStarted(String),
}

/// Executes one command under a shim that outlives the program.
pub(crate) struct Command {
    /// The data folder, under which each launch has a folder of its own.
    pub(crate) data: PathBuf,
    /// Whether output and status survive a power cut.
    pub(crate) sync: bool,
    /// The soft limit of open files that commands get, if it is not to be this program's.
    pub(crate) open_files: Option<u64>,
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
            let dir = LaunchDir::known(self.data.join(&planned.folder), &planned.boot_id);
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
                LaunchEnd::NotBegun => cx.sleep(STOPPED_WAIT).await,
                LaunchEnd::Killed => lost(cx, "killed").await?,
                LaunchEnd::Stopped => {
                    lost(cx, "killed").await?;
                    cx.sleep(STOPPED_WAIT).await;
                }
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
                LaunchEnd::Vanished => {
                    lost(cx, "vanished").await?;
                    attempt += 1;
                }
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

/// The milestone of a run whose command was started, is gone without an end of its own, and has to be
/// started again. There are as many of them as the command has restarts.
pub(crate) const COMMAND_LOST: &str = "command-lost";

async fn lost(cx: &RunContext, why: &str) -> Result<(), RunError> {
    cx.milestone(COMMAND_LOST, json!({ "why": why })).await
}

/// The folder of a run's nth launch.
pub(crate) fn launch_folder(run_id: &str, number: u64) -> String {
    format!("{run_id}.{number}")
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
