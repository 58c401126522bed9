//! A system that goes on with the runs of one agent alone.

use ghostlight::prelude::*;
use ghostlight::protocol::RunKey;
use ghostlight::storage::{Key as StoreKey, MemoryStore};
use ghostlight::{AgentPath, Error, Lookup, RunFilter, SystemBuilder};

use crate::bench::{Bench, Capped, Do, Worker, aborted, bounded, hold, say};
use crate::support::Assistant;
use crate::support::unreadable::Unreadable;

async fn started(
    store: &MemoryStore,
    worker: &Worker,
    only: Option<&str>,
) -> (System, AgentHandle<Capped>, Bench) {
    let bench = worker.bench.clone();
    let mut builder = SystemBuilder::on_memory_store(store.clone()).seed(1);
    if let Some(only) = only {
        builder = builder.resume_only(AgentPath::root("Capped", only).unwrap());
    }
    let builder = builder.agent(Assistant).agent(Capped(2, AtCap::Queue)).child(worker.clone());
    let system = builder.start().await.unwrap();
    let capped = system.agent::<Capped>("a").unwrap();
    (system, capped, bench)
}

#[tokio::test(start_paused = true)]
async fn runs_of_others_rest_and_are_shown_cancelled_and_cleared() {
    bounded(async {
        let (store, worker) = (MemoryStore::new(), Worker::default());
        let (system, capped, bench) = started(&store, &worker, None).await;
        for id in ["1", "2", "3", "4"] {
            let work = if id == "1" { Do::UntilCancelled } else { hold("g") };
            capped.start::<Worker>(work).id(id).await.unwrap();
        }
        bench.seen("enter 2", 1).await;
        system.crash().await;

        let (system, capped, bench) = started(&store.reopen(), &worker, Some("b")).await;
        let other = system.agent::<Capped>("b").unwrap();
        other.run::<Worker>(say("x")).id("5").await.unwrap().completed().unwrap();
        assert_eq!(capped.inspect("1").await.unwrap().unwrap().run.status, Status::Running);
        assert!(capped.inspect("3").await.unwrap().unwrap().run.queued);
        capped.start::<Worker>(say("y")).id("6").await.unwrap();
        // Every timer there may be.
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(bench.entered(), ["1", "2", "5"]);

        // One that may have begun something comes to its end in its own code.
        capped.agent_ref().cancel("1", "enough").await.unwrap();
        let mut tail = capped.tail("1", After::START).await.unwrap();
        while tail.next().await.is_some() {}
        assert_eq!(bench.entered(), ["1", "2", "5", "1"]);
        assert_eq!(bench.count("cancelled 1"), 1);
        assert_eq!(capped.inspect("1").await.unwrap().unwrap().run.status, Status::Aborted);
        capped.agent_ref().cancel("3", "enough").await.unwrap();
        assert_eq!(capped.inspect("3").await.unwrap().unwrap().run.status, Status::Aborted);
        let filter = RunFilter { status: vec![Status::Running], ..RunFilter::default() };
        assert_eq!(capped.clear(&filter).await.unwrap(), 1);
        assert_eq!(bench.entered(), ["1", "2", "5", "1", "2"]);
        let cleared = capped.agent_ref().lookup("2").await.unwrap();
        assert!(matches!(cleared, Lookup::Cleared), "{cleared:?}");
        system.crash().await;

        let (_system, capped, bench) = started(&store.reopen(), &worker, None).await;
        bench.open("g");
        for id in ["4", "6"] {
            let run = capped.attach::<Worker>(id).await.unwrap().unwrap();
            run.outcome().await.unwrap().completed().unwrap();
        }
        assert_eq!(bench.entered(), ["1", "2", "5", "1", "2", "4", "6"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_clear_that_cannot_cancel_a_resting_run_says_so_and_leaves_it() {
    bounded(async {
        let (store, bench) = (Unreadable::default(), Bench::default());
        let builder = || {
            let worker = Worker { bench: bench.clone(), ..Worker::default() };
            SystemBuilder::on_backend(store.clone()).agent(Capped(2, AtCap::Queue)).child(worker)
        };
        let system = builder().start().await.unwrap();
        let capped = system.agent::<Capped>("a").unwrap();
        capped.start::<Worker>(Do::UntilCancelled).id("1").await.unwrap();
        bench.seen("enter 1", 1).await;
        system.crash().await;

        let other = AgentPath::root("Capped", "b").unwrap();
        let system = builder().resume_only(other).start().await.unwrap();
        let capped = system.agent::<Capped>("a").unwrap();
        let run = RunKey::new(capped.agent_ref().path(), &"1".parse().unwrap());
        for _ in 0..2 {
            store.fail(StoreKey::log(run), 1);
            let refused = capped.clear(&RunFilter::default()).await.unwrap_err();
            assert!(matches!(refused, Error::Storage(_)), "{refused:?}");
            assert_eq!(bench.entered(), ["1"]);
        }
        assert_eq!(capped.clear(&RunFilter::default()).await.unwrap(), 1);
        assert_eq!(bench.entered(), ["1", "1"]);
        assert_eq!(bench.count("cancelled 1"), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_run_that_rests_is_told_so() {
    bounded(async {
        let (store, worker) = (MemoryStore::new(), Worker::default());
        let (system, capped, bench) = started(&store, &worker, None).await;
        for id in ["1", "2", "queued"] {
            capped.start::<Worker>(hold("g")).id(id).await.unwrap();
        }
        bench.seen("enter 2", 1).await;
        system.crash().await;

        let (system, capped, bench) = started(&store.reopen(), &worker, Some("b")).await;
        for id in ["1", "queued"] {
            let run = capped.attach::<Worker>(id).await.unwrap().unwrap();
            let error = run.outcome().await.unwrap_err();
            assert_eq!((error.code(), error.is_retryable()), ("resting", false), "{error}");
            let error = run.milestone("m").await.unwrap_err();
            assert_eq!(error.code(), "resting", "{error}");
        }
        // One that is being ended does not rest.
        let run = capped.attach::<Worker>("1").await.unwrap().unwrap();
        run.cancel("enough").await.unwrap();
        assert_eq!(aborted(run.outcome().await.unwrap()), "enough");
        assert_eq!(bench.entered(), ["1", "2", "1"]);
        system.crash().await;

        let (_system, capped, bench) = started(&store.reopen(), &worker, None).await;
        bench.open("g");
        let run = capped.attach::<Worker>("2").await.unwrap().unwrap();
        run.outcome().await.unwrap().completed().unwrap();
    })
    .await;
}
