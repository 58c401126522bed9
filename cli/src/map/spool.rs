//! `--detach`: the inputs are put aside, and the program goes on in a session of its own.
//!
//! A batch's spool is a folder with `inputs` (NUL-separated, synced) and `spool.json`, which is
//! renamed into place last: a spool is whole or not there.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, ExitCode, Stdio};
use std::time::Duration;

use ghostlight::prelude::{Deserialize, Serialize};
use ghostlight::storage::FolderLock;

use super::feed::{Feed, Item};
use super::owner;
use super::signals::Signals;
use crate::args::MapArgs;
use crate::batch::{Made, Text};
use crate::fatal::Fatal;
use crate::inputs::Source;
use crate::sweep::spool_of;

/// How long the background program may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_millis(20);
const VERSION: u32 = 1;
/// The inputs of a spool that is not whole yet.
const INPUTS_NEW: &str = "inputs.new";

/// What a spooled batch has to know beside its inputs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpoolFile {
    version: u32,
    command: Vec<Text>,
    cwd: Text,
    jobs: Option<u32>,
    max_attempts: u32,
    no_sync: bool,
}

/// A batch that was spooled before.
pub(super) struct Spooled {
    cwd: Text,
    inputs: PathBuf,
}

impl Spooled {
    pub(super) fn cwd(&self) -> Result<PathBuf, Fatal> {
        os(&self.cwd).map(PathBuf::from)
    }

    pub(super) fn source(&self) -> Source {
        Source::Spool(self.inputs.clone())
    }
}

fn os(text: &Text) -> Result<OsString, Fatal> {
    text.to_os().map_err(|error| Fatal::new(format!("the spool is damaged: {error}")))
}

/// Without a command, takes over the command line of a spooled batch.
pub(super) async fn resume(args: &mut MapArgs) -> Result<Option<Spooled>, Fatal> {
    if !args.command.is_empty() {
        return Ok(None);
    }
    let Some(batch) = &args.batch else {
        let usage = "write the command after --, as in: ghostlight map a b c -- echo {}";
        return Err(Fatal::new(format!("there is no command; {usage}")));
    };
    if !args.inputs.is_empty() || !args.files.is_empty() {
        return Err(Fatal::new("there is no command for these inputs; write it after --"));
    }
    let folder = std::path::absolute(spool_of(&args.place.data, batch))?;
    let path = folder.join("spool.json");
    let read = tokio::fs::read(&path).await;
    let bytes = match read {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let names = Made::names(&args.place.data).await?;
            if !names.contains(batch) {
                let there = match names.is_empty() {
                    true => "there is none yet".to_owned(),
                    false => format!("there are: {}", names.join(", ")),
                };
                return Err(Fatal::new(format!("there is no batch {batch:?}; {there}")));
            }
            let hint = "write its command after --";
            return Err(Fatal::new(format!("batch {batch:?} was not detached; {hint}")));
        }
        Err(error) => return Err(Fatal::from(error).while_doing(path.display())),
    };
    let file: SpoolFile = serde_json::from_slice(&bytes)
        .map_err(|error| Fatal::from(error).while_doing(path.display()))?;
    if file.version != VERSION {
        let text = format!(
            "{} has version {}, which this program does not know",
            path.display(),
            file.version
        );
        return Err(Fatal::new(text));
    }
    args.command = file.command.iter().map(os).collect::<Result<_, _>>()?;
    args.jobs = args.jobs.or(file.jobs);
    args.max_attempts = file.max_attempts;
    args.no_sync |= file.no_sync;
    Ok(Some(Spooled { cwd: file.cwd, inputs: folder.join("inputs") }))
}

