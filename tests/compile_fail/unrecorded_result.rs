//~ `Connection` cannot be recorded as the result of a step
//~ derive `serde::Serialize` and `serde::Deserialize` for it; results own their data

use ghostlight::prelude::*;

struct Connection;

async fn code(cx: &RunContext) -> Result<Connection, RunError> {
    cx.step("connect", async || Ok(Connection)).await
}

fn main() {}
