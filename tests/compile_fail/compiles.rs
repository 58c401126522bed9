//! The control: what is right does compile.

use ghostlight::prelude::*;

async fn code(cx: &RunContext, part: u64) -> Result<u64, RunError> {
    cx.step(("part", part), async || Ok(part)).await?;
    cx.step(Key::dynamic(format!("part {part}")), async || Ok(part)).await
}

fn main() {}
