//! Handles from outside that the code of a run uses: it does not matter which handle that is.

use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use ghostlight::prelude::*;
use ghostlight::{Error, RunFilter, testing};
use tokio::time::timeout;

use crate::support::Assistant;
use crate::support::code::{Code, Data, assistant, code};

const LIMIT: Duration = Duration::from_secs(24 * 3600);

/// The handle of `Assistant:b`, of the system that runs now.
#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Option<AgentHandle<Assistant>>>>);

impl Captured {
    fn get(&self) -> AgentHandle<Assistant> {
        self.0.lock().unwrap().clone().unwrap()
    }

    async fn start(&self, data: &Data, child: Code) -> System {
        // No code is entered again before there is a handle: that waits for the disk.
        *self.0.lock().unwrap() = None;
        let disk = data.disk(None).latency(Duration::from_millis(1));
        let system = data.on(&disk).agent(Assistant).child(child).start().await.unwrap();
        *self.0.lock().unwrap() = Some(system.agent("b").unwrap());
        system
    }
}

async fn ended(run: &Run<Code>) -> Result<Value, String> {
    let end = timeout(LIMIT, run.outcome()).await.expect("an end").unwrap();
    end.completed().map_err(|end| format!("{end:?}"))
}

/// A child ends after as many seconds as its input says. The parent uses the handle in a way that its
/// input names, some of them in the middle of a shutdown.
fn user(handle: &Captured) -> Code {
    let handle = handle.clone();
    code(move |cx, input| {
        let handle = handle.clone();
        Box::pin(async move {
            if let Some(seconds) = input.as_u64() {
                cx.sleep(Duration::from_secs(seconds)).await;
                return Ok(json!(seconds));
            }
            let how = input.as_str().unwrap().to_owned();
            let late = Duration::from_millis(3500);
            // Whatever the code sees of a stop, a next start must be able to put right.
            let kid = || handle.get().run::<Code>(json!(30)).id(how.clone());
            match how.as_str() {
                "run" => Ok(kid().await?.completed()?),
                "run-in-step" => cx.step("s", async || Ok(kid().await?.completed()?)).await,
                "run-late" => {
                    cx.step("late", async || {
                        tokio::time::sleep(late).await;
                        Ok(())
                    })
                    .await?;
                    Ok(kid().await?.completed()?)
                }
                "start-late-in-step" => {
                    cx.step("s", async || {
                        tokio::time::sleep(late).await;
                        let run = handle.get().start::<Code>(json!(1)).id(&how).await?;
                        Ok(run.outcome().await?.completed()?)
                    })
                    .await
                }
                "inspect-late" => {
                    cx.step("s", async || {
                        tokio::time::sleep(late).await;
                        Ok(json!(handle.get().inspect("nobody").await?.is_none()))
                    })
                    .await
                }
                "cancel-late" => {
                    cx.step("s", async || {
                        tokio::time::sleep(late).await;
                        handle.get().cancel("nobody", "no").await?;
                        Ok(json!(null))
                    })
                    .await
                }
                "turn-late" => {
                    cx.step("s", async || {
                        tokio::time::sleep(late).await;
                        Ok(json!(handle.get().turn(async |_| "turned").await?))
                    })
                    .await
                }
                "milestone-in-step" | "tail-in-step" => {
                    cx.step("s", async || {
                        let run = handle.get().start::<Code>(json!(30)).id(&how).await?;
                        if how == "milestone-in-step" {
                            let none = run.milestone("none").await;
                            return match none {
                                Err(Error::NoMilestone { .. }) => Ok(json!(null)),
                                other => Err(RunError::new(format!("{other:?}"))),
                            };
                        }
                        let mut tail = run.tail(After::START);
                        while let Some(frame) = tail.next().await {
                            frame?;
                        }
                        Ok(json!(null))
                    })
                    .await
                }
                other => panic!("{other}"),
            }
        })
    })
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_is_no_failure_of_the_code_that_uses_one() {
    let ways = [
        "run",
        "run-in-step",
        "run-late",
        "start-late-in-step",
        "inspect-late",
        "cancel-late",
        "turn-late",
        "milestone-in-step",
        "tail-in-step",
    ];
    for how in ways {
        let (data, handle) = (Data::new(), Captured::default());
        let system = handle.start(&data, user(&handle)).await;
        assistant(&system).start::<Code>(json!(how)).id("r").await.unwrap();
        tokio::time::sleep(Duration::from_secs(3)).await;
        system.shutdown().await;
        let system = handle.start(&data, user(&handle)).await;
        let run = assistant(&system).attach::<Code>("r").await.unwrap().unwrap();
        let end = ended(&run).await;
        assert!(end.is_ok(), "{how}: {end:?}");
    }
}

/// Two branches, one of which dispatches to another agent, and what suspensions and a crash of either
/// agent make of it.
#[tokio::test(start_paused = true)]
async fn branches_with_different_handles_are_told_the_same_again() {
    for crashed in ["Assistant:a/Code:r", "Assistant:b"] {
        for at in [100, 1500, 3000, 9000] {
            let (data, handle) = (Data::new(), Captured::default());
            let system = handle.start(&data, joined(&handle)).await;
            let run = assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
            tokio::time::sleep(Duration::from_millis(at)).await;
            testing::crash_agent(&system, &crashed.parse().unwrap());
            let end = ended(&run).await;
            assert_eq!(end, Ok(json!(["completed", "completed"])), "{crashed} at {at}");
        }
    }
}

fn joined(handle: &Captured) -> Code {
    let handle = handle.clone();
    code(move |cx, input| {
        let handle = handle.clone();
        Box::pin(async move {
            if let Some(ms) = input.as_u64() {
                cx.sleep(Duration::from_millis(ms)).await;
                return Ok(json!(null));
            }
            let branch = async |dispatched: BoxFuture<'_, Result<Run<Code>, Error>>| {
                let run = dispatched.await?;
                cx.sleep(Duration::from_millis(1500)).await;
                Ok::<_, RunError>(run.outcome().await?.status().to_string())
            };
            let theirs = handle.get().start::<Code>(json!(4000)).id("theirs");
            let mine = cx.agent::<Code>().start::<Code>(json!(6000)).id("mine");
            let (theirs, mine) = tokio::join!(branch(theirs.boxed()), branch(mine.boxed()));
            Ok(json!([theirs?, mine?]))
        })
    })
}

