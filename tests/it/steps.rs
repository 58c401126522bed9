use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::join_all;
use ghostlight::Error;
use ghostlight::prelude::*;
use ghostlight::testing::{Point, TestSystem};

use crate::support::code::{Code, Data, assistant, code, end};
use crate::support::{Adder, Assistant};

#[tokio::test(start_paused = true)]
async fn a_run_returns_its_output() {
    let system = System::in_memory().agent(Assistant).child(Adder).start().await.unwrap();
    let assistant = system.agent::<Assistant>("a").unwrap();
    let sum = assistant.run::<Adder>(vec![1, 2, 3]).await.unwrap().completed().unwrap();
    assert_eq!(sum, 6);
}

#[tokio::test(start_paused = true)]
async fn a_step_runs_once_across_a_crash() {
    let mut system = TestSystem::new(7).agent(Assistant).child(Adder).start().await.unwrap();
    let assistant = system.agent::<Assistant>("a").unwrap();
    let crash = system.crash_after(Point::step(("add", 1)));
    let run = assistant.start::<Adder>(vec![1, 2, 3, 4]).id("r").await.unwrap();
    crash.await.unwrap();
    drop(run);
    let assistant = system.agent::<Assistant>("a").unwrap();
    let run = assistant.attach::<Adder>("r").await.unwrap().unwrap();
    assert_eq!(run.outcome().await.unwrap().completed().unwrap(), 10);
    for at in 0..4 {
        assert_eq!(system.executions("r", ("add", at)), 1, "step {at}");
    }
    assert_eq!(run.inspect().await.unwrap().unwrap().run.attempt, 2);
}

/// Reports between two steps, of which the second takes an hour, and after both.
fn reporter() -> Code {
    code(|cx, _| {
        Box::pin(async move {
            cx.progress(Progress::fraction(0.25));
            cx.step("a", async || Ok(())).await?;
            cx.progress(Progress::fraction(1.0).message("a is done"));
            cx.step("b", async || {
                tokio::time::sleep(Duration::from_secs(3600)).await;
                Ok(())
            })
            .await?;
            cx.progress(Progress::fraction(1.0).message("b is done"));
            Ok(json!(null))
        })
    })
}

#[tokio::test(start_paused = true)]
async fn progress_that_a_crash_has_lost_is_reported_again_and_no_other() {
    let mut system = TestSystem::new(7).agent(Assistant).child(reporter()).start().await.unwrap();
    let message = async |system: &TestSystem| {
        let assistant = system.agent::<Assistant>("a").unwrap();
        let inspection = assistant.inspect("r").await.unwrap().unwrap();
        inspection.progress.map(|progress| progress["message"].clone())
    };
    let assistant = system.agent::<Assistant>("a").unwrap();
    let crash = system.crash_after(Point::step("a"));
    assistant.start::<Code>(json!(null)).id("r").await.unwrap();
    crash.await.unwrap();
    system.advance(Duration::from_secs(60)).await;
    assert_eq!(message(&system).await, Some(json!("a is done")));

    // The log has it now.
    let frames = async |system: &TestSystem| {
        let assistant = system.agent::<Assistant>("a").unwrap();
        assistant.inspect("r").await.unwrap().unwrap().next_sequence
    };
    let before = frames(&system).await;
    system.crash().await.unwrap();
    system.advance(Duration::from_secs(60)).await;
    assert_eq!(frames(&system).await, before);

    // Code that returns right after it was told the last result never stands still again.
    let crash = system.crash_after(Point::step("b"));
    crash.await.unwrap();
    system.advance(Duration::from_secs(60)).await;
    assert_eq!(message(&system).await, Some(json!("b is done")));
}

#[tokio::test(start_paused = true)]
async fn a_step_error_of_any_length_is_recorded_and_no_try_is_lost() {
    let executed = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&executed);
    let child = code(move |cx, _| {
        let count = Arc::clone(&count);
        Box::pin(async move {
            let body = async || {
                count.fetch_add(1, Ordering::Relaxed);
                Err::<(), _>(RunError::new("e".repeat(40_000)).kind("long"))
            };
            let error = cx.step("fails", body).await.unwrap_err();
            Ok(json!([error.message(), error.kind_str(), cx.attempt()]))
        })
    });
    let told = end(&Data::new().start(child).await).await.completed().unwrap();
    let message = told[0].as_str().unwrap();
    assert!(message.len() <= 4096 && message.contains("40000 bytes"), "{message}");
    assert_eq!((&told[1], &told[2]), (&json!("long"), &json!(1)));
    assert_eq!(executed.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn many_long_names_fit_one_commit() {
    let executed = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&executed);
    let child = code(move |cx, _| {
        let count = Arc::clone(&count);
        Box::pin(async move {
            let step = |n: u64| {
                let key = Key::dynamic(format!("{n:0256}"));
                let count = &count;
                cx.step(key, move || async move { Ok(count.fetch_add(1, Ordering::Relaxed)) })
            };
            let results = join_all((0..400).map(step)).await;
            for n in 0..400 {
                cx.emit_from(&format!("{n:0256}"), 1, n).await?;
            }
            cx.flush().await;
            Ok(json!([results.iter().filter(|result| result.is_ok()).count(), cx.attempt()]))
        })
    });
    let told = end(&Data::new().start(child).await).await.completed().unwrap();
    assert_eq!(told, json!([400, 1]));
    assert_eq!(executed.load(Ordering::Relaxed), 400);
}

