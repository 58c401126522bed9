//! How systems end, and what becomes of callers and handles.

use futures_util::future::join;
use ghostlight::prelude::*;
use ghostlight::storage::MemoryStore;
use ghostlight::{Error, RunFilter, SystemBuilder};

use crate::bench::{Bench, Do, Worker, aborted, bounded, bounded_real, hold, say};
use crate::support::Assistant;
use crate::support::code::Data;

async fn started(store: &MemoryStore, bench: &Bench) -> (System, AgentHandle<Assistant>) {
    let worker = Worker { bench: bench.clone(), ..Worker::default() };
    let builder =
        SystemBuilder::on_memory_store(store.clone()).seed(1).agent(Assistant).child(worker);
    let system = builder.start().await.unwrap();
    let assistant = system.agent::<Assistant>("a").unwrap();
    (system, assistant)
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_running_work_end() {
    bounded(async {
        let (store, bench) = (MemoryStore::new(), Bench::default());
        let (system, assistant) = started(&store, &bench).await;
        let run = assistant.start::<Worker>(hold("g")).id("x").await.unwrap();
        bench.seen("enter x", 1).await;
        let open = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            bench.open("g");
        };
        let waiting = async { run.outcome().await };
        let (left, (end, ())) = join(system.shutdown(), join(waiting, open)).await;
        assert_eq!(left, 0);
        assert_eq!(end.unwrap().completed().unwrap(), "g");
        let (_system, assistant) = started(&store.reopen(), &bench).await;
        let info = assistant.inspect("x").await.unwrap().unwrap().run;
        assert_eq!((info.status, info.attempt), (Status::Completed, 1));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_system_that_drains_shows_and_cancels_its_runs() {
    bounded(async {
        let (store, bench) = (MemoryStore::new(), Bench::default());
        let (system, assistant) = started(&store, &bench).await;
        assistant.run::<Worker>(say("a")).id("ended").await.unwrap();
        assistant.start::<Worker>(hold("never")).id("hangs").await.unwrap();
        let other = system.agent::<Assistant>("b").unwrap();
        other.run::<Worker>(say("a")).id("ended").await.unwrap();
        other.evict().await.unwrap();
        let looks = async {
            for agent in [&assistant, &other] {
                let shown = agent.inspect("ended").await.unwrap().unwrap();
                assert_eq!(shown.run.status, Status::Completed);
                let refused = agent.run::<Worker>(say("a")).id("new").await.unwrap_err();
                assert!(matches!(refused, Error::Stopped), "{refused}");
            }
            let mut tail = assistant.tail("hangs", After::START).await.unwrap();
            assistant.cancel("hangs", "enough").await.unwrap();
            while tail.next().await.is_some_and(|frame| !frame.unwrap().event.is_hard_end()) {}
        };
        // What hangs ends by the cancel, long before the drain does.
        let begin = tokio::time::Instant::now();
        join(system.drain(), looks).await;
        assert!(begin.elapsed() < Duration::from_secs(10));
        let shown = assistant.inspect("hangs").await.unwrap().unwrap();
        assert_eq!(shown.run.status, Status::Aborted);
        assert_eq!(system.shutdown().await, 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_does_not_end_in_time_goes_on_with_the_next_system() {
    bounded(async {
        let (store, bench) = (MemoryStore::new(), Bench::default());
        let (system, assistant) = started(&store, &bench).await;
        let asleep = assistant.start::<Worker>(Do::Sleep(3600)).id("asleep").await.unwrap();
        let run = assistant.start::<Worker>(hold("end")).id("x").await.unwrap();
        // It dispatches a child while the system drains: recorded, and not entered any more.
        let work = Do::Dispatch(vec![say("kid").kid("kid")], Box::new(say("y"))).after("g");
        let parent = assistant.start::<Worker>(work.clone()).id("y").await.unwrap();
        bench.seen("enter x", 1).await;
        bench.seen("enter y", 1).await;
        bench.seen("leave asleep", 1).await;
        let begin = tokio::time::Instant::now();
        let open = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            bench.open("g");
        };
        let waiting = async { run.outcome().await };
        let (left, (end, ())) = join(system.shutdown(), join(waiting, open)).await;
        // The parent has left memory: its child is not entered any more.
        assert_eq!(left, 1);
        assert!(matches!(end, Err(Error::Stopped)), "{end:?}");
        assert_eq!(begin.elapsed().as_secs(), 10);
        assert_eq!(bench.count("enter kid"), 0);
        drop((asleep, parent));
        bench.open("end");
        let (_system, assistant) = started(&store.reopen(), &bench).await;
        let ended = assistant.run::<Worker>(hold("end")).id("x").await.unwrap();
        assert_eq!(ended.completed().unwrap(), "end");
        let said = assistant.run::<Worker>(work).id("y").await.unwrap().completed().unwrap();
        assert_eq!(said, "kid,y");
        let end = assistant.run::<Worker>(Do::Sleep(3600)).id("asleep").await.unwrap();
        assert_eq!(end.completed().unwrap(), "");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_who_waits_for_a_run_that_is_not_entered() {
    bounded(async {
        let (store, bench) = (MemoryStore::new(), Bench::default());
        let (system, assistant) = started(&store, &bench).await;
        let work = Do::Dispatch(vec![say("kid").kid("kid")], Box::new(say("y"))).after("g");
        assistant.start::<Worker>(work.clone()).id("y").await.unwrap();
        bench.seen("enter y", 1).await;
        let begin = tokio::time::Instant::now();
        let open = async { bench.open("g") };
        let (left, ()) = join(system.shutdown(), open).await;
        assert_eq!(left, 0);
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
        assert_eq!((bench.count("enter kid"), bench.count("enter y")), (0, 1));
        let (_system, assistant) = started(&store.reopen(), &bench).await;
        let said = assistant.run::<Worker>(work).id("y").await.unwrap().completed().unwrap();
        assert_eq!(said, "kid,y");
        let info = assistant.inspect("y").await.unwrap().unwrap().run;
        assert_eq!(info.attempt, 1, "it was not lost");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_cut_a_cancel_off_from_the_descendants() {
    bounded(async {
        let (data, bench) = (Data::new(), Bench::default());
        let worker = Worker { bench: bench.clone(), ..Worker::default() };
        let disk = data.disk(None).latency(Duration::from_millis(100));
        let builder = data.on(&disk).agent(Assistant).child(worker.clone());
        let system = builder.start().await.unwrap();
        let assistant = system.agent::<Assistant>("a").unwrap();
        let work = Do::Dispatch(vec![Do::Forever.kid("kid")], Box::new(say("end")));
        let run = assistant.start::<Worker>(work).id("x").await.unwrap();
        bench.seen("enter kid", 1).await;
        // The request is on its way to the disk when the shutdown begins.
        let shutdown = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            system.shutdown().await
        };
        let (cancelled, left) = join(run.cancel("enough"), shutdown).await;
        cancelled.unwrap();
        assert_eq!(left, 0);
        let builder = data.builder().agent(Assistant).child(worker);
        let system = builder.start().await.unwrap();
        for (agent, id) in [("Assistant:a", "x"), ("Assistant:a/Worker:x", "kid")] {
            let agent = system.agent_at(&agent.parse().unwrap()).unwrap();
            let info = agent.inspect(id).await.unwrap().unwrap().run;
            assert_eq!(info.status, Status::Aborted, "{id}");
        }
        assert_eq!(bench.count("enter kid"), 1);
    })
    .await;
}

async fn all_stopped(assistant: &AgentHandle<Assistant>, run: &Run<Worker>) {
    let filter = RunFilter::default();
    let stopped = |what: &str, error: Option<Error>| {
        assert!(matches!(error, Some(Error::Stopped)), "{what}: {error:?}");
    };
    stopped("run", assistant.run::<Worker>(say("a")).await.err());
    stopped("start", assistant.start::<Worker>(say("a")).await.err());
    stopped("attach", assistant.attach::<Worker>("x").await.err());
    stopped("inspect", assistant.inspect("x").await.err());
    stopped("cancel", assistant.cancel("x", "late").await.err());
    stopped("list", assistant.list(&filter, None, 10).await.err());
    stopped("clear", assistant.clear(&filter).await.err());
    stopped("has", assistant.has_run::<Worker>("x").await.err());
    stopped("turn", assistant.turn(|_| async {}).await.err());
    stopped("tail", assistant.tail("x", After::START).await.err());
    stopped("outcome", run.outcome().await.err());
    stopped("milestone", run.milestone("m").await.err());
    stopped("run inspect", run.inspect().await.err());
    stopped("run cancel", run.cancel("late").await.err());
    let frame = run.tail(After::START).next().await;
    stopped("run tail", frame.and_then(Result::err));
    let _ = assistant.evict().await;
}

#[derive(Debug, Clone, Copy)]
enum End {
    Shutdown,
    Crash,
    Drop,
}

#[tokio::test(start_paused = true)]
async fn handles_of_a_stopped_system_say_so_and_never_hang() {
    for end in [End::Shutdown, End::Crash, End::Drop] {
        bounded(async {
            let (store, bench) = (MemoryStore::new(), Bench::default());
            let (system, assistant) = started(&store, &bench).await;
            let run = assistant.start::<Worker>(Do::Forever).id("x").await.unwrap();
            bench.seen("enter x", 1).await;
            let caller = {
                let assistant = assistant.clone();
                tokio::spawn(async move { assistant.run::<Worker>(Do::Forever).id("x").await })
            };
            let mut tail = run.tail(After::START);
            tail.next().await.unwrap().unwrap();
            let reader = tokio::spawn(async move { tail.next().await });
            tokio::task::yield_now().await;
            match end {
                End::Shutdown => assert_eq!(system.shutdown().await, 1),
                End::Crash => system.crash().await,
                End::Drop => drop(system),
            }
            let call = caller.await.unwrap();
            assert!(matches!(call, Err(Error::Stopped)), "{end:?}: {call:?}");
            let frame = reader.await.unwrap();
            assert!(matches!(frame, Some(Err(Error::Stopped))), "{end:?}: {frame:?}");
            bench.seen("leave x", 1).await;
            all_stopped(&assistant, &run).await;
            // And the next one goes on, whoever still holds the old handles.
            let (_system, assistant) = started(&store.reopen(), &bench).await;
            bench.seen("enter x", 2).await;
            assistant.cancel("x", "enough").await.unwrap();
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn systems_in_one_process_do_not_see_each_other() {
    bounded(async {
        let benches = [Bench::default(), Bench::default()];
        let (first, a) = started(&MemoryStore::new(), &benches[0]).await;
        let (second, b) = started(&MemoryStore::new(), &benches[1]).await;
        let runs = [
            a.start::<Worker>(hold("g")).id("x").await.unwrap(),
            b.start::<Worker>(hold("g")).id("x").await.unwrap(),
        ];
        for bench in &benches {
            bench.seen("enter x", 1).await;
        }
        assert_eq!((first.live_runs(), second.live_runs()), (1, 1));
        runs[0].cancel("enough").await.unwrap();
        assert_eq!(aborted(runs[0].outcome().await.unwrap()), "enough");
        first.crash().await;
        benches[1].open("g");
        assert_eq!(runs[1].outcome().await.unwrap().completed().unwrap(), "g");
        assert_eq!(b.list(&RunFilter::default(), None, 10).await.unwrap().runs.len(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_caller_cancels_only_if_it_said_so() {
    bounded(async {
        let bench = Bench::default();
        let (_system, assistant) = started(&MemoryStore::new(), &bench).await;
        for (id, cancels) in [("stays", false), ("goes", true)] {
            let mut call = assistant.run::<Worker>(hold("g")).id(id);
            if cancels {
                call = call.cancel_on_drop();
            }
            let entered = format!("enter {id}");
            tokio::select! {
                end = call => panic!("{end:?}"),
                () = bench.seen(&entered, 1) => {}
            }
        }
        let goes = assistant.attach::<Worker>("goes").await.unwrap().unwrap();
        assert!(aborted(goes.outcome().await.unwrap()).contains("went away"));
        bench.open("g");
        let stays = assistant.attach::<Worker>("stays").await.unwrap().unwrap();
        assert_eq!(stays.outcome().await.unwrap().completed().unwrap(), "g");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn cancel_on_drop_leaves_other_peoples_runs_alone() {
    bounded(async {
        let bench = Bench::default();
        let (system, assistant) = started(&MemoryStore::new(), &bench).await;
        let run = assistant.start::<Worker>(hold("g")).id("x").await.unwrap();
        bench.seen("enter x", 1).await;
        let refused = assistant.run::<Worker>(say("other")).id("x").cancel_on_drop().await;
        assert!(matches!(refused, Err(Error::DifferentInput { .. })), "{refused:?}");
        // One that was never polled has dispatched nothing, and cancels nothing.
        drop(assistant.run::<Worker>(hold("g")).id("x").cancel_on_drop());
        // Nor does one that has its outcome.
        let end = assistant.run::<Worker>(say("a")).id("y").cancel_on_drop().await.unwrap();
        assert_eq!(end.completed().unwrap(), "a");
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(!run.inspect().await.unwrap().unwrap().run.cancelling);
        bench.open("g");
        assert_eq!(run.outcome().await.unwrap().completed().unwrap(), "g");
        drop(system);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_is_free_again_when_its_system_is_gone() {
    bounded_real(async {
        let folder = tempfile::tempdir().unwrap();
        let bench = Bench::default();
        let open = async || {
            let worker = Worker { bench: bench.clone(), ..Worker::default() };
            let builder = System::open(folder.path()).agent(Assistant).child(worker);
            builder.start().await
        };
        let system = open().await.unwrap();
        let assistant = system.agent::<Assistant>("a").unwrap();
        let ends = (0..20).map(|at| assistant.run::<Worker>(say("a")).id(format!("r{at}")));
        for end in futures_util::future::join_all(ends).await {
            end.unwrap().completed().unwrap();
        }
        assistant.start::<Worker>(say("later").after("g")).id("x").await.unwrap();
        bench.seen("enter x", 1).await;
        drop(system);
        // The old handles are still here, and the store closes all the same.
        let system = loop {
            match open().await {
                Ok(system) => break system,
                Err(ghostlight::StartError::Storage(ghostlight::storage::Error::Locked {
                    ..
                })) => {
                    tokio::task::yield_now().await;
                }
                Err(error) => panic!("{error}"),
            }
        };
        bench.seen("enter x", 2).await;
        bench.open("g");
        let again = system.agent::<Assistant>("a").unwrap();
        let end = again.run::<Worker>(say("later").after("g")).id("x").await.unwrap();
        assert_eq!(end.completed().unwrap(), "later");
        assert_eq!(bench.count("enter r7"), 1);
        assert_eq!(again.run::<Worker>(say("a")).id("r7").await.unwrap().completed(), {
            Ok("a".to_owned())
        });
        assert_eq!(system.shutdown().await, 0);
        let system = open().await.unwrap();
        assert_eq!(system.shutdown().await, 0);
        drop(assistant);
    })
    .await;
}

/// Dispatches a run from its start hook, once it is let.
struct Greeter(Bench);

impl Agent for Greeter {
    const TYPE: &'static str = "Greeter";

    fn callbacks(callbacks: &mut Callbacks<Self>) {
        callbacks.on_run_start(Self::greet);
    }
}

impl Greeter {
    async fn greet(&self, cx: &AgentContext, run: RunInfo) -> Result<(), RunError> {
        if run.run_id == "x" {
            self.0.note("hook x");
            self.0.gate("hook").await;
            cx.agent::<Self>().start::<Worker>(say("a")).id("card").await?;
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_hook_that_is_refused_by_a_stop_fails_no_run() {
    bounded(async {
        let (store, bench) = (MemoryStore::new(), Bench::default());
        let start = async |store: MemoryStore| {
            let worker = Worker { bench: bench.clone(), ..Worker::default() };
            let builder = SystemBuilder::on_memory_store(store).seed(1);
            builder.agent(Greeter(bench.clone())).child(worker).start().await.unwrap()
        };
        let system = start(store.clone()).await;
        let greeter = system.agent::<Greeter>("g").unwrap();
        greeter.start::<Worker>(hold("never")).id("busy").await.unwrap();
        bench.seen("enter busy", 1).await;
        greeter.start::<Worker>(say("b")).id("x").await.unwrap();
        bench.seen("hook x", 1).await;
        let open = async {
            tokio::task::yield_now().await;
            bench.open("hook");
        };
        join(system.shutdown(), open).await;
        let system = start(store.reopen()).await;
        let greeter = system.agent::<Greeter>("g").unwrap();
        let run = greeter.start::<Worker>(say("b")).id("x").await.unwrap();
        assert_eq!(run.outcome().await.unwrap().completed().unwrap(), "b");
        let card = greeter.start::<Worker>(say("a")).id("card").await.unwrap();
        assert_eq!(card.outcome().await.unwrap().completed().unwrap(), "a");
    })
    .await;
}
