//! A download is tried again, goes on where its stream was cut, and keeps large results.

use std::time::Duration;

use ghostlight::SystemBuilder;
use ghostlight::prelude::*;
use ghostlight::storage::records::{LogEntry, Origin};

use super::unless_changed;
use crate::effects::Effects;
use crate::{Fault, Invariants, Life, Scenario, World};

/// The shipped scenario of retried steps, durable state, an outside stream, and payloads that take
/// more than one value of the store.
#[derive(Debug, Clone, Copy, Default)]
pub struct Retrying;

const BLOCK: usize = 30 << 10;
const BLOCKS: u64 = 4;

struct Download(Effects);

impl Agent for Download {
    const TYPE: &'static str = "Download";
}

impl Child for Download {
    type Input = String;
    type Output = String;

    async fn run(&self, cx: &RunContext, address: String) -> Result<String, RunError> {
        let policy =
            Retry { tries_max: 6, first: Duration::from_secs(2), max: Duration::from_secs(60) };
        let session = cx
            .step_retry("connect", policy, async || {
                // The outside refuses twice, whatever lies between.
                for refusal in ["first", "second"] {
                    if self.0.perform("refuse", refusal) {
                        return Err(RunError::new("connection refused"));
                    }
                }
                Ok(address.clone())
            })
            .await?;
        let greeted: u64 = cx.state().get("greeted")?.unwrap_or(0);
        cx.state().set("greeted", greeted + 1).await?;

        // The outside keeps the stream: whatever is durable is not asked for again.
        for block in cx.source_offset("blocks")..BLOCKS {
            self.0.perform_unkeyed("block");
            cx.emit_from("blocks", block + 1, "x".repeat(BLOCK)).await?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        cx.flush().await;
        cx.state().set("session", &session).await?;
        let file = cx.step("assemble", async || Ok("y".repeat(BLOCK))).await?;
        cx.milestone("assembled", json!({ "file": file })).await?;
        let greeted: u64 = cx.state().get("greeted")?.unwrap_or(0);
        let session: Option<String> = cx.state().get("session")?;
        assert_eq!((greeted, session), (1, Some(address)), "the state is that of this point");
        Ok(file)
    }
}

impl Scenario for Retrying {
    fn name(&self) -> String {
        "retry".into()
    }

    fn agents(&self, system: SystemBuilder, world: &World) -> SystemBuilder {
        system.child(Download(world.effects()))
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        let disk = life.agent::<Download>("disk")?;
        let file = disk.run::<Download>("a".repeat(BLOCK)).id("file-1").await?;
        life.world().promise("file-1", &file);
        unless_changed(life, file, &"y".repeat(BLOCK))
    }

    fn invariants(&self) -> Invariants {
        Invariants::none().always("no block is missing, and none is there twice", |world| {
            world.durable(|durable| {
                let mut entries = durable.runs().flat_map(|(_, run)| run.frames.values());
                let mut next = 1;
                entries.all(|entry| match entry {
                    LogEntry::Chunk { origin: Origin::Source { end, .. }, .. } => {
                        next += 1;
                        *end == next - 1
                    }
                    _ => true,
                })
            })
        })
    }

    fn tolerates(&self, fault: Fault) -> bool {
        matches!(fault, Fault::Cancel | Fault::PanicChild | Fault::StallChild(_))
    }
}
