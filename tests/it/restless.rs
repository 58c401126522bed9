//! Code that never stands still: it wakes itself in every poll, and waits for what the log does not have.

use ghostlight::prelude::*;
use ghostlight::storage::MemoryStore;
use ghostlight::{Limits, SystemBuilder};
use serde_json::Value;
use tokio::time::{Instant, timeout};

use crate::bench::{Bench, aborted};
use crate::support::Assistant;
use crate::support::code::{Code, code};

/// Far more than anything here takes, on the machine's clock: code that never rests stops a paused one.
const LIMIT: Duration = Duration::from_secs(60);

fn limits() -> Limits {
    Limits {
        cancel_grace: Duration::from_millis(20),
        shutdown_drain: Duration::from_millis(20),
        mismatch_after: Duration::from_secs(3600),
        ..Limits::default()
    }
}

/// A step of this key beside something that never rests.
fn restless(bench: &Bench, key: &'static str) -> Code {
    let bench = bench.clone();
    code(move |cx, _| {
        let bench = bench.clone();
        Box::pin(async move {
            let spins = async {
                bench.note(format!("spins beside {key}"));
                loop {
                    tokio::task::yield_now().await;
                }
            };
            let step = async {
                cx.step(key, async || Ok(())).await?;
                bench.note(format!("has {key}"));
                std::future::pending::<Result<Value, RunError>>().await
            };
            tokio::select! {
                biased;
                ended = step => ended,
                () = spins => unreachable!(),
            }
        })
    })
}

async fn started(store: &MemoryStore, child: Code) -> System {
    let builder = SystemBuilder::on_memory_store(store.clone()).seed(1).limits(limits());
    builder.agent(Assistant).child(child).start().await.unwrap()
}

/// Run `r`, of which the log has step `a`, entered by code that asks for `b` instead, and never rests.
async fn in_doubt(bench: &Bench, store: &MemoryStore) -> (System, Run<Code>) {
    let system = started(store, restless(bench, "a")).await;
    let assistant = system.agent::<Assistant>("a").unwrap();
    assistant.start::<Code>(Value::Null).id("r").await.unwrap();
    timeout(LIMIT, bench.seen("has a", 1))
        .await
        .expect("code that goes on beside what never rests");
    system.crash().await;
    let system = started(&store.reopen(), restless(bench, "b")).await;
    let run = system.agent::<Assistant>("a").unwrap().attach::<Code>("r").await.unwrap().unwrap();
    timeout(LIMIT, bench.seen("spins beside b", 1)).await.expect("an entry");
    (system, run)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_reaches_restless_code_in_doubt() {
    let (bench, store) = (Bench::default(), MemoryStore::new());
    let (_system, run) = in_doubt(&bench, &store).await;
    timeout(LIMIT, run.cancel("enough")).await.expect("an answer").unwrap();
    let ended = timeout(LIMIT, run.outcome()).await.expect("an end").unwrap();
    assert_eq!(aborted(ended), "enough");
    assert_eq!(bench.count("has b"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_waits_for_restless_code_in_doubt_no_longer_than_the_drain_and_loses_nothing() {
    let (bench, store) = (Bench::default(), MemoryStore::new());
    let (system, _) = in_doubt(&bench, &store).await;
    let began = Instant::now();
    timeout(LIMIT, system.shutdown()).await.expect("no hang");
    assert!(began.elapsed() >= limits().shutdown_drain);
    // Neither parked nor ended: code that fits goes on.
    let fits = code(|cx, _| {
        Box::pin(async move {
            cx.step("a", async || Ok(())).await?;
            Ok(json!("went on"))
        })
    });
    let system = started(&store.reopen(), fits).await;
    let run = system.agent::<Assistant>("a").unwrap().attach::<Code>("r").await.unwrap().unwrap();
    let ended = timeout(LIMIT, run.outcome()).await.expect("an end").unwrap();
    assert_eq!(ended.completed().unwrap(), json!("went on"));
}
