#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ghostlight_storage as storage;
use ghostlight_supervisor::Supervisor;
use tokio::time::timeout;

use super::System;
use crate::node::Supervisors;
use crate::{Agent, Child, Error, RunContext, RunError};

/// On the paused clock: whoever waits longer waits for ever.
const LIMIT: Duration = Duration::from_secs(3600);

struct Endless;

impl Agent for Endless {
    const TYPE: &'static str = "Endless";
}

impl Child for Endless {
    type Input = ();
    type Output = ();

    async fn run(&self, _: &RunContext, (): ()) -> Result<(), RunError> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn everybody_is_told_when_a_supervisor_has_ended() {
    let either: [fn(&Supervisors) -> &Supervisor; 2] = [|both| &both.runs, |both| &both.agents];
    for one in either {
        let system = System::in_memory().seed(1).child(Endless).start().await.unwrap();
        let agent = system.agent::<Endless>("e").unwrap();
        let run = agent.start::<Endless>(()).id("r").await.unwrap();
        one(system.node().supervisors.get().unwrap()).cell().kill();
        let error = timeout(LIMIT, run.outcome()).await.expect("an answer").unwrap_err();
        let Error::Storage(storage::Error::Poisoned { why }) = error else { panic!("{error}") };
        assert!(why.contains("supervisor"), "{why}");
        assert!(system.failure().is_some());
        let refused = timeout(LIMIT, agent.start::<Endless>(()).id("s")).await.expect("an answer");
        assert!(refused.is_err());
        let asked = timeout(LIMIT, agent.inspect("r")).await.expect("an answer");
        assert!(asked.is_err());
        timeout(Duration::from_secs(1), system.shutdown()).await.expect("nothing to wait for");
    }
}

/// Counts the errors that are logged of a target.
struct Errors(&'static str, Arc<AtomicUsize>);

impl tracing::Subscriber for Errors {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == self.0 && *metadata.level() == tracing::Level::ERROR
    }

    fn event(&self, _: &tracing::Event<'_>) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::Id {
        tracing::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::Id, _: &tracing::Id) {}
    fn enter(&self, _: &tracing::Id) {}
    fn exit(&self, _: &tracing::Id) {}
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_that_has_ended_is_told_where_a_failed_store_is_not() {
    let count = Arc::new(AtomicUsize::new(0));
    let errors = Errors("ghostlight_actors::supervision", Arc::clone(&count));
    let _default = tracing::subscriber::set_default(errors);
    let system = System::in_memory().seed(1).child(Endless).start().await.unwrap();
    let agent = system.agent::<Endless>("e").unwrap();
    let run = agent.start::<Endless>(()).id("r").await.unwrap();
    system.node().supervisors.get().unwrap().runs.cell().kill();
    timeout(LIMIT, run.outcome()).await.expect("an answer").unwrap_err();
    assert_eq!(count.load(Ordering::SeqCst), 1);
}
