//! `--detach`: the inputs are put aside, and the program goes on in a session of its own.
//!
//! What is put aside replaces what was before only once that is done: until then it is added to it.

mod folder;

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, ExitCode};
use std::time::Duration;

use ghostlight::storage::FolderLock;

use self::folder::{Put, SpoolFile, SpoolFolder};
use super::feed::Feed;
use super::owner;
use super::signals::Signals;
use super::start::{Start, UNDO_WAIT};
use crate::args::{MAX_ATTEMPTS, MapArgs};
use crate::batch::{Made, Text, no_batch};
use crate::fatal::{Fatal, absolute};
use crate::inputs::Source;
use crate::sweep::spool_of;

/// How long the background program may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_millis(20);
/// The name of the background program in process listings, whose file is found by another one.
const NAME: &str = "ghostlight";

/// The exit status of a background program that failed after it had begun: its inputs are not taken
/// back then. Nobody but who has started it sees it.
pub(super) const BROKEN_OFF: u8 = 3;

/// A batch that was spooled before.
pub(super) struct Spooled {
    folder: SpoolFolder,
    file: SpoolFile,
}

impl Spooled {
    pub(super) fn cwd(&self) -> Result<PathBuf, Fatal> {
        os(&self.file.cwd).map(PathBuf::from)
    }

    pub(super) fn source(&self) -> Source {
        Source::Spool(self.folder.inputs(&self.file))
    }

    /// Reads what is put aside now. For whoever holds the lock of the folder.
    ///
    /// # Errors
    /// It is of another command or working directory, or gone.
    pub(super) async fn read_again(self) -> Result<Self, Fatal> {
        let Self { folder, file: before } = self;
        let read = move || folder.read().map(|file| (folder, file));
        let (folder, file) = tokio::task::spawn_blocking(read).await??;
        let same = file.filter(|now| (&now.command, &now.cwd) == (&before.command, &before.cwd));
        let file = same.ok_or_else(|| Fatal::new("the batch was changed meanwhile; try again"))?;
        Ok(Self { folder, file })
    }

