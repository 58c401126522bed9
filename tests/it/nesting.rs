//! Runs below runs: sixteen levels, derived ids, outcomes that are recorded.

use ghostlight::prelude::*;
use ghostlight::testing::{Point, TestSystem};
use ghostlight::{RunFilter, testing};

use crate::bench::{Bench, Do, Worker, bounded, hold, say};
use crate::support::Assistant;

async fn started() -> (TestSystem, AgentHandle<Assistant>, Bench) {
    let worker = Worker::default();
    let bench = worker.bench.clone();
    let system = TestSystem::new(1).agent(Assistant).child(worker).start().await.unwrap();
    let assistant = system.agent::<Assistant>("a").unwrap();
    (system, assistant, bench)
}

/// So many runs below one another.
fn nested(depth: usize) -> Do {
    let mut work = say("leaf");
    for level in (1..depth).rev() {
        work = Do::Dispatch(vec![work.kid(&format!("level-{level}"))], Box::new(say("")));
    }
    work
}

#[tokio::test(start_paused = true)]
async fn sixteen_levels_are_allowed_and_a_seventeenth_is_refused() {
    bounded(async {
        let (_system, assistant, bench) = started().await;
        // The root is the first level.
        let end = assistant.run::<Worker>(nested(15)).id("ok").await.unwrap();
        let said = end.completed().unwrap();
        assert_eq!(said.trim_end_matches(','), "leaf");
        assert_eq!(bench.entered().len(), 15);
        let end = assistant.run::<Worker>(nested(16)).id("deep").await.unwrap();
        let said = end.completed().unwrap();
        assert!(said.contains("16 deep"), "{said}");
        assert_eq!(bench.entered().len(), 30, "the seventeenth was not entered");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn ids_left_out_derive_from_the_run() {
    bounded(async {
        let (mut system, assistant, bench) = started().await;
        let kids = vec![hold("g").unnamed(), say("b").kid("mine"), hold("g").unnamed()];
        let work = Do::Dispatch(kids, Box::new(say("end")));
        assistant.start::<Worker>(work.clone()).id("x").await.unwrap();
        let agent = system.system().agent_at(&"Assistant:a/Worker:x".parse().unwrap()).unwrap();
        for id in bench.entered() {
            assert!(["x", "mine"].contains(&&*id) || id.starts_with("call-"), "{id}");
        }
        bench.seen("leave mine", 1).await;
        let ids = async |agent: &ghostlight::AgentRef| -> Vec<String> {
            let page = agent.list(&RunFilter::default(), None, 10).await.unwrap();
            let mut ids: Vec<_> = page.runs.into_iter().map(|run| run.run_id).collect();
            ids.sort();
            ids
        };
        let before = ids(&agent).await;
        assert_eq!(before.len(), 3);
        for _ in 0..2 {
            system.crash().await.unwrap();
            let agent = system.system().agent_at(&"Assistant:a/Worker:x".parse().unwrap()).unwrap();
            bench.seen("enter x", 2).await;
            assert_eq!(ids(&agent).await, before);
        }
        bench.open("g");
        let assistant = system.agent::<Assistant>("a").unwrap();
        let end = assistant.run::<Worker>(work).id("x").await.unwrap();
        assert_eq!(end.completed().unwrap(), "g,b,g,end");
        let agent = system.system().agent_at(&"Assistant:a/Worker:x".parse().unwrap()).unwrap();
        assert_eq!(ids(&agent).await, before, "no child was dispatched twice");
        assert_eq!(bench.count("enter mine"), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_childs_outcome_is_recorded_in_its_parent() {
    bounded(async {
        let (mut system, assistant, bench) = started().await;
        let kids = vec![
            say("ok").kid("ok"),
            Do::Fail("no".into()).kid("bad"),
            Do::Panic("ouch".into()).kid("panic"),
        ];
        let then = say("end").after("g").step_first("after");
        let work = Do::Dispatch(kids, Box::new(then));
        let crash = system.crash_after(Point::step(Key::dynamic("after")));
        assistant.start::<Worker>(work.clone()).id("x").await.unwrap();
        crash.await.unwrap();
        bench.seen("enter x", 2).await;
        // Not even what the children's own records say matters any more.
        let below = system.system().agent_at(&"Assistant:a/Worker:x".parse().unwrap()).unwrap();
        below.clear(&RunFilter::default()).await.unwrap();
        system.crash().await.unwrap();
        bench.seen("enter x", 3).await;
        bench.open("g");
        let assistant = system.agent::<Assistant>("a").unwrap();
        let said = assistant.run::<Worker>(work).id("x").await.unwrap().completed().unwrap();
        let said: Vec<&str> = said.split(',').collect();
        assert_eq!(said[..2], ["ok", "run failed: no"]);
        assert!(said[2].contains("ouch"), "{said:?}");
        assert_eq!(*said.last().unwrap(), "end");
        for id in ["ok", "bad", "panic"] {
            assert_eq!(bench.count(&format!("enter {id}")), 1, "{id}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_above_reattaches_to_what_still_works_below() {
    bounded(async {
        let (mut system, assistant, bench) = started().await;
        let kids = vec![say("deep").after("g").step_first("s").kid("kid")];
        let work = Do::Dispatch(kids, Box::new(say("end")));
        assistant.start::<Worker>(work.clone()).id("x").await.unwrap();
        bench.seen("enter kid", 1).await;
        for round in 2..5 {
            system.crash().await.unwrap();
            bench.seen("enter x", round).await;
            bench.seen("enter kid", round).await;
            system.advance(Duration::from_secs(120)).await;
        }
        bench.open("g");
        let assistant = system.agent::<Assistant>("a").unwrap();
        let said = assistant.run::<Worker>(work).id("x").await.unwrap().completed().unwrap();
        assert_eq!(said, "deep,end");
        assert_eq!(system.executions("kid", Key::dynamic("s")), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_run_without_a_system_does_all_but_dispatch() {
    bounded(async {
        let said = testing::run(&Worker::default(), say("a").step_first("s")).await.unwrap();
        assert_eq!(said, "a");
    })
    .await;
}
