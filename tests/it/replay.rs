//! Code that depends on what is not recorded is found without a system.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use ghostlight::prelude::*;
use ghostlight::testing::{ReplayError, replay_check, replay_check_fresh};

use crate::support::code::{Code, code};

async fn check(child: Code) -> Result<Value, ReplayError> {
    replay_check(&child, json!(3)).await
}

#[tokio::test(start_paused = true)]
async fn code_that_depends_on_its_journal_passes() {
    let executed = Arc::new(AtomicU32::new(0));
    let counts = Arc::clone(&executed);
    let child = code(move |cx, input| {
        let counts = Arc::clone(&counts);
        Box::pin(async move {
            let mut sum = 0;
            for part in 0..input.as_u64().unwrap_or(0) {
                sum += cx
                    .step(("part", part), async || {
                        // Another result each time: the first one stands.
                        Ok(u64::from(counts.fetch_add(1, Ordering::Relaxed)) + part)
                    })
                    .await?;
                cx.emit(json!({ "part": part })).await?;
                cx.progress(Progress::of(part, 3));
            }
            cx.milestone("summed", json!(sum)).await?;
            cx.state().set("sum", &sum).await?;
            let failed = cx.step("fails", async || Err::<(), _>(RunError::new("no"))).await;
            assert!(failed.is_err());
            let first = tokio::select! {
                biased;
                () = cx.sleep(Duration::from_secs(30)) => "sleep",
                done = cx.step("slow", async || {
                    tokio::time::sleep(Duration::from_secs(20)).await;
                    Ok(())
                }) => done.map(|()| "step")?,
            };
            Ok(json!([sum, first]))
        })
    });
    assert_eq!(check(child).await.unwrap(), json!([6, "step"]));
    assert!(executed.load(Ordering::Relaxed) > 3, "the code is entered again");
}

#[tokio::test(start_paused = true)]
async fn a_variable_that_a_step_changes_is_found() {
    let child = code(|cx, _| {
        Box::pin(async move {
            let sum = Mutex::new(0);
            for part in 0..3u64 {
                cx.step(("part", part), async || {
                    *sum.lock().unwrap() += part + 1;
                    Ok(())
                })
                .await?;
            }
            Ok(json!(sum.into_inner()?))
        })
    });
    let found = check(child).await.unwrap_err();
    let ReplayError::Differs { after, before, now } = &found else { panic!("{found}") };
    let parts = (after.as_str(), before.as_str(), now.as_str());
    assert_eq!(parts, ("step \"part#0\"", "returned 6", "returned 5"));
}

#[tokio::test(start_paused = true)]
async fn code_that_changes_its_mind_is_found() {
    for changes in ["milestone", "step"] {
        let entries = Arc::new(AtomicU32::new(0));
        let child = code(move |cx, _| {
            let first = entries.fetch_add(1, Ordering::Relaxed) == 0;
            Box::pin(async move {
                let name = if first { "first" } else { "again" };
                cx.step("a", async || Ok(())).await?;
                match changes {
                    "milestone" => cx.milestone(name, json!(null)).await?,
                    _ => cx.step(Key::dynamic(name), async || Ok(())).await?,
                }
                cx.step("b", async || Ok(())).await?;
                Ok(json!(null))
            })
        });
        let found = check(child).await.unwrap_err();
        assert!(matches!(found, ReplayError::Differs { .. }), "{found}");
        assert!(found.to_string().contains("again"), "{found}");
    }
}

#[tokio::test(start_paused = true)]
async fn code_that_does_not_fit_its_log_is_found() {
    let entries = Arc::new(AtomicU32::new(0));
    let child = code(move |cx, _| {
        let late = entries.fetch_add(1, Ordering::Relaxed) > 1;
        Box::pin(async move {
            // The second entry is as the first one was; the third one forgets what came first.
            if !late {
                cx.milestone("early", json!(null)).await?;
            }
            cx.milestone("late", json!(null)).await?;
            Ok(json!(null))
        })
    });
    let found = check(child).await.unwrap_err();
    assert!(matches!(found, ReplayError::Mismatch { .. }), "{found}");
}

#[tokio::test(start_paused = true)]
async fn what_is_a_steps_own_business_passes() {
    let tried = Arc::new(AtomicU32::new(0));
    let child = code(move |cx, _| {
        let tried = Arc::clone(&tried);
        Box::pin(async move {
            let nap = |key: &'static str, ms| {
                cx.step(key, async move || {
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                    Ok(())
                })
            };
            // A step that is not executed again takes no time: what follows it comes earlier.
            let (one, other) = tokio::join!(nap("long", 30), async {
                nap("short", 20).await?;
                nap("next", 20).await
            });
            one.and(other)?;
            cx.step("talks", async || {
                for n in 0..3 {
                    cx.emit(json!(n)).await?;
                }
                Ok(())
            })
            .await?;
            let policy = Retry { tries_max: 5, ..Retry::default() };
            cx.step_retry("retried", policy, async || {
                match tried.fetch_add(1, Ordering::Relaxed) {
                    n if n % 3 == 2 => Ok(()),
                    _ => Err(RunError::new("not yet")),
                }
            })
            .await?;
            Ok(json!("end"))
        })
    });
    assert_eq!(check(child).await.unwrap(), json!("end"));
}

#[tokio::test(start_paused = true)]
async fn data_that_depends_on_chance_is_found() {
    for records in ["milestone", "chunk", "state"] {
        let entries = Arc::new(AtomicU32::new(0));
        let child = code(move |cx, _| {
            let chance = entries.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                match records {
                    "milestone" => cx.milestone("made", json!({ "by": chance })).await?,
                    "chunk" => cx.emit(json!(chance)).await?,
                    _ => cx.state().set("by", &chance).await?,
                }
                // Nothing that follows depends on it.
                cx.step("a", async || Ok(())).await?;
                Ok(json!(null))
            })
        });
        let found = check(child).await.unwrap_err();
        let ReplayError::Differs { after, before, now } = &found else { panic!("{found}") };
        assert_eq!(after, "its beginning");
        assert!(before.contains(records) && now.contains(records), "{found}");
    }
}

/// Keeps in a field what a step has found out.
#[derive(Default)]
struct Forgetful {
    found: Mutex<Option<u32>>,
}

impl Agent for Forgetful {
    const TYPE: &'static str = "Forgetful";
}

impl Child for Forgetful {
    type Input = ();
    type Output = u32;

    async fn run(&self, cx: &RunContext, (): ()) -> Result<u32, RunError> {
        cx.step("find", async || {
            *self.found.lock().unwrap() = Some(7);
            Ok(())
        })
        .await?;
        cx.step("go on", async || Ok(())).await?;
        Ok(self.found.lock().unwrap().unwrap_or(0))
    }
}

#[tokio::test(start_paused = true)]
async fn a_field_that_a_step_changes_is_found_in_a_fresh_agent() {
    let found = replay_check_fresh(Forgetful::default, ()).await.unwrap_err();
    let ReplayError::Differs { after, before, now } = &found else { panic!("{found}") };
    let parts = (after.as_str(), before.as_str(), now.as_str());
    assert_eq!(parts, ("step \"find\"", "returned 7", "returned 0"));
    // The field of an agent that is used again still has it: that is what the other check cannot see.
    assert_eq!(replay_check(&Forgetful::default(), ()).await.unwrap(), 7);
}