    /// Records that every input has been dispatched and has come to its end: what is put aside next
    /// takes their place. For whoever holds the lock of the folder.
    pub(super) async fn done(self) {
        let Self { folder, file } = self;
        let written = tokio::task::spawn_blocking(move || folder.done(&file)).await;
        // Without it they are looked at once more.
        if let Ok(Err(error)) = written {
            tracing::warn!(%error, "it is not recorded that the inputs put aside are done");
        }
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
    let folder = SpoolFolder::new(absolute(&spool_of(&args.place.data, batch))?);
    let Some(file) = folder.read()? else {
        let names = Made::names(&args.place.data).await?;
        if !names.contains(batch) {
            return Err(no_batch(batch, &names));
        }
        let hint = "write its command after --";
        return Err(Fatal::new(format!("batch {batch:?} was not detached; {hint}")));
    };
    args.command = file.command.iter().map(os).collect::<Result<_, _>>()?;
    args.jobs = args.jobs.or(file.jobs);
    args.max_attempts = args.max_attempts.or(Some(file.max_attempts));
    args.no_sync |= file.no_sync;
    Ok(Some(Spooled { folder, file }))
}

/// Spools the inputs, starts the program again in the background, and waits until it answers.
pub(super) async fn detach(
    args: &MapArgs,
    batch: &str,
    cwd: &Path,
    feed: Feed,
    lock: FolderLock,
    started: &mut Start,
    signals: &mut Signals,
) -> Result<ExitCode, Fatal> {
    let data = lock.folder().to_owned();
    let file = SpoolFile::new(
        args.command.iter().map(|word| Text::from(word.as_os_str())).collect(),
        Text::from(cwd.as_os_str()),
        args.jobs,
        args.max_attempts.unwrap_or(MAX_ATTEMPTS),
        args.no_sync,
    );
    let folder = SpoolFolder::new(spool_of(&data, batch));
    let stopper = feed.stopper();
    // It has the lock as long as it writes, whoever waits for it.
    let mut putting =
        tokio::task::spawn_blocking(move || folder.put(feed, file).map(|put| (folder, put, lock)));
    let (folder, put, lock) = tokio::select! {
        biased;
        stop = signals.next() => {
            stopper.stop();
            let undone = async {
                if let Ok(Ok((folder, put, lock))) = putting.await {
                    undo(folder, put, lock).await?;
                }
                Ok::<_, Fatal>(())
            };
            // The exit status says that nothing is to come of it, however slow the disk is.
            let _ = tokio::time::timeout(UNDO_WAIT, undone).await;
            return Ok(ExitCode::from(stop.code()));
        }
        put = &mut putting => put??,
    };
    let begun = tokio::select! {
        biased;
        // Whether it goes on is for the background program to say now.
        stop = signals.next() => {
            let text = "may go on in the background; see `ghostlight runs`";
            let _ = writeln!(std::io::stderr(), "ghostlight: batch {batch} {text}");
            Ok(ExitCode::from(stop.code()))
        }
        begun = begin(args, batch, &data, lock, folder, put) => begun,
    };
    if begun.is_ok() {
        started.begun();
    }
    begun
}

/// Takes back what was put aside; returns whether it did.
async fn undo(folder: SpoolFolder, put: Put, lock: FolderLock) -> Result<bool, Fatal> {
    let undo = move || {
        let undone = folder.undo(put);
        drop(lock);
        undone
    };
    tokio::task::spawn_blocking(undo).await?
}

/// Starts the background program with what was put aside, which is undone if it ends at once.
async fn begin(
    args: &MapArgs,
    batch: &str,
    data: &Path,
    lock: FolderLock,
    folder: SpoolFolder,
    put: Put,
) -> Result<ExitCode, Fatal> {
    let started = match start(args, batch, data, lock) {
        Ok(child) => wait_for_answer(child, batch, data).await,
        Err(why) => Err(NotStarted::Refused(why)),
    };
    match started {
        Ok(said) => {
            tokio::task::spawn_blocking(move || folder.keep(put)).await?;
            // The batch goes on whether anybody reads this or not.
            let _ = writeln!(std::io::stdout(), "{said}");
            Ok(ExitCode::SUCCESS)
        }
        Err(NotStarted::Unknown(why)) => {
            Err(Fatal::new(format!("{why}; batch {batch} may go on in the background")))
        }
        Err(NotStarted::BrokenOff(why)) => {
            Err(Fatal::new(format!("{why}; its inputs stay put aside for this command")))
        }
        Err(NotStarted::Refused(why)) => {
            // Nobody was told that they are put aside.
            let undone = async { undo(folder, put, owner::take(data).await?).await };
            match undone.await {
                Ok(true) => Err(why),
                Ok(false) => Err(Fatal::new(format!(
                    "{why}; its inputs stay put aside, with those that came after them"
                ))),
                Err(error) => Err(Fatal::new(format!(
                    "{why}; its inputs stay put aside for this command ({error})"
                ))),
            }
        }
    }
}

/// The background program does not go on with the batch.
#[derive(Debug)]
enum NotStarted {
    /// It is not there any more, and has begun nothing.
    Refused(Fatal),
    /// It is not there any more, and may have begun runs of the inputs.
    BrokenOff(Fatal),
    /// What it does is not known.
    Unknown(Fatal),
}

impl<E: Into<Fatal>> From<E> for NotStarted {
    fn from(error: E) -> Self {
        Self::Unknown(error.into())
    }
}

/// Starts the background program.
fn start(args: &MapArgs, batch: &str, data: &Path, lock: FolderLock) -> Result<Child, Fatal> {
    let log = File::create(data.join("map.log"))?;
    let mut process = Process::new("/proc/self/exe");
    process.arg0(NAME);
    let mut folder = OsString::from("--data=");
    folder.push(data);
    process.arg("map").arg("--session").arg(format!("--batch={batch}")).arg(folder);
    if let Some(listen) = &args.listen {
        process.arg("--listen").arg(listen.to_string());
    }
    if args.retry_failed {
        process.arg("--retry-failed");
    }
    // The folder is its own from the beginning: nobody else gets it in between.
    process.stdin(lock.hand_over()?).stdout(log.try_clone()?).stderr(log);
    // Its own copies of those files do not outlive this function.
    Ok(process.spawn()?)
}

/// Returns what there is to say once the background program goes on.
async fn wait_for_answer(mut child: Child, batch: &str, data: &Path) -> Result<String, NotStarted> {
    let began = tokio::time::Instant::now();
    loop {
        if owner::is_owner(data, child.id()).await? {
            return Ok(format!("batch {batch} goes on in the background (process {})", child.id()));
        }
        if let Some(status) = child.try_wait()? {
            // A short batch is over before anybody could ask.
            match status.code() {
                Some(0) => return Ok(format!("batch {batch} is done")),
                Some(1) => {
                    return Ok(format!("batch {batch} is done; not all of it has completed"));
                }
                _ => {}
            }
            let text = std::fs::read_to_string(data.join("map.log")).unwrap_or_default();
            let last = text.lines().last().unwrap_or("it said nothing");
            let why = format!("the background program ended at once ({status}): {last}");
            return Err(match status.code() {
                Some(2) => NotStarted::Refused(Fatal::new(why)),
                _ => NotStarted::BrokenOff(Fatal::new(why)),
            });
        }
        if began.elapsed() > ANSWER_WAIT {
            let (id, log) = (child.id(), data.join("map.log"));
            let why = Fatal::new(format!("process {id} does not answer; see {}", log.display()));
            return Err(NotStarted::Unknown(why));
        }
        tokio::time::sleep(RETRY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_that_cannot_be_looked_at_may_go_on() {
        let data = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("lock", data.path().join("lock")).unwrap();
        let mut program = Process::new("cat");
        let mut child = program.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        let said = wait_for_answer(child, "b", data.path()).await;
        assert!(matches!(said, Err(NotStarted::Unknown(_))), "{said:?}");
        drop(input);
    }

    #[tokio::test]
    async fn only_a_program_that_was_refused_has_begun_nothing() {
        let data = tempfile::tempdir().unwrap();
        for (script, is_refused) in
            [("exit 2", true), ("exit 3", false), ("exit 143", false), ("kill -KILL $$", false)]
        {
            let child = Process::new("sh").args(["-c", script]).spawn().unwrap();
            let said = wait_for_answer(child, "b", data.path()).await;
            match said {
                Err(NotStarted::Refused(_)) => assert!(is_refused, "{script}"),
                Err(NotStarted::BrokenOff(_)) => assert!(!is_refused, "{script}"),
                other => panic!("{script}: {other:?}"),
            }
        }
    }
}
