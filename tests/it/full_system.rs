//! What is promised to runs that wait for a place in a full system.

use ghostlight::Limits;
use ghostlight::prelude::*;
use tokio::time::timeout;

use crate::bench::{Bench, aborted, bounded, failed};
use crate::support::Assistant;
use crate::support::code::{Code, Data, assistant, code};

/// A system that has so many places, on data that outlives it.
async fn started(data: &Data, places: usize, child: Code) -> System {
    let limits = Limits { runnable_runs_max: places, ..Limits::default() };
    data.builder().limits(limits).agent(Assistant).child(child).start().await.unwrap()
}

/// Notes each entry with its attempt, and never ends. The run `busy` makes progress in each life.
fn forever(bench: &Bench, life: u64) -> Code {
    let bench = bench.clone();
    code(move |cx, _| {
        let bench = bench.clone();
        Box::pin(async move {
            bench.note(format!("{} {}", cx.run_id(), cx.attempt()));
            if cx.run_id() == "busy" {
                for n in 0..=life {
                    cx.step(("n", n), async || Ok(())).await?;
                }
            }
            std::future::pending().await
        })
    })
}

async fn run_of(system: &System, id: &str) -> RunInfo {
    assistant(system).inspect(id).await.unwrap().unwrap().run
}

#[tokio::test(start_paused = true)]
async fn a_lost_run_loses_one_attempt_however_often_its_place_does_not_come() {
    bounded(async {
        let (bench, data) = (Bench::default(), Data::new());
        let system = started(&data, 2, forever(&bench, 0)).await;
        for id in ["busy", "idle"] {
            assistant(&system).start::<Code>(json!(null)).id(id).await.unwrap();
        }
        bench.seen("idle 1", 1).await;
        system.crash().await;
        // More often than attempts may be futile.
        for life in 1..14 {
            let system = started(&data, 1, forever(&bench, life)).await;
            tokio::time::sleep(Duration::from_secs(3600)).await;
            let idle = run_of(&system, "idle").await;
            assert_eq!((idle.status, idle.attempt), (Status::Running, 1), "life {life}");
            system.crash().await;
        }
        let system = started(&data, 2, forever(&bench, 14)).await;
        bench.seen("idle 2", 1).await;
        assert_eq!(run_of(&system, "idle").await.attempt, 2);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_first_entry_is_the_first_attempt() {
    bounded(async {
        let (bench, data) = (Bench::default(), Data::new());
        let told = bench.clone();
        let child = move || {
            let bench = told.clone();
            code(move |cx, input| {
                let bench = bench.clone();
                Box::pin(async move {
                    if input.is_null() {
                        let mine = cx.agent::<Code>();
                        mine.start::<Code>(json!(1)).id("kid").detached().await?;
                        bench.note("dispatched");
                    } else {
                        bench.note(format!("kid {}", cx.attempt()));
                    }
                    std::future::pending().await
                })
            })
        };
        let system = started(&data, 1, child()).await;
        assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
        bench.seen("dispatched", 1).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let inside = system.agent_at(&"Assistant:a/Code:r".parse().unwrap()).unwrap();
        let kid = inside.inspect("kid").await.unwrap().unwrap().run;
        assert_eq!(kid.status, Status::Starting);
        system.crash().await;
        let _system = started(&data, 2, child()).await;
        bench.seen("kid 1", 1).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_that_is_lost_ends_within_its_grace_time() {
    bounded(async {
        let (bench, data) = (Bench::default(), Data::new());
        let system = started(&data, 2, forever(&bench, 0)).await;
        for id in ["busy", "idle"] {
            assistant(&system).start::<Code>(json!(null)).id(id).await.unwrap();
        }
        bench.seen("idle 1", 1).await;
        assistant(&system).agent_ref().cancel("idle", "enough").await.unwrap();
        system.crash().await;
        let system = started(&data, 1, forever(&bench, 1)).await;
        let idle = assistant(&system).attach::<Code>("idle").await.unwrap().unwrap();
        let end = timeout(Limits::default().cancel_grace * 2, idle.outcome()).await;
        assert_eq!(aborted(end.unwrap().unwrap()), "enough");
    })
    .await;
}

/// Its start hook fails once it is let go.
struct Failing(Bench);

impl Agent for Failing {
    const TYPE: &'static str = "Failing";

    fn callbacks(callbacks: &mut Callbacks<Self>) {
        callbacks.on_run_start(Self::fail);
    }
}

impl Failing {
    async fn fail(&self, _: &AgentContext, _: RunInfo) -> Result<(), RunError> {
        self.0.note("hook");
        self.0.gate("hook").await;
        Err(RunError::new("not today"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_hook_ends_its_run() {
    bounded(async {
        let (bench, data) = (Bench::default(), Data::new());
        let limits = Limits { runnable_runs_max: 1, ..Limits::default() };
        let builder = data.builder().limits(limits).agent(Assistant).agent(Failing(bench.clone()));
        let system = builder.child(forever(&bench, 0)).start().await.unwrap();
        let failing = system.agent::<Failing>("f").unwrap();
        let run = failing.start::<Code>(json!(null)).id("r").await.unwrap();
        bench.seen("hook", 1).await;
        assistant(&system).start::<Code>(json!(null)).id("full").await.unwrap();
        bench.open("hook");
        let end = run.outcome().await.unwrap();
        assert_eq!(failed(end).message, "start hook: not today");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_enters_no_run_that_waits() {
    bounded(async {
        let (bench, data) = (Bench::default(), Data::new());
        let told = bench.clone();
        let child = move || {
            let bench = told.clone();
            code(move |cx, _| {
                let bench = bench.clone();
                Box::pin(async move {
                    bench.note(format!("{} {}", cx.run_id(), cx.attempt()));
                    bench.gate(cx.run_id()).await;
                    Ok(json!(null))
                })
            })
        };
        let system = started(&data, 3, child()).await;
        for id in ["a", "b", "c"] {
            assistant(&system).start::<Code>(json!(null)).id(id).await.unwrap();
        }
        bench.seen("c 1", 1).await;
        system.crash().await;
        let system = started(&data, 2, child()).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut ids = ["a", "b", "c"];
        ids.sort_by_key(|id| bench.count(&format!("{id} 2")));
        let [waits, first, second] = ids;
        let again = format!("{waits} 2");
        let shutdown = tokio::spawn(system.shutdown());
        tokio::time::sleep(Duration::from_secs(1)).await;
        // Its place is free while the shutdown still waits for the other one.
        bench.open(first);
        tokio::time::sleep(Duration::from_secs(1)).await;
        bench.open(second);
        assert_eq!(shutdown.await.unwrap(), 0);
        assert_eq!(bench.count(&again), 0);
        bench.open(waits);
        let system = started(&data, 2, child()).await;
        let run = assistant(&system).attach::<Code>(waits).await.unwrap().unwrap();
        run.outcome().await.unwrap().completed().unwrap();
        assert_eq!(bench.count(&again), 1);
    })
    .await;
}
