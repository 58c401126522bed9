//! A child as its supervisor keeps it: how it is started, stopped and watched.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use ractor::{ActorCell, ActorId, SpawnErr};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::actor::{Msg, Reply, Report, StartError, StopMode};
use super::is_supervisor;
use super::job::{Job, Reporter, StartReporter};
use crate::child_spec::{ChildSpec, Started};
use crate::exit::ExitReason;
use crate::restart::History;

/// How long the supervision event of an ended task is waited for.
const LATE_EVENT: Duration = Duration::from_secs(1);

pub(super) struct Child {
    pub(super) spec: ChildSpec,
    pub(super) history: History,
    /// Draws the jitter of this child alone.
    pub(super) rng: fastrand::Rng,
    /// Numbers the starts, so that reports about an earlier one are known as such.
    pub(super) start: u64,
    pub(super) phase: Phase,
    /// What the present start has been told.
    pub(super) stopping: Option<StopMode>,
    /// It is forgotten at its next end, whatever its policy says.
    pub(super) removing: bool,
    /// It is static and has not been up yet.
    pub(super) booting: bool,
    /// Owed the outcome of the first start.
    pub(super) adder: Option<Reply<ActorCell>>,
    /// Owed a running child.
    pub(super) waiters: Vec<Reply<ActorCell>>,
    /// Owed the end.
    pub(super) removers: Vec<Reply<()>>,
}

pub(super) enum Phase {
    /// Waits for its turn in a sweep.
    Idle,
    /// Waits out its backoff.
    BackingOff {
        _timer: Job,
    },
    Starting(Starting),
    Alive(Alive),
}

pub(super) struct Starting {
    job: Job,
    ask: Option<oneshot::Sender<()>>,
    /// Dropped to cancel the start.
    cancel: Option<oneshot::Sender<()>>,
    drain: Option<Job>,
    /// When the drain ends; the rest of it is left to a child that comes up meanwhile.
    until: Option<Instant>,
}

pub(super) struct Alive {
    pub(super) cell: ActorCell,
    since: Instant,
    /// How it ended and after which time, once ractor has said so.
    ended: Option<(ExitReason, Duration)>,
    /// The actor's task, until a job waits for it: a task more per idle child would be too many.
    task: Option<JoinHandle<()>>,
    task_over: bool,
    /// Reports the end of the actor's task.
    watch: Option<Job>,
    /// Kills the child in time where the watch was there before the stop.
    killer: Option<Job>,
}

impl Child {
    pub(super) fn new(spec: ChildSpec, seed: u64, booting: bool) -> Self {
        let rng = fastrand::Rng::with_seed(seed ^ fnv1a(spec.id.as_str()));
        Self {
            spec,
            history: History::default(),
            rng,
            start: 0,
            phase: Phase::Idle,
            stopping: None,
            removing: false,
            booting,
            adder: None,
            waiters: Vec::new(),
            removers: Vec::new(),
        }
    }

    /// Returns the cell if the actor has not really ended.
    pub(super) fn cell(&self) -> Option<&ActorCell> {
        match &self.phase {
            Phase::Alive(alive) => Some(&alive.cell),
            Phase::Idle | Phase::BackingOff { .. } | Phase::Starting(_) => None,
        }
    }

    /// Returns the cell of a child that runs and is to go on running.
    pub(super) fn ready(&self) -> Option<&ActorCell> {
        match &self.phase {
            Phase::Alive(alive) if self.stopping.is_none() && alive.ended.is_none() => {
                Some(&alive.cell)
            }
            _ => None,
        }
    }

    /// Makes a start or an actor end; its end is reported. The phase must be one of the two.
    pub(super) fn stop(&mut self, mode: StopMode, reporter: &Reporter) {
        match (self.stopping, mode) {
            (Some(StopMode::Kill), _) | (Some(StopMode::Drain), StopMode::Drain) => return,
            (None, _) | (Some(StopMode::Drain), StopMode::Kill) => self.stopping = Some(mode),
        }
        // No limit if it is beyond what the clock can express.
        let until = Instant::now().checked_add(self.spec.drain);
        match (&mut self.phase, mode) {
            (Phase::Starting(starting), StopMode::Drain) => starting.ask(until, reporter),
            (Phase::Starting(starting), StopMode::Kill) => starting.cancel = None,
            (Phase::Alive(alive), StopMode::Drain) => alive.stop(until, reporter),
            (Phase::Alive(alive), StopMode::Kill) => alive.kill(reporter),
            (Phase::Idle | Phase::BackingOff { .. }, _) => {
                debug_assert!(false, "nothing to stop");
            }
        }
    }
}

