//! A run that waits for others leaves memory, and comes back when what it waits for has happened.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ghostlight::prelude::*;
use ghostlight::{Error, RunFilter};
use serde_json::Value;
use tokio::time::{Instant, timeout};

use crate::support::Assistant;
use crate::support::code::{Code, Data, assistant, code, until};

const LIMIT: Duration = Duration::from_secs(24 * 3600);
const HOUR_MS: u64 = 3_600_000;

/// How often the code of each run was entered.
#[derive(Clone, Default)]
struct Entries(Arc<Mutex<BTreeMap<String, u32>>>);

impl Entries {
    fn enters(&self, cx: &RunContext) {
        *self.0.lock().unwrap().entry(cx.path().to_string()).or_default() += 1;
    }

    fn of(&self, path: &str) -> u32 {
        self.0.lock().unwrap().get(path).copied().unwrap_or(0)
    }
}

/// Does what its input says: `ms` to sleep, `work_ms` in a step, `says` milestones, `below` a child
/// to await, `hears` a milestone of it first, `within_ms`.
fn worker(entries: &Entries) -> Code {
    let entries = entries.clone();
    code(move |cx, input| {
        let entries = entries.clone();
        Box::pin(async move {
            entries.enters(cx);
            let ms = |name: &str| Duration::from_millis(input[name].as_u64().unwrap_or(0));
            if !input["work_ms"].is_null() {
                cx.step("work", async || {
                    tokio::time::sleep(ms("work_ms")).await;
                    Ok(())
                })
                .await?;
            }
            if !input["ms"].is_null() {
                cx.sleep(ms("ms")).await;
            }
            if let Some(name) = input["says"].as_str() {
                cx.milestone(name, json!("data")).await?;
            }
            if input["fails"] == true {
                return Err(RunError::new("on purpose"));
            }
            let mut below = Value::Null;
            if !input["below"].is_null() {
                let child = cx.agent::<Code>().start::<Code>(input["below"].clone());
                let child = child.id("below").await?;
                if let Some(name) = input["hears"].as_str() {
                    below = match child.milestone_within(name, ms("within_ms")).await {
                        Ok(milestone) => json!(milestone.name),
                        Err(Error::Timeout { .. }) => json!("timeout"),
                        Err(Error::NoMilestone { status, .. }) => json!(status.to_string()),
                        Err(error) => return Err(error.into()),
                    };
                } else {
                    let end = child.outcome().await?;
                    let status = end.status();
                    below = end.completed().unwrap_or_else(|_| json!(status.to_string()));
                }
            }
            Ok(json!([cx.attempt(), below]))
        })
    })
}

async fn ended(run: &Run<Code>) -> Value {
    timeout(LIMIT, run.outcome()).await.expect("an end").unwrap().completed().unwrap()
}

