//~ `Assistant` cannot be dispatched: it is not a child
//~ implement `Child` for it, with `type Input`, `type Output` and `async fn run`

use ghostlight::prelude::*;

struct Assistant;
impl Agent for Assistant {
    const TYPE: &'static str = "Assistant";
}

async fn code(agent: AgentHandle<Assistant>) {
    let _ = agent.run::<Assistant>(()).await;
}

fn main() {}
