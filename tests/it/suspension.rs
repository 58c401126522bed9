//! A run that waits for nothing but time leaves memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ghostlight::Clock;
use ghostlight::prelude::*;
use tokio::time::{Instant, timeout};

use crate::support::Assistant;
use crate::support::code::{Code, Data, assistant, code};

struct Sleeper;
impl Agent for Sleeper {
    const TYPE: &'static str = "Sleeper";
}
impl Child for Sleeper {
    type Input = bool;
    type Output = u32;

    async fn run(&self, cx: &RunContext, raced: bool) -> Result<u32, RunError> {
        if raced {
            tokio::select! {
                never = cx.step("loser", std::future::pending::<Result<(), RunError>>) => never?,
                () = cx.sleep(Duration::from_millis(100)) => {}
            }
        }
        cx.sleep(Duration::from_secs(3600)).await;
        Ok(cx.attempt())
    }
}

#[tokio::test(start_paused = true)]
async fn a_sleeping_run_leaves_memory_and_comes_back() {
    let system = System::in_memory().child(Sleeper).start().await.unwrap();
    let agent = system.agent::<Sleeper>("a").unwrap();
    for raced in [false, true] {
        let run = agent.start::<Sleeper>(raced).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(run.inspect().await.unwrap().unwrap().run.suspended, "raced: {raced}");
        assert_eq!(system.live_runs(), 0);
        assert_eq!(run.outcome().await.unwrap().completed().unwrap(), 1, "the same attempt");
    }
}

const LIMIT: Duration = Duration::from_secs(24 * 3600);

/// Sleeps as long as its input says, in ms, and returns its attempt.
fn sleeper() -> Code {
    code(|cx, ms| {
        Box::pin(async move {
            cx.sleep(Duration::from_millis(ms.as_u64().unwrap_or(0))).await;
            Ok(json!(cx.attempt()))
        })
    })
}

