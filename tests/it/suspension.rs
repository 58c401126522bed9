//! A run that waits for nothing but time leaves memory.

use ghostlight::prelude::*;

struct Sleeper;
impl Agent for Sleeper {
    const TYPE: &'static str = "Sleeper";
}
impl Child for Sleeper {
    type Input = bool;
    type Output = u32;

    async fn run(&self, cx: &RunContext, raced: bool) -> Result<u32, RunError> {
        if raced {
            tokio::select! {
                never = cx.step("loser", std::future::pending::<Result<(), RunError>>) => never?,
                () = cx.sleep(Duration::from_millis(100)) => {}
            }
        }
        cx.sleep(Duration::from_secs(3600)).await;
        Ok(cx.attempt())
    }
}

#[tokio::test(start_paused = true)]
async fn a_sleeping_run_leaves_memory_and_comes_back() {
    let system = System::in_memory().child(Sleeper).start().await.unwrap();
    let agent = system.agent::<Sleeper>("a").unwrap();
    for raced in [false, true] {
        let run = agent.start::<Sleeper>(raced).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(run.inspect().await.unwrap().unwrap().run.suspended, "raced: {raced}");
        assert_eq!(system.live_runs(), 0);
        assert_eq!(run.outcome().await.unwrap().completed().unwrap(), 1, "the same attempt");
    }
}
