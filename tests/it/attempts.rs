//! Attempts: what counts as one, how many there are, and who never notices.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ghostlight::frame::Frame;
use ghostlight::prelude::*;
use ghostlight::{Error, StartError};
use tokio::time::{Instant, timeout};

use crate::support::Assistant;
use crate::support::code::{Code, Data, assistant, code, end, until};

const LIMIT: Duration = Duration::from_secs(24 * 3600);

/// When each attempt began, in ms.
type Entered = Arc<Mutex<Vec<(u32, u64)>>>;

/// Crashes the system whenever the code is entered, until the run has ended.
async fn crash_at_every_entry(
    data: &Data,
    entered: &Entered,
    child: impl Fn() -> Code,
) -> Outcome<serde_json::Value> {
    for _ in 0..100 {
        let system = data.start(child()).await;
        let before = entered.lock().unwrap().len();
        let run = assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
        let life = async {
            until("an entry or an end", async || {
                entered.lock().unwrap().len() > before
                    || run.inspect().await.unwrap().unwrap().run.status.is_hard()
            })
            .await;
            // As much as gets done at once.
            tokio::time::sleep(Duration::from_millis(300)).await;
        };
        timeout(LIMIT, life).await.unwrap();
        if run.inspect().await.unwrap().unwrap().run.status.is_hard() {
            return run.outcome().await.unwrap();
        }
        system.crash().await;
    }
    panic!("the run goes on for ever");
}

fn entering(
    entered: &Entered,
    recovery: RecoveryPolicy,
    body: fn(&RunContext) -> futures_util::future::BoxFuture<'_, Result<(), RunError>>,
) -> impl Fn() -> Code {
    let (entered, began) = (Arc::clone(entered), Instant::now());
    move || {
        let entered = Arc::clone(&entered);
        code(move |cx, _| {
            entered.lock().unwrap().push((cx.attempt(), began.elapsed().as_millis() as u64));
            Box::pin(async move {
                body(cx).await?;
                std::future::pending().await
            })
        })
        .recovery(recovery.clone())
    }
}

fn policy(attempts_max: u32) -> RecoveryPolicy {
    RecoveryPolicy { attempts_max, ..RecoveryPolicy::default() }
}