impl Starting {
    /// Begins a start in a task of its own.
    pub(super) fn begin(spec: &ChildSpec, supervisor: ActorCell, reporter: Reporter) -> Self {
        let (ask, asked) = oneshot::channel();
        let (cancel, cancelled) = oneshot::channel::<()>();
        let start = spec.start.clone();
        let job = Job::spawn(async move {
            let reporter = StartReporter::new(reporter);
            let attempt = AssertUnwindSafe(async move {
                start(supervisor, asked).await.map_err(|error| match error {
                    SpawnErr::StartupFailed(error) => error.to_string(),
                    other => other.to_string(),
                })
            });
            let outcome = tokio::select! {
                biased;
                _ = cancelled => Err(StartError::Cancelled),
                outcome = attempt.catch_unwind() => match outcome {
                    Ok(outcome) => outcome.map_err(StartError::Failed),
                    Err(panic) => Err(StartError::Failed(panic_text(&*panic))),
                },
            };
            reporter.report(outcome);
        });
        Self { job, ask: Some(ask), cancel: Some(cancel), drain: None, until: None }
    }

    fn ask(&mut self, until: Option<Instant>, reporter: &Reporter) {
        if let Some(ask) = self.ask.take() {
            // Most starts do not listen; they are given the drain time to come up.
            let _ = ask.send(());
        }
        self.until = until;
        self.drain = until.map(|until| {
            let reporter = reporter.clone();
            Job::spawn(async move {
                sleep_until(until).await;
                reporter.report(Report::DrainOver);
            })
        });
    }

    /// Cancels the start; its end is reported.
    pub(super) fn cancel(&mut self) {
        self.cancel = None;
    }

    /// Cancels the start and waits until nothing is left of it.
    pub(super) async fn cancelled(mut self) {
        self.cancel = None;
        self.job.ended().await;
    }

    /// Turns into what came up, and passes on what it was told meanwhile.
    pub(super) fn up(self, started: Started, told: Option<StopMode>, to: &Reporter) -> Alive {
        let mut alive = Alive::new(started);
        match told {
            None => {}
            Some(StopMode::Drain) => alive.stop(self.until, to),
            Some(StopMode::Kill) => alive.kill(to),
        }
        alive
    }
}

impl Alive {
    fn new(Started { cell, task }: Started) -> Self {
        let since = Instant::now();
        let task = Some(task);
        Self { cell, since, ended: None, task, task_over: false, watch: None, killer: None }
    }

    /// Records how the child ended. Returns whether its task, too, has: if not, that is reported.
    pub(super) fn end(&mut self, reason: ExitReason, reporter: &Reporter) -> bool {
        self.ended = Some((reason, self.since.elapsed()));
        self.task_over |= self.task.as_ref().is_some_and(JoinHandle::is_finished);
        if !self.task_over {
            self.watch(None, reporter);
        }
        self.task_over
    }

    /// Records that the task has ended. Returns whether it is also known how: if not, the same is
    /// reported once more later, and counts then.
    ///
    /// The event was sent before the task ended and ractor prefers events to messages, but a channel
    /// may show a later sender's message first while an earlier sender is still writing.
    pub(super) fn task_over(&mut self, reporter: &Reporter) -> bool {
        let again = std::mem::replace(&mut self.task_over, true);
        if self.ended.is_some() || again {
            return true;
        }
        let reporter = reporter.clone();
        self.watch = Some(Job::spawn(async move {
            sleep(LATE_EVENT).await;
            reporter.report(Report::Ended);
        }));
        false
    }

    /// Reports the end of the task, and kills the child when the time is over.
    fn watch(&mut self, until: Option<Instant>, reporter: &Reporter) {
        let cell = self.cell.clone();
        if let Some(mut task) = self.task.take() {
            let reporter = reporter.clone();
            self.watch = Some(Job::spawn(async move {
                // An abort or a panic of the task is an end as well.
                let in_time = match until {
                    Some(until) => timeout_at(until, &mut task).await.is_ok(),
                    None => false,
                };
                if !in_time {
                    if until.is_some() {
                        cell.kill();
                    }
                    drop(task.await);
                }
                reporter.report(Report::Ended);
            }));
        } else if let Some(until) = until {
            self.killer = Some(Job::spawn(async move {
                sleep_until(until).await;
                cell.kill();
            }));
        }
    }

    /// Waits until the task has ended.
    pub(super) async fn task_ended(&mut self) {
        if let Some(task) = &mut self.task {
            drop(task.await);
        }
        if let Some(watch) = &mut self.watch {
            watch.ended().await;
        }
    }

    /// Returns which actor ended, how, and how long it ran.
    pub(super) fn outcome(self) -> (ActorId, ExitReason, Duration) {
        let (reason, ran) = self.ended.unwrap_or_else(|| (ExitReason::Lost, self.since.elapsed()));
        (self.cell.get_id(), reason, ran)
    }

    fn stop(&mut self, until: Option<Instant>, reporter: &Reporter) {
        if is_supervisor(&self.cell) {
            // So that it can stop its own children in order, and still listen to them. If it does
            // not take the message it is ending already.
            let _ = self.cell.send_message(Msg::Shutdown);
        } else {
            self.cell.stop(None);
        }
        self.watch(until, reporter);
    }

    fn kill(&mut self, reporter: &Reporter) {
        self.cell.kill();
        self.watch(None, reporter);
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("no text"))
}

/// A stable hash: that of the standard library may change from one release to the next.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
