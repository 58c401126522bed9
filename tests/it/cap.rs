//! The cap on concurrent runs: refused or queued, per parent, and durable.

use futures_util::future::{join, join_all};
use ghostlight::prelude::*;
use ghostlight::storage::MemoryStore;
use ghostlight::testing::TestSystem;
use ghostlight::{Error, RunFilter, SystemBuilder};

use crate::bench::{Bench, Capped, Do, Worker, bounded, hold, say};
use crate::support::Assistant;

async fn started(cap: usize, at_cap: AtCap) -> (TestSystem, AgentHandle<Capped>, Bench) {
    let worker = Worker::default();
    let bench = worker.bench.clone();
    let builder = TestSystem::new(1).agent(Assistant).agent(Capped(cap, at_cap)).child(worker);
    let system = builder.start().await.unwrap();
    let capped = system.agent::<Capped>("c").unwrap();
    (system, capped, bench)
}

#[tokio::test(start_paused = true)]
async fn beyond_the_cap_a_dispatch_is_refused_and_leaves_no_trace() {
    bounded(async {
        let (system, capped, bench) = started(2, AtCap::Refuse).await;
        let calls = join_all(["a", "b", "c"].map(|id| capped.run::<Worker>(hold("g")).id(id)));
        let open = async {
            bench.seen("enter b", 1).await;
            bench.open("g");
        };
        let (ends, ()) = join(calls, open).await;
        let (ok, refused): (Vec<_>, Vec<_>) = ends.into_iter().partition(Result::is_ok);
        assert_eq!((ok.len(), refused.len()), (2, 1));
        let refused = refused.into_iter().next().unwrap().unwrap_err();
        assert_eq!(refused.to_string(), "maxConcurrentAgentTools (2) exceeded");
        assert!(refused.is_retryable());
        assert!(capped.inspect("c").await.unwrap().is_none());
        let listed = capped.list(&RunFilter::default(), None, 10).await.unwrap().runs;
        assert_eq!(listed.len(), 2);

        // The id is free, and so are the slots.
        let again = join_all(["c", "d"].map(|id| capped.run::<Worker>(say(id)).id(id))).await;
        for end in again {
            end.unwrap().completed().unwrap();
        }
        drop(system);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_writes_nothing() {
    bounded(async {
        let (system, capped, bench) = started(1, AtCap::Refuse).await;
        capped.start::<Worker>(hold("g")).id("a").await.unwrap();
        bench.seen("enter a", 1).await;
        let commits = system.system().commits();
        for _ in 0..5 {
            let refused = capped.run::<Worker>(say("b")).id("b").await.unwrap_err();
            assert!(matches!(refused, Error::CapExceeded { limit: 1 }), "{refused}");
        }
        let after = system.system().commits();
        assert_eq!((after.commits, after.refused), (commits.commits, commits.refused));
        // Joining needs no slot.
        bench.open("g");
        capped.run::<Worker>(hold("g")).id("a").await.unwrap().completed().unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn without_a_cap_all_run() {
    bounded(async {
        let (system, _, bench) = started(1, AtCap::Refuse).await;
        let assistant = system.agent::<Assistant>("a").unwrap();
        let ends = join_all((0..40).map(|_| assistant.run::<Worker>(Do::Work))).await;
        assert!(ends.into_iter().all(|end| end.unwrap().completed().is_ok()));
        assert_eq!(bench.peak(), 40);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn joining_an_ended_run_takes_no_slot() {
    bounded(async {
        let (_system, capped, _bench) = started(1, AtCap::Refuse).await;
        capped.run::<Worker>(say("old")).id("old").await.unwrap();
        for _ in 0..10 {
            let old = capped.run::<Worker>(say("old")).id("old");
            let new = capped.run::<Worker>(say("new"));
            let (old, new) = join(old, new).await;
            assert_eq!(old.unwrap().completed().unwrap(), "old");
            assert_eq!(new.unwrap().completed().unwrap(), "new");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_suspended_run_keeps_its_slot_whoever_joins_it() {
    bounded(async {
        let (_system, capped, bench) = started(1, AtCap::Refuse).await;
        let asleep = capped.start::<Worker>(Do::Sleep(3600)).id("a").await.unwrap();
        bench.seen("leave a", 1).await;
        while !asleep.inspect().await.unwrap().unwrap().run.suspended {}
        for _ in 0..2 {
            let refused = capped.run::<Worker>(say("b")).await.unwrap_err();
            assert!(matches!(refused, Error::CapExceeded { .. }), "{refused}");
            let joined = capped.start::<Worker>(Do::Sleep(3600)).id("a").await.unwrap();
            assert!(joined.already_existed());
        }
        asleep.outcome().await.unwrap().completed().unwrap();
        capped.run::<Worker>(say("b")).await.unwrap().completed().unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn queued_runs_start_in_the_order_of_dispatch() {
    bounded(async {
        let (_system, capped, bench) = started(1, AtCap::Queue).await;
        let mut runs = Vec::new();
        for at in 0..5 {
            let run = capped.start::<Worker>(hold(&format!("g{at}"))).id(format!("r{at}"));
            runs.push(run.await.unwrap());
        }
        bench.seen("enter r0", 1).await;
        for at in 0..5 {
            for (waiting, run) in runs.iter().enumerate().skip(at + 1) {
                let inspection = run.inspect().await.unwrap().unwrap();
                assert_eq!(inspection.queue_position, Some(waiting - at - 1));
                assert_eq!(inspection.run.status, Status::Starting);
                assert!(inspection.run.queued);
            }
            assert_eq!(runs[at].inspect().await.unwrap().unwrap().queue_position, None);
            bench.open(&format!("g{at}"));
            runs[at].outcome().await.unwrap().completed().unwrap();
            if at < 4 {
                bench.seen(&format!("enter r{}", at + 1), 1).await;
            }
        }
        assert_eq!(bench.entered(), ["r0", "r1", "r2", "r3", "r4"]);
        assert_eq!(bench.peak(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cap_of_one_lets_a_hundred_runs_through_one_by_one() {
    bounded(async {
        let (_system, capped, bench) = started(1, AtCap::Queue).await;
        let ids: Vec<String> = (0..100).map(|at| format!("r{at}")).collect();
        let calls = ids.iter().map(|id| capped.run::<Worker>(Do::Work).id(id));
        for end in join_all(calls).await {
            end.unwrap().completed().unwrap();
        }
        assert_eq!(bench.peak(), 1, "seen from inside the children");
        assert_eq!(bench.entered(), ids);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_survives_crashes_in_its_order() {
    bounded(async {
        let (mut system, mut capped, bench) = started(1, AtCap::Queue).await;
        for at in 0..6 {
            let work = say("done").after(&format!("g{at}"));
            capped.start::<Worker>(work).id(format!("r{at}")).await.unwrap();
        }
        for at in 0..6 {
            let id = format!("r{at}");
            bench.seen(&format!("enter {id}"), 1).await;
            system.crash().await.unwrap();
            bench.seen(&format!("enter {id}"), 2).await;
            capped = system.agent::<Capped>("c").unwrap();
            if at == 2 {
                // One that comes late is the last.
                capped.start::<Worker>(say("late")).id("late").await.unwrap();
            }
            let run = capped.attach::<Worker>(&id).await.unwrap().unwrap();
            bench.open(&format!("g{at}"));
            run.outcome().await.unwrap().completed().unwrap();
        }
        let late = capped.attach::<Worker>("late").await.unwrap().unwrap();
        late.outcome().await.unwrap().completed().unwrap();
        let order = ["r0", "r0", "r1", "r1", "r2", "r2", "r3", "r3", "r4", "r4", "r5", "r5"];
        assert_eq!(bench.entered()[..12], order);
        assert_eq!(bench.peak(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn recovered_runs_go_on_above_a_lowered_cap_and_admission_waits() {
    bounded(async {
        let store = MemoryStore::new();
        let worker = Worker::default();
        let bench = worker.bench.clone();
        let start = async |store: MemoryStore, cap: usize| {
            let builder = SystemBuilder::on_memory_store(store).agent(Capped(cap, AtCap::Queue));
            builder.child(worker.clone()).start().await.unwrap()
        };
        let system = start(store.clone(), 3).await;
        let capped = system.agent::<Capped>("c").unwrap();
        for at in 0..5 {
            let run = capped.start::<Worker>(hold(&format!("g{at}"))).id(format!("r{at}"));
            run.await.unwrap();
        }
        for at in 0..3 {
            bench.seen(&format!("enter r{at}"), 1).await;
        }
        system.crash().await;
        let system = start(store.reopen(), 1).await;
        for at in 0..3 {
            bench.seen(&format!("enter r{at}"), 2).await;
        }
        let capped = system.agent::<Capped>("c").unwrap();
        let attach =
            async |at: usize| capped.attach::<Worker>(&format!("r{at}")).await.unwrap().unwrap();
        for at in 0..3 {
            assert_eq!(bench.count("enter r3"), 0, "{at} of three have ended");
            bench.open(&format!("g{at}"));
            attach(at).await.outcome().await.unwrap().completed().unwrap();
        }
        bench.seen("enter r3", 1).await;
        assert_eq!(attach(4).await.inspect().await.unwrap().unwrap().queue_position, Some(0));
        bench.open("g3");
        bench.open("g4");
        attach(4).await.outcome().await.unwrap().completed().unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cap_is_of_one_agent_and_not_inherited() {
    bounded(async {
        // Every worker may have one run of its own at a time; the root has no cap.
        let settings = AgentSettings { max_concurrent_runs: Some(1), ..AgentSettings::default() };
        let worker = Worker { settings, ..Worker::default() };
        let bench = worker.bench.clone();
        let system = TestSystem::new(1).agent(Assistant).child(worker).start().await.unwrap();
        let assistant = system.agent::<Assistant>("a").unwrap();
        let grandchildren = vec![hold("g").kid("g1"), hold("g").kid("g2")];
        let middle = Do::Dispatch(grandchildren, Box::new(say("")));
        let calls = join_all(["m1", "m2"].map(|id| assistant.run::<Worker>(middle.clone()).id(id)));
        let open = async {
            bench.seen("enter g1", 2).await;
            bench.open("g");
        };
        let (ends, ()) = join(calls, open).await;
        for end in ends {
            let said = end.unwrap().completed().unwrap();
            let mut said: Vec<&str> = said.split(',').collect();
            said.sort_unstable();
            assert_eq!(said, ["", "g", "maxConcurrentAgentTools (1) exceeded"]);
        }
        // The root sees its own children alone.
        let listed = assistant.list(&RunFilter::default(), None, 10).await.unwrap().runs;
        let mut ids: Vec<_> = listed.iter().map(|run| run.run_id.as_str()).collect();
        ids.sort_unstable();
        assert_eq!(ids, ["m1", "m2"]);
    })
    .await;
}

/// Asks for another step in its second life than in all others.
#[derive(Clone, Default)]
struct Fickle(Bench);

impl Agent for Fickle {
    const TYPE: &'static str = "Fickle";
}

impl Child for Fickle {
    type Input = ();
    type Output = ();

    async fn run(&self, cx: &RunContext, (): ()) -> Result<(), RunError> {
        self.0.note("entered");
        let key = if self.0.count("entered") == 2 { "other" } else { "step" };
        cx.step(key, async || Ok(())).await?;
        self.0.gate("g").await;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_interrupted_and_not_executed_holds_no_slot() {
    bounded(async {
        let bench = Bench::default();
        let builder = TestSystem::new(1).agent(Capped(1, AtCap::Refuse));
        let builder = builder.child(Fickle(bench.clone())).child(Worker::default());
        let mut system = builder.start().await.unwrap();
        let capped = system.agent::<Capped>("c").unwrap();
        let run = capped.start::<Fickle>(()).id("x").await.unwrap();
        while run.inspect().await.unwrap().unwrap().run.attempt == 0
            || system.executions("x", "step") == 0
        {
            tokio::task::yield_now().await;
        }
        system.advance(Duration::from_millis(10)).await;
        system.crash().await.unwrap();
        bench.seen("entered", 2).await;
        let capped = system.agent::<Capped>("c").unwrap();
        system.advance(Duration::from_millis(10)).await;
        let parked = capped.inspect("x").await.unwrap().unwrap().run;
        assert_eq!(parked.status, Status::Interrupted);
        assert_eq!(parked.child_still_running, Some(false));
        capped.run::<Worker>(say("a")).await.unwrap().completed().unwrap();
        capped.evict().await.unwrap();
        capped.run::<Worker>(say("b")).await.unwrap().completed().unwrap();
        // In its next life it holds its slot again.
        system.crash().await.unwrap();
        bench.seen("entered", 3).await;
        let capped = system.agent::<Capped>("c").unwrap();
        let refused = capped.run::<Worker>(say("c")).await.unwrap_err();
        assert!(matches!(refused, Error::CapExceeded { limit: 1 }), "{refused}");
        bench.open("g");
        capped.run::<Fickle>(()).id("x").await.unwrap().completed().unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_evicted_parent_still_counts_and_still_admits() {
    bounded(async {
        let (_system, capped, bench) = started(1, AtCap::Queue).await;
        let first = capped.start::<Worker>(hold("g")).id("first").await.unwrap();
        let second = capped.start::<Worker>(say("b")).id("second").await.unwrap();
        bench.seen("enter first", 1).await;
        // It comes back at once, for its queue.
        capped.evict().await.unwrap();
        assert_eq!(second.inspect().await.unwrap().unwrap().queue_position, Some(0));
        capped.evict().await.unwrap();
        bench.open("g");
        first.outcome().await.unwrap().completed().unwrap();
        second.outcome().await.unwrap().completed().unwrap();
        assert_eq!(bench.peak(), 1);
    })
    .await;
}
