//! Code that does not fit the journal parks its run until better code comes.

use ghostlight::frame::FrameEvent;
use ghostlight::prelude::*;
use ghostlight::{Error, InterruptReason};
use tokio::time::timeout;

use crate::bench::{Bench, aborted, bounded_real};
use crate::blocking::OpenOnDrop;
use crate::support::code::{Code, Data, assistant, begin, code, end};
use crate::support::world::replay;

const LIMIT: Duration = Duration::from_secs(24 * 3600);

/// The code of the good deploys.
fn good() -> Code {
    code(|cx, _| {
        Box::pin(async move {
            let a = cx.step("a", async || Ok(1)).await?;
            cx.emit(json!({ "type": "data-a" })).await?;
            cx.milestone("half", json!(null)).await?;
            // Attempt 1 gets no further.
            if cx.attempt() == 1 {
                std::future::pending::<()>().await;
            }
            let b = cx.step("b", async || Ok(2)).await?;
            Ok(json!(a + b))
        })
    })
}

async fn parked_and_healed(bad: fn() -> Code, log: &str, asks: &str) {
    let data = Data::new();
    begin(&data, good()).await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let system = data.start(bad()).await;
        match end(&system).await.completed().unwrap_err() {
            NotCompleted::Interrupted { error, reason, .. } => {
                assert_eq!(reason, Some(InterruptReason::JournalMismatch));
                assert!(error.contains(log) && error.contains(asks), "{error}");
                assert!(error.contains("Assistant:a/Code:r"), "{error}");
            }
            other => panic!("{other:?}"),
        }
        // Parked for this incarnation, whoever asks.
        assert_eq!(end(&system).await.status(), Status::Interrupted);
        let run = assistant(&system).attach::<Code>("r").await.unwrap().unwrap();
        assert_eq!(run.outcome().await.unwrap().status(), Status::Interrupted);
        let info = run.inspect().await.unwrap().unwrap().run;
        assert_eq!((info.status, info.execution), (Status::Interrupted, Status::Running));
        assert_eq!(info.attempt, 2, "a mismatch is no attempt");
        assert_eq!(system.live_runs(), 0);
        let mut tail = run.tail(After::START);
        let frames = async {
            let mut frames = Vec::new();
            while !matches!(
                frames.last(),
                Some(ghostlight::frame::Frame { event: FrameEvent::Interrupted { .. }, sequence, .. })
                    if *sequence + 1 == run.inspect().await.unwrap().unwrap().next_sequence
            ) {
                frames.push((*tail.next().await.unwrap().unwrap()).clone());
            }
            frames
        };
        seen = timeout(LIMIT, frames).await.expect("an interrupted frame");
        system.crash().await;
    }
    let system = data.start(good()).await;
    assert_eq!(end(&system).await.completed().unwrap(), json!(3));
    let info = assistant(&system).inspect("r").await.unwrap().unwrap().run;
    assert_eq!((info.status, info.attempt, info.reason), (Status::Completed, 2, None));
    let frames = replay(assistant(&system).agent_ref(), "r").await;
    assert_eq!(frames[..seen.len()], seen, "what was seen stays");
    assert_eq!(frames.len(), seen.len() + 1, "and the end follows");
}

#[tokio::test(start_paused = true)]
async fn another_step_parks_the_run_until_good_code_comes() {
    let bad = || {
        code(|cx, _| {
            Box::pin(async move {
                cx.step("other", async || Ok(1)).await?;
                Ok(json!(null))
            })
        })
    };
    parked_and_healed(bad, "step \"a\"", "step \"other\"").await;
}

#[tokio::test(start_paused = true)]
async fn another_event_parks_the_run_until_good_code_comes() {
    let bad = || {
        code(|cx, _| {
            Box::pin(async move {
                cx.step("a", async || Ok(1)).await?;
                cx.milestone("quarter", json!(null)).await?;
                Ok(json!(null))
            })
        })
    };
    parked_and_healed(bad, "a chunk", "milestone \"quarter\"").await;
}

#[tokio::test(start_paused = true)]
async fn code_that_ends_early_parks_the_run_until_good_code_comes() {
    let bad = || code(|_, _| Box::pin(async move { Ok(json!("done already")) }));
    parked_and_healed(bad, "step \"a\"", "its end").await;
}

#[tokio::test(start_paused = true)]
async fn a_parked_run_is_cancelled_for_good() {
    let data = Data::new();
    begin(&data, good()).await;
    let system = data.start(code(|_, _| Box::pin(async move { Ok(json!(null)) }))).await;
    assert_eq!(end(&system).await.status(), Status::Interrupted);
    assistant(&system).cancel("r", "enough").await.unwrap();
    assert_eq!(end(&system).await.status(), Status::Aborted);
}

