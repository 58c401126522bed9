//! Live runs of types that the program does not know any more, or not as children.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ghostlight::prelude::*;
use ghostlight::{AgentPath, Lookup, RunFilter, StartError};
use serde_json::Value;
use tokio::time::timeout;

use crate::support::Assistant;
use crate::support::code::{Code, Data, assistant, code, until};

/// On the paused clock: long enough for any cancel, and no retry for ever passes it.
const LIMIT: Duration = Duration::from_secs(3600);

/// Dispatches a run of [`Code`], and never ends.
struct Kid;

impl Agent for Kid {
    const TYPE: &'static str = "Kid";
}

impl Child for Kid {
    type Input = u64;
    type Output = u64;

    async fn run(&self, cx: &RunContext, _: u64) -> Result<u64, RunError> {
        cx.agent::<Kid>().run::<Code>(json!(1)).id("grandkid").await?;
        std::future::pending().await
    }
}

fn forever() -> Code {
    code(|_, _| Box::pin(std::future::pending()))
}

/// Run `r` of `Code` awaits `kid` of `Kid`, which awaits `grandkid` of `Code`. All three are live.
async fn three_generations(data: &Data) {
    let parent = code(|cx, input| {
        Box::pin(async move {
            if input.is_null() {
                cx.agent::<Code>().run::<Kid>(1).id("kid").await?;
            }
            std::future::pending().await
        })
    });
    let system = data.builder().agent(Assistant).child(parent).child(Kid).start().await.unwrap();
    assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    system.crash().await;
}

/// Without the type between the two others.
async fn without_kid(data: &Data) -> System {
    let builder = data.builder().agent(Assistant).child(forever());
    builder.park_unregistered().start().await.unwrap()
}

