//! The journal: what the code is told again after a crash.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ghostlight::frame::{FrameEvent, ReservedBody};
use ghostlight::prelude::*;
use ghostlight::{Error, RunId};
use tokio::sync::Notify;

use crate::support::code::{Code, Data, assistant, begin, code, end};
use crate::support::world::replay;

fn kind(end: Outcome<serde_json::Value>) -> Option<String> {
    match end.completed().unwrap_err() {
        NotCompleted::Error(failure) => failure.kind,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_is_used_once() {
    let child = code(|cx, _| {
        Box::pin(async move {
            cx.step("a", async || Ok(())).await?;
            cx.step("a", async || Ok(())).await?;
            Ok(json!(null))
        })
    });
    let data = Data::new();
    assert_eq!(kind(end(&data.start(child).await).await).as_deref(), Some("step-key"));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_step_has_spent_its_key() {
    let child = code(|cx, _| {
        Box::pin(async move {
            tokio::select! {
                biased;
                never = cx.step("a", std::future::pending::<Result<(), RunError>>) => never?,
                () = cx.sleep(Duration::from_millis(10)) => {}
            }
            cx.step("a", async || Ok(())).await?;
            Ok(json!(null))
        })
    });
    let data = Data::new();
    assert_eq!(kind(end(&data.start(child).await).await).as_deref(), Some("step-key"));
}

#[tokio::test(start_paused = true)]
async fn a_step_inside_a_step_is_refused() {
    let child = code(|cx, _| {
        Box::pin(async move {
            cx.step("outer", async || cx.step("inner", async || Ok(())).await).await?;
            Ok(json!(null))
        })
    });
    let data = Data::new();
    assert_eq!(kind(end(&data.start(child).await).await).as_deref(), Some("nested-step"));
}

#[tokio::test(start_paused = true)]
async fn keys_for_the_outside_are_stable_and_distinct() {
    let keys: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let collect = Arc::clone(&keys);
    let child = move || {
        let collect = Arc::clone(&collect);
        code(move |cx, _| {
            let collect = Arc::clone(&collect);
            Box::pin(async move {
                let note = || collect.lock().unwrap().push(cx.key());
                note();
                let (a, b) = tokio::join!(
                    cx.step("a", async || {
                        note();
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        note();
                        Ok(())
                    }),
                    cx.step(("b", 1), async || {
                        note();
                        tokio::time::sleep(Duration::from_secs(2)).await;
                        note();
                        Ok(())
                    })
                );
                a.and(b)?;
                Ok(json!(null))
            })
        })
    };
    let data = Data::new();
    // The first life is lost before any step has ended.
    begin(&data, child()).await;
    let first = std::mem::take(&mut *keys.lock().unwrap());
    let system = data.start(child()).await;
    end(&system).await.completed().unwrap();
    let second = std::mem::take(&mut *keys.lock().unwrap());
    assert_eq!(first.len(), 3);
    assert_eq!(first, second[..3], "the same in every attempt");
    assert_eq!(second[1..], [&second[1], &second[2], &second[1], &second[2]].map(Clone::clone));
    assistant(&system).run::<Code>(json!(null)).id("r2").await.unwrap().completed().unwrap();
    let other = keys.lock().unwrap();
    let all: std::collections::BTreeSet<&String> = second.iter().chain(other.iter()).collect();
    assert_eq!(all.len(), 6, "and others in another run: {all:?}");
}

/// The bodies of a run's chunks, as short texts.
async fn chunks(system: &System) -> Vec<String> {
    let frames = replay(assistant(system).agent_ref(), "r").await;
    let mut chunks = Vec::new();
    for frame in frames {
        if let FrameEvent::Chunk { body, .. } = frame.event {
            chunks.push(match ReservedBody::parse(&body) {
                Some(ReservedBody::Attempt(mark)) => format!("mark {} {}", mark.step, mark.attempt),
                _ => body,
            });
        }
    }
    chunks
}

#[tokio::test(start_paused = true)]
async fn a_mark_comes_before_the_events_of_every_further_try() {
    let child = || {
        code(|cx, _| {
            Box::pin(async move {
                let tries = AtomicU64::new(0);
                cx.step_retry("retried", Retry::times(3), async || {
                    let n = tries.fetch_add(1, Ordering::Relaxed);
                    cx.emit(n).await?;
                    if n < 2 { Err(RunError::new("again")) } else { Ok(()) }
                })
                .await?;
                cx.step("silent", async || Ok(())).await?;
                cx.step("torn", async || {
                    cx.emit("torn").await?;
                    cx.flush().await;
                    if cx.attempt() == 1 {
                        std::future::pending::<()>().await;
                    }
                    Ok(())
                })
                .await?;
                Ok(json!(null))
            })
        })
    };
    let data = Data::new();
    begin(&data, child()).await;
    let system = data.start(child()).await;
    end(&system).await.completed().unwrap();
    let expected =
        ["0", "mark retried 2", "1", "mark retried 3", "2", "\"torn\"", "mark torn 2", "\"torn\""];
    assert_eq!(chunks(&system).await, expected);
}

#[tokio::test(start_paused = true)]
async fn events_of_a_step_share_a_commit_with_its_result() {
    let groups = |events: u64| async move {
        let data = Data::new();
        let disk = data.disk(None);
        let child = code(move |cx, _| {
            Box::pin(async move {
                cx.step("a", async || {
                    for n in 0..events {
                        cx.emit(n).await?;
                    }
                    Ok(())
                })
                .await?;
                Ok(json!(null))
            })
        });
        let builder = data.on(&disk).agent(crate::support::Assistant).child(child);
        let system = builder.start().await.unwrap();
        end(&system).await.completed().unwrap();
        disk.groups()
    };
    assert_eq!(groups(10).await, groups(0).await);
}

#[tokio::test(start_paused = true)]
async fn a_sleep_that_is_held_in_a_loop_does_not_hang() {
    let child = || {
        code(|cx, _| {
            Box::pin(async move {
                let mut order = Vec::new();
                let mut tick = std::pin::pin!(cx.sleep(Duration::from_millis(250)));
                let mut ticked = false;
                for n in 0..6 {
                    let step = cx.step(("part", n), async || {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        Ok(())
                    });
                    let mut step = std::pin::pin!(step);
                    loop {
                        tokio::select! {
                            () = &mut tick, if !ticked => {
                                ticked = true;
                                order.push("tick".to_owned());
                                // The step is held meanwhile, and not polled.
                                cx.step("inside", async || Ok(())).await?;
                                cx.sleep(Duration::from_millis(150)).await;
                            }
                            done = &mut step => {
                                done?;
                                order.push(n.to_string());
                                break;
                            }
                        }
                    }
                }
                Ok(json!(order))
            })
        })
    };
    for crash_at in (0..900).step_by(30) {
        let data = Data::new();
        let system = data.start(child()).await;
        assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
        tokio::time::sleep(Duration::from_millis(crash_at)).await;
        system.crash().await;
        let system = data.start(child()).await;
        let order = end(&system).await.completed().unwrap();
        assert_eq!(order.as_array().unwrap().len(), 7, "crash at {crash_at} ms: {order}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_sleep_inside_a_step_is_no_sleep_of_the_run() {
    let child = || {
        code(|cx, _| {
            Box::pin(async move {
                cx.step("polls", async || {
                    cx.sleep(Duration::from_millis(50)).await;
                    cx.sleep(Duration::from_secs(5)).await;
                    Ok(())
                })
                .await?;
                let begin = tokio::time::Instant::now();
                cx.sleep(Duration::from_secs(100)).await;
                let _ = begin;
                cx.emit("slept").await?;
                Ok(json!(null))
            })
        })
    };
    let data = Data::new();
    let begin = tokio::time::Instant::now();
    let system = data.start(child()).await;
    assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
    tokio::time::sleep(Duration::from_millis(5100)).await;
    system.crash().await;
    let system = data.start(child()).await;
    end(&system).await.completed().unwrap();
    let took = begin.elapsed();
    assert!(took >= Duration::from_secs(105) && took < Duration::from_secs(106), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_child_that_a_step_dispatches_is_the_same_in_every_try() {
    let child = || {
        code(|cx, input| {
            Box::pin(async move {
                if !input.is_null() {
                    return Ok(input);
                }
                let agent = cx.agent::<Code>();
                let first = cx
                    .step("dispatches", async || {
                        let first = agent.run::<Code>(json!("in the step")).await?.completed()?;
                        if cx.attempt() == 1 {
                            std::future::pending::<()>().await;
                        }
                        Ok(first)
                    })
                    .await?;
                let second = agent.run::<Code>(json!("after it")).await?.completed()?;
                Ok(json!([first, second]))
            })
        })
    };
    let data = Data::new();
    begin(&data, child()).await;
    let system = data.start(child()).await;
    let ended = end(&system).await.completed().unwrap();
    assert_eq!(ended, json!(["in the step", "after it"]));
    let path = assistant(&system).path().child("Code", &RunId::new("r").unwrap()).unwrap();
    let agent = system.agent_at(&path).unwrap();
    let runs = agent.list(&ghostlight::RunFilter::default(), None, 10).await.unwrap().runs;
    assert_eq!(runs.len(), 2, "{runs:?}");
    // Once more: nothing of it is done again.
    system.crash().await;
    let system = data.start(child()).await;
    assert_eq!(end(&system).await.completed().unwrap(), ended);
}

#[tokio::test(start_paused = true)]
async fn the_order_in_which_select_polls_does_not_matter() {
    let child = || {
        code(|cx, input| {
            Box::pin(async move {
                if let Some(ms) = input.as_u64() {
                    cx.sleep(Duration::from_millis(ms)).await;
                    return Ok(input);
                }
                let agent = cx.agent::<Code>();
                let mut won = Vec::new();
                for _ in 0..4 {
                    // Polled in an order of chance, on purpose.
                    won.push(tokio::select! {
                        () = cx.sleep(Duration::from_millis(30)) => json!("short"),
                        () = cx.sleep(Duration::from_millis(60)) => json!("long"),
                    });
                    won.push(tokio::select! {
                        end = agent.run::<Code>(json!(40)) => end?.completed()?,
                        end = agent.run::<Code>(json!(70)) => end?.completed()?,
                    });
                }
                Ok(json!(won))
            })
        })
    };
    for crash_at in (0..300).step_by(10) {
        let data = Data::new();
        let system = data.start(child()).await;
        assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
        tokio::time::sleep(Duration::from_millis(crash_at)).await;
        system.crash().await;
        let system = data.start(child()).await;
        let won = end(&system).await.completed().unwrap();
        let first = |at: usize| won[at].clone();
        for at in (0..8).step_by(2) {
            assert_eq!(
                (first(at), first(at + 1)),
                (json!("short"), json!(40)),
                "{crash_at}: {won}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_that_never_rests_holds_no_other_result_back() {
    let (done, told) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, wait) = (Arc::clone(&told), Arc::clone(&done));
    let child = code(move |cx, _| {
        let (tell, wait) = (Arc::clone(&tell), Arc::clone(&wait));
        Box::pin(async move {
            let restless = cx.step("restless", async || {
                let mut finished = std::pin::pin!(wait.notified());
                std::future::poll_fn(|cx| {
                    cx.waker().wake_by_ref();
                    finished.as_mut().poll(cx)
                })
                .await;
                Ok(())
            });
            let other = async {
                cx.step("other", async || Ok(())).await?;
                tell.notify_one();
                Ok::<_, RunError>(())
            };
            let (restless, other) = tokio::join!(restless, other);
            restless.and(other)?;
            Ok(json!(null))
        })
    });
    let data = Data::new();
    let system = data.start(child).await;
    let run = assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
    told.notified().await;
    done.notify_one();
    run.outcome().await.unwrap().completed().unwrap();
}

/// A run whose child's id is taken with another input, and that goes on all the same.
fn refused() -> Code {
    code(|cx, input| {
        Box::pin(async move {
            if !input.is_null() {
                return Ok(input);
            }
            let agent = cx.agent::<Code>();
            agent.run::<Code>(json!(1)).id("kid").await?.completed()?;
            let error = agent.run::<Code>(json!(2)).id("kid").await.unwrap_err();
            assert!(
                matches!(&error, Error::DifferentInput { run_id } if run_id == "kid"),
                "{error}"
            );
            cx.step("after it", async || Ok(())).await?;
            if cx.attempt() == 1 {
                std::future::pending::<()>().await;
            }
            // The second entry is told the recorded error, not a new one: the id is free by now.
            Ok(json!(error.to_string()))
        })
    })
}

#[tokio::test(start_paused = true)]
async fn an_error_that_the_code_has_handled_is_told_again() {
    let data = Data::new();
    begin(&data, refused()).await;
    let system = data.start(refused()).await;
    let said = end(&system).await.completed().unwrap();
    assert!(said.as_str().unwrap().contains("another input"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_dispatch_that_cannot_be_made_is_refused_again_in_its_place() {
    let child = || {
        code(|cx, input| {
            Box::pin(async move {
                if !input.is_null() {
                    return Ok(input);
                }
                let agent = cx.agent::<Code>();
                let mut deep = json!(1);
                for _ in 0..200 {
                    deep = json!([deep]);
                }
                // Neither is recorded: what makes it fail is the call itself, which comes again.
                let deep = agent.run::<Code>(deep).await.unwrap_err();
                assert!(matches!(deep, Error::TooDeep { .. }), "{deep}");
                let id = agent.start::<Code>(json!(1)).id("x".repeat(1000)).await.err().unwrap();
                // Both have taken their numbers, so that this one is the same in every entry.
                let kid = agent.run::<Code>(json!(2)).await?.completed()?;
                cx.step("after it", async || Ok(())).await?;
                if cx.attempt() == 1 {
                    std::future::pending::<()>().await;
                }
                Ok(json!([deep.to_string(), id.to_string(), kid]))
            })
        })
    };
    let data = Data::new();
    begin(&data, child()).await;
    let system = data.start(child()).await;
    let said = end(&system).await.completed().unwrap();
    assert_eq!(said[2], json!(2), "{said}");
    let path = assistant(&system).path().child("Code", &RunId::new("r").unwrap()).unwrap();
    let agent = system.agent_at(&path).unwrap();
    let runs = agent.list(&ghostlight::RunFilter::default(), None, 10).await.unwrap().runs;
    assert_eq!(runs.len(), 1, "{runs:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_by_the_cap_is_told_again() {
    let child = || {
        code(|cx, input| {
            Box::pin(async move {
                if !input.is_null() {
                    cx.cancelled().await;
                    return Ok(input);
                }
                let agent = cx.agent::<Code>();
                let _first = agent.start::<Code>(json!("first")).id("first").await?;
                let error = agent.run::<Code>(json!("second")).id("second").await.unwrap_err();
                assert!(matches!(error, Error::CapExceeded { limit: 1 }), "{error}");
                let error = agent.start::<Code>(json!("third")).id("third").await.unwrap_err();
                assert!(matches!(error, Error::CapExceeded { limit: 1 }), "{error}");
                agent.cancel("first", "makes room").await?;
                cx.step("after it", async || Ok(())).await?;
                if cx.attempt() == 1 {
                    std::future::pending::<()>().await;
                }
                Ok(json!("went on"))
            })
        })
        .settings(AgentSettings {
            max_concurrent_runs: Some(1),
            at_cap: AtCap::Refuse,
            ..AgentSettings::default()
        })
    };
    let data = Data::new();
    begin(&data, child()).await;
    let system = data.start(child()).await;
    assert_eq!(end(&system).await.completed().unwrap(), json!("went on"));
}

/// A slow disk is no reason to judge code that waits for it: it goes on to ask for what comes next.
async fn a_source_has_grown(latency: Duration, joined: bool) {
    let make = |available: u64| {
        code(move |cx, _| {
            Box::pin(async move {
                for n in cx.source_offset("s")..available {
                    cx.emit_from("s", n + 1, n).await?;
                }
                let step = async || cx.step("k", async || Ok(())).await;
                if joined {
                    let new = async {
                        cx.flush().await;
                        step().await
                    };
                    tokio::try_join!(cx.step("new", async || Ok(())), new)?;
                } else {
                    cx.flush().await;
                    step().await?;
                }
                if cx.attempt() == 1 {
                    std::future::pending::<()>().await;
                }
                Ok(json!("end"))
            })
        })
    };
    let data = Data::new();
    begin(&data, make(1)).await;
    let disk = data.disk(None).latency(latency);
    let child = make(2);
    let system = data.on(&disk).agent(crate::support::Assistant).child(child).start().await;
    assert_eq!(end(&system.unwrap()).await.completed().unwrap(), json!("end"));
}

#[tokio::test(start_paused = true)]
async fn code_that_waits_for_the_disk_while_it_is_entered_again_is_not_judged() {
    a_source_has_grown(Duration::ZERO, false).await;
    a_source_has_grown(Duration::from_secs(120), false).await;
    a_source_has_grown(Duration::from_secs(120), true).await;
}
