use ghostlight::prelude::*;

struct Connection;

async fn code(cx: &RunContext) -> Result<Connection, RunError> {
    cx.step("connect", async || Ok(Connection)).await
}

fn main() {}
