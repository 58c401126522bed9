//! A child whose code is a closure, so that a test can deploy another one later.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use ghostlight::prelude::*;
use ghostlight::storage::MemoryStore;
use ghostlight::{SystemBuilder, VirtualClock};
use serde_json::Value;

use super::disk::{Disk, Fault};

type Body =
    dyn for<'a> Fn(&'a RunContext, Value) -> BoxFuture<'a, Result<Value, RunError>> + Send + Sync;

#[derive(Clone)]
pub(crate) struct Code {
    body: Arc<Body>,
    recovery: RecoveryPolicy,
    settings: AgentSettings,
}

/// A child with this code.
pub(crate) fn code<F>(body: F) -> Code
where
    F: for<'a> Fn(&'a RunContext, Value) -> BoxFuture<'a, Result<Value, RunError>>
        + Send
        + Sync
        + 'static,
{
    Code {
        body: Arc::new(body),
        recovery: RecoveryPolicy::default(),
        settings: AgentSettings::default(),
    }
}

impl Code {
    pub(crate) fn recovery(self, recovery: RecoveryPolicy) -> Self {
        Self { recovery, ..self }
    }

    pub(crate) fn settings(self, settings: AgentSettings) -> Self {
        Self { settings, ..self }
    }
}

impl Agent for Code {
    const TYPE: &'static str = "Code";

    fn settings(&self) -> AgentSettings {
        self.settings.clone()
    }
}

impl Child for Code {
    type Input = Value;
    type Output = Value;

    async fn run(&self, cx: &RunContext, input: Value) -> Result<Value, RunError> {
        (self.body)(cx, input).await
    }

    fn recovery(&self) -> RecoveryPolicy {
        self.recovery.clone()
    }
}

/// Data that outlives the systems on it.
pub(crate) struct Data {
    pub(crate) store: MemoryStore,
    pub(crate) clock: VirtualClock,
}

impl Data {
    pub(crate) fn new() -> Self {
        let clock = VirtualClock::starting_at(1_767_225_600_000);
        Self { store: MemoryStore::new(), clock }
    }

    /// The next system on the data; earlier ones cannot write any more.
    pub(crate) fn builder(&self) -> SystemBuilder {
        self.on(&self.disk(None))
    }

    pub(crate) fn disk(&self, fault: Option<(u64, Fault)>) -> Disk {
        Disk::open(&self.store, fault)
    }

    pub(crate) fn on(&self, disk: &Disk) -> SystemBuilder {
        SystemBuilder::on_backend(disk.clone()).clock(self.clock).seed(1)
    }

    /// A system with this code as the child, under the agent `Assistant:a`.
    pub(crate) async fn start(&self, code: Code) -> System {
        self.builder().agent(super::Assistant).child(code).start().await.unwrap()
    }
}

/// The agent that dispatches in most tests.
pub(crate) fn assistant(system: &System) -> AgentHandle<super::Assistant> {
    system.agent("a").unwrap()
}

/// The longest that a test waits, in virtual time.
const LIMIT: Duration = Duration::from_secs(24 * 3600);

/// Dispatches run `r`, and waits for its end.
pub(crate) async fn end(system: &System) -> Outcome<Value> {
    let run = assistant(system).run::<Code>(json!(null)).id("r");
    tokio::time::timeout(LIMIT, run).await.expect("an answer").unwrap()
}

/// Lets run `r` work with this code until nothing happens any more, and crashes.
pub(crate) async fn begin(data: &Data, child: Code) {
    let system = data.start(child).await;
    assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    system.crash().await;
}

/// Waits, a bounded virtual time, until something is so.
pub(crate) async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    for _ in 0..100_000 {
        if so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never: {what}");
}
