//! Admission from the queue, when something comes between.

use futures_util::future::join;
use ghostlight::prelude::*;
use ghostlight::protocol::{AgentKey, RunKey};
use ghostlight::storage::{Key as StoreKey, MemoryStore};
use ghostlight::{AgentPath, Error, SystemBuilder};

use crate::bench::{Bench, Capped, Worker, bounded, hold, say};
use crate::support::Adder;
use crate::support::code::{Code, Data, code};
use crate::support::unreadable::Unreadable;

#[tokio::test(start_paused = true)]
async fn an_admission_that_fails_is_tried_again_after_a_while() {
    let parent = AgentPath::root("Capped", "c").unwrap();
    let second = RunKey::new(&parent, &"second".parse().unwrap());
    let queue = StoreKey::queue_of(AgentKey::from(&parent));
    for unreadable in [StoreKey::record(second), queue] {
        eprintln!("unreadable: {unreadable}");
        bounded(async {
            let (store, bench) = (Unreadable::default(), Bench::default());
            let worker = Worker { bench: bench.clone(), ..Worker::default() };
            let builder = SystemBuilder::on_backend(store.clone()).child(worker);
            let system = builder.agent(Capped(1, AtCap::Queue)).start().await.unwrap();
            let capped = system.agent::<Capped>("c").unwrap();
            capped.start::<Worker>(hold("g")).id("first").await.unwrap();
            let second = capped.start::<Worker>(say("b")).id("second").await.unwrap();
            bench.seen("enter first", 1).await;
            store.fail(unreadable, 3);
            bench.open("g");
            bench.seen("enter second", 1).await;
            second.outcome().await.unwrap().completed().unwrap();
            let failed_at = store.failed_at();
            assert_eq!(failed_at.len(), 3);
            for pair in failed_at.windows(2) {
                assert!(pair[1] - pair[0] >= Duration::from_secs(1), "{failed_at:?}");
            }
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_dispatch_that_comes_before_an_admission_takes_its_slot() {
    bounded(async {
        let (store, bench) = (MemoryStore::new(), Bench::default());
        let start = async |at_cap: AtCap| {
            let worker = Worker { bench: bench.clone(), ..Worker::default() };
            let builder = SystemBuilder::on_memory_store(store.reopen()).child(worker);
            builder.agent(Capped(1, at_cap)).start().await.unwrap()
        };
        let system = start(AtCap::Queue).await;
        let capped = system.agent::<Capped>("c").unwrap();
        capped.start::<Worker>(hold("g")).id("first").await.unwrap();
        capped.start::<Worker>(say("b")).id("queued").await.unwrap();
        bench.seen("enter first", 1).await;
        system.crash().await;

        // What waits in the queue stays there, but new runs do not any more.
        let system = start(AtCap::Refuse).await;
        let capped = system.agent::<Capped>("c").unwrap();
        bench.seen("enter first", 2).await;
        let hasty = tokio::spawn({
            let capped = capped.clone();
            async move {
                while let Err(refused) = capped.start::<Worker>(hold("h")).id("hasty").await {
                    assert!(matches!(refused, Error::CapExceeded { limit: 1 }), "{refused}");
                }
            }
        });
        tokio::task::yield_now().await;
        bench.open("g");
        hasty.await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(bench.entered(), ["first", "first", "hasty"]);
        bench.open("h");
        let queued = capped.attach::<Worker>("queued").await.unwrap().unwrap();
        queued.outcome().await.unwrap().completed().unwrap();
        assert_eq!(bench.peak(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_queued_run_of_a_type_that_is_gone_holds_up_nobody_and_waits_for_its_type() {
    bounded(async {
        let (store, bench) = (MemoryStore::new(), Bench::default());
        let start = async |adder: bool| {
            let worker = Worker { bench: bench.clone(), ..Worker::default() };
            let builder = SystemBuilder::on_memory_store(store.reopen()).child(worker);
            let builder = builder.agent(Capped(1, AtCap::Queue)).park_unregistered();
            let builder = if adder { builder.child(Adder) } else { builder };
            let system = builder.start().await.unwrap();
            let capped = system.agent::<Capped>("c").unwrap();
            (system, capped)
        };
        let (system, capped) = start(true).await;
        capped.start::<Worker>(hold("g")).id("first").await.unwrap();
        for id in ["sum", "cancelled"] {
            capped.start::<Adder>(vec![1, 2]).id(id).await.unwrap();
        }
        for id in ["b", "c"] {
            capped.start::<Worker>(say(id)).id(id).await.unwrap();
        }
        bench.seen("enter first", 1).await;
        system.crash().await;

        let (system, capped) = start(false).await;
        bench.seen("enter first", 2).await;
        bench.open("g");
        let b = capped.attach::<Worker>("b").await.unwrap().unwrap();
        assert_eq!(b.outcome().await.unwrap().completed().unwrap(), "b");
        capped.cancel("cancelled", "enough").await.unwrap();
        let c = capped.run::<Worker>(say("c")).id("c").await.unwrap();
        assert_eq!(c.completed().unwrap(), "c");
        let d = capped.run::<Worker>(say("d")).id("d").await.unwrap();
        assert_eq!(d.completed().unwrap(), "d");
        assert_eq!(bench.entered(), ["first", "first", "b", "c", "d"]);
        assert!(capped.inspect("sum").await.unwrap().unwrap().run.queued);
        // There is nothing for the agent to do, and nothing that it looks for.
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(system.agents_in_memory(), []);
        system.crash().await;

        let (system, capped) = start(true).await;
        let sum = capped.attach::<Adder>("sum").await.unwrap().unwrap();
        assert_eq!(sum.outcome().await.unwrap().completed().unwrap(), 3);
        let cancelled = capped.inspect("cancelled").await.unwrap().unwrap().run;
        assert_eq!(cancelled.status, Status::Aborted);
        drop(system);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dispatch_whose_commit_is_overtaken_keeps_its_place_in_the_queue() {
    // How far the first has come when a slot is free is a matter of a few polls.
    for yields in 0..12 {
        let (data, bench) = (Data::new(), Bench::default());
        let told = bench.clone();
        let child = code(move |cx, input| {
            let told = told.clone();
            Box::pin(async move {
                told.note(cx.run_id());
                if input.is_null() {
                    told.gate("g").await;
                }
                Ok(json!(null))
            })
        });
        let disk = data.disk(None).latency(Duration::from_millis(50));
        let builder = data.on(&disk).agent(Capped(1, AtCap::Queue)).child(child);
        let system = builder.start().await.unwrap();
        let capped = system.agent::<Capped>("c").unwrap();
        capped.start::<Code>(json!(null)).id("hold").await.unwrap();
        bench.seen("hold", 1).await;
        // Its parts are committed first.
        let long = json!("x".repeat(900_000));
        let dispatches = async {
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
            let first = async { capped.run::<Code>(long).id("first").await.unwrap() };
            let second = async { capped.run::<Code>(json!("y")).id("second").await.unwrap() };
            join(first, second).await
        };
        bounded(join(async { bench.open("g") }, dispatches)).await;
        assert_eq!(bench.events(), ["hold", "first", "second"], "after {yields}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queued_run_that_cannot_be_read_holds_up_nobody() {
    let parent = AgentPath::root("Capped", "c").unwrap();
    let bad = RunKey::new(&parent, &"bad".parse().unwrap());
    bounded(async {
        let (store, bench) = (Unreadable::default(), Bench::default());
        let worker = Worker { bench: bench.clone(), ..Worker::default() };
        let builder = SystemBuilder::on_backend(store.clone()).child(worker);
        let system = builder.agent(Capped(1, AtCap::Queue)).start().await.unwrap();
        let capped = system.agent::<Capped>("c").unwrap();
        capped.start::<Worker>(hold("g")).id("first").await.unwrap();
        bench.seen("enter first", 1).await;
        for id in ["bad", "b", "c"] {
            capped.start::<Worker>(say(id)).id(id).await.unwrap();
        }
        store.fail(StoreKey::record(bad), 20);
        bench.open("g");
        bench.seen("enter c", 1).await;
        assert_eq!(bench.entered(), ["first", "b", "c"]);
        // It is tried again all the while.
        bench.seen("enter bad", 1).await;
        for pair in store.failed_at().windows(2) {
            assert!(pair[1] - pair[0] >= Duration::from_secs(1));
        }
    })
    .await;
}
