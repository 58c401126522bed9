//~ function is expected to take 4 arguments, but it takes 3 arguments
//~ Callbacks::<A>::on_run_finish`

use ghostlight::prelude::*;

struct Assistant;
impl Agent for Assistant {
    const TYPE: &'static str = "Assistant";

    fn callbacks(callbacks: &mut Callbacks<Self>) {
        callbacks.on_run_finish(Self::finished);
    }
}
impl Assistant {
    async fn finished(&self, _cx: &AgentContext, _run: RunInfo) -> Result<(), RunError> {
        Ok(())
    }
}

fn main() {}
