//! A system that goes on with the runs of one agent alone.

use ghostlight::prelude::*;
use ghostlight::protocol::{AgentKey, RunKey};
use ghostlight::storage::{Batch, Key as StoreKey, MemoryStore, Store};
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

/// A parent whose start hook waits until the gate "start" is open.
struct Slow(Bench);

impl Agent for Slow {
    const TYPE: &'static str = "Slow";

    fn callbacks(callbacks: &mut Callbacks<Self>) {
        callbacks.on_run_start(Self::started);
    }
}

impl Slow {
    async fn started(&self, _: &AgentContext, run: RunInfo) -> Result<(), RunError> {
        self.0.note(format!("start {}", run.run_id));
        self.0.gate("start").await;
        Ok(())
    }
}

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn what_this_system_has_begun_itself_does_not_rest() {
    bounded(async {
        let (store, worker) = (MemoryStore::new(), Worker::default());
        let started = async |store: &MemoryStore, only: Option<&str>| {
            let mut builder = SystemBuilder::on_memory_store(store.clone()).seed(1);
            if let Some(only) = only {
                builder = builder.resume_only(AgentPath::root("Assistant", only).unwrap());
            }
            let system = builder.agent(Assistant).child(worker.clone()).start().await.unwrap();
            let assistant = system.agent::<Assistant>("a").unwrap();
            (system, assistant)
        };
        let (system, assistant) = started(&store, None).await;
        assistant.start::<Worker>(Do::Sleep(60)).id("old").await.unwrap();
        worker.bench.seen("leave old", 1).await;
        system.crash().await;

        let (system, assistant) = started(&store.reopen(), Some("b")).await;
        let sleeper = assistant.start::<Worker>(Do::Sleep(3600)).id("sleeper").await.unwrap();
        let early = sleeper.outcome();
        let above = Do::Dispatch(vec![Do::Sleep(3600).kid("below")], Box::new(say("up")));
        let above = assistant.start::<Worker>(above).id("above").await.unwrap();
        tokio::time::sleep(HOUR / 2).await;
        assert_eq!(system.live_runs(), 0);
        assistant.evict().await.unwrap();
        let late = assistant.attach::<Worker>("sleeper").await.unwrap().unwrap();
        let (early, late, up) = tokio::join!(early, late.outcome(), above.outcome());
        for outcome in [early, late, up] {
            outcome.unwrap().completed().unwrap();
        }
        // Of an earlier process, and overdue.
        let old = assistant.attach::<Worker>("old").await.unwrap().unwrap();
        assert_eq!(old.outcome().await.unwrap_err().code(), "resting");
        tokio::time::sleep(HOUR).await;
        assert_eq!(worker.bench.count("enter old"), 1);
        assert!(old.inspect().await.unwrap().unwrap().run.suspended);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_this_system_has_begun_goes_on_when_its_agent_crashes() {
    bounded(async {
        let worker = Worker::default();
        let bench = &worker.bench;
        let other = AgentPath::root("Slow", "b").unwrap();
        let builder = SystemBuilder::on_memory_store(MemoryStore::new()).resume_only(other);
        let builder = builder.agent(Slow(bench.clone())).child(worker.clone());
        let system = builder.start().await.unwrap();
        let slow = system.agent::<Slow>("a").unwrap();
        let run = slow.start::<Worker>(say("x")).id("1").detached();
        let (started, ()) = tokio::join!(run, async {
            bench.seen("start 1", 1).await;
            slow.turn(|_| async { panic!("a bug") }).await.unwrap_err();
            bench.seen("start 1", 2).await;
            bench.open("start");
        });
        started.unwrap().outcome().await.unwrap().completed().unwrap();
    })
    .await;
}

/// The timer of a run that rests, and whose row cannot be read, is due before all others.
#[tokio::test(start_paused = true)]
async fn an_unreadable_run_that_rests_keeps_no_timer() {
    bounded(async {
        let (store, worker) = (MemoryStore::new(), Worker::default());
        let (system, capped, bench) = started(&store, &worker, None).await;
        capped.start::<Worker>(Do::Sleep(60)).id("bad").await.unwrap();
        bench.seen("leave bad", 1).await;
        system.crash().await;
        let store = store.reopen();
        let (system, _, _bench) = started(&store, &worker, Some("b")).await;
        let parent: AgentPath = "Capped:a".parse().unwrap();
        let run = RunKey::new(&parent, &"bad".parse().unwrap());
        let row = StoreKey::live(AgentKey::from(&parent), run);
        let damage = Batch::new().put(row.into_bytes(), b"no record".to_vec());
        store.commit(&[damage]).unwrap()[0].as_ref().unwrap();
        let other = system.agent::<Capped>("b").unwrap();
        let good = other.run::<Worker>(Do::Sleep(3600)).id("good").await.unwrap();
        good.completed().unwrap();
    })
    .await;
}
