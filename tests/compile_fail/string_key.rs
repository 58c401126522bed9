//~ String` is no step key
//~ use a literal, (literal, number) or (literal, &str)
//~ a key computed at run time must be the same in every attempt; if it is, say so with `Key::dynamic(s)`

use ghostlight::prelude::*;

async fn code(cx: &RunContext, part: u64) -> Result<u64, RunError> {
    cx.step(format!("part {part}"), async || Ok(part)).await
}

fn main() {}
