use std::sync::Arc;
use std::time::Duration;

use ghostlight_protocol::{RunId, RunKey, Status};
use ghostlight_storage::MemoryStore;
use tokio::time::timeout;

use crate::{Agent, Child, RunContext, RunError, System, SystemBuilder};

struct Parent;
impl Agent for Parent {
    const TYPE: &'static str = "Parent";
}

/// Executes a step of this key, and never ends.
struct Code(&'static str);
impl Agent for Code {
    const TYPE: &'static str = "Code";
}
impl Child for Code {
    type Input = ();
    type Output = ();

    async fn run(&self, cx: &RunContext, (): ()) -> Result<(), RunError> {
        cx.step(self.0, async || Ok(())).await?;
        std::future::pending().await
    }
}

async fn started(store: MemoryStore, step: &'static str) -> System {
    let builder = SystemBuilder::on_memory_store(store).agent(Parent).child(Code(step));
    builder.start().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_while_a_parked_run_is_on_its_way_out_is_told() {
    let store = MemoryStore::new();
    let system = started(store.clone(), "a").await;
    let parent = system.agent::<Parent>("p").unwrap();
    parent.start::<Code>(()).id("r").await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    system.crash().await;

    let system = started(store.reopen(), "b").await;
    let parent = system.agent::<Parent>("p").unwrap();
    let run_id = RunId::new("r").unwrap();
    let key = RunKey::new(parent.path(), &run_id);
    // In a task, which is woken before the one that learns of the actor's exit.
    let told = tokio::spawn({
        let node = Arc::clone(system.node());
        let end = node.hub.outcome(key);
        async move {
            let told = end.await.unwrap().unwrap();
            (told, node.live.get(key), node.live.is_executed(key))
        }
    });
    let run = parent.attach::<Code>("r").await.unwrap().unwrap();
    let (told, leaving, is_executed) = told.await.unwrap();
    assert_eq!(told.status(), Status::Interrupted);
    let leaving = leaving.expect("its actor is still there");
    assert!(!is_executed, "and tells nobody any more");
    // It stays there for as long as it takes to ask.
    while system.live_runs() > 0 {
        tokio::task::yield_now().await;
    }
    let live = &system.node().live;
    live.insert(parent.path(), &run_id, leaving);
    live.parked(key);
    let told = timeout(Duration::from_secs(3600), run.outcome()).await.expect("an answer");
    assert_eq!(told.unwrap().status(), Status::Interrupted);
}
