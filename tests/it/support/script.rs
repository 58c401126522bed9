//! A child that does what its input says, and keeps a ledger of it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use ghostlight::prelude::*;

use super::ledger::Ledger;

/// One thing to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Op {
    /// A step whose body takes some time, and whose result has so many bytes.
    Step {
        key: String,
        ms: u64,
        bytes: usize,
    },
    /// A step that emits so many chunks.
    StepEmits {
        key: String,
        chunks: u32,
    },
    /// A step that fails; the code goes on.
    StepFails {
        key: String,
    },
    /// A step that succeeds after so many failures.
    Retry {
        key: String,
        failures: u32,
    },
    Emit {
        bytes: usize,
    },
    Milestone {
        name: String,
        bytes: usize,
    },
    Progress {
        permille: u32,
    },
    Sleep {
        ms: u64,
    },
    Set {
        key: String,
        bytes: usize,
    },
    /// Both at the same time.
    Both(Vec<Op>, Vec<Op>),
    /// Steps that race, by the time that they take.
    Race {
        key: String,
        ms: Vec<u64>,
    },
    /// A step against a sleep.
    Deadline {
        key: String,
        step_ms: u64,
        sleep_ms: u64,
    },
    /// A child that is awaited.
    Child(Vec<Op>),
    /// A child that is started, and awaited after its milestone.
    Started {
        id: String,
        milestone: String,
        ops: Vec<Op>,
    },
    /// A child whose milestone is waited for with a time limit, and then its end.
    Hears {
        id: String,
        milestone: String,
        within_ms: u64,
        ops: Vec<Op>,
    },
    /// A child against a sleep, and then its end.
    Either {
        id: String,
        sleep_ms: u64,
        ops: Vec<Op>,
    },
    /// The input's filler.
    Filler(String),
    /// Waits until it is cancelled.
    Hang,
}

/// Executes scripts.
pub(crate) struct Script(pub(crate) Arc<Ledger>);

impl Agent for Script {
    const TYPE: &'static str = "Script";
}

impl Child for Script {
    type Input = Vec<Op>;
    type Output = Vec<String>;

    async fn run(&self, cx: &RunContext, ops: Vec<Op>) -> Result<Vec<String>, RunError> {
        self.0.enters(cx.path());
        let told = Told { cx, ledger: &self.0, all: std::sync::Mutex::default() };
        told.execute(&ops).await?;
        Ok(told.all.into_inner()?)
    }

    fn recovery(&self) -> RecoveryPolicy {
        RecoveryPolicy { attempts_max: 0, ..RecoveryPolicy::default() }
    }
}

struct Told<'a> {
    cx: &'a RunContext,
    ledger: &'a Ledger,
    all: std::sync::Mutex<Vec<String>>,
}

impl<'a> Told<'a> {
    fn told(&self, what: String) {
        self.ledger.told(self.cx.path(), &what);
        self.all.lock().unwrap().push(what);
    }

    fn execute<'b>(&'b self, ops: &'b [Op]) -> BoxFuture<'b, Result<(), RunError>> {
        Box::pin(async move {
            for op in ops {
                self.one(op).await?;
            }
            Ok(())
        })
    }

