//! A child that does what its input says, and a bench on which tests watch and hold it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use futures_util::future::join_all;
use ghostlight::prelude::*;
use tokio::sync::watch;

/// Fails a test that hangs. On a paused clock this takes no time.
pub(crate) async fn bounded<F: Future>(test: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(48 * 3600), test).await.expect("the test hangs")
}

/// As [`bounded`], for tests on the real clock.
pub(crate) async fn bounded_real<F: Future>(test: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), test).await.expect("the test hangs")
}

/// What a run is asked to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Do {
    /// Returns a text.
    Say(String),
    /// Waits until the gate is open, then returns its name.
    Hold(String),
    /// Never ends by itself.
    Forever,
    /// Returns once it is cancelled, as if nothing had happened.
    UntilCancelled,
    /// Dispatches a child once it is cancelled, and never ends.
    DispatchWhenCancelled(Box<Kid>),
    Fail(String),
    Panic(String),
    /// Sleeps for so many seconds, durably.
    Sleep(u64),
    /// Blocks a thread until the gate is open.
    Block(String),
    /// Counts itself among the running for a moment.
    Work,
    /// Waits until the gate is open, then does something else.
    After(String, Box<Do>),
    /// A step of this key, then something else.
    Step(String, Box<Do>),
    /// Dispatches children all at once, then does something else; the outcomes come first.
    Dispatch(Vec<Kid>, Box<Do>),
}

/// A child to dispatch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Kid {
    id: Option<String>,
    detached: bool,
    work: Do,
}

pub(crate) fn say(text: &str) -> Do {
    Do::Say(text.to_owned())
}

pub(crate) fn hold(gate: &str) -> Do {
    Do::Hold(gate.to_owned())
}

impl Do {
    pub(crate) fn after(self, gate: &str) -> Do {
        Do::After(gate.to_owned(), Box::new(self))
    }

    pub(crate) fn step_first(self, key: &str) -> Do {
        Do::Step(key.to_owned(), Box::new(self))
    }

    /// An awaited child with this id.
    pub(crate) fn kid(self, id: &str) -> Kid {
        Kid { id: Some(id.to_owned()), detached: false, work: self }
    }

    pub(crate) fn unnamed(self) -> Kid {
        Kid { id: None, detached: false, work: self }
    }
}

impl Kid {
    pub(crate) fn detached(self) -> Kid {
        Kid { detached: true, ..self }
    }
}

/// What the tests see of the runs, and hold them by. Survives crashes of the system.
#[derive(Clone, Default)]
pub(crate) struct Bench(Arc<Inner>);

#[derive(Default)]
struct Inner {
    events: watch::Sender<Vec<String>>,
    gates: watch::Sender<BTreeSet<String>>,
    blocked: Mutex<BTreeSet<String>>,
    unblocked: Condvar,
    running: AtomicUsize,
    peak: AtomicUsize,
}

impl Bench {
    pub(crate) fn note(&self, event: impl Into<String>) {
        self.0.events.send_modify(|events| events.push(event.into()));
    }

    pub(crate) fn events(&self) -> Vec<String> {
        self.0.events.borrow().clone()
    }

    /// How often an event was noted.
    pub(crate) fn count(&self, event: &str) -> usize {
        self.0.events.borrow().iter().filter(|e| *e == event).count()
    }

    /// The ids of the runs that were entered, in order.
    pub(crate) fn entered(&self) -> Vec<String> {
        let entered = |event: &String| event.strip_prefix("enter ").map(str::to_owned);
        self.0.events.borrow().iter().filter_map(entered).collect()
    }

    /// Waits until an event was noted so many times.
    pub(crate) async fn seen(&self, event: &str, times: usize) {
        let mut events = self.0.events.subscribe();
        let seen = |events: &Vec<String>| events.iter().filter(|e| *e == event).count() >= times;
        events.wait_for(seen).await.unwrap();
    }

    pub(crate) fn open(&self, gate: &str) {
        self.0.gates.send_modify(|gates| _ = gates.insert(gate.to_owned()));
        self.0.blocked.lock().unwrap().insert(gate.to_owned());
        self.0.unblocked.notify_all();
    }

    pub(crate) async fn gate(&self, gate: &str) {
        self.0.gates.subscribe().wait_for(|gates| gates.contains(gate)).await.unwrap();
    }

    /// Blocks the thread until the gate is open.
    pub(crate) fn block(&self, gate: &str) {
        let open = self.0.blocked.lock().unwrap();
        drop(self.0.unblocked.wait_while(open, |open| !open.contains(gate)).unwrap());
    }

    /// The most runs that were ever working at once.
    pub(crate) fn peak(&self) -> usize {
        self.0.peak.load(Ordering::SeqCst)
    }
}