/// Everything is out of memory.
fn assert_empty(system: &System) {
    assert_eq!((system.live_runs(), system.agents_in_memory()), (0, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_run_leaves_memory_with_all_that_it_awaits_and_comes_back() {
    for depth in 1..=3 {
        let (data, entries) = (Data::new(), Entries::default());
        let system = data.start(worker(&entries)).await;
        let mut input = json!({ "ms": HOUR_MS });
        let mut expected = json!([1, null]);
        for _ in 0..depth {
            input = json!({ "below": input });
            expected = json!([1, expected]);
        }
        let begin = Instant::now();
        let run = assistant(&system).start::<Code>(input).id("r").await.unwrap();
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert_empty(&system);
        assert!(run.inspect().await.unwrap().unwrap().run.suspended);
        assert_eq!(ended(&run).await, expected, "attempts");
        assert_eq!(begin.elapsed().as_secs(), 3600);
        let mut path = "Assistant:a/Code:r".to_owned();
        for _ in 0..=depth {
            assert_eq!(entries.of(&path), 2, "{path}");
            path += "/Code:below";
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_wait_stays_in_memory() {
    let (data, entries) = (Data::new(), Entries::default());
    let system = data.start(worker(&entries)).await;
    for (work_ms, times) in [(990, 1), (1010, 2)] {
        let input = json!({ "below": { "work_ms": work_ms } });
        let run = assistant(&system).start::<Code>(input).await.unwrap();
        assert_eq!(ended(&run).await, json!([1, [1, null]]));
        assert_eq!(entries.of(&format!("Assistant:a/Code:{}", run.id())), times, "{work_ms} ms");
    }
}

/// Lets a child say something at any time around the suspension of its parent.
async fn sweep(input: impl Fn(u64) -> Value, expected: Value) {
    for at_ms in 940..1120 {
        let (data, entries) = (Data::new(), Entries::default());
        let disk = data.disk(None).latency(Duration::from_millis(10));
        let builder = data.on(&disk).agent(Assistant).child(worker(&entries));
        let system = builder.start().await.unwrap();
        let begin = Instant::now();
        let run = assistant(&system).start::<Code>(input(at_ms)).id("r").await.unwrap();
        assert_eq!(ended(&run).await, expected, "after {at_ms} ms");
        let took = begin.elapsed().as_millis() as u64;
        assert!(took < at_ms + 300, "after {at_ms} ms, took {took}");
        let times = entries.of("Assistant:a/Code:r");
        assert!(times <= 2, "entered {times} times");
        assert!(at_ms > 960 || times == 1, "after {at_ms} ms, entered {times} times");
        assert!(at_ms < 1100 || times == 2, "after {at_ms} ms, entered {times} times");
        system.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_at_any_time_around_the_suspension_is_not_missed() {
    sweep(|ms| json!({ "below": { "work_ms": ms } }), json!([1, [1, null]])).await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_at_any_time_around_the_suspension_is_not_missed() {
    let input = |ms| json!({ "below": { "work_ms": ms, "fails": true } });
    sweep(input, json!([1, "error"])).await;
}

#[tokio::test(start_paused = true)]
async fn a_milestone_at_any_time_around_the_suspension_is_not_missed() {
    let below = |ms| json!({ "work_ms": ms, "says": "m", "below": { "ms": HOUR_MS } });
    let input = |ms| json!({ "below": below(ms), "hears": "m", "within_ms": HOUR_MS });
    sweep(input, json!([1, "m"])).await;
}

#[tokio::test(start_paused = true)]
async fn a_time_limit_begins_once_whatever_happens_meanwhile() {
    // Milestones at half past two, and limits before and after.
    let below = json!({ "ms": HOUR_MS * 5 / 2, "says": "m" });
    for (within_ms, down_s, heard, took_s) in [
        (2 * HOUR_MS, 0, "timeout", 7200),
        (2 * HOUR_MS, 600, "timeout", 7200),
        // Over when it comes back, and the child with it.
        (2 * HOUR_MS, 7200, "timeout", 3600 + 7200),
        (3 * HOUR_MS, 600, "m", 9000),
    ] {
        let (data, entries) = (Data::new(), Entries::default());
        let mut system = data.start(worker(&entries)).await;
        let begin = Instant::now();
        let input = json!({ "below": below, "hears": "m", "within_ms": within_ms });
        let mut run = assistant(&system).start::<Code>(input).id("r").await.unwrap();
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_secs(1800)).await;
            assert_eq!(system.live_runs(), 0);
        }
        if down_s > 0 {
            system.crash().await;
            tokio::time::sleep(Duration::from_secs(down_s)).await;
            system = data.start(worker(&entries)).await;
            run = assistant(&system).attach::<Code>("r").await.unwrap().unwrap();
        }
        let what = format!("{within_ms} ms, {down_s} s down");
        assert_eq!(ended(&run).await, json!([1, heard]), "{what}");
        assert_eq!(begin.elapsed().as_secs(), took_s, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_milestone_of_another_name_wakes_nobody() {
    let (data, entries) = (Data::new(), Entries::default());
    let child = {
        let entries = entries.clone();
        code(move |cx, input| {
            let entries = entries.clone();
            Box::pin(async move {
                entries.enters(cx);
                if input == "parent" {
                    let child = cx.agent::<Code>().start::<Code>(json!(null)).id("below").await?;
                    let heard = child.milestone_within("100", LIMIT).await?;
                    return Ok(json!(heard.name));
                }
                for n in 1..=100 {
                    cx.sleep(Duration::from_secs(10)).await;
                    cx.milestone(&n.to_string(), json!(null)).await?;
                }
                cx.sleep(Duration::from_secs(3600)).await;
                Ok(json!(null))
            })
        })
    };
    let system = data.start(child).await;
    let run = assistant(&system).start::<Code>(json!("parent")).id("r").await.unwrap();
    assert_eq!(ended(&run).await, json!("100"));
    assert_eq!(entries.of("Assistant:a/Code:r"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_outside_memory_survives_crashes_as_the_same_attempt() {
    let (data, entries) = (Data::new(), Entries::default());
    let system = data.start(worker(&entries)).await;
    let input = json!({ "below": { "below": { "ms": HOUR_MS } } });
    let begin = Instant::now();
    assistant(&system).start::<Code>(input).id("r").await.unwrap();
    tokio::time::sleep(Duration::from_secs(300)).await;
    system.crash().await;
    for _ in 0..3 {
        let system = data.start(worker(&entries)).await;
        // Entered again at once, and out of memory again.
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert_empty(&system);
        system.crash().await;
    }
    let system = data.start(worker(&entries)).await;
    let run = assistant(&system).attach::<Code>("r").await.unwrap().unwrap();
    assert_eq!(ended(&run).await, json!([1, [1, [1, null]]]));
    assert_eq!(begin.elapsed().as_secs(), 3600);
    // Entered first, by each of four processes, and for the end.
    assert_eq!(entries.of("Assistant:a/Code:r"), 1 + 4 + 1);
    assert_eq!(entries.of("Assistant:a/Code:r/Code:below/Code:below"), 2);
}

/// A parent of so many children that sleep one second longer each.
fn fan_out(entries: &Entries) -> Code {
    let entries = entries.clone();
    code(move |cx, input| {
        let entries = entries.clone();
        Box::pin(async move {
            entries.enters(cx);
            if let Some(ms) = input["ms"].as_u64() {
                cx.sleep(Duration::from_millis(ms)).await;
                return Ok(json!(1));
            }
            let (count, apart_ms) = (input["count"].as_u64(), input["apart_ms"].as_u64());
            let runs = (1..=count.unwrap_or(0)).map(|n| {
                let input = json!({ "ms": 10_000 + n * apart_ms.unwrap_or(0) });
                cx.agent::<Code>().run::<Code>(input).id(n.to_string())
            });
            let mut sum = 0;
            for end in futures_util::future::join_all(runs).await {
                sum += end?.completed()?.as_u64().unwrap_or(0);
            }
            Ok(json!(sum))
        })
    })
}

#[tokio::test(start_paused = true)]
async fn children_that_end_one_by_one_wake_their_parent_each() {
    for (apart_ms, at_most) in [(3_000, 101), (300, 35), (10, 3)] {
        let (data, entries) = (Data::new(), Entries::default());
        let system = data.start(fan_out(&entries)).await;
        let input = json!({ "count": 100, "apart_ms": apart_ms });
        let run = assistant(&system).start::<Code>(input).id("r").await.unwrap();
        assert_eq!(ended(&run).await, json!(100));
        let times = entries.of("Assistant:a/Code:r");
        eprintln!("{apart_ms} ms apart: entered {times} times");
        assert!(times <= at_most, "{apart_ms} ms apart: entered {times} times");
        for n in 1..=100 {
            assert_eq!(entries.of(&format!("Assistant:a/Code:r/Code:{n}")), 2, "child {n}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_against_a_sleep_wakes_for_whichever_is_first() {
    for (sleep_s, first) in [(1800, "sleep"), (7200, "child")] {
        let entries = Entries::default();
        let child = {
            let entries = entries.clone();
            code(move |cx, input| {
                let entries = entries.clone();
                Box::pin(async move {
                    entries.enters(cx);
                    if input == "child" {
                        cx.sleep(Duration::from_secs(3600)).await;
                        return Ok(json!(null));
                    }
                    let child = cx.agent::<Code>().start::<Code>(json!("child")).id("c").await?;
                    let first = tokio::select! {
                        end = child.outcome() => { end?; "child" }
                        () = cx.sleep(Duration::from_secs(sleep_s)) => "sleep",
                    };
                    let end = child.outcome().await?;
                    Ok(json!([first, end.status().to_string()]))
                })
            })
        };
        let data = Data::new();
        let system = data.start(child).await;
        let begin = Instant::now();
        let run = assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_empty(&system);
        assert_eq!(ended(&run).await, json!([first, "completed"]));
        assert_eq!(begin.elapsed().as_secs(), 3600);
        assert_eq!(entries.of("Assistant:a/Code:r"), if first == "sleep" { 3 } else { 2 });
    }
}

/// Waits for the end of the run below another.
async fn below_ended(system: &System, parent: &str) -> Status {
    let agent = system.agent_at(&parent.parse().unwrap()).unwrap();
    let mut tail = agent.tail("below", After::START).await.unwrap();
    timeout(LIMIT, async { while tail.next().await.is_some() {} }).await.expect("an end");
    agent.inspect("below").await.unwrap().unwrap().run.status
}

#[tokio::test(start_paused = true)]
async fn a_cancel_of_a_run_that_waits_outside_memory_reaches_all_below() {
    // The disk takes 10 ms: somewhere in there the runs are on their way out of memory.
    for cancel_ms in (1000..1150).step_by(2).chain([300_000]) {
        let (data, entries) = (Data::new(), Entries::default());
        let disk = data.disk(None).latency(Duration::from_millis(10));
        let builder = data.on(&disk).agent(Assistant).child(worker(&entries));
        let system = builder.start().await.unwrap();
        let input = json!({ "below": { "below": { "ms": HOUR_MS } } });
        let run = assistant(&system).start::<Code>(input).id("r").await.unwrap();
        tokio::time::sleep(Duration::from_millis(cancel_ms)).await;
        timeout(LIMIT, run.cancel("enough")).await.expect("an answer").unwrap();
        let end = timeout(Duration::from_secs(10), run.outcome()).await.expect("an end").unwrap();
        assert_eq!(end.status(), Status::Aborted, "cancel at {cancel_ms} ms");
        for parent in ["Assistant:a/Code:r", "Assistant:a/Code:r/Code:below"] {
            let agent = system.agent_at(&parent.parse().unwrap()).unwrap();
            let below = agent.inspect("below").await.unwrap().unwrap().run;
            let aborted = below.cancelling || below.status == Status::Aborted;
            assert!(aborted, "cancel at {cancel_ms} ms: {below:?}");
            let end = below_ended(&system, parent).await;
            assert_eq!(end, Status::Aborted, "cancel at {cancel_ms} ms");
        }
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert_empty(&system);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_child_wakes_whoever_waits_for_it() {
    let (data, entries) = (Data::new(), Entries::default());
    let system = data.start(worker(&entries)).await;
    for (wait, told) in [(json!(null), "aborted"), (json!("never"), "aborted")] {
        let below = json!({ "below": { "ms": HOUR_MS } });
        let input = json!({ "below": below, "hears": wait, "within_ms": HOUR_MS });
        let run = assistant(&system).start::<Code>(input).await.unwrap();
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert_empty(&system);
        let inside = format!("Assistant:a/Code:{}", run.id()).parse().unwrap();
        system.agent_at(&inside).unwrap().cancel("below", "enough").await.unwrap();
        let begin = Instant::now();
        assert_eq!(ended(&run).await, json!([1, told]));
        assert!(begin.elapsed() < Duration::from_secs(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_cleared_run_that_waited_outside_memory_is_gone_with_all_below() {
    let (data, entries) = (Data::new(), Entries::default());
    let system = data.start(worker(&entries)).await;
    let input = json!({ "below": { "below": { "ms": HOUR_MS } } });
    assistant(&system).start::<Code>(input).id("r").await.unwrap();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(assistant(&system).clear(&RunFilter::default()).await.unwrap(), 1);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_empty(&system);
    assert_eq!(system.agents().await.unwrap(), []);
    assert_eq!(entries.of("Assistant:a/Code:r"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_parent_that_is_evicted_or_crashes_meanwhile_still_wakes_its_run() {
    // With a disk that takes its time, this comes at any moment of the suspension.
    for at_ms in (950..1100).step_by(3).chain([60_000]) {
        for panics in [false, true] {
            let (data, entries) = (Data::new(), Entries::default());
            let disk = data.disk(None).latency(Duration::from_millis(10));
            let builder = data.on(&disk).agent(Assistant).child(worker(&entries));
            let system = builder.start().await.unwrap();
            let parent = assistant(&system);
            let input = json!({ "below": { "work_ms": at_ms.max(1060) } });
            let run = parent.start::<Code>(input).id("r").await.unwrap();
            tokio::time::sleep(Duration::from_millis(at_ms)).await;
            if panics {
                parent.turn(async |_| panic!("on purpose")).await.unwrap_err();
            } else {
                parent.evict().await.unwrap();
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
            let status = parent.inspect("r").await.unwrap().unwrap().run.status;
            assert_eq!(status, Status::Completed, "at {at_ms} ms, panics: {panics}");
            assert_eq!(ended(&run).await, json!([1, [1, null]]));
            system.crash().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_outside_memory_keeps_its_slot() {
    let (data, entries) = (Data::new(), Entries::default());
    let settings = AgentSettings {
        max_concurrent_runs: Some(1),
        at_cap: AtCap::Queue,
        ..AgentSettings::default()
    };
    let system = data.start(worker(&entries).settings(settings)).await;
    let below = json!({ "below": { "ms": HOUR_MS } });
    // The cap is that of the run below, too: its only child leaves memory with the slot.
    let run = assistant(&system).start::<Code>(below).id("r").await.unwrap();
    tokio::time::sleep(Duration::from_secs(300)).await;
    let inside = system.agent_at(&"Assistant:a/Code:r".parse().unwrap()).unwrap();
    let (next, _) = inside.dispatch_json("Code", &json!({}), Default::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(inside.inspect(&next).await.unwrap().unwrap().queue_position, Some(0));
    assert_eq!(ended(&run).await, json!([1, [1, null]]));
    until("the next one has its slot", async || {
        inside.inspect(&next).await.unwrap().unwrap().run.status == Status::Completed
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_none_that_wait_outside_memory() {
    let (data, entries) = (Data::new(), Entries::default());
    let system = data.start(worker(&entries)).await;
    let input = json!({ "below": { "ms": HOUR_MS } });
    assistant(&system).start::<Code>(input).id("r").await.unwrap();
    tokio::time::sleep(Duration::from_secs(300)).await;
    let begin = Instant::now();
    assert_eq!(system.shutdown().await, 0);
    assert!(begin.elapsed() < Duration::from_secs(1));
    let system = data.start(worker(&entries)).await;
    let run = assistant(&system).attach::<Code>("r").await.unwrap().unwrap();
    assert_eq!(ended(&run).await, json!([1, [1, null]]));
}

#[tokio::test(start_paused = true)]
async fn a_parked_child_wakes_whoever_waits_for_it() {
    let data = Data::new();
    let parent_or = |step: &'static str| {
        code(move |cx, input| {
            Box::pin(async move {
                if input == "parent" {
                    let child = cx.agent::<Code>().run::<Code>(json!(null)).id("below");
                    return Ok(json!(child.await?.status().to_string()));
                }
                cx.step(step, async || Ok(())).await?;
                cx.sleep(Duration::from_secs(3600)).await;
                Ok(json!(null))
            })
        })
    };
    let system = data.start(parent_or("good")).await;
    assistant(&system).start::<Code>(json!("parent")).id("r").await.unwrap();
    tokio::time::sleep(Duration::from_secs(300)).await;
    system.crash().await;
    // The child is entered when its sleep is due, and only then by the bad code.
    let system = data.start(parent_or("bad")).await;
    let run = assistant(&system).attach::<Code>("r").await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(system.live_runs(), 0);
    assert_eq!(ended(&run).await, json!("interrupted"));
}

#[tokio::test(start_paused = true)]
async fn a_suspension_cancels_no_child_that_is_cancelled_on_drop() {
    let child = code(move |cx, input| {
        Box::pin(async move {
            if input == "parent" {
                let child = cx.agent::<Code>().run::<Code>(json!(null)).cancel_on_drop();
                return Ok(json!(child.await?.status().to_string()));
            }
            cx.sleep(Duration::from_secs(3600)).await;
            Ok(json!(null))
        })
    });
    let data = Data::new();
    let system = data.start(child).await;
    let run = assistant(&system).start::<Code>(json!("parent")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_empty(&system);
    assert_eq!(ended(&run).await, json!("completed"));
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_runs_that_await_sleeping_children_cost_no_memory() {
    let (data, entries) = (Data::new(), Entries::default());
    let system = data.start(worker(&entries)).await;
    let parent = assistant(&system);
    for n in 0..10_000u32 {
        let input = json!({ "below": { "ms": 10 * HOUR_MS } });
        parent.start::<Code>(input).id(n.to_string()).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_empty(&system);
    // Of all of them, one is woken.
    let inside = system.agent_at(&"Assistant:a/Code:77".parse().unwrap()).unwrap();
    inside.cancel("below", "enough").await.unwrap();
    let run = parent.attach::<Code>("77").await.unwrap().unwrap();
    assert_eq!(ended(&run).await, json!([1, "aborted"]));
    assert_eq!(system.live_runs(), 0);
    assert_eq!(entries.of("Assistant:a/Code:78"), 1);
}

/// How a run waits for another one.
#[derive(Debug, Clone, Copy)]
enum By {
    Call,
    Outcome,
    Milestone,
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_run_that_is_cleared_is_told_the_same_in_and_out_of_memory() {
    let child = |by| {
        code(move |cx, input| {
            Box::pin(async move {
                if input == "child" {
                    cx.sleep(Duration::from_secs(36_000)).await;
                    return Ok(json!(null));
                }
                let me = cx.agent::<Code>();
                let told = match by {
                    By::Call => me.run::<Code>(json!("child")).id("child").await?,
                    By::Outcome => {
                        me.start::<Code>(json!("child")).id("child").await?.outcome().await?
                    }
                    By::Milestone => {
                        let run = me.start::<Code>(json!("child")).id("child").await?;
                        match run.milestone_within("m", Duration::from_secs(3600)).await {
                            Err(Error::NoMilestone { status: Status::Aborted, .. }) => {
                                run.outcome().await?
                            }
                            other => return Err(RunError::new(format!("{other:?}"))),
                        }
                    }
                };
                let told = told.completed().unwrap_err().to_string();
                cx.milestone("told", json!(told)).await?;
                cx.sleep(Duration::from_secs(60)).await;
                Ok(json!(told))
            })
        })
    };
    for (by, at) in [By::Call, By::Outcome, By::Milestone]
        .into_iter()
        .flat_map(|by| [500, 60_000].map(|at| (by, at)))
    {
        let data = Data::new();
        let system = data.start(child(by)).await;
        let run = assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
        tokio::time::sleep(Duration::from_millis(at)).await;
        let waiter = run.inspect().await.unwrap().unwrap().run;
        assert_eq!(waiter.suspended, at == 60_000, "{by:?}");
        let inside = system.agent_at(&"Assistant:a/Code:r".parse().unwrap()).unwrap();
        assert_eq!(inside.clear(&RunFilter::default()).await.unwrap(), 1);
        let told = run.milestone("told").await.unwrap().data.unwrap();
        assert_eq!(told, "run was cancelled: cleared", "{by:?} at {at}");
        system.crash().await;
        let system = data.start(child(by)).await;
        let run = assistant(&system).attach::<Code>("r").await.unwrap().unwrap();
        assert_eq!(ended(&run).await, told, "{by:?} at {at}");
    }
}
