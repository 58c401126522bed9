//! Nothing stays behind of those who have listened.

use std::time::Duration;

use tokio::time::timeout;

use crate::testing::TestSystem;
use crate::{After, Agent, AgentHandle, Child, RunContext, RunError, System};

struct Parent;

impl Agent for Parent {
    const TYPE: &'static str = "Parent";
}

/// Ends at once, or never.
struct Worker;

impl Agent for Worker {
    const TYPE: &'static str = "Worker";
}

impl Child for Worker {
    type Input = bool;
    type Output = ();

    async fn run(&self, cx: &RunContext, ends: bool) -> Result<(), RunError> {
        cx.milestone("up", ()).await?;
        match ends {
            true => Ok(()),
            false => std::future::pending().await,
        }
    }
}

async fn started() -> (TestSystem, AgentHandle<Parent>) {
    let system = TestSystem::new(1).agent(Parent).child(Worker).start().await.unwrap();
    let parent = system.agent("p").unwrap();
    (system, parent)
}

fn channels(system: &System) -> usize {
    system.node().hub.lock().by_run.len()
}

#[tokio::test(start_paused = true)]
async fn a_run_that_has_ended_is_forgotten_by_the_hub() {
    let (system, parent) = started().await;
    let run = parent.start::<Worker>(true).await.unwrap();
    run.outcome().await.unwrap().completed().unwrap();
    let mut tail = run.tail(After::START);
    while let Some(frame) = tail.next().await {
        frame.unwrap();
        assert_eq!(channels(system.system()), 0, "of a run that has ended nothing is published");
    }
    run.outcome().await.unwrap().completed().unwrap();
    assert_eq!(channels(system.system()), 0);
}

#[tokio::test(start_paused = true)]
async fn who_stops_listening_to_a_live_run_is_forgotten_by_the_hub() {
    let (system, parent) = started().await;
    let run = parent.start::<Worker>(false).await.unwrap();
    run.milestone("up").await.unwrap();
    assert_eq!(channels(system.system()), 0);
    let mut tails = [run.tail(After::number(1)), run.tail(After::number(1))];
    for tail in &mut tails {
        timeout(Duration::from_secs(1), tail.next()).await.unwrap_err();
        assert_eq!(channels(system.system()), 1);
    }
    let waits = [run.outcome(), run.outcome()].map(|wait| timeout(Duration::from_secs(1), wait));
    let [first, second] = waits;
    let (first, second) = tokio::join!(first, second);
    assert!(first.is_err() && second.is_err());
    let [first, second] = tails;
    drop(first);
    assert_eq!(channels(system.system()), 1);
    drop(second);
    assert_eq!(channels(system.system()), 0);
}

#[tokio::test(start_paused = true)]
async fn who_comes_after_the_close_does_not_wait() {
    let hub = super::Hub::new(4);
    let parent = ghostlight_protocol::AgentPath::root("Parent", "p").unwrap();
    let run = ghostlight_protocol::RunKey::new(&parent, &"r".parse().unwrap());
    let (mut frames, end) = (hub.subscribe(run), hub.outcome(run));
    hub.close();
    assert!(frames.recv().await.is_err() && end.await.is_err());
    let (mut frames, end) = (hub.subscribe(run), hub.outcome(run));
    let late = async { frames.recv().await.is_err() && end.await.is_err() };
    assert!(timeout(Duration::from_secs(60), late).await.expect("an answer"));
    assert!(!hub.is_tailed(run));
}
