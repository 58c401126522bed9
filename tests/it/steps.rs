use ghostlight::prelude::*;
use ghostlight::testing::{Point, TestSystem};

use crate::support::{Adder, Assistant};

#[tokio::test(start_paused = true)]
async fn a_run_returns_its_output() {
    let system = System::in_memory().agent(Assistant).child(Adder).start().await.unwrap();
    let assistant = system.agent::<Assistant>("a").unwrap();
    let sum = assistant.run::<Adder>(vec![1, 2, 3]).await.unwrap().completed().unwrap();
    assert_eq!(sum, 6);
}

#[tokio::test(start_paused = true)]
async fn a_step_runs_once_across_a_crash() {
    let mut system = TestSystem::new(7).agent(Assistant).child(Adder).start().await.unwrap();
    let assistant = system.agent::<Assistant>("a").unwrap();
    let crash = system.crash_after(Point::step(("add", 1)));
    let run = assistant.start::<Adder>(vec![1, 2, 3, 4]).id("r").await.unwrap();
    crash.await.unwrap();
    drop(run);
    let assistant = system.agent::<Assistant>("a").unwrap();
    let run = assistant.attach::<Adder>("r").await.unwrap().unwrap();
    assert_eq!(run.outcome().await.unwrap().completed().unwrap(), 10);
    for at in 0..4 {
        assert_eq!(system.executions("r", ("add", at)), 1, "step {at}");
    }
    assert_eq!(run.inspect().await.unwrap().unwrap().run.attempt, 2);
}