/// Notes when a run's code is entered, and when it is left or dropped.
struct Visit<'a>(&'a Bench, String);

impl<'a> Visit<'a> {
    fn begin(bench: &'a Bench, run_id: &str) -> Self {
        bench.note(format!("enter {run_id}"));
        let running = bench.0.running.fetch_add(1, Ordering::SeqCst) + 1;
        bench.0.peak.fetch_max(running, Ordering::SeqCst);
        Self(bench, run_id.to_owned())
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.0.0.running.fetch_sub(1, Ordering::SeqCst);
        self.0.note(format!("leave {}", self.1));
    }
}

/// Does what its input says. As a parent it may have a cap.
#[derive(Clone, Default)]
pub(crate) struct Worker {
    pub(crate) bench: Bench,
    pub(crate) settings: AgentSettings,
    pub(crate) recovery: RecoveryPolicy,
}

impl Agent for Worker {
    const TYPE: &'static str = "Worker";

    fn settings(&self) -> AgentSettings {
        self.settings.clone()
    }
}

impl Child for Worker {
    type Input = Do;
    type Output = String;

    async fn run(&self, cx: &RunContext, input: Do) -> Result<String, RunError> {
        let visit = Visit::begin(&self.bench, cx.run_id());
        let mut said = Vec::new();
        let mut work = input;
        loop {
            work = match work {
                Do::Say(text) => {
                    said.push(text);
                    break;
                }
                Do::Hold(gate) => {
                    self.bench.gate(&gate).await;
                    said.push(gate);
                    break;
                }
                Do::Forever => std::future::pending().await,
                Do::UntilCancelled => {
                    cx.cancelled().await;
                    self.bench.note(format!("cancelled {}", cx.run_id()));
                    break;
                }
                Do::DispatchWhenCancelled(kid) => {
                    cx.cancelled().await;
                    dispatch(cx, *kid).await?;
                    std::future::pending().await
                }
                Do::Fail(message) => return Err(RunError::new(message).kind("told-to")),
                Do::Panic(message) => panic!("{message}"),
                Do::Sleep(seconds) => {
                    cx.sleep(Duration::from_secs(seconds)).await;
                    break;
                }
                Do::Block(gate) => {
                    let bench = self.bench.clone();
                    cx.step_blocking("block", move || {
                        bench.note("blocking");
                        bench.block(&gate);
                        Ok(())
                    })
                    .await?;
                    break;
                }
                Do::Work => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    break;
                }
                Do::After(gate, then) => {
                    self.bench.gate(&gate).await;
                    *then
                }
                Do::Step(key, then) => {
                    cx.step(Key::dynamic(key), async || Ok(())).await?;
                    *then
                }
                Do::Dispatch(kids, then) => {
                    for end in join_all(kids.into_iter().map(|kid| dispatch(cx, kid))).await {
                        said.push(end?);
                    }
                    *then
                }
            };
        }
        drop(visit);
        Ok(said.join(","))
    }

    fn recovery(&self) -> RecoveryPolicy {
        self.recovery.clone()
    }
}

async fn dispatch(cx: &RunContext, kid: Kid) -> Result<String, RunError> {
    let me = cx.agent::<Worker>();
    if kid.detached {
        let mut start = me.start::<Worker>(kid.work).detached();
        if let Some(id) = kid.id {
            start = start.id(id);
        }
        return Ok(start.await?.id().to_owned());
    }
    let mut call = me.run::<Worker>(kid.work);
    if let Some(id) = kid.id {
        call = call.id(id);
    }
    match call.await {
        Ok(Outcome::Completed(text)) => Ok(text),
        Ok(Outcome::NotCompleted(end)) => Ok(end.to_string()),
        Err(error) => Ok(error.to_string()),
    }
}

/// A parent with a cap.
#[derive(Clone)]
pub(crate) struct Capped(pub(crate) usize, pub(crate) AtCap);

impl Agent for Capped {
    const TYPE: &'static str = "Capped";

    fn settings(&self) -> AgentSettings {
        AgentSettings {
            max_concurrent_runs: Some(self.0),
            at_cap: self.1,
            ..AgentSettings::default()
        }
    }
}

/// The reason for which a run was aborted.
pub(crate) fn aborted<T: std::fmt::Debug>(outcome: Outcome<T>) -> String {
    match outcome {
        Outcome::NotCompleted(NotCompleted::Aborted { reason }) => reason,
        other => panic!("not aborted: {other:?}"),
    }
}

/// What a run failed with.
pub(crate) fn failed<T: std::fmt::Debug>(outcome: Outcome<T>) -> ghostlight::Failure {
    match outcome {
        Outcome::NotCompleted(NotCompleted::Error(failure)) => failure,
        other => panic!("not failed: {other:?}"),
    }
}