#[track_caller]
fn check_exhausted(end: Outcome<serde_json::Value>, attempts: u32) {
    match end.completed().unwrap_err() {
        NotCompleted::Error(failure) => {
            assert_eq!(failure.kind.as_deref(), Some("attempts-exhausted"));
            assert!(failure.message.contains(&attempts.to_string()), "{failure}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_without_progress_back_off_and_end() {
    let (data, entered) = (Data::new(), Entered::default());
    let child = entering(&entered, policy(6), |_| Box::pin(async { Ok(()) }));
    check_exhausted(crash_at_every_entry(&data, &entered, child).await, 6);
    let entered = entered.lock().unwrap().clone();
    let numbers: Vec<u32> = entered.iter().map(|(attempt, _)| *attempt).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    let waits: Vec<u64> = entered.windows(2).map(|pair| (pair[1].1 - pair[0].1) / 1000).collect();
    // The second one starts at once; each wait doubles the one before.
    assert_eq!(waits, [0, 1, 2, 4, 8], "{entered:?}");
}

#[tokio::test(start_paused = true)]
async fn ten_attempts_are_the_default() {
    let (data, entered) = (Data::new(), Entered::default());
    let child = entering(&entered, RecoveryPolicy::default(), |_| Box::pin(async { Ok(()) }));
    check_exhausted(crash_at_every_entry(&data, &entered, child).await, 10);
    assert_eq!(entered.lock().unwrap().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn progress_begins_the_count_anew() {
    let (data, entered) = (Data::new(), Entered::default());
    // Two attempts in a row do nothing, and the third one finishes a step.
    let child = entering(&entered, policy(4), |cx| {
        Box::pin(async move {
            for done in 1..=u64::from(cx.attempt() / 3).min(4) {
                cx.step(("part", done), async || Ok(())).await?;
            }
            Ok(())
        })
    });
    check_exhausted(crash_at_every_entry(&data, &entered, child).await, 4);
    // The last progress was made in attempt 12; then 4 in a row came to nothing.
    assert_eq!(entered.lock().unwrap().last().unwrap().0, 16);
}

#[tokio::test(start_paused = true)]
async fn reports_and_events_of_an_unfinished_step_are_no_progress() {
    let (data, entered) = (Data::new(), Entered::default());
    let child = entering(&entered, policy(5), |cx| {
        Box::pin(async move {
            cx.progress(Progress::fraction(0.1));
            cx.step("poison", async || {
                cx.emit("about to fall over").await?;
                cx.milestone("half of it", json!(null)).await?;
                std::future::pending::<Result<(), RunError>>().await
            })
            .await
        })
    });
    check_exhausted(crash_at_every_entry(&data, &entered, child).await, 5);
    assert_eq!(entered.lock().unwrap().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn events_of_the_code_are_progress() {
    let (data, entered) = (Data::new(), Entered::default());
    let child = entering(&entered, policy(3), |cx| {
        Box::pin(async move {
            for n in 0..cx.attempt().min(10) {
                cx.emit(n).await?;
            }
            Ok(())
        })
    });
    check_exhausted(crash_at_every_entry(&data, &entered, child).await, 3);
    assert_eq!(entered.lock().unwrap().last().unwrap().0, 13);
}

/// Sleeps, or works, for 50 s, and returns its attempt.
fn long(sleeps: bool) -> Code {
    code(move |cx, _| {
        Box::pin(async move {
            let wait = Duration::from_secs(50);
            match sleeps {
                true => cx.sleep(wait).await,
                false => {
                    cx.step("a", async || {
                        tokio::time::sleep(wait).await;
                        Ok(())
                    })
                    .await?
                }
            }
            Ok(json!(cx.attempt()))
        })
    })
}

#[tokio::test(start_paused = true)]
async fn an_unregistered_type_stops_the_start_and_nothing_is_lost() {
    for sleeps in [false, true] {
        let data = Data::new();
        let system = data.start(long(sleeps)).await;
        assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        system.crash().await;

        match data.builder().agent(Assistant).start().await.map(|_| ()).unwrap_err() {
            StartError::Unregistered { agent_type, live_runs, example, registered } => {
                assert_eq!((agent_type.as_str(), live_runs), ("Code", 1));
                assert_eq!((example.as_str(), registered), ("r", vec!["Assistant".to_owned()]));
            }
            other => panic!("{other}"),
        }
        // Left alone, although its sleep is over meanwhile; whoever waits is told.
        let system = data.builder().agent(Assistant).park_unregistered().start().await.unwrap();
        tokio::time::sleep(Duration::from_secs(1000)).await;
        assert_eq!(system.live_runs(), 0);
        let seen = assistant(&system).inspect("r").await.unwrap().unwrap();
        assert_eq!(seen.run.status, Status::Running);
        let run = assistant(&system).attach::<Code>("r").await.unwrap().unwrap();
        let error = timeout(LIMIT, run.outcome()).await.expect("an answer").unwrap_err();
        assert!(matches!(error, Error::UnknownType { .. }), "{error}");
        system.crash().await;

        let system = data.start(long(sleeps)).await;
        let run = assistant(&system).run::<Code>(json!(null)).id("r");
        let attempt = timeout(LIMIT, run).await.unwrap().unwrap().completed().unwrap();
        assert_eq!(attempt, if sleeps { json!(1) } else { json!(2) });
    }
}

/// Waits for 30 s in many small pieces.
fn patient() -> Code {
    code(|cx, input| {
        Box::pin(async move {
            for n in 0..30 {
                cx.step(("part", n), async || {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    cx.emit(n).await?;
                    Ok(())
                })
                .await?;
            }
            Ok(json!([input, cx.attempt()]))
        })
    })
}

#[tokio::test(start_paused = true)]
async fn a_parent_that_dies_in_its_turn_takes_nothing_with_it() {
    let data = Data::new();
    let system = data.start(patient()).await;
    let parent = assistant(&system);
    let (mut callers, mut observers) = (Vec::new(), Vec::new());
    for n in 0..100 {
        let id = format!("r{n}");
        let run = parent.start::<Code>(json!(n)).id(&id).await.unwrap();
        let mut tail = run.tail(After::START);
        observers.push(tokio::spawn(async move {
            let mut frames: Vec<Frame> = Vec::new();
            while let Some(frame) = tail.next().await {
                frames.push((*frame.unwrap()).clone());
            }
            frames
        }));
        let parent = parent.clone();
        callers.push(tokio::spawn(async move {
            parent.run::<Code>(json!(n)).id(id).await.unwrap().completed().unwrap()
        }));
    }
    for life in 0..8 {
        tokio::time::sleep(Duration::from_millis(2_700)).await;
        match life % 2 {
            0 => {
                let turn = parent.turn(async |_| panic!("on purpose")).await;
                assert!(matches!(turn, Err(Error::AgentDown { .. })), "{turn:?}");
            }
            _ => parent.agent_ref().evict().await.unwrap(),
        }
    }
    for (n, caller) in callers.into_iter().enumerate() {
        let end = timeout(LIMIT, caller).await.expect("an outcome").unwrap();
        assert_eq!(end, json!([n, 1]), "attempts stay 1");
    }
    for observer in observers {
        let frames = timeout(LIMIT, observer).await.expect("an end").unwrap();
        let numbers: Vec<u64> = frames.iter().map(|frame| frame.sequence).collect();
        assert_eq!(numbers, (0..=31).collect::<Vec<_>>(), "every frame once");
    }
}

#[tokio::test(start_paused = true)]
async fn an_incarnation_never_adopts_what_it_has_begun_itself() {
    let counts: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
    let child = || {
        let counts = Arc::clone(&counts);
        code(move |cx, _| {
            *counts.lock().unwrap().entry(cx.run_id().to_owned()).or_default() += 1;
            Box::pin(async move {
                cx.step("a", async || {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    Ok(())
                })
                .await?;
                Ok(json!(cx.attempt()))
            })
        })
    };
    let data = Data::new();
    let system = data.start(child()).await;
    for n in 0..20 {
        assistant(&system).start::<Code>(json!(n)).id(format!("old{n}")).await.unwrap();
    }
    system.crash().await;
    // Dispatched while the recovery of the others is under way.
    let system = data.start(child()).await;
    let parent = assistant(&system);
    let mut runs = Vec::new();
    for n in 0..20 {
        runs.push(parent.run::<Code>(json!(n)).id(format!("new{n}")));
        runs.push(parent.run::<Code>(json!(n)).id(format!("old{n}")));
    }
    for (n, end) in futures_util::future::join_all(runs).await.into_iter().enumerate() {
        let attempt = end.unwrap().completed().unwrap();
        assert_eq!(attempt, if n % 2 == 0 { json!(1) } else { json!(2) });
    }
    for (id, count) in counts.lock().unwrap().iter() {
        // The crash may have come before the first entry.
        assert!(*count == 1 || id.starts_with("old") && *count <= 2, "{id}: {count}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_parent_that_crashes_before_a_run_is_entered_costs_it_no_attempt() {
    // The disk takes 10 ms: the dispatch is durable at 20 ms, and the code is entered then.
    for crash_at in 0..40 {
        let data = Data::new();
        let disk = data.disk(None).latency(Duration::from_millis(10));
        let child = code(|cx, _| {
            Box::pin(async move {
                cx.sleep(Duration::from_millis(500)).await;
                Ok(json!(cx.attempt()))
            })
        });
        let system = data.on(&disk).agent(Assistant).child(child).start().await.unwrap();
        let assistant = assistant(&system);
        let run = tokio::spawn(assistant.run::<Code>(json!(null)).id("r"));
        tokio::time::sleep(Duration::from_millis(crash_at)).await;
        ghostlight::testing::crash_agent(&system, assistant.agent_ref().path());
        let end = timeout(LIMIT, run).await.unwrap().unwrap().unwrap();
        assert_eq!(end.completed().unwrap(), json!(1), "crash at {crash_at} ms");
        system.crash().await;
    }
}

/// Counts the entries into code that are not over.
struct Inside(Arc<Mutex<(u32, u32)>>);

impl Inside {
    fn enter(counts: &Arc<Mutex<(u32, u32)>>) -> Self {
        let mut counted = counts.lock().unwrap();
        counted.0 += 1;
        counted.1 = counted.1.max(counted.0);
        Self(Arc::clone(counts))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.lock().unwrap().0 -= 1;
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_actor_crashes_is_entered_again_when_its_code_is_gone() {
    let counts = Arc::new(Mutex::new((0, 0)));
    let child = {
        let counts = Arc::clone(&counts);
        code(move |cx, _| {
            let inside = Inside::enter(&counts);
            Box::pin(async move {
                let _inside = inside;
                cx.step("long", async || {
                    tokio::time::sleep(Duration::from_secs(10)).await;
                    Ok(())
                })
                .await?;
                Ok(json!(cx.attempt()))
            })
        })
    };
    let data = Data::new();
    let system = data.start(child).await;
    let assistant = assistant(&system);
    let run = assistant.start::<Code>(json!(null)).id("r").await.unwrap();
    until("an entry", async || counts.lock().unwrap().0 == 1).await;
    let path = assistant.agent_ref().path().child(Code::TYPE, &"r".parse().unwrap()).unwrap();
    assert!(ghostlight::testing::crash_run(&system, &path));
    let end = timeout(LIMIT, run.outcome()).await.unwrap().unwrap();
    assert_eq!(end.completed().unwrap(), json!(2), "the crash costs an attempt");
    assert_eq!(*counts.lock().unwrap(), (0, 1), "nobody was inside twice at once");
    system.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_of_the_actor_cancels_no_run_that_the_code_awaits() {
    let begun = Arc::new(Mutex::new(0));
    let kids = Arc::clone(&begun);
    let child = code(move |cx, input| {
        let kids = Arc::clone(&kids);
        Box::pin(async move {
            // Stays in memory meanwhile.
            let long = cx.step("long", async || {
                tokio::time::sleep(Duration::from_secs(10)).await;
                Ok(cx.attempt())
            });
            if input == json!("kid") {
                *kids.lock().unwrap() += 1;
                return Ok(json!(long.await?));
            }
            let kid = cx.agent::<Code>().run::<Code>(json!("kid")).id("kid").cancel_on_drop();
            let (kid, long) = tokio::join!(kid, long);
            Ok(json!([kid?.completed().unwrap(), long?]))
        })
    });
    let data = Data::new();
    let system = data.start(child).await;
    let assistant = assistant(&system);
    let run = assistant.start::<Code>(json!(null)).id("r").await.unwrap();
    until("the kid's entry", async || *begun.lock().unwrap() == 1).await;
    let path = assistant.agent_ref().path().child(Code::TYPE, &"r".parse().unwrap()).unwrap();
    assert!(ghostlight::testing::crash_run(&system, &path));
    let end = timeout(LIMIT, run.outcome()).await.unwrap().unwrap();
    assert_eq!(
        end.completed().unwrap(),
        json!([1, 2]),
        "the kid goes on, and its parent begins anew"
    );
    system.crash().await;
}

/// A run whose actor is lost at every moment of its life, on a slow disk.
async fn lost_at_any_moment(ends: bool) {
    for at_ms in 100..220 {
        let child = code(move |cx, _| {
            Box::pin(async move {
                // Whoever waits has found nothing yet.
                tokio::time::sleep(Duration::from_millis(100)).await;
                if ends {
                    return Ok(json!("end"));
                }
                cx.milestone("m", json!(null)).await?;
                std::future::pending().await
            })
        });
        let data = Data::new();
        let disk = data.disk(None).latency(Duration::from_millis(50));
        let system = data.on(&disk).agent(Assistant).child(child).start().await.unwrap();
        let assistant = assistant(&system);
        let run = assistant.start::<Code>(json!(null)).id("r").await.unwrap();
        let told = async {
            match ends {
                true => assert_eq!(run.outcome().await.unwrap().completed().unwrap(), json!("end")),
                false => _ = run.milestone("m").await.unwrap(),
            }
        };
        let mut tail = run.tail(After::START);
        let tailed = async { while tail.next().await.unwrap().unwrap().sequence < 1 {} };
        let lost = async {
            tokio::time::sleep(Duration::from_millis(at_ms)).await;
            let path = assistant.agent_ref().path().child(Code::TYPE, &"r".parse().unwrap());
            ghostlight::testing::crash_run(&system, &path.unwrap());
        };
        let all = async { tokio::join!(told, tailed, lost) };
        let soon = Duration::from_secs(3);
        timeout(soon, all).await.unwrap_or_else(|_| panic!("silence after {at_ms} ms"));
        system.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_is_told_although_the_actor_was_lost_meanwhile() {
    lost_at_any_moment(true).await;
}

#[tokio::test(start_paused = true)]
async fn a_milestone_is_told_although_the_actor_was_lost_meanwhile() {
    lost_at_any_moment(false).await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_before_the_code_is_entered_costs_no_attempt() {
    let child = || code(|cx, _| Box::pin(async move { Ok(json!(cx.attempt())) }));
    let data = Data::new();
    let disk = data.disk(None).latency(Duration::from_millis(50));
    let system = data.on(&disk).agent(Assistant).child(child()).start().await.unwrap();
    let agent = assistant(&system);
    let dispatch = async {
        // Its dispatch is recorded, or is refused and made again below.
        let _ = agent.start::<Code>(json!(null)).id("r").await;
    };
    let shutdown = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        system.shutdown().await
    };
    _ = tokio::join!(dispatch, shutdown);
    let system = data.start(child()).await;
    assert!(assistant(&system).inspect("r").await.unwrap().is_some(), "it was recorded");
    assert_eq!(end(&system).await.completed().unwrap(), json!(1));
}
