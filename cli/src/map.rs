//! `ghostlight map`: one durable run for every input.

mod ending;
mod feed;
mod open_files;
mod owner;
mod report;
mod signals;
mod spool;
mod start;
mod store_folder;
mod watch;

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ghostlight::{Clock, Limits, SystemBuilder, WallClock, storage};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::ending::Ending;
use self::feed::{Feed, Item};
use self::open_files::raise_open_files;
use self::owner::Files;
use self::report::{Event, Mode, Reporter};
use self::signals::{Signals, Stop};
use self::spool::Spooled;
use self::start::Start;
use self::store_folder::StoreFolder;
use self::watch::{Job, Watcher};
use crate::args::{MAX_ATTEMPTS, MapArgs};
use crate::batch::{Batch, Bound, Command, Launches, Made, Text};
use crate::fatal::{Fatal, working_directory};
use crate::inputs::{Source, default_batch_name};
use crate::launch::OutputWatcher;
use crate::sys;

/// How many runs are dispatched ahead, for each that may execute.
const AHEAD_PER_JOB: usize = 4;

/// The tasks that watch runs.
type Watching = JoinSet<Result<(), Fatal>>;

/// Runs the command.
///
/// # Errors
/// Usage and environment errors, before anything is written.
pub(crate) async fn map(args: MapArgs) -> Result<ExitCode, Fatal> {
    let mut start = Start::new(&args.place.data);
    let is_session = args.session;
    let mut ended = start_and_run(args, &mut start).await;
    if let Err(fatal) = &mut ended
        && is_session
        && start.has_begun
    {
        fatal.code = spool::BROKEN_OFF;
    }
    start.undo().await;
    ended
}

async fn start_and_run(mut args: MapArgs, start: &mut Start) -> Result<ExitCode, Fatal> {
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
    // Before anything is written; the background program binds its own.
    let port = owner::listen(args.listen).await?;
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
        start.locked(&data);
        owner::check_links(&data).await?;
        let reads_terminal =
            matches!(source, Source::Stdin { .. }) && std::io::stdin().is_terminal();
        // Opened before the store, so that a wrong path is a usage error and nothing else.
        let feed = Feed::open(source, jobs * AHEAD_PER_JOB)?;
        let made = Made::new(&name, &args.command, &cwd);
        let lock = loop {
            match made.bind(&data, lock).await? {
                Bound::Kept { lock, is_new } => {
                    if is_new {
                        start.bound(&name, args.detach);
                    }
                    break lock;
                }
                // Somebody may have bound it to something else meanwhile.
                Bound::LetGo => lock = owner::take(&data).await?,
            }
        };
        Ok::<_, Fatal>((data, lock, spooled, feed, reads_terminal))
    };
    let (data, lock, spooled, feed, reads_terminal) = tokio::select! {
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
        drop(port);
        return spool::detach(&args, &name, &cwd, feed, lock, start, &mut signals).await;
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
        let listening = owner::bind(&data, port).await?;
        let system = match system.start().await {
            Ok(system) => system,
            Err(error) => {
                listening.close().await;
                return Err(error.into());
            }
        };
        start.begun();
        let store = StoreFolder::open(&data)?;
        let files = Files { system: system.clone(), data, batch: address };
        let control = listening.serve(&files);
        let agent = system.agent::<Batch>(&name)?;
        agent.agent_ref().hydrate().await?;
        // Whatever is alive now and turns out to have no input in the source counts, too.
        let left_over = agent.agent_ref().unfinished().await?.into_iter().collect();
        Ok::<_, Fatal>((system, store, files, control, agent, left_over))
    };
    let (system, store, files, control, agent, left_over) = tokio::select! {
        biased;
        // What goes on already does so under its shims. An interrupt waits: it is to drain.
        stop = signals.not_interrupt() => return Ok(ExitCode::from(stop.code())),
        started = starting => started?,
    };
    tokio::spawn({
        let files = files.clone();
        async move { files.sweep(&files.batch).await }
    });

    let reporter = Reporter::start(Mode::choose(args.place.json), &launches);
    if !args.command.iter().any(|word| word.to_string_lossy().contains("{}")) {
        reporter.note("there is no {} in the command: it does not see its input");
    }
    if reads_terminal {
        reporter.note("reading inputs from the terminal, one a line; Ctrl-D ends them");
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
    let stop = tokio::select! {
        biased;
        stop = run(&watcher, work, &mut watching, &mut signals, &reporter) => stop,
        fatal = store.removed() => Err(Stop::Fatal(fatal)),
    };
    drop(watcher);
    let ending =
        Ending { system, store, files, control, launches, reporter, watching, signals, spooled };
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
        if let Some(inputs) = self.feed.inputs {
            let _ = watcher.events.send(Event::Inputs(inputs)).await;
        }
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

fn source(args: &MapArgs) -> Result<Source, Fatal> {
    if !args.files.is_empty() && !args.inputs.is_empty() {
        return Err(Fatal::new("inputs come either from --files or from words, not from both"));
    }
    if args.null && (!args.files.is_empty() || !args.inputs.is_empty()) {
        return Err(Fatal::new("-0 is about standard input, which is not read here"));
    }
    for path in &args.files {
        // Before the data folder is made.
        std::fs::symlink_metadata(path)
            .map_err(|e| Fatal::from(e).while_doing(format!("--files {}", path.display())))?;
    }
    Ok(if !args.files.is_empty() {
        Source::Files { paths: args.files.clone(), data: args.place.data.clone() }
    } else if !args.inputs.is_empty() {
        Source::Arguments(args.inputs.clone())
    } else {
        Source::Stdin { nul: args.null }
    })
}