    async fn body(&self, key: &str, ms: u64, bytes: usize) -> Result<String, RunError> {
        self.ledger.executes(self.cx.path(), key);
        if ms > 0 {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
        Ok(format!("{key}{}", "x".repeat(bytes)))
    }

    async fn step(&self, key: &str, ms: u64, bytes: usize) -> Result<String, RunError> {
        let result =
            self.cx.step(Key::dynamic(key), async || self.body(key, ms, bytes).await).await?;
        self.ledger.acknowledged(self.cx.path(), key);
        assert!(result.starts_with(key) && result.len() == key.len() + bytes, "{key}: {result}");
        Ok(key.to_owned())
    }

    async fn one(&self, op: &Op) -> Result<(), RunError> {
        let (cx, run) = (self.cx, self.cx.path());
        match op {
            Op::Step { key, ms, bytes } => {
                let key = self.step(key, *ms, *bytes).await?;
                self.told(key);
            }
            Op::StepEmits { key, chunks } => {
                cx.step(Key::dynamic(key), async || {
                    self.ledger.executes(run, key);
                    for chunk in 0..*chunks {
                        cx.emit(json!({ "type": "data-part", "step": key, "chunk": chunk }))
                            .await?;
                        cx.flush().await;
                    }
                    Ok(())
                })
                .await?;
                self.ledger.acknowledged(run, key);
                self.told(key.clone());
            }
            Op::StepFails { key } => {
                let failed = cx
                    .step(Key::dynamic(key), async || {
                        let times = self.ledger.executes(run, key);
                        // Another text each time: the first one that is durable has to stand.
                        Err::<(), _>(RunError::new(format!("failure {times}")).kind("on-purpose"))
                    })
                    .await
                    .unwrap_err();
                self.ledger.acknowledged(run, key);
                assert_eq!(failed.kind_str(), Some("on-purpose"));
                self.told(format!("{key}: {failed}"));
            }
            Op::Retry { key, failures } => {
                let retry = Retry::times(failures + 1);
                let tries = cx
                    .step_retry(Key::dynamic(key), retry, async || {
                        let times = self.ledger.executes(run, key);
                        match times > *failures {
                            true => Ok(times),
                            false => Err(RunError::new("not yet")),
                        }
                    })
                    .await?;
                self.ledger.acknowledged(run, key);
                assert!(tries > *failures);
                self.told(key.clone());
            }
            Op::Emit { bytes } => {
                cx.emit(json!({ "type": "data-part", "text": "e".repeat(*bytes) })).await?
            }
            Op::Milestone { name, bytes } => {
                cx.milestone(name, json!({ "text": "m".repeat(*bytes) })).await?
            }
            Op::Progress { permille } => {
                cx.progress(Progress::of(u64::from(*permille), 1000).message("on the way"))
            }
            Op::Sleep { ms } => {
                cx.sleep(Duration::from_millis(*ms)).await;
                self.told(format!("slept {ms}"));
            }
            Op::Set { key, bytes } => {
                let before: Option<String> = cx.state().get(key)?;
                self.told(format!("{key} was {:?}", before.map(|text| text.len())));
                cx.state().set(key, "s".repeat(*bytes)).await?;
            }
            Op::Both(left, right) => {
                let (left, right) = tokio::join!(self.execute(left), self.execute(right));
                left.and(right)?;
            }
            Op::Race { key, ms } => {
                let mut race: FuturesUnordered<_> = (0u64..)
                    .zip(ms)
                    .map(|(at, ms)| async move { self.step(&format!("{key}.{at}"), *ms, 0).await })
                    .collect();
                while let Some(done) = race.next().await {
                    self.told(done?);
                }
            }
            Op::Deadline { key, step_ms, sleep_ms } => {
                // Not biased, on purpose: which future is polled first must not matter.
                let told = tokio::select! {
                    done = self.step(key, *step_ms, 0) => done?,
                    () = cx.sleep(Duration::from_millis(*sleep_ms)) => format!("{key} was late"),
                };
                self.told(told);
            }
            Op::Child(ops) => {
                let child = cx.agent::<Script>().run::<Script>(ops.clone()).await?;
                self.told(format!("{child:?}"));
            }
            Op::Started { id, milestone, ops } => {
                let agent = cx.agent::<Script>();
                let child = agent.start::<Script>(ops.clone()).id(id).await?;
                let reached = child.milestone(milestone).await?;
                self.told(format!("{} {}", reached.name, reached.sequence));
                self.told(format!("{:?}", child.outcome().await?));
            }
            Op::Hears { id, milestone, within_ms, ops } => {
                let agent = cx.agent::<Script>();
                let child = agent.start::<Script>(ops.clone()).id(id).await?;
                let within = Duration::from_millis(*within_ms);
                self.told(match child.milestone_within(milestone, within).await {
                    Ok(reached) => format!("{} {}", reached.name, reached.sequence),
                    Err(error) => error.to_string(),
                });
                self.told(format!("{:?}", child.outcome().await?));
            }
            Op::Either { id, sleep_ms, ops } => {
                let agent = cx.agent::<Script>();
                let child = agent.start::<Script>(ops.clone()).id(id).await?;
                // Not biased, on purpose.
                let told = tokio::select! {
                    end = child.outcome() => format!("{:?}", end?),
                    () = cx.sleep(Duration::from_millis(*sleep_ms)) => format!("{id} was late"),
                };
                self.told(told);
                self.told(format!("{:?}", child.outcome().await?));
            }
            Op::Filler(_) => {}
            Op::Hang => {
                cx.cancelled().await;
                // Cleans up by recording more.
                cx.emit(json!({ "type": "data-part", "text": "cleaning up" })).await?;
                std::future::pending::<()>().await;
            }
        }
        Ok(())
    }
}

/// Names for scripts in tests.
pub(crate) mod ops {
    use super::Op;

    pub(crate) fn step(key: &str) -> Op {
        Op::Step { key: key.into(), ms: 0, bytes: 0 }
    }

    pub(crate) fn slow_step(key: &str, ms: u64) -> Op {
        Op::Step { key: key.into(), ms, bytes: 0 }
    }

    pub(crate) fn emit() -> Op {
        Op::Emit { bytes: 10 }
    }

    pub(crate) fn milestone(name: &str) -> Op {
        Op::Milestone { name: name.into(), bytes: 10 }
    }

    pub(crate) fn sleep(ms: u64) -> Op {
        Op::Sleep { ms }
    }

    pub(crate) fn progress(permille: u32) -> Op {
        Op::Progress { permille }
    }
}

/// How many milestones a script reaches by itself.
pub(crate) fn milestones(ops: &[Op]) -> Vec<String> {
    ops.iter()
        .flat_map(|op| match op {
            Op::Milestone { name, .. } => vec![name.clone()],
            Op::Both(left, right) => [milestones(left), milestones(right)].concat(),
            _ => Vec::new(),
        })
        .collect()
}
