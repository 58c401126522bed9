//! How many runs of a system execute at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use futures_util::future::{join_all, try_join_all};
use ghostlight::prelude::*;
use ghostlight::storage::MemoryStore;
use ghostlight::{Error, Limits, SystemBuilder};
use serde_json::Value;
use tokio::time::timeout;

use crate::bench::{Bench, Do, Worker, aborted, bounded, hold, say};
use crate::support::Assistant;
use crate::support::code::{Code, Data, assistant, code};

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
async fn runs_that_wait_for_one_another_need_one_place() {
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
async fn a_run_that_waits_outside_memory_for_another_holds_no_place() {
    bounded(async {
        let bench = Bench::default();
        let (system, assistant) = started(&MemoryStore::new(), &bench, 2).await;
        let parent = Do::Dispatch(vec![hold("g").kid("k")], Box::new(say("p")));
        let parent = assistant.start::<Worker>(parent).id("p").await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(parent.inspect().await.unwrap().unwrap().run.suspended);
        assert_eq!(system.live_runs(), 1, "what it waits for");
        assistant.run::<Worker>(say("n")).id("n").await.unwrap().completed().unwrap();
        // The end that wakes it frees a place for it.
        let full = assistant.start::<Worker>(hold("f")).id("f").await.unwrap();
        bench.open("g");
        parent.outcome().await.unwrap().completed().unwrap();
        bench.open("f");
        full.outcome().await.unwrap().completed().unwrap();
        for end in ["cancel", "clear"] {
            let parent = Do::Dispatch(vec![hold("h").kid("k")], Box::new(say("p")));
            let parent = assistant.start::<Worker>(parent).id(end).await.unwrap();
            tokio::time::sleep(Duration::from_secs(60)).await;
            match end {
                "cancel" => parent.cancel("enough").await.unwrap(),
                _ => _ = assistant.clear(&ghostlight::RunFilter::default()).await.unwrap(),
            }
            // Both places are free again.
            let both = ["a", "b"].map(|id| {
                assistant.run::<Worker>(say("n")).id(format!("{id} after {end}")).into_future()
            });
            for ended in join_all(both).await {
                ended.unwrap().completed().unwrap();
            }
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
        assert_eq!((woken.status, woken.suspended), (Status::Running, true));
        let mut tail = asleep.tail(After::START);
        let first = timeout(Duration::from_secs(1), tail.next()).await;
        assert_eq!(first.unwrap().unwrap().unwrap().sequence, 0);
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
        bench.seen("enter a", 2).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let run = async |id: &str| assistant.attach::<Worker>(id).await.unwrap().unwrap();
        let b = run("b").await;
        b.cancel("enough").await.unwrap();
        assert_eq!(aborted(b.outcome().await.unwrap()), "enough");
        let inside = system.agent_at(&"Assistant:a/Worker:b".parse().unwrap()).unwrap();
        let kid = inside.inspect("k").await.unwrap().unwrap().run;
        assert!(kid.cancelling || kid.status == Status::Aborted, "{kid:?}");
        for id in ["b", "c", "k"] {
            assert_eq!(bench.count(&format!("enter {id}")), 1, "{id}");
        }
        bench.open("g");
        for id in ["a", "c"] {
            run(id).await.outcome().await.unwrap().completed().unwrap();
        }
        assert_eq!((bench.count("enter b"), bench.count("enter c")), (1, 2));
    })
    .await;
}

/// What the code of [`nesting`] shares.
#[derive(Clone, Default)]
struct Shared {
    /// A handle from outside of all runs.
    root: Arc<OnceLock<AgentHandle<Assistant>>>,
    working: Arc<AtomicUsize>,
    peak: Arc<AtomicUsize>,
}

impl Shared {
    /// Works for a moment, as one of those that are counted.
    async fn work(&self) {
        let working = self.working.fetch_add(1, Ordering::SeqCst) + 1;
        self.peak.fetch_max(working, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(10)).await;
        self.working.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A run that waits for others, so many levels deep, in the way that its input says.
fn nesting(shared: &Shared) -> Code {
    let shared = shared.clone();
    code(move |cx, input| {
        let shared = shared.clone();
        Box::pin(async move {
            let (how, depth): (String, u64) = serde_json::from_value(input)?;
            shared.work().await;
            cx.milestone("m", json!(null)).await?;
            if depth == 0 {
                return Ok(json!(0));
            }
            let (root, inner) = (shared.root.get().unwrap(), json!((&how, depth - 1)));
            let below = match how.as_str() {
                "own" => cx.agent::<Code>().run::<Code>(inner).await?.completed()?,
                "captured" => root.run::<Code>(inner).await?.completed()?,
                "step" => {
                    cx.step("s", async || Ok(root.run::<Code>(inner).await?.completed()?)).await?
                }
                "milestone" => {
                    let run = root.start::<Code>(inner).await?;
                    run.milestone("m").await?;
                    run.outcome().await?.completed()?
                }
                "tail" => {
                    let run = cx.agent::<Code>().start::<Code>(inner).await?;
                    cx.step("read", async || {
                        let mut tail = run.tail(After::START);
                        while let Some(frame) = tail.next().await {
                            frame?;
                        }
                        Ok(())
                    })
                    .await?;
                    run.outcome().await?.completed()?
                }
                "turn" => {
                    let work =
                        async |cx: AgentContext| cx.agent::<Assistant>().run::<Code>(inner).await;
                    root.turn(|cx| async move { work(cx).await }).await??.completed()?
                }
                "many" => {
                    let mine = cx.agent::<Code>();
                    let all = (0..3).map(|_| mine.run::<Code>(inner.clone()));
                    let ends = try_join_all(all).await?;
                    ends.into_iter().next().unwrap().completed()?
                }
                "asleep" => {
                    cx.sleep(Duration::from_secs(60)).await;
                    let below = root.run::<Code>(inner).await?.completed()?;
                    cx.sleep(Duration::from_secs(60)).await;
                    below
                }
                other => panic!("{other}"),
            };
            shared.work().await;
            Ok(json!(below.as_u64().unwrap_or(0) + 1))
        })
    })
}

#[tokio::test(start_paused = true)]
async fn runs_that_wait_for_runs_never_hold_each_other_up() {
    let ways = [
        ("own", 4),
        ("captured", 4),
        ("step", 4),
        ("milestone", 4),
        ("tail", 4),
        ("turn", 1),
        ("many", 3),
        ("asleep", 3),
    ];
    for (places, (how, depth)) in [1, 2].into_iter().flat_map(|n| ways.map(|way| (n, way))) {
        eprintln!("{how}, {places} places");
        let shared = Shared::default();
        let limits = Limits { runnable_runs_max: places, ..Limits::default() };
        let data = Data::new();
        let builder = data.builder().limits(limits).agent(Assistant).child(nesting(&shared));
        let system = builder.start().await.unwrap();
        let parent = assistant(&system);
        assert!(shared.root.set(parent.clone()).is_ok());
        // More than there are places.
        let count = if how == "turn" { 1 } else { 3 };
        let all = join_all((0..count).map(|_| parent.run::<Code>(json!((how, depth)))));
        for end in bounded(all).await {
            let below: Value = end.unwrap().completed().unwrap();
            assert_eq!(below, json!(depth), "{how}, {places} places");
        }
        assert_eq!(
            shared.peak.load(Ordering::SeqCst),
            places.min(if how == "turn" { 1 } else { 2 })
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_cleans_up_however_full_the_system_is() {
    bounded(async {
        let bench = Bench::default();
        let told = bench.clone();
        let child = code(move |cx, input| {
            let bench = told.clone();
            Box::pin(async move {
                if input.is_null() {
                    return std::future::pending().await;
                }
                let child = cx.agent::<Code>().start::<Code>(json!(null)).detached().await?;
                tokio::select! {
                    biased;
                    () = cx.cancelled() => bench.note("cleaned up"),
                    _ = child.outcome() => {}
                }
                Ok(json!(null))
            })
        });
        let limits = Limits { runnable_runs_max: 1, ..Limits::default() };
        let builder = Data::new().builder().limits(limits).agent(Assistant).child(child);
        let system = builder.start().await.unwrap();
        let run = assistant(&system).start::<Code>(json!(1)).id("r").await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        // Its child has the place.
        run.cancel("enough").await.unwrap();
        assert_eq!(aborted(run.outcome().await.unwrap()), "enough");
        assert_eq!(bench.count("cleaned up"), 1);
    })
    .await;
}
