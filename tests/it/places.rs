//! How many runs of a system execute at once.

use ghostlight::prelude::*;
use ghostlight::storage::MemoryStore;
use ghostlight::{Error, Limits, SystemBuilder};
use tokio::time::timeout;

use crate::bench::{Bench, Do, Worker, aborted, bounded, hold, say};
use crate::support::Assistant;

/// Starts a system that has so many places.
async fn started(
    store: &MemoryStore,
    bench: &Bench,
    places: usize,
) -> (System, AgentHandle<Assistant>) {
    let worker = Worker { bench: bench.clone(), ..Worker::default() };
    let limits = Limits { runnable_runs_max: places, ..Limits::default() };
    let builder = SystemBuilder::on_memory_store(store.reopen()).limits(limits);
    let system = builder.agent(Assistant).child(worker).start().await.unwrap();
    let assistant = system.agent::<Assistant>("a").unwrap();
    (system, assistant)
}

#[tokio::test(start_paused = true)]
async fn a_run_and_all_that_it_awaits_need_one_place() {
    bounded(async {
        let (_system, assistant) = started(&MemoryStore::new(), &Bench::default(), 1).await;
        let inner = Do::Dispatch(vec![say("b").kid("b")], Box::new(say("a")));
        let outer = Do::Dispatch(vec![inner.kid("a")], Box::new(say("r")));
        let end = assistant.run::<Worker>(outer).id("r").await.unwrap();
        assert_eq!(end.completed().unwrap(), "b,a,r");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_outside_memory_for_another_keeps_its_place() {
    bounded(async {
        let bench = Bench::default();
        let (system, assistant) = started(&MemoryStore::new(), &bench, 1).await;
        let parent = Do::Dispatch(vec![hold("g").kid("k")], Box::new(say("p")));
        let parent = assistant.start::<Worker>(parent).id("p").await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(parent.inspect().await.unwrap().unwrap().run.suspended);
        assert_eq!(system.live_runs(), 1, "what it waits for");
        let next = assistant.start::<Worker>(say("n")).id("n");
        timeout(Duration::from_secs(60), next.into_future()).await.unwrap_err();
        bench.open("g");
        parent.outcome().await.unwrap().completed().unwrap();
        assistant.run::<Worker>(say("n")).id("n").await.unwrap().completed().unwrap();
        // It has its place back at once, and gives it back when it ends otherwise.
        for end in ["cancel", "clear"] {
            let parent = Do::Dispatch(vec![hold("h").kid("k")], Box::new(say("p")));
            let parent = assistant.start::<Worker>(parent).id(end).await.unwrap();
            tokio::time::sleep(Duration::from_secs(60)).await;
            match end {
                "cancel" => parent.cancel("enough").await.unwrap(),
                _ => _ = assistant.clear(&ghostlight::RunFilter::default()).await.unwrap(),
            }
            let id = format!("after {end}");
            assistant.run::<Worker>(say("n")).id(id).await.unwrap().completed().unwrap();
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dispatch_is_recorded_once_there_is_a_place() {
    bounded(async {
        let bench = Bench::default();
        let (system, assistant) = started(&MemoryStore::new(), &bench, 2).await;
        let first = assistant.start::<Worker>(hold("g")).id("0").await.unwrap();
        assistant.start::<Worker>(Do::Forever).id("1").await.unwrap();
        for id in 2..20 {
            let start = assistant.start::<Worker>(say("b")).id(id.to_string());
            timeout(Duration::from_secs(1), start.into_future()).await.unwrap_err();
            assert!(assistant.inspect(&id.to_string()).await.unwrap().is_none());
        }
        assert_eq!(system.live_runs(), 2);
        // Joining takes no place.
        assert!(assistant.start::<Worker>(hold("g")).id("0").await.unwrap().already_existed());
        let third = tokio::spawn(assistant.run::<Worker>(say("b")).id("2"));
        bench.open("g");
        first.outcome().await.unwrap().completed().unwrap();
        third.await.unwrap().unwrap().completed().unwrap();
        assert_eq!(bench.entered(), ["0", "1", "2"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dispatch_that_waits_for_a_place_ends_with_the_system() {
    bounded(async {
        let bench = Bench::default();
        let (system, assistant) = started(&MemoryStore::new(), &bench, 1).await;
        assistant.start::<Worker>(Do::Forever).id("0").await.unwrap();
        let waiting = tokio::spawn(assistant.start::<Worker>(say("b")).id("1").into_future());
        tokio::time::sleep(Duration::from_secs(1)).await;
        system.crash().await;
        let end = waiting.await.unwrap();
        assert!(matches!(end, Err(Error::Stopped)), "{end:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_wakes_into_a_full_system_answers_and_can_be_cancelled() {
    bounded(async {
        let bench = Bench::default();
        let (_system, assistant) = started(&MemoryStore::new(), &bench, 1).await;
        let asleep = assistant.start::<Worker>(Do::Sleep(60)).id("s").await.unwrap();
        bench.seen("leave s", 1).await;
        let full = assistant.start::<Worker>(hold("g")).id("f").await.unwrap();
        tokio::time::sleep(Duration::from_secs(300)).await;
        let woken = asleep.inspect().await.unwrap().unwrap().run;
        assert_eq!((woken.status, woken.suspended), (Status::Running, false));
        asleep.cancel("enough").await.unwrap();
        assert_eq!(aborted(asleep.outcome().await.unwrap()), "enough");
        assert_eq!(bench.count("enter s"), 1);
        bench.open("g");
        full.outcome().await.unwrap().completed().unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn recovered_runs_wait_for_places_and_a_cancel_reaches_what_they_dispatched() {
    bounded(async {
        let bench = Bench::default();
        let store = MemoryStore::new();
        let (system, assistant) = started(&store, &bench, 100).await;
        let parent = Do::Dispatch(vec![Do::Forever.kid("k")], Box::new(say("")));
        assistant.start::<Worker>(hold("g")).id("a").await.unwrap();
        assistant.start::<Worker>(parent).id("b").await.unwrap();
        assistant.start::<Worker>(hold("g")).id("c").await.unwrap();
        bench.seen("enter k", 1).await;
        system.crash().await;

        let (system, assistant) = started(&store, &bench, 1).await;
        for entered in ["enter a", "enter k"] {
            bench.seen(entered, 2).await;
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        let run = async |id: &str| assistant.attach::<Worker>(id).await.unwrap().unwrap();
        let b = run("b").await;
        b.cancel("enough").await.unwrap();
        assert_eq!(aborted(b.outcome().await.unwrap()), "enough");
        let inside = system.agent_at(&"Assistant:a/Worker:b".parse().unwrap()).unwrap();
        let kid = inside.inspect("k").await.unwrap().unwrap().run;
        assert!(kid.cancelling || kid.status == Status::Aborted, "{kid:?}");
        assert_eq!((bench.count("enter b"), bench.count("enter c")), (1, 1));
        bench.open("g");
        for id in ["a", "c"] {
            run(id).await.outcome().await.unwrap().completed().unwrap();
        }
        assert_eq!((bench.count("enter b"), bench.count("enter c")), (1, 2));
    })
    .await;
}
