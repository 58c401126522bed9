//! A ticker prints more lines than a reader may leave unread, and readers fall behind, go, and come back.

use std::time::Duration;

use ghostlight::prelude::*;
use ghostlight::{AgentHandle, Limits, SystemBuilder};

use super::unless_changed;
use crate::{Fault, Life, Scenario, World};

/// The shipped scenario of readers that are slower than the run which they read, with the limit of unread
/// frames that systems have by default.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tails;

/// More than an observer may leave unread.
const LINES: u64 = 1_100;
/// How many lines the ticker prints at once.
const AT_ONCE: u64 = 220;

struct Ticker;

impl Agent for Ticker {
    const TYPE: &'static str = "Ticker";
}

impl Child for Ticker {
    type Input = u64;
    type Output = u64;

    async fn run(&self, cx: &RunContext, lines: u64) -> Result<u64, RunError> {
        for line in 0..lines {
            cx.emit(json!(line)).await?;
            if (line + 1) % AT_ONCE == 0 {
                cx.flush().await;
            }
        }
        // Those who have left come back before it ends.
        cx.sleep(Duration::from_secs(60)).await;
        cx.milestone("printed", json!(lines)).await?;
        Ok(lines)
    }
}

/// Reads the whole tape: pauses after the first frame until all is printed, and leaves after some.
async fn read(paper: &AgentHandle<Ticker>, leave: u64) -> Result<u64, RunError> {
    let mut frames = 0;
    let mut after = After::START;
    'away: loop {
        let mut tail = paper.tail("tape", after).await?;
        while let Some(frame) = tail.next().await {
            let frame = frame?;
            assert_eq!(frame.sequence, frames);
            frames += 1;
            if frames == 1 {
                tokio::time::sleep(Duration::from_secs(30)).await;
            }
            if frames == leave {
                after = After::number(frame.sequence);
                tokio::time::sleep(Duration::from_secs(3)).await;
                continue 'away;
            }
        }
        return Ok(frames);
    }
}

impl Scenario for Tails {
    fn name(&self) -> String {
        "tail".into()
    }

    fn agents(&self, system: SystemBuilder, _: &World) -> SystemBuilder {
        system.limits(Limits::default()).child(Ticker)
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        let paper = life.agent::<Ticker>("paper")?;
        let tape = paper.start::<Ticker>(LINES).id("tape").await?;
        let (slow, away) = tokio::try_join!(read(&paper, u64::MAX), read(&paper, LINES / 2))?;
        assert_eq!(slow, away);
        let printed = tape.outcome().await?;
        life.world().promise("tape", &printed);
        life.world().promise("frames", slow);
        unless_changed(life, printed, &LINES)
    }

    fn tolerates(&self, fault: Fault) -> bool {
        matches!(fault, Fault::Cancel | Fault::PanicChild | Fault::StallChild(_))
    }
}
