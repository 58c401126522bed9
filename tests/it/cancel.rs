//! Cancel: durable before it returns, idempotent, and it reaches a run wherever it is.

use futures_util::future::{join, join_all};
use ghostlight::prelude::*;
use ghostlight::testing::TestSystem;

use crate::bench::{Bench, Capped, Do, Worker, aborted, bounded, hold, say};
use crate::support::Assistant;

async fn started(seed: u64) -> (TestSystem, AgentHandle<Assistant>, Bench) {
    let worker = Worker::default();
    let bench = worker.bench.clone();
    let builder = TestSystem::new(seed).agent(Assistant).agent(Capped(1, AtCap::Queue));
    let system = builder.child(worker).start().await.unwrap();
    let assistant = system.agent::<Assistant>("a").unwrap();
    (system, assistant, bench)
}

#[tokio::test(start_paused = true)]
async fn running_code_sees_it_and_cannot_deny_it() {
    bounded(async {
        let (_system, assistant, bench) = started(1).await;
        let run = assistant.start::<Worker>(Do::UntilCancelled).id("x").await.unwrap();
        bench.seen("enter x", 1).await;
        run.cancel("enough").await.unwrap();
        // The code returns `Ok`; the run is aborted all the same.
        assert_eq!(aborted(run.outcome().await.unwrap()), "enough");
        assert_eq!(bench.count("cancelled x"), 1);
        let info = run.inspect().await.unwrap().unwrap().run;
        assert_eq!((info.status, info.error.as_deref()), (Status::Aborted, Some("enough")));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn code_that_does_not_listen_is_dropped_after_the_grace_time() {
    bounded(async {
        let (_system, assistant, bench) = started(2).await;
        let run = assistant.start::<Worker>(Do::Forever).id("x").await.unwrap();
        bench.seen("enter x", 1).await;
        let begin = tokio::time::Instant::now();
        run.cancel("enough").await.unwrap();
        assert!(begin.elapsed() < Duration::from_secs(1), "a cancel does not wait for the code");
        assert!(run.inspect().await.unwrap().unwrap().run.cancelling);
        assert_eq!(bench.count("leave x"), 0);
        assert_eq!(aborted(run.outcome().await.unwrap()), "enough");
        let took = begin.elapsed();
        assert!((5..6).contains(&took.as_secs()), "{took:?}");
        assert_eq!(bench.count("leave x"), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_first_reason_stands() {
    bounded(async {
        let (_system, assistant, bench) = started(3).await;
        let run = assistant.start::<Worker>(Do::Forever).id("x").await.unwrap();
        bench.seen("enter x", 1).await;
        run.cancel("first").await.unwrap();
        for result in join_all((0..10).map(|_| run.cancel("later"))).await {
            result.unwrap();
        }
        assert_eq!(aborted(run.outcome().await.unwrap()), "first");
        run.cancel("after the end").await.unwrap();
        assert_eq!(aborted(run.outcome().await.unwrap()), "first");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn unknown_and_ended_runs_are_left_alone() {
    bounded(async {
        let (system, assistant, _bench) = started(4).await;
        let run = assistant.start::<Worker>(say("a")).id("x").await.unwrap();
        let end = run.outcome().await.unwrap();
        let commits = system.system().commits().commits;
        assistant.cancel("x", "late").await.unwrap();
        assistant.cancel("unknown", "late").await.unwrap();
        assert_eq!(run.outcome().await.unwrap(), end);
        assert_eq!(system.system().commits().commits, commits);
        assert!(assistant.inspect("unknown").await.unwrap().is_none());
        // The id is still free.
        assert_eq!(assistant.run::<Worker>(say("b")).id("unknown").await.unwrap(), {
            Outcome::Completed("b".to_owned())
        });
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn it_is_durable_when_it_returns() {
    bounded(async {
        let (mut system, assistant, bench) = started(5).await;
        let run = assistant.start::<Worker>(Do::Forever).id("x").await.unwrap();
        bench.seen("enter x", 1).await;
        run.cancel("enough").await.unwrap();
        system.crash().await.unwrap();
        let assistant = system.agent::<Assistant>("a").unwrap();
        let run = assistant.attach::<Worker>("x").await.unwrap().unwrap();
        assert_eq!(aborted(run.outcome().await.unwrap()), "enough");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn running_code_whose_process_was_lost_sees_it_again() {
    bounded(async {
        for listens in [true, false] {
            let (mut system, assistant, bench) = started(11).await;
            let then = if listens { Do::UntilCancelled } else { Do::Forever };
            let run = assistant.start::<Worker>(then.after("g")).id("x").await.unwrap();
            bench.seen("enter x", 1).await;
            run.cancel("enough").await.unwrap();
            system.crash().await.unwrap();
            bench.seen("enter x", 2).await;
            let begin = tokio::time::Instant::now();
            let assistant = system.agent::<Assistant>("a").unwrap();
            let run = assistant.attach::<Worker>("x").await.unwrap().unwrap();
            assert!(run.inspect().await.unwrap().unwrap().run.cancelling);
            bench.open("g");
            assert_eq!(aborted(run.outcome().await.unwrap()), "enough");
            assert!(!run.inspect().await.unwrap().unwrap().run.cancelling, "it has ended");
            assert_eq!(bench.count("cancelled x"), usize::from(listens));
            let grace = if listens { 0..1 } else { 5..6 };
            let took = begin.elapsed();
            assert!(grace.contains(&took.as_secs()), "{took:?}");
            assert_eq!(bench.count("leave x"), 2);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_is_not_entered_again_for_ever() {
    bounded(async {
        let recovery = RecoveryPolicy { attempts_max: 3, ..RecoveryPolicy::default() };
        let worker = Worker { recovery, ..Worker::default() };
        let bench = worker.bench.clone();
        let builder = TestSystem::new(12).agent(Assistant);
        let mut system = builder.child(worker).start().await.unwrap();
        let assistant = system.agent::<Assistant>("a").unwrap();
        let run = assistant.start::<Worker>(Do::Forever).id("x").await.unwrap();
        bench.seen("enter x", 1).await;
        run.cancel("enough").await.unwrap();
        for attempt in 2..=3 {
            system.crash().await.unwrap();
            // A cancelled run does not wait for its backoff.
            bench.seen("enter x", attempt).await;
        }
        system.crash().await.unwrap();
        let assistant = system.agent::<Assistant>("a").unwrap();
        let run = assistant.attach::<Worker>("x").await.unwrap().unwrap();
        assert_eq!(aborted(run.outcome().await.unwrap()), "enough");
        assert_eq!(bench.count("enter x"), 3);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn it_reaches_a_queued_run() {
    bounded(async {
        let (system, _, bench) = started(6).await;
        let capped = system.agent::<Capped>("c").unwrap();
        let first = capped.start::<Worker>(hold("g")).id("first").await.unwrap();
        let queued = capped.start::<Worker>(say("b")).id("queued").await.unwrap();
        let next = capped.start::<Worker>(say("c")).id("next").await.unwrap();
        queued.cancel("enough").await.unwrap();
        assert_eq!(aborted(queued.outcome().await.unwrap()), "enough");
        assert_eq!(next.inspect().await.unwrap().unwrap().queue_position, Some(0));
        bench.open("g");
        first.outcome().await.unwrap();
        assert_eq!(next.outcome().await.unwrap().completed().unwrap(), "c");
        assert_eq!(bench.entered(), ["first", "next"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn it_reaches_a_suspended_run() {
    bounded(async {
        let (mut system, assistant, bench) = started(7).await;
        let asleep = assistant.start::<Worker>(Do::Sleep(3600)).id("x").await.unwrap();
        let dreams = assistant.start::<Worker>(Do::Sleep(3600)).id("y").await.unwrap();
        bench.seen("leave x", 1).await;
        bench.seen("leave y", 1).await;
        while !asleep.inspect().await.unwrap().unwrap().run.suspended {}
        asleep.cancel("enough").await.unwrap();
        assert_eq!(aborted(asleep.outcome().await.unwrap()), "enough");
        drop(dreams);

        // And one that was suspended by an earlier process, whose parent is not in memory.
        system.crash().await.unwrap();
        let assistant = system.agent::<Assistant>("a").unwrap();
        assistant.cancel("y", "later").await.unwrap();
        system.crash().await.unwrap();
        let assistant = system.agent::<Assistant>("a").unwrap();
        let run = assistant.attach::<Worker>("y").await.unwrap().unwrap();
        assert_eq!(aborted(run.outcome().await.unwrap()), "later");
        system.advance(Duration::from_secs(7200)).await;
        assert_eq!(bench.entered(), ["x", "y"], "no code was entered for it");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn it_reaches_a_run_that_backs_off() {
    bounded(async {
        let (mut system, assistant, bench) = started(8).await;
        assistant.start::<Worker>(Do::Forever).id("x").await.unwrap();
        // The second attempt starts at once, the third waits.
        for attempt in 1..=2 {
            bench.seen("enter x", attempt).await;
            system.crash().await.unwrap();
        }
        let assistant = system.agent::<Assistant>("a").unwrap();
        let run = assistant.attach::<Worker>("x").await.unwrap().unwrap();
        run.cancel("enough").await.unwrap();
        assert_eq!(aborted(run.outcome().await.unwrap()), "enough");
        system.advance(Duration::from_secs(600)).await;
        assert_eq!(bench.count("enter x"), 2);
    })
    .await;
}

/// A run with an awaited child and a detached one, three levels below one another.
fn family() -> Do {
    let grandchildren = vec![Do::Forever.kid("awaited"), hold("g").kid("detached").detached()];
    let child = Do::Dispatch(grandchildren, Box::new(Do::Forever));
    let detached = Do::Dispatch(vec![hold("g").kid("inner")], Box::new(say("done")));
    Do::Dispatch(vec![detached.kid("d").detached(), child.kid("child")], Box::new(Do::Forever))
}

#[tokio::test(start_paused = true)]
async fn it_cascades_to_awaited_descendants_alone() {
    bounded(async {
        for crash in [false, true] {
            let (mut system, assistant, bench) = started(9).await;
            let run = assistant.start::<Worker>(family()).id("root").await.unwrap();
            for id in ["child", "awaited", "detached", "d", "inner"] {
                bench.seen(&format!("enter {id}"), 1).await;
            }
            run.cancel("enough").await.unwrap();
            if crash {
                system.crash().await.unwrap();
            }
            let at = |path: &str| system.system().agent_at(&path.parse().unwrap()).unwrap();
            let root = at("Assistant:a");
            let child = at("Assistant:a/Worker:root");
            let grandchild = at("Assistant:a/Worker:root/Worker:child");
            for (agent, id) in [(&root, "root"), (&child, "child"), (&grandchild, "awaited")] {
                let mut tail = agent.tail(id, ghostlight::After::START).await.unwrap();
                while let Some(frame) = tail.next().await {
                    frame.unwrap();
                }
                let info = agent.inspect(id).await.unwrap().unwrap().run;
                assert_eq!(info.status, Status::Aborted, "{id}, crash: {crash}");
                assert_eq!(info.error.as_deref(), Some("enough"), "{id}");
            }
            for (agent, id) in [(&grandchild, "detached"), (&child, "d")] {
                let info = agent.inspect(id).await.unwrap().unwrap().run;
                assert_eq!(info.status, Status::Running, "{id} is detached, crash: {crash}");
            }
            let inner = at("Assistant:a/Worker:root/Worker:d");
            let info = inner.inspect("inner").await.unwrap().unwrap().run;
            assert_eq!(info.status, Status::Running, "its parent is detached");
            bench.open("g");
            let mut tail = child.tail("d", ghostlight::After::START).await.unwrap();
            while tail.next().await.is_some() {}
            let info = child.inspect("d").await.unwrap().unwrap().run;
            assert_eq!(info.summary.as_deref(), Some("g,done"));
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_child_dispatched_in_the_grace_time_is_cancelled_too() {
    bounded(async {
        let (system, assistant, bench) = started(10).await;
        let kid = Do::Forever.kid("late");
        let work = Do::DispatchWhenCancelled(Box::new(kid));
        let run = assistant.start::<Worker>(work).id("x").await.unwrap();
        bench.seen("enter x", 1).await;
        run.cancel("enough").await.unwrap();
        assert_eq!(aborted(run.outcome().await.unwrap()), "enough");
        system.advance(Duration::from_secs(60)).await;
        let x = system.system().agent_at(&"Assistant:a/Worker:x".parse().unwrap()).unwrap();
        for run in x.list(&ghostlight::RunFilter::default(), None, 10).await.unwrap().runs {
            assert_eq!(run.status, Status::Aborted, "nobody would ever wait for {}", run.run_id);
        }
        assert_eq!(system.system().live_runs(), 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_races_the_end_is_one_or_the_other() {
    bounded(async {
        let mut ends = std::collections::BTreeSet::new();
        for delay in 0..40 {
            let (mut system, assistant, bench) = started(delay).await;
            let run = assistant.start::<Worker>(hold("g")).id("x").await.unwrap();
            bench.seen("enter x", 1).await;
            let cancel = async {
                for _ in 0..delay {
                    tokio::task::yield_now().await;
                }
                run.cancel("enough").await.unwrap();
            };
            let open = async { bench.open("g") };
            let (outcome, _) = join(run.outcome(), join(open, cancel)).await;
            let outcome = outcome.unwrap();
            let status = run.inspect().await.unwrap().unwrap().run.status;
            assert_eq!(status, outcome.status(), "delay {delay}");
            ends.insert(status.to_string());
            let mut tail = run.tail(ghostlight::After::START);
            let mut frames = 0;
            while let Some(frame) = tail.next().await {
                frame.unwrap();
                frames += 1;
            }
            assert_eq!(frames, 2, "one start and one end");
            system.crash().await.unwrap();
            let assistant = system.agent::<Assistant>("a").unwrap();
            let run = assistant.attach::<Worker>("x").await.unwrap().unwrap();
            assert_eq!(run.outcome().await.unwrap(), outcome, "delay {delay}");
            assert_eq!(bench.count("enter x"), 1);
        }
        assert_eq!(ends.into_iter().collect::<Vec<_>>(), ["aborted", "completed"]);
    })
    .await;
}