async fn status(system: &System, parent: &str, run_id: &str) -> Status {
    let parent: AgentPath = parent.parse().unwrap();
    match system.agent_at(&parent).unwrap().lookup(run_id).await.unwrap() {
        Lookup::Run(run) => run.status,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_passes_a_type_that_is_not_registered() {
    let data = Data::new();
    three_generations(&data).await;
    let system = without_kid(&data).await;
    let a = assistant(&system);
    let run = a.attach::<Code>("r").await.unwrap().unwrap();
    run.cancel("enough").await.unwrap();
    let end = timeout(LIMIT, run.outcome()).await.expect("the end").unwrap();
    assert_eq!(end.status(), Status::Aborted);
    assert_eq!(status(&system, "Assistant:a/Code:r", "kid").await, Status::Aborted);
    system.crash().await;

    let system = data.builder().agent(Assistant).child(forever()).child(Kid).start().await.unwrap();
    assert_eq!(
        status(&system, "Assistant:a/Code:r/Kid:kid", "grandkid").await,
        Status::Aborted,
        "what is below it goes first",
    );
}

#[tokio::test(start_paused = true)]
async fn a_clear_passes_a_type_that_is_not_registered() {
    let data = Data::new();
    three_generations(&data).await;
    let system = without_kid(&data).await;
    let parent = system.agent_at(&"Assistant:a/Code:r".parse().unwrap()).unwrap();
    let cleared = timeout(LIMIT, parent.clear(&RunFilter::default())).await.expect("an answer");
    assert_eq!(cleared.unwrap(), 1);
    assert_eq!(parent.lookup("kid").await.unwrap(), Lookup::Cleared);
    system.crash().await;

    let system = data.builder().agent(Assistant).child(forever()).child(Kid).start().await.unwrap();
    let kid = system.agent_at(&"Assistant:a/Code:r/Kid:kid".parse().unwrap()).unwrap();
    assert_eq!(kid.lookup("grandkid").await.unwrap(), Lookup::Cleared);
}

/// Without the type between, and without going on with any of them.
async fn resting_without_kid(data: &Data) -> System {
    let builder = data.builder().agent(Assistant).child(forever()).park_unregistered();
    builder.resume_only(AgentPath::root("Assistant", "other").unwrap()).start().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_cancel_of_a_resting_run_passes_a_type_that_is_not_registered() {
    let data = Data::new();
    three_generations(&data).await;
    let system = resting_without_kid(&data).await;
    let run = assistant(&system).attach::<Code>("r").await.unwrap().unwrap();
    timeout(LIMIT, run.cancel("enough")).await.expect("an answer").unwrap();
    let end = timeout(LIMIT, run.outcome()).await.expect("the end").unwrap();
    assert_eq!(end.status(), Status::Aborted);
    assert_eq!(status(&system, "Assistant:a/Code:r", "kid").await, Status::Aborted);
}

#[tokio::test(start_paused = true)]
async fn a_resting_run_of_a_type_that_is_not_registered_is_cancelled_at_once() {
    let data = Data::new();
    three_generations(&data).await;
    let system = resting_without_kid(&data).await;
    let parent = system.agent_at(&"Assistant:a/Code:r".parse().unwrap()).unwrap();
    parent.cancel("kid", "enough").await.unwrap();
    assert_eq!(status(&system, "Assistant:a/Code:r", "kid").await, Status::Aborted);
}

#[tokio::test(start_paused = true)]
async fn a_clear_of_a_resting_run_passes_a_type_that_is_not_registered() {
    let data = Data::new();
    three_generations(&data).await;
    let system = resting_without_kid(&data).await;
    let (a, all) = (assistant(&system), RunFilter::default());
    assert_eq!(timeout(LIMIT, a.clear(&all)).await.expect("an answer").unwrap(), 1);
    assert_eq!(a.agent_ref().lookup("r").await.unwrap(), Lookup::Cleared);
}

#[tokio::test(start_paused = true)]
async fn a_live_run_of_a_type_that_is_a_parent_only_now_stops_the_start() {
    let data = Data::new();
    three_generations(&data).await;
    let builder = || data.builder().agent(Assistant).child(forever()).agent(Kid);
    match builder().start().await.map(|_| ()).unwrap_err() {
        StartError::NotAChild { agent_type, live_runs, example } => {
            assert_eq!((agent_type.as_str(), live_runs, example.as_str()), ("Kid", 1, "kid"));
        }
        other => panic!("{other}"),
    }
    // Left alone, by its agent too, which has nothing else to do.
    let system = builder().park_unregistered().start().await.unwrap();
    let parent = system.agent_at(&"Assistant:a/Code:r".parse().unwrap()).unwrap();
    parent.hydrate().await.unwrap();
    parent.evict().await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!system.agents_in_memory().contains(&"Assistant:a/Code:r".parse().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_timer_of_a_type_that_is_not_registered_keeps_no_agent_in_memory() {
    let data = Data::new();
    let sleeper = || {
        code(|cx, _| {
            Box::pin(async move {
                cx.sleep(Duration::from_secs(60)).await;
                Ok(json!(null))
            })
        })
    };
    let system = data.start(sleeper()).await;
    assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
    until("asleep", async || assistant(&system).inspect("r").await.unwrap().unwrap().run.suspended)
        .await;
    system.crash().await;

    let system = data.builder().agent(Assistant).park_unregistered().start().await.unwrap();
    tokio::time::sleep(LIMIT).await;
    assert_eq!(system.agents_in_memory(), []);
    system.crash().await;

    let system = data.start(sleeper()).await;
    let run = assistant(&system).attach::<Code>("r").await.unwrap().unwrap();
    let end = timeout(LIMIT, run.outcome()).await.expect("the end").unwrap();
    assert_eq!(end.status(), Status::Completed);
}

/// A parent whose finish hook fails, unless it hears; it counts what it has heard.
#[derive(Clone, Default)]
struct Listener {
    hears: bool,
    heard: Arc<AtomicUsize>,
}

impl Agent for Listener {
    const TYPE: &'static str = "Listener";

    fn callbacks(callbacks: &mut Callbacks<Self>) {
        callbacks.on_run_finish(Self::finished);
    }
}

impl Listener {
    async fn finished(
        &self,
        _: &AgentContext,
        _: RunInfo,
        _: Outcome<Value>,
    ) -> Result<(), RunError> {
        if !self.hears {
            return Err(RunError::new("not now"));
        }
        self.heard.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_delivery_owed_to_a_type_that_is_not_registered_stops_the_start() {
    let data = Data::new();
    let ends = || code(|_, _| Box::pin(async { Ok(json!(1)) }));
    let system = data.builder().agent(Listener::default()).child(ends()).start().await.unwrap();
    let parent = system.agent::<Listener>("l").unwrap();
    parent.run::<Code>(json!(null)).id("ended").await.unwrap().completed().unwrap();
    system.crash().await;

    let builder = || data.builder().agent(Assistant).child(ends());
    let error = builder().start().await.err().expect("nobody could be told");
    let text = "agent type \"Listener\" is not registered, and the store has live runs or owed deliveries that \
                need it (1, for instance run \"ended\"); register it, or call `park_unregistered()` to \
                leave them alone; registered are: Assistant, Code";
    assert_eq!(error.to_string(), text);
    let system = builder().park_unregistered().start().await.unwrap();
    tokio::time::sleep(LIMIT).await;
    system.crash().await;

    // What is left alone is still owed.
    let listener = Listener { hears: true, ..Listener::default() };
    let system = builder().agent(listener.clone()).start().await.unwrap();
    until("the delivery", async || listener.heard.load(Ordering::SeqCst) == 1).await;
    system.crash().await;
}
