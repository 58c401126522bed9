//~ expected a `FnOnce()` closure
//~ in a closure with no arguments

use ghostlight::prelude::*;

async fn code(cx: &RunContext) -> Result<u64, RunError> {
    cx.step("seven", async { Ok(7) }).await
}

fn main() {}