#[tokio::test(start_paused = true)]
async fn what_one_was_told_is_told_again_whatever_has_become_of_it() {
    let handle = Captured::default();
    let child = |handle: &Captured| {
        let handle = handle.clone();
        code(move |cx, input| {
            let handle = handle.clone();
            Box::pin(async move {
                if let Some(number) = input.as_u64() {
                    cx.milestone("said", json!(number)).await?;
                    return Ok(json!(number));
                }
                // Two runs dispatch to the same agent, and leave the ids out.
                let first = handle.get().run::<Code>(json!(1)).await?.completed()?;
                let run = handle.get().start::<Code>(json!(2)).await?;
                let said = run.milestone("said").await?.data;
                let ended = run.outcome().await?.completed()?;
                cx.sleep(Duration::from_secs(60)).await;
                Ok(json!([first, said, ended]))
            })
        })
    };
    let data = Data::new();
    let system = handle.start(&data, child(&handle)).await;
    for id in ["r", "s"] {
        assistant(&system).start::<Code>(json!(null)).id(id).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(handle.get().clear(&RunFilter::default()).await.unwrap(), 4);
    system.crash().await;
    let system = handle.start(&data, child(&handle)).await;
    for id in ["r", "s"] {
        let run = assistant(&system).attach::<Code>(id).await.unwrap().unwrap();
        assert_eq!(ended(&run).await, Ok(json!([1, 2, 2])), "{id}");
    }
    assert_eq!(handle.get().list(&RunFilter::default(), None, 9).await.unwrap().runs.len(), 0);
}