#[tokio::test(start_paused = true)]
async fn a_parked_run_has_said_how_far_it_was() {
    let emits = |twice: bool| {
        code(move |cx, _| {
            Box::pin(async move {
                cx.emit("once").await?;
                cx.progress(Progress::fraction(0.5));
                tokio::time::sleep(Duration::from_millis(10)).await;
                // Held back for 200 ms, which the run does not have.
                cx.progress(Progress::fraction(0.6));
                if twice {
                    cx.emit("twice").await?;
                    std::future::pending::<()>().await;
                }
                Ok(json!("done already"))
            })
        })
    };
    let data = Data::new();
    begin(&data, emits(true)).await;
    let system = data.start(emits(false)).await;
    assert_eq!(end(&system).await.status(), Status::Interrupted);
    let seen = assistant(&system).inspect("r").await.unwrap().unwrap();
    let mut tail = assistant(&system).tail("r", After::START).await.unwrap();
    let mut bodies = Vec::new();
    for _ in 0..seen.next_sequence {
        if let FrameEvent::Chunk { body, .. } = &tail.next().await.unwrap().unwrap().event {
            bodies.push(body.clone());
        }
    }
    // Twice by the first life, and twice by the second one.
    let last: Vec<bool> = bodies.iter().map(|body| body.contains("0.6")).collect();
    assert_eq!(last.iter().filter(|last| **last).count(), 2, "{bodies:?}");
    assert_eq!(last.last(), Some(&true), "{bodies:?}");
}

#[tokio::test(start_paused = true)]
async fn a_parked_run_cancels_nothing_on_its_way_out() {
    let child = |key: &'static str| {
        code(move |cx, input| {
            Box::pin(async move {
                if !input.is_null() {
                    std::future::pending::<()>().await;
                }
                let kid = cx.agent::<Code>().run::<Code>(json!(1)).id("kid").cancel_on_drop();
                let (end, step) = tokio::join!(kid, cx.step(key, async || Ok(())));
                step?;
                Ok(end?.completed()?)
            })
        })
    };
    let data = Data::new();
    begin(&data, child("good")).await;
    let system = data.start(child("bad")).await;
    assert_eq!(end(&system).await.status(), Status::Interrupted);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let r = system.agent_at(&"Assistant:a/Code:r".parse().unwrap()).unwrap();
    let kid = r.inspect("kid").await.unwrap().unwrap().run;
    assert_eq!((kid.status, kid.cancelling), (Status::Running, false));
}

/// Begins the run `r`, and parks it behind a step that blocks its thread.
async fn parking_behind_a_blocking_step(bench: &Bench) -> (System, Run<Code>) {
    let data = Data::new();
    let emits = code(|cx, _| {
        Box::pin(async move {
            cx.emit("once").await?;
            cx.flush().await;
            std::future::pending().await
        })
    });
    let system = data.start(emits).await;
    assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
    let mut tail = assistant(&system).tail("r", After::START).await.unwrap();
    while tail.next().await.unwrap().unwrap().sequence < 1 {}
    system.crash().await;
    let told = bench.clone();
    let blocks = code(move |cx, _| {
        let (bench, told) = (told.clone(), told.clone());
        Box::pin(async move {
            let step = cx.step_blocking("b", move || {
                told.note("blocking");
                told.block("g");
                Ok(())
            });
            let mismatch = async {
                bench.seen("blocking", 1).await;
                cx.milestone("m", json!(null)).await
            };
            tokio::try_join!(step, mismatch)?;
            Ok(json!(null))
        })
    });
    let system = data.start(blocks).await;
    bench.seen("blocking", 1).await;
    let run = assistant(&system).attach::<Code>("r").await.unwrap().unwrap();
    (system, run)
}

#[tokio::test]
async fn a_run_that_parks_behind_a_blocking_step_answers() {
    bounded_real(async {
        let bench = Bench::default();
        let (system, run) = parking_behind_a_blocking_step(&bench).await;
        let _open = OpenOnDrop(bench.clone());
        // Whether the mismatch has been told or not.
        for _ in 0..20 {
            let joined = assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
            assert!(joined.already_existed());
        }
        run.cancel("enough").await.unwrap();
        assert_eq!(aborted(run.outcome().await.unwrap()), "enough");
        let again = assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap_err();
        assert!(matches!(&again, Error::StillStopping(id) if id == "r"), "{again}");
        bench.open("g");
        while system.live_runs() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(run.inspect().await.unwrap().unwrap().run.status, Status::Aborted);
    })
    .await;
}

/// Executes steps in this order, and never ends.
fn in_order(keys: &'static [&'static str]) -> Code {
    code(move |cx, _| {
        Box::pin(async move {
            for key in keys {
                cx.step(*key, async || Ok(())).await?;
            }
            std::future::pending().await
        })
    })
}

