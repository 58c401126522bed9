//! `ghostlight map`: one durable run for every input.

mod feed;
mod owner;
mod report;
mod signals;
mod spool;
mod watch;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ghostlight::{Clock, Limits, System, SystemBuilder, WallClock, storage};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::feed::{Feed, Item};
use self::owner::Files;
use self::report::{Event, Mode, Reporter, Totals};
use self::signals::{INTERRUPTED, Signals, Stop};
use self::spool::Spooled;
use self::watch::{Job, Watcher};
use crate::args::{MAX_ATTEMPTS, MapArgs};
use crate::batch::{Batch, Bound, Command, Launches, Made, Text};
use crate::fatal::{Fatal, working_directory};
use crate::inputs::{Source, default_batch_name};
use crate::launch::OutputWatcher;
use crate::sys;

/// How many runs are dispatched ahead, for each that may execute.
const AHEAD_PER_JOB: usize = 4;

/// How long a program that was told to stop goes on printing.
const PRINT_WAIT: Duration = Duration::from_secs(1);

/// How long killed commands may take to be gone, and their runs to record it.
const STOP_WAIT: Duration = Duration::from_secs(10);

/// The tasks that watch runs.
type Watching = JoinSet<Result<(), Fatal>>;

/// Runs the command.
///
/// # Errors
/// Usage and environment errors, before anything is written.
pub(crate) async fn map(mut args: MapArgs) -> Result<ExitCode, Fatal> {
    let mut signals = Signals::new()?;
    let began_ms = WallClock.now_ms();
    let spooled = spool::resume(&mut args).await?;
    let jobs = match args.jobs {
        Some(jobs) => jobs as usize,
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let open_files = raise_open_files(jobs)?;
    if args.command.first().is_some_and(|program| program.is_empty()) {
        return Err(Fatal::new("the command is an empty word; write one after --"));
    }
    let cwd = match &spooled {
        Some(spooled) => spooled.cwd()?,
        None => working_directory()?,
    };
    let source = match &spooled {
        Some(spooled) => spooled.source(),
        None => source(&args)?,
    };
    let name = match &args.batch {
        Some(batch) => batch.clone(),
        None => default_batch_name(&args.command, &cwd, &source),
    };
    let address = ghostlight::AgentPath::root("Batch", &name)?;
    let owning = async {
        let inherited = match args.session {
            true => owner::inherit(&args.place.data).await?,
            false => None,
        };
        let mut lock = match inherited {
            Some(lock) => lock,
            None => owner::take(&args.place.data).await?,
        };
        let spooled = match spooled {
            // Somebody may have put more aside before we had the lock.
            Some(spooled) => Some(spooled.read_again().await?),
            None => None,
        };
        let source = spooled.as_ref().map_or(source, Spooled::source);
        // The lock has made it. A path through a folder that goes away later would be lost.
        let data = tokio::fs::canonicalize(&args.place.data).await?;
        owner::check_links(&data).await?;
        // Opened before the store, so that a wrong path is a usage error and nothing else.
        let feed = Feed::open(source, jobs * AHEAD_PER_JOB)?;
        let made = Made::new(&name, &args.command, &cwd);
        let lock = loop {
            match made.bind(&data, lock).await? {
                Bound::Kept(lock) => break lock,
                // Somebody may have bound it to something else meanwhile.
                Bound::LetGo => lock = owner::take(&data).await?,
            }
        };
        Ok::<_, Fatal>((data, lock, spooled, feed))
    };
    let (data, lock, spooled, feed) = tokio::select! {
        biased;
        // Nothing has begun that would have to be ended.
        stop = signals.next() => return Ok(ExitCode::from(stop.code())),
        owned = owning => owned?,
    };
    if args.detach {
        if let Some(limit) = open_files {
            // The background program raises its own, and has to know what it was.
            sys::set_open_files(Some(limit))?;
        }
        return spool::detach(&args, &name, &data, &cwd, feed, lock, &mut signals).await;
    }

    let launches = Arc::new(Launches::default());
    let durability = match args.no_sync {
        true => storage::Durability::ProcessCrash,
        false => storage::Durability::PowerLoss,
    };
    let limits = Limits {
        // A cancelled run ends when its command has, however long that takes.
        cancel_grace: Duration::MAX,
        // A drain waits for the commands, however long they take.
        shutdown_drain: Duration::MAX,
        ..Limits::default()
    };
    let system = SystemBuilder::on_locked_folder(lock)
        .durability(durability)
        .limits(limits)
        // What another batch has left here goes on under its shims, and waits for its own `map`.
        .resume_only(address.clone())
        .agent(Batch { jobs })
        .child(Command {
            data: data.clone(),
            sync: !args.no_sync,
            open_files,
            attempts_max: args.max_attempts.unwrap_or(MAX_ATTEMPTS),
            watcher: OutputWatcher::new(),
            launches: Arc::clone(&launches),
        });
    let starting = async {
        // First: a system that starts goes on with commands at once.
        let listening = owner::listen(&data, args.listen).await?;
        let system = system.start().await?;
        let files = Files { system: system.clone(), data, batch: address };
        let control = listening.serve(&files);
        let agent = system.agent::<Batch>(&name)?;
        agent.agent_ref().hydrate().await?;
        // Whatever is alive now and turns out to have no input in the source counts, too.
        let left_over = agent.agent_ref().unfinished().await?.into_iter().collect();
        Ok::<_, Fatal>((system, files, control, agent, left_over))
    };
    let (system, files, control, agent, left_over) = tokio::select! {
        biased;
        // What goes on already does so under its shims. An interrupt waits: it is to drain.
        stop = signals.not_interrupt() => return Ok(ExitCode::from(stop.code())),
        started = starting => started?,
    };
    tokio::spawn({
        let files = files.clone();
        async move { files.sweep(&files.batch).await }
    });

    let reporter = Reporter::start(Mode::choose(args.place.json));
    if !args.command.iter().any(|word| word.to_string_lossy().contains("{}")) {
        reporter.note("there is no {} in the command: it does not see its input");
    }
    let watcher = Watcher {
        agent,
        command: args.command.iter().map(|word| Text::from(word.as_os_str())).collect(),
        cwd: Text::from(cwd.as_os_str()),
        retry_failed: args.retry_failed,
        batch: files.batch.to_string(),
        began_ms,
        events: reporter.events(),
    };
    let mut watching = JoinSet::new();
    let work = Work { feed, jobs, left_over };
    let stop = run(&watcher, work, &mut watching, &mut signals, &reporter).await;
    drop(watcher);
    let ending = Ending { system, files, control, launches, reporter, watching, signals, spooled };
    ending.finish(stop).await
}

/// What there is to do.
struct Work {
    feed: Feed,
    jobs: usize,
    /// Live runs that no input has claimed yet.
    left_over: BTreeSet<String>,
}

/// Dispatches and watches every input, until all are done or something stops it. Returns whether the
/// list of inputs was read whole.
async fn run(
    watcher: &Watcher,
    work: Work,
    watching: &mut Watching,
    signals: &mut Signals,
    reporter: &Reporter,
) -> Result<bool, Stop> {
    // Around everything that waits: for the disk, or for whoever reads our output.
    tokio::select! {
        biased;
        stop = signals.next() => Err(stop),
        stop = reporter.closed() => Err(stop),
        whole = work.done(watcher, watching) => whole,
    }
}

impl Work {
    async fn done(mut self, watcher: &Watcher, watching: &mut Watching) -> Result<bool, Stop> {
        let ahead = Arc::new(Semaphore::new(self.jobs * AHEAD_PER_JOB));
        let mut ids = crate::inputs::RunIds::new();
        let mut order = 0;
        let mut whole = true;
        loop {
            let permit = Arc::clone(&ahead).acquire_owned().await.map_err(|_| Stop::Term)?;
            let item = tokio::select! {
                biased;
                Some(ended) = watching.join_next() => {
                    watched(ended)?;
                    continue;
                }
                item = self.feed.next() => item,
            };
            let job = match item {
                Some(Item::Input(input)) => Job::input(&mut ids, order, input),
                Some(Item::Failed(error)) => match Job::refused(&mut ids, order, error) {
                    Ok(job) => job,
                    Err(note) => {
                        whole = false;
                        let _ = watcher.events.send(Event::Unreadable(note)).await;
                        continue;
                    }
                },
                Some(Item::Notes(notes)) => {
                    let _ = watcher.events.send(Event::Read(notes)).await;
                    continue;
                }
                Some(Item::Lost) => return Err(Stop::Fatal(feed::lost())),
                None => break,
            };
            order += 1;
            let watch = watcher.begin(job, &mut self.left_over).await?;
            watching.spawn(async move {
                let watched = watch.await;
                drop(permit);
                watched
            });
        }
        // Runs whose input has left the source go on, and count.
        for run_id in self.left_over {
            watching.spawn(watcher.clone().watch_left_over(run_id));
        }
        while let Some(ended) = watching.join_next().await {
            watched(ended)?;
        }
        Ok(whole)
    }
}

fn watched(ended: Result<Result<(), Fatal>, tokio::task::JoinError>) -> Result<(), Stop> {
    match ended {
        Ok(result) => result.map_err(Stop::Fatal),
        Err(error) => Err(Stop::Fatal(Fatal::new(format!("a bug in map: {error}")))),
    }
}

/// What is left when nothing more is dispatched.
struct Ending {
    system: System,
    files: Files,
    control: owner::Control,
    launches: Arc<Launches>,
    reporter: Reporter,
    watching: Watching,
    signals: Signals,
    spooled: Option<Spooled>,
}

impl Ending {
    async fn finish(self, stop: Result<bool, Stop>) -> Result<ExitCode, Fatal> {
        match stop {
            Ok(whole) => {
                let Self { files, control, reporter, system, mut signals, spooled, .. } = self;
                let ending = async {
                    if let Some(spooled) = spooled.filter(|_| whole) {
                        spooled.done().await;
                    }
                    control.close().await;
                    // What was ended by others, such as a cancel while nobody owned the folder, and
                    // what was cleared meanwhile.
                    files.sweep(&files.batch).await;
                    files.forget_without_runs(&files.batch).await;
                    // Everything of this batch is durable.
                    system.crash().await;
                    reporter.finish(true).await
                };
                let finished = tokio::select! {
                    biased;
                    // Whoever reads our output may have stopped reading.
                    stop = signals.next() => Err(stop),
                    finished = ending => finished,
                };
                match finished {
                    Ok(totals) => Ok(exit_code(&totals)),
                    Err(Stop::Fatal(fatal)) => Err(fatal),
                    Err(stop) => Ok(ExitCode::from(stop.code())),
                }
            }
            Err(Stop::Interrupt) => self.drain().await,
            // The commands go on under their shims, and the next `map` takes them over.
            Err(stop) => {
                self.control.close().await;
                self.system.crash().await;
                let code = ExitCode::from(stop.code());
                let printed = print_rest(self.reporter, self.watching, self.signals, true).await;
                match stop {
                    Stop::Fatal(fatal) => Err(fatal),
                    _ => printed.map(|()| code),
                }
            }
        }
    }

    /// Waits for the running commands; a second interrupt kills them.
    async fn drain(mut self) -> Result<ExitCode, Fatal> {
        self.launches.drain();
        match self.launches.count() {
            0 if self.system.live_runs() == 0 => {}
            // A command may have been started just now, and not be in the list yet.
            0 => self.reporter.note("waiting for what is at work; Ctrl-C again kills it"),
            n => {
                let text = format!("waiting for {n} running commands; Ctrl-C again kills them");
                self.reporter.note(&text);
            }
        }
        // The control socket answers until the store is closed: one command that hangs can be cancelled.
        let system = self.system.clone();
        let mut drained = std::pin::pin!(system.drain());
        let stop = tokio::select! {
            biased;
            stop = self.signals.next() => Some(stop),
            () = &mut drained => None,
        };
        let code = stop.as_ref().map_or(INTERRUPTED, Stop::code);
        let mut recorded = stop.is_none();
        if let Some(Stop::Interrupt) = stop {
            // Their runs record it and leave memory, which is what is waited for.
            let mut stops = self.launches.stop_all();
            let stopped = async {
                // A panic in one is no reason to leave the others alone.
                while stops.join_next().await.is_some() {}
                drained.await;
            };
            recorded = tokio::select! {
                biased;
                _ = self.signals.not_interrupt() => false,
                () = tokio::time::sleep(STOP_WAIT) => false,
                () = stopped => true,
            };
            // Before the next owner takes over what is not killed yet.
            stops.shutdown().await;
        }
        // Before the folder is let go, whose next owner has a socket of its own.
        self.control.close().await;
        match recorded {
            true => _ = self.system.shutdown().await,
            false => self.system.crash().await,
        }
        let at_once = code != INTERRUPTED;
        print_rest(self.reporter, self.watching, self.signals, at_once).await?;
        Ok(ExitCode::from(code))
    }
}

/// Lets the watchers print what they have, once the system that they watch has stopped, and says that
/// this is not all. Whoever reads our output may have stopped reading: a signal ends that wait, and so
/// does time, `at_once`.
async fn print_rest(
    reporter: Reporter,
    mut watching: Watching,
    mut signals: Signals,
    at_once: bool,
) -> Result<(), Fatal> {
    let printed = async {
        while watching.join_next().await.is_some() {}
        reporter.finish(false).await
    };
    tokio::select! {
        biased;
        _ = signals.next() => Ok(()),
        () = tokio::time::sleep(PRINT_WAIT), if at_once => Ok(()),
        printed = printed => match printed {
            Err(Stop::Fatal(fatal)) => Err(fatal),
            _ => Ok(()),
        }
    }
}

/// How many files a running command keeps open here, and how many the program itself needs.
const FILES_PER_JOB: u64 = 8;
const FILES_OF_OURS: u64 = 64;
/// How many files those who look may take: a connection each. Fewer are no reason not to begin.
const FILES_OF_OTHERS: u64 = 320;

/// Sees to it that so many jobs may have their files open, or refuses them: they would fail in the
/// middle. Returns the soft limit of before, if it was raised: it is the commands' own.
fn raise_open_files(jobs: usize) -> Result<Option<u64>, Fatal> {
    use rustix::process::{Resource, Rlimit, getrlimit};
    let needed = (jobs as u64).saturating_mul(FILES_PER_JOB).saturating_add(FILES_OF_OURS);
    let wanted = needed.saturating_add(FILES_OF_OTHERS);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= wanted) {
        return Ok(None);
    }
    let is_raised = sys::set_open_files(Some(wanted)).is_ok();
    let limit = getrlimit(Resource::Nofile).current;
    if limit.is_none_or(|limit| limit >= needed) {
        return Ok(current.filter(|_| is_raised));
    }
    let limit = maximum.or(current).unwrap_or(0);
    Err(Fatal::new(format!(
        "{jobs} jobs need about {needed} open files, and the limit is {limit}; raise it with `ulimit -n {needed}`, or lower --jobs"
    )))
}

fn exit_code(totals: &Totals) -> ExitCode {
    match totals.failed + totals.cancelled + totals.unreadable {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn source(args: &MapArgs) -> Result<Source, Fatal> {
    if !args.files.is_empty() && !args.inputs.is_empty() {
        return Err(Fatal::new("inputs come either from --files or from words, not from both"));
    }
    if args.null && (!args.files.is_empty() || !args.inputs.is_empty()) {
        return Err(Fatal::new("-0 is about standard input, which is not read here"));
    }
    for path in &args.files {
        // Before the data folder is made.
        std::fs::symlink_metadata(path).map_err(|e| Fatal::from(e).while_doing(path.display()))?;
    }
    Ok(if !args.files.is_empty() {
        Source::Files { paths: args.files.clone(), data: args.place.data.clone() }
    } else if !args.inputs.is_empty() {
        Source::Arguments(args.inputs.clone())
    } else {
        Source::Stdin { nul: args.null }
    })
}
