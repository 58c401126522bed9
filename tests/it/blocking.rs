//! Code that blocks a thread cannot be dropped: its run keeps id and slot until it has returned.

use ghostlight::prelude::*;
use ghostlight::{Error, Limits, RunFilter};

use crate::bench::{Bench, Capped, Do, Worker, aborted, bounded_real, say};
use crate::support::Assistant;
use crate::support::code::{Code, Data, assistant, code};
use crate::support::disk::Fault;

async fn started() -> (System, AgentHandle<Capped>, Bench) {
    let worker = Worker::default();
    let bench = worker.bench.clone();
    let limits = Limits { cancel_grace: Duration::from_millis(50), ..Limits::default() };
    let builder = System::in_memory().limits(limits).agent(Capped(1, AtCap::Refuse));
    let system = builder.child(worker).start().await.unwrap();
    let capped = system.agent::<Capped>("c").unwrap();
    (system, capped, bench)
}

/// Opens the gate even if the test fails, so that the runtime can end.
pub(crate) struct OpenOnDrop(pub(crate) Bench);

impl Drop for OpenOnDrop {
    fn drop(&mut self) {
        self.0.open("g");
    }
}

async fn refused_while_stopping(capped: &AgentHandle<Capped>) {
    let other = capped.run::<Worker>(say("b")).id("other").await.unwrap_err();
    assert!(matches!(other, Error::CapExceeded { limit: 1 }), "the slot is taken: {other}");
    let cleared = capped.clear(&RunFilter::default()).await.unwrap_err();
    assert!(matches!(&cleared, Error::StillStopping(id) if id == "x"), "{cleared}");
    assert!(cleared.is_retryable());
    let again = capped.run::<Worker>(Do::Block("g".into())).id("x").await.unwrap_err();
    assert!(matches!(&again, Error::StillStopping(id) if id == "x"), "{again}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_run_that_blocks_is_still_stopping() {
    bounded_real(async {
        let (system, capped, bench) = started().await;
        let _open = OpenOnDrop(bench.clone());
        let run = capped.start::<Worker>(Do::Block("g".into())).id("x").await.unwrap();
        bench.seen("blocking", 1).await;
        run.cancel("enough").await.unwrap();
        // Whoever waits for the run does not wait for the blocked thread.
        assert_eq!(aborted(run.outcome().await.unwrap()), "enough");
        refused_while_stopping(&capped).await;
        // Neither does it help to forget the parent.
        capped.evict().await.unwrap();
        refused_while_stopping(&capped).await;

        bench.open("g");
        while system.live_runs() > 0 {
            tokio::task::yield_now().await;
        }
        // The parent hears of it, and has the slot back, a moment later.
        let other = loop {
            match capped.run::<Worker>(say("b")).id("other").await {
                Err(Error::CapExceeded { .. }) => tokio::task::yield_now().await,
                other => break other.unwrap(),
            }
        };
        assert_eq!(other.completed().unwrap(), "b");
        let again = capped.run::<Worker>(Do::Block("g".into())).id("x").await.unwrap();
        assert_eq!(aborted(again), "enough");
        assert_eq!(capped.clear(&RunFilter::default()).await.unwrap(), 2);
        assert_eq!(bench.count("blocking"), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocking_step_that_returns_in_time_is_like_any_other() {
    bounded_real(async {
        let (_system, capped, bench) = started().await;
        let run = capped.start::<Worker>(Do::Block("g".into())).id("x").await.unwrap();
        bench.seen("blocking", 1).await;
        bench.open("g");
        assert_eq!(run.outcome().await.unwrap().completed().unwrap(), "");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clear_that_comes_no_further_than_its_cancel_frees_the_slot() {
    bounded_real(async {
        let worker = Worker::default();
        let bench = worker.bench.clone();
        let _open = OpenOnDrop(bench.clone());
        let limits = Limits {
            cancel_grace: Duration::from_millis(50),
            suspend_after: Duration::from_millis(10),
            ..Limits::default()
        };
        let builder = System::in_memory().limits(limits).agent(Capped(1, AtCap::Refuse));
        let system = builder.child(worker).start().await.unwrap();
        let capped = system.agent::<Capped>("c").unwrap();
        let waits = Do::Dispatch(vec![Do::Block("g".into()).kid("kid")], Box::new(say("")));
        let run = capped.start::<Worker>(waits).id("x").await.unwrap();
        bench.seen("blocking", 1).await;
        while !run.inspect().await.unwrap().unwrap().run.suspended {
            tokio::task::yield_now().await;
        }
        let cleared = capped.clear(&RunFilter::default()).await.unwrap_err();
        assert!(matches!(&cleared, Error::StillStopping(id) if id == "kid"), "{cleared}");
        assert_eq!(run.inspect().await.unwrap().unwrap().run.status, Status::Aborted);
        let other = capped.run::<Worker>(say("b")).id("other").await.unwrap();
        assert_eq!(other.completed().unwrap(), "b");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn code_that_blocked_beyond_its_end_dispatches_nothing() {
    bounded_real(async {
        let bench = Bench::default();
        let _open = OpenOnDrop(bench.clone());
        let blocks = bench.clone();
        let child = code(move |cx, input| {
            let bench = blocks.clone();
            Box::pin(async move {
                if !input.is_null() {
                    return Ok(input);
                }
                let me = cx.agent::<Code>();
                me.run::<Code>(json!(0)).id("early").await?.completed()?;
                bench.note("blocking");
                bench.block("g");
                me.start::<Code>(json!(1)).id("late").await?;
                Ok(json!(null))
            })
        });
        let limits = Limits { cancel_grace: Duration::from_millis(50), ..Limits::default() };
        let builder = System::in_memory().limits(limits).agent(Assistant).child(child);
        let system = builder.start().await.unwrap();
        let assistant = system.agent::<Assistant>("a").unwrap();
        let run = assistant.start::<Code>(json!(null)).id("x").await.unwrap();
        bench.seen("blocking", 1).await;
        run.cancel("enough").await.unwrap();
        assert_eq!(aborted(run.outcome().await.unwrap()), "enough");
        bench.open("g");
        while system.live_runs() > 0 {
            tokio::task::yield_now().await;
        }
        let x = system.agent_at(&"Assistant:a/Code:x".parse().unwrap()).unwrap();
        assert!(x.inspect("early").await.unwrap().is_some());
        let late = x.inspect("late").await.unwrap();
        assert!(late.is_none(), "a run that has ended has dispatched {late:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_of_a_run_that_blocks_and_cannot_record_anything_is_told_so() {
    bounded_real(async {
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let gate = std::sync::Arc::new(std::sync::Mutex::new(gate));
        let child = code(move |cx, _| {
            let gate = std::sync::Arc::clone(&gate);
            Box::pin(async move {
                let block = cx.step_blocking("block", move || {
                    // Its error is that the test is over.
                    let _ = gate.lock().unwrap().recv();
                    Ok(())
                });
                let (block, step) = tokio::join!(block, cx.step("s", async || Ok(())));
                block.and(step)?;
                Ok(json!(null))
            })
        });
        // The groups: incarnation, dispatch, step.
        let data = Data::new();
        let disk = data.disk(Some((3, Fault::Fail)));
        let system = data.on(&disk).agent(Assistant).child(child).start().await.unwrap();
        let _ends_before_the_system = open;
        assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
        disk.reached().await;
        let error = assistant(&system).cancel("r", "enough").await.unwrap_err();
        assert!(matches!(error, Error::Storage(_)), "{error:?}");
    })
    .await;
}