#[tokio::test(start_paused = true)]
async fn steps_in_another_order_park_the_run() {
    let data = Data::new();
    let system = data.start(in_order(&["a", "b", "c"])).await;
    let run = assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(run.inspect().await.unwrap().unwrap().next_sequence, 1);
    system.crash().await;
    for (keys, asked) in
        [(["b", "a", "c"], "step \"b\" first"), (["c", "a", "b"], "step \"c\" first")]
    {
        let keys: &'static [&'static str] = Box::leak(Box::new(keys));
        let system = data.start(in_order(keys)).await;
        match timeout(LIMIT, end(&system)).await.expect("no hang").completed().unwrap_err() {
            NotCompleted::Interrupted { error, reason, .. } => {
                assert_eq!(reason, Some(InterruptReason::JournalMismatch));
                assert!(error.contains("step \"a\"") && error.contains(asked), "{error}");
            }
            other => panic!("{other:?}"),
        }
        system.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_while_a_run_is_parked_is_told() {
    let data = Data::new();
    begin(&data, good()).await;
    // Somewhere in there it is parked, and its actor is on its way out.
    for yields in 0..200 {
        let system = data.start(in_order(&["other"])).await;
        let run = assistant(&system).attach::<Code>("r").await.unwrap().unwrap();
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
        let told = timeout(LIMIT, run.outcome()).await;
        let told = told.unwrap_or_else(|_| panic!("no answer after {yields} yields")).unwrap();
        assert_eq!(told.status(), Status::Interrupted, "{yields} yields");
        system.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_parked_run_keeps_its_agent_out_of_memory() {
    let data = Data::new();
    begin(&data, good()).await;
    let system = data.start(code(|_, _| Box::pin(async move { Ok(json!(null)) }))).await;
    assert_eq!(end(&system).await.status(), Status::Interrupted);
    for _ in 0..3 {
        assistant(&system).evict().await.unwrap();
        // Where it came back, it would stay for its idle time.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(system.agents_in_memory(), []);
        // Whoever asks brings it back, and is told as before.
        assert_eq!(end(&system).await.status(), Status::Interrupted);
    }
    tokio::time::sleep(LIMIT).await;
    assert_eq!(system.agents_in_memory(), [], "idle");
}

/// Whatever the code of `bad` does after step `a`, the run parks, and the good code never hears of it.
async fn parked_and_forgotten(bad: Code) {
    let good = || {
        code(|cx, _| {
            Box::pin(async move {
                cx.step("a", async || Ok(())).await?;
                cx.step("b", async || Ok(())).await?;
                if cx.attempt() == 1 {
                    std::future::pending::<()>().await;
                }
                cx.state().set("k", 1).await?;
                cx.emit("good").await?;
                cx.milestone("good", json!(null)).await?;
                Ok(json!((cx.state().get::<u64>("k")?, cx.source_offset("stream"))))
            })
        })
    };
    let data = Data::new();
    begin(&data, good()).await;
    let system = data.start(bad).await;
    assert_eq!(end(&system).await.status(), Status::Interrupted);
    system.crash().await;
    let system = data.start(good()).await;
    assert_eq!(end(&system).await.completed().unwrap(), json!((1, 0)));
    let frames = replay(assistant(&system).agent_ref(), "r").await;
    let of_bad = frames.iter().filter(|frame| match &frame.event {
        FrameEvent::Chunk { body, .. } => body.contains("bad"),
        _ => false,
    });
    assert_eq!(of_bad.count(), 0, "{frames:?}");
}

#[tokio::test(start_paused = true)]
async fn what_code_that_does_not_fit_has_done_is_forgotten() {
    parked_and_forgotten(code(move |cx, _| {
        Box::pin(async move {
            cx.step("a", async || Ok(())).await?;
            cx.state().set("k", 2).await?;
            Ok(json!(null))
        })
    }))
    .await;
    parked_and_forgotten(code(move |cx, _| {
        Box::pin(async move {
            cx.step("a", async || Ok(())).await?;
            cx.milestone("bad", json!(null)).await?;
            Ok(json!(null))
        })
    }))
    .await;
    parked_and_forgotten(code(move |cx, _| {
        Box::pin(async move {
            cx.step("a", async || Ok(())).await?;
            cx.emit("bad").await?;
            cx.emit_from("stream", 7, "bad").await?;
            Ok(json!(null))
        })
    }))
    .await;
}

#[tokio::test(start_paused = true)]
async fn code_that_waits_for_what_is_held_back_parks_the_run() {
    // Alone, and inside a combinator that wakes its futures itself.
    parked_and_forgotten(code(|cx, _| {
        Box::pin(async move {
            cx.step("a", async || Ok(())).await?;
            cx.emit_from("other stream", 7, "of the stream").await?;
            cx.emit("bad").await?;
            cx.flush().await;
            cx.step("b", async || Ok(())).await?;
            Ok(json!(null))
        })
    }))
    .await;
    parked_and_forgotten(code(|cx, _| {
        Box::pin(async move {
            cx.step("a", async || Ok(())).await?;
            let flood = async {
                loop {
                    cx.emit("bad".repeat(60_000)).await?;
                }
            };
            let mut all: futures_util::stream::FuturesUnordered<_> = [flood].into_iter().collect();
            let end: Option<Result<(), RunError>> = futures_util::StreamExt::next(&mut all).await;
            Ok(json!(end.is_some()))
        })
    }))
    .await;
}
