use ghostlight_protocol::{RunId, RunKey};
use tokio::sync::mpsc;

use crate::{Agent, Child, RunContext, RunError, System};

struct Parent;
impl Agent for Parent {
    const TYPE: &'static str = "Parent";
}

/// Tells of every entry, and never ends.
struct Forever(mpsc::Sender<u32>);
impl Agent for Forever {
    const TYPE: &'static str = "Forever";
}
impl Child for Forever {
    type Input = ();
    type Output = ();

    async fn run(&self, cx: &RunContext, (): ()) -> Result<(), RunError> {
        let _ = self.0.send(cx.attempt()).await;
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn an_actor_that_is_lost_while_its_parent_is_out_of_memory_loses_an_attempt() {
    let (told, mut entered) = mpsc::channel(8);
    let builder = System::in_memory().agent(Parent).child(Forever(told));
    let system = builder.start().await.expect("it starts");
    let parent = system.agent::<Parent>("p").expect("a valid name");
    parent.start::<Forever>(()).id("r").await.expect("it is recorded");
    assert_eq!(entered.recv().await, Some(1));
    let agent = parent.agent_ref();
    agent.evict().await.expect("the system is up");
    while !system.agents_in_memory().is_empty() {
        tokio::task::yield_now().await;
    }
    let run = RunKey::new(agent.path(), &RunId::new("r").expect("a valid id"));
    system.node().live.get(run).expect("it lives").kill();
    assert_eq!(entered.recv().await, Some(2));
}
