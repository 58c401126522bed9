//~ this function is no finish hook of `Assistant`
//~ a finish hook is `async fn name(&self, cx: &AgentContext, run: RunInfo, end: Outcome<serde_json::Value>) -> Result<(), RunError>`

use ghostlight::prelude::*;

struct Assistant;
impl Agent for Assistant {
    const TYPE: &'static str = "Assistant";

    fn callbacks(callbacks: &mut Callbacks<Self>) {
        callbacks.on_run_finish("finished");
    }
}

fn main() {}