#[tokio::test(start_paused = true)]
async fn a_name_over_256_bytes_is_refused() {
    let child = code(|cx, _| {
        Box::pin(async move {
            let name = "k".repeat(257);
            let step = cx.step(Key::dynamic(&*name), async || Ok(())).await.unwrap_err();
            let source = cx.emit_from(&name, 1, "chunk").await.unwrap_err();
            assert!(step.is_permanent() && source.is_permanent());
            Ok(json!([step.kind_str(), source.kind_str()]))
        })
    });
    let told = end(&Data::new().start(child).await).await.completed().unwrap();
    assert_eq!(told, json!(["step-key", "too-large"]));
}

#[tokio::test(start_paused = true)]
async fn a_report_over_the_limit_of_a_chunk_is_dropped() {
    let child = code(|cx, _| {
        Box::pin(async move {
            cx.progress(Progress::fraction(0.5));
            cx.progress(Progress::fraction(0.7).data(json!("d".repeat(300_000))));
            Ok(json!(null))
        })
    });
    let system = Data::new().start(child).await;
    end(&system).await.completed().unwrap();
    let progress = assistant(&system).inspect("r").await.unwrap().unwrap().progress.unwrap();
    assert_eq!(progress["fraction"], json!(0.5), "the one before it stands");
}

#[tokio::test(start_paused = true)]
async fn what_is_nested_too_deeply_to_be_read_back_is_not_recorded() {
    let deep = |levels| (1..levels).fold(json!([]), |inner, _| json!([inner]));
    let child = code(move |cx, input| {
        Box::pin(async move {
            // A run inside: what it returns is recorded here, with something around it.
            if let Some(levels) = input.as_u64() {
                return Ok(deep(levels));
            }
            let mut told = Vec::new();
            for levels in [100, 101, 200] {
                let child = cx.agent::<Code>().run::<Code>(json!(levels)).await?;
                told.push(match child.completed() {
                    Ok(output) => (output == deep(levels)).to_string(),
                    Err(NotCompleted::Error(failure)) => failure.kind.unwrap_or_default(),
                    Err(other) => other.to_string(),
                });
                let key = ("deep", levels);
                let step = cx.step(key, async || Ok(deep(levels))).await.map(|_| ());
                let all = [
                    step,
                    cx.emit(deep(levels)).await,
                    cx.milestone("m", deep(levels)).await,
                    cx.state().set("s", deep(levels)).await,
                ];
                for result in all {
                    told.push(match result {
                        Ok(()) => "ok".to_owned(),
                        Err(error) => error.kind_str().unwrap_or_default().to_owned(),
                    });
                }
            }
            let state: Option<serde_json::Value> = cx.state().get("s")?;
            assert_eq!(state, Some(deep(100)));
            Ok(json!(told))
        })
    });
    let system = Data::new().start(child).await;
    let told = end(&system).await.completed().unwrap();
    let refused = ["too-deep"; 10];
    let expected = ["true", "ok", "ok", "ok", "ok"].iter().chain(&refused).collect::<Vec<_>>();
    assert_eq!(told, json!(expected));
    let agent = assistant(&system);
    let seen = agent.inspect("r").await.unwrap().unwrap();
    assert_eq!(seen.milestones[0].data, Some(deep(100)));
    let refused = agent.start::<Code>(deep(101)).id("deep").await.unwrap_err();
    assert!(matches!(refused, Error::TooDeep(_)), "{refused}");
    assert_eq!(refused.to_string(), "the run's input is nested more than 100 levels deep");
    assert!(agent.inspect("deep").await.unwrap().is_none());
    assert!(agent.start::<Code>(deep(100)).id("deep").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_value_of_any_depth_is_refused() {
    fn deep() -> Value {
        (0..2_000).fold(json!(1), |inner, _| Value::Array(vec![inner]))
    }
    let child = code(|cx, how| {
        Box::pin(async move {
            let refused = match how.as_str().unwrap_or_default() {
                "output" => return Ok(deep()),
                "step" => cx.step("s", async || Ok(deep())).await.err(),
                "chunk" => cx.emit(deep()).await.err(),
                "milestone" => cx.milestone("m", deep()).await.err(),
                "state" => cx.state().set("s", deep()).await.err(),
                _ => {
                    let input = cx.agent::<Code>().run::<Code>(deep()).await.err();
                    let preview = cx.agent::<Code>().run::<Code>(json!(0)).input_preview(deep());
                    assert!(matches!(input, Some(Error::TooDeep(_))), "{input:?}");
                    assert!(matches!(preview.await, Err(Error::TooDeep(_))));
                    cx.progress(Progress::fraction(0.5).data(deep()));
                    return Ok(json!("too-deep"));
                }
            };
            Ok(json!(refused.and_then(|error| error.kind_str().map(str::to_owned))))
        })
    });
    let system = Data::new().start(child).await;
    for how in ["output", "step", "chunk", "milestone", "state", "input"] {
        let run = assistant(&system).run::<Code>(json!(how));
        let told = match run.await.unwrap() {
            Outcome::Completed(told) => told,
            end => json!(crate::bench::failed(end).kind),
        };
        assert_eq!(told, json!("too-deep"), "{how}");
    }
}