#[tokio::test(start_paused = true)]
async fn a_short_sleep_stays_in_memory() {
    let data = Data::new();
    let system = data.start(sleeper()).await;
    for (ms, suspends) in [(1000, false), (1001, true)] {
        let run = assistant(&system).start::<Code>(json!(ms)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(system.live_runs(), usize::from(!suspends), "{ms} ms");
        assert_eq!(run.inspect().await.unwrap().unwrap().run.suspended, suspends);
        assert_eq!(run.outcome().await.unwrap().completed().unwrap(), json!(1));
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_of_sleeping_runs_leaves_memory_too() {
    let data = Data::new();
    let system = data.start(sleeper()).await;
    let run = assistant(&system).start::<Code>(json!(3_600_000)).id("r").await.unwrap();
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(system.agents_in_memory(), []);
    let begin = Instant::now();
    assert_eq!(run.outcome().await.unwrap().completed().unwrap(), json!(1));
    assert_eq!(begin.elapsed().as_secs(), 3600 - 120);
}

#[tokio::test(start_paused = true)]
async fn an_agent_whose_runs_are_watched_stays_until_nobody_watches_them() {
    let data = Data::new();
    let system = data.start(sleeper()).await;
    let run = assistant(&system).start::<Code>(json!(3_600_000)).id("r").await.unwrap();
    let mut tails = [run.tail(After::START), run.tail(After::START)];
    for tail in &mut tails {
        tail.next().await.unwrap().unwrap();
    }
    let [first, second] = tails;
    for tail in [first, second] {
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!((system.live_runs(), system.agents_in_memory().len()), (0, 1));
        drop(tail);
    }
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(system.agents_in_memory().len(), 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(system.agents_in_memory(), []);
}

#[tokio::test(start_paused = true)]
async fn a_sleep_survives_crashes_and_fires_when_it_was_due_meanwhile() {
    for (down, left) in [(1, 3000), (10_000, 0)] {
        let data = Data::new();
        let system = data.start(sleeper()).await;
        assistant(&system).start::<Code>(json!(3_601_000)).id("r").await.unwrap();
        tokio::time::sleep(Duration::from_secs(300)).await;
        system.crash().await;
        let system = data.start(sleeper()).await;
        tokio::time::sleep(Duration::from_secs(300)).await;
        system.crash().await;
        tokio::time::sleep(Duration::from_secs(down)).await;
        let begin = Instant::now();
        let system = data.start(sleeper()).await;
        let run = assistant(&system).run::<Code>(json!(3_601_000)).id("r");
        let attempt = timeout(LIMIT, run).await.unwrap().unwrap().completed().unwrap();
        assert_eq!(attempt, json!(1), "a sleep is no attempt");
        assert_eq!(begin.elapsed().as_secs(), left);
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_sleeping_runs_cost_no_memory() {
    let data = Data::new();
    let system = data.start(sleeper()).await;
    let parent = assistant(&system);
    for n in 0..10_000u32 {
        parent.start::<Code>(json!(7_200_000)).id(n.to_string()).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!((system.live_runs(), system.agents_in_memory().len()), (0, 0));
    system.crash().await;
    let system = data.start(sleeper()).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!((system.live_runs(), system.agents_in_memory().len()), (0, 0));
    tokio::time::sleep(Duration::from_secs(7_200)).await;
    let filter = ghostlight::RunFilter::default();
    let (mut after, mut completed) = (None, 0);
    loop {
        let page = assistant(&system).list(&filter, after.as_ref(), 500).await.unwrap();
        for run in page.runs {
            assert_eq!((run.status, run.attempt), (Status::Completed, 1), "{}", run.run_id);
            completed += 1;
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(completed, 10_000);
}

#[tokio::test(start_paused = true)]
async fn a_run_with_a_step_in_flight_stays_and_its_timer_fires_on_time() {
    let child = code(|cx, _| {
        Box::pin(async move {
            let step = cx.step("long", async || {
                tokio::time::sleep(Duration::from_secs(600)).await;
                Ok(())
            });
            let timer = async {
                cx.sleep(Duration::from_secs(100)).await;
                cx.milestone("fired", json!(null)).await
            };
            let (step, timer) = tokio::join!(step, timer);
            step.and(timer)?;
            Ok(json!(cx.attempt()))
        })
    });
    let data = Data::new();
    let system = data.start(child).await;
    let begin = Instant::now();
    let run = assistant(&system).start::<Code>(json!(null)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(system.live_runs(), 1);
    run.milestone_within("fired", LIMIT).await.unwrap();
    assert_eq!(begin.elapsed().as_secs(), 100);
    assert_eq!(run.outcome().await.unwrap().completed().unwrap(), json!(1));
}

#[tokio::test(start_paused = true)]
async fn the_first_of_several_sleeps_wakes_the_run() {
    let child = code(|cx, _| {
        Box::pin(async move {
            cx.progress(Progress::fraction(0.5));
            let nap = |seconds, name: &'static str| async move {
                cx.sleep(Duration::from_secs(seconds)).await;
                cx.milestone(name, json!(null)).await
            };
            let (a, b, c) = tokio::join!(nap(300, "c"), nap(100, "a"), nap(200, "b"));
            a.and(b).and(c)?;
            Ok(json!(cx.attempt()))
        })
    });
    let data = Data::new();
    let system = data.start(child).await;
    let begin = Instant::now();
    let run = assistant(&system).start::<Code>(json!(null)).await.unwrap();
    for (at, name) in [(100, "a"), (200, "b"), (300, "c")] {
        tokio::time::sleep(Duration::from_secs(50)).await;
        assert_eq!(system.live_runs(), 0, "before {name}");
        run.milestone_within(name, LIMIT).await.unwrap();
        assert_eq!(begin.elapsed().as_secs(), at);
    }
    assert_eq!(run.outcome().await.unwrap().completed().unwrap(), json!(1));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_a_sleeping_run_at_once_and_is_never_lost() {
    // The disk takes 10 ms: somewhere in there the run is on its way out of memory.
    for cancel_at in 0..60 {
        let data = Data::new();
        let disk = data.disk(None).latency(Duration::from_millis(10));
        let builder = data.on(&disk).agent(Assistant).child(sleeper());
        let system = builder.start().await.unwrap();
        let run = assistant(&system).start::<Code>(json!(3_600_000)).id("r").await.unwrap();
        tokio::time::sleep(Duration::from_millis(cancel_at)).await;
        timeout(LIMIT, run.cancel("enough")).await.expect("an answer").unwrap();
        // Durable before it was answered.
        system.crash().await;
        let system = data.start(sleeper()).await;
        let begin = Instant::now();
        let run = assistant(&system).attach::<Code>("r").await.unwrap().unwrap();
        let end = timeout(LIMIT, run.outcome()).await.unwrap().unwrap();
        assert_eq!(end.status(), Status::Aborted, "cancel at {cancel_at} ms");
        assert!(begin.elapsed() < Duration::from_secs(10), "cancel at {cancel_at} ms");
    }
}

/// A wall clock that a test, or an administrator, may set.
#[derive(Clone)]
struct Settable {
    began: Instant,
    set_ms: Arc<AtomicU64>,
}

impl Clock for Settable {
    fn now_ms(&self) -> u64 {
        self.set_ms.load(Ordering::Relaxed) + self.began.elapsed().as_millis() as u64
    }
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_jumps_is_followed() {
    let hour_ms = 3_600_000;
    // Half an hour of the sleep is over when the clock is set.
    for (jump_ms, left_s) in [(hour_ms as i64, 0), (-600_000, 1800 + 600), (600_000, 1800 - 600)] {
        let set_ms = Arc::new(AtomicU64::new(1_767_225_600_000));
        let clock = Settable { began: Instant::now(), set_ms: Arc::clone(&set_ms) };
        let system = System::in_memory()
            .clock(clock)
            .agent(Assistant)
            .child(sleeper())
            .start()
            .await
            .unwrap();
        let run = assistant(&system).start::<Code>(json!(hour_ms)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1800)).await;
        // Wraps around for a jump back.
        set_ms.fetch_add(jump_ms as u64, Ordering::Relaxed);
        let begin = Instant::now();
        let attempt = timeout(LIMIT, run.outcome()).await.unwrap().unwrap().completed().unwrap();
        assert_eq!(attempt, json!(1));
        let took = begin.elapsed().as_secs();
        assert!(took >= left_s && took <= left_s + 60, "jump by {jump_ms} ms: {took} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_input_stays_whatever_is_dispatched_with_its_id() {
    let echo = || {
        code(|cx, input| {
            Box::pin(async move {
                cx.sleep(Duration::from_secs(3600)).await;
                Ok(input)
            })
        })
    };
    let (input, other) = (json!("a".repeat(10_000)), json!("b".repeat(10_000)));
    let data = Data::new();
    let system = data.start(echo()).await;
    let assistant = assistant(&system);
    assistant.start::<Code>(input.clone()).id("r").await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(system.live_runs(), 0, "nobody executes it");
    let refused = assistant.start::<Code>(other).id("r").await.unwrap_err();
    assert!(matches!(refused, ghostlight::Error::DifferentInput { .. }), "{refused}");
    let again = assistant.start::<Code>(input.clone()).id("r").await.unwrap();
    assert!(again.already_existed());
    system.crash().await;

    // The start removes every payload that nothing refers to, and no other.
    let system = data.start(echo()).await;
    let run = crate::support::code::assistant(&system).attach::<Code>("r").await.unwrap().unwrap();
    let end = timeout(LIMIT, run.outcome()).await.expect("an end").unwrap();
    assert_eq!(end.completed().unwrap(), input);
}

#[tokio::test(start_paused = true)]
async fn a_milestone_counts_although_the_wall_clock_was_set_back_since() {
    let set_ms = Arc::new(AtomicU64::new(1_767_225_600_000));
    let clock = Settable { began: Instant::now(), set_ms: Arc::clone(&set_ms) };
    let child = code(|cx, input| {
        Box::pin(async move {
            if input == json!("child") {
                cx.milestone("up", json!(null)).await?;
                return Ok(json!(null));
            }
            let started = cx.agent::<Code>().start::<Code>(json!("child")).id("child").await?;
            cx.sleep(Duration::from_millis(900)).await;
            started.milestone("up").await?;
            Ok(json!("found"))
        })
    });
    let builder = System::in_memory().clock(clock).agent(Assistant).child(child);
    let system = builder.start().await.unwrap();
    let run = assistant(&system).start::<Code>(json!("parent")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    // Wraps around: half an hour back.
    set_ms.fetch_add(u64::MAX - 1_800_000, Ordering::Relaxed);
    let end = timeout(LIMIT, run.outcome()).await.unwrap().unwrap();
    assert_eq!(end.completed().unwrap(), json!("found"));
}

#[tokio::test(start_paused = true)]
async fn a_sleep_that_is_due_while_the_run_leaves_memory_is_not_late() {
    let data = Data::new();
    let disk = data.disk(None).latency(Duration::from_secs(2));
    let child = code(|cx, ms| {
        Box::pin(async move {
            cx.sleep(Duration::from_millis(ms.as_u64().unwrap())).await;
            Ok(json!(null))
        })
    });
    let system = data.on(&disk).agent(Assistant).child(child).start().await.unwrap();
    // The timers are read when this one is due, which is while the other run leaves memory: they wait
    // for the disk, and find both.
    assistant(&system).start::<Code>(json!(20_000)).id("other").await.unwrap();
    tokio::time::sleep(Duration::from_millis(14_100)).await;
    let run = assistant(&system).start::<Code>(json!(3_500)).id("r").await.unwrap();
    let began = Instant::now();
    run.outcome().await.unwrap().completed().unwrap();
    // It is entered again, is told, and ends: a commit each.
    assert!(began.elapsed() < Duration::from_secs(11), "{:?}", began.elapsed());
}