/// Spools the inputs, starts the program again in the background, and waits until it answers.
pub(super) async fn detach(
    args: &MapArgs,
    batch: &str,
    data: &Path,
    cwd: &Path,
    feed: Feed,
    lock: FolderLock,
    signals: &mut Signals,
) -> Result<ExitCode, Fatal> {
    let folder = spool_of(data, batch);
    tokio::fs::create_dir_all(&folder).await?;
    let writing = tokio::task::spawn_blocking({
        let folder = folder.clone();
        move || write_inputs(feed, &folder)
    });
    tokio::select! {
        biased;
        // Nothing refers to a spool that is not whole.
        _ = signals.next() => return Ok(ExitCode::from(130)),
        written = writing => if let Err(error) = written? {
            // What was put aside before stays; a folder that is not empty is not removed.
            let _ = tokio::fs::remove_file(folder.join(INPUTS_NEW)).await;
            let _ = tokio::fs::remove_dir(&folder).await;
            return Err(error);
        },
    }
    let file = SpoolFile {
        version: VERSION,
        command: args.command.iter().map(|word| Text::from(word.as_os_str())).collect(),
        cwd: Text::from(cwd.as_os_str()),
        jobs: args.jobs,
        max_attempts: args.max_attempts,
        no_sync: args.no_sync,
    };
    let bytes = serde_json::to_vec(&file)?;
    tokio::task::spawn_blocking({
        let folder = folder.clone();
        move || write_whole(&folder, &bytes)
    })
    .await??;
    // The background program takes it next.
    drop(lock);
    start(args, batch, data).await
}

/// Writes the inputs aside, synced. Blocks.
fn write_inputs(mut feed: Feed, folder: &Path) -> Result<(), Fatal> {
    let path = folder.join(INPUTS_NEW);
    let mut file = BufWriter::new(File::create(&path)?);
    let mut failed = 0u64;
    while let Some(item) = feed.blocking_next() {
        match item {
            Item::Input(input) if input.as_bytes().contains(&0) => {
                eprintln!("ghostlight: an input with a NUL byte cannot be an argument");
                failed += 1;
            }
            Item::Input(input) => {
                file.write_all(input.as_bytes())?;
                file.write_all(&[0])?;
            }
            Item::Failed(error) => {
                eprintln!("ghostlight: {error}");
                failed += 1;
            }
            Item::Notes(_) => {}
        }
    }
    if failed > 0 {
        return Err(Fatal::new(format!("{failed} inputs cannot be had; nothing was started")));
    }
    let file = file.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    file.sync_all()?;
    std::fs::rename(path, folder.join("inputs"))?;
    Ok(())
}

fn write_whole(folder: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let path = folder.join("spool.json.new");
    let mut file = File::create(&path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(path, folder.join("spool.json"))?;
    File::open(folder)?.sync_all()
}

fn say(text: &str) -> Result<ExitCode, Fatal> {
    // The batch goes on whether anybody reads this or not.
    let _ = writeln!(std::io::stdout(), "{text}");
    Ok(ExitCode::SUCCESS)
}

async fn start(args: &MapArgs, batch: &str, data: &Path) -> Result<ExitCode, Fatal> {
    let log = File::create(data.join("map.log"))?;
    let mut process = Process::new("/proc/self/exe");
    let mut folder = OsString::from("--data=");
    folder.push(data);
    process.arg("map").arg("--session").arg(format!("--batch={batch}")).arg(folder);
    if let Some(listen) = &args.listen {
        process.arg("--listen").arg(listen.to_string());
    }
    if args.retry_failed {
        process.arg("--retry-failed");
    }
    process.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let mut child = process.spawn()?;
    let began = tokio::time::Instant::now();
    loop {
        if owner::has_owner(data).await {
            return say(&format!(
                "batch {batch} goes on in the background (process {})",
                child.id()
            ));
        }
        if let Some(status) = child.try_wait()? {
            // A short batch is over before anybody could ask.
            if status.success() {
                return say(&format!("batch {batch} is done"));
            }
            let text = std::fs::read_to_string(data.join("map.log")).unwrap_or_default();
            let last = text.lines().last().unwrap_or("it said nothing");
            return Err(Fatal::new(format!(
                "the background program ended at once ({status}): {last}"
            )));
        }
        if began.elapsed() > ANSWER_WAIT {
            let text = format!(
                "process {} does not answer; see {}",
                child.id(),
                data.join("map.log").display()
            );
            return Err(Fatal::new(text));
        }
        tokio::time::sleep(RETRY).await;
    }
}
