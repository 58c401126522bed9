#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

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
