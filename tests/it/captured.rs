//! Handles from outside that the code of a run uses: it does not matter which handle that is.

use std::sync::{Arc, Mutex};

use ghostlight::Error;
use ghostlight::prelude::*;
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
                    cx.step("late", async || Ok(tokio::time::sleep(late).await)).await?;
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
