//! What a run costs: one sync to start, one a step, one to end.

use ghostlight::prelude::*;

use crate::support::{Adder, Assistant};

#[tokio::test(start_paused = true)]
async fn one_sync_to_start_one_a_step_one_to_end() {
    let system = System::in_memory().agent(Assistant).child(Adder).start().await.unwrap();
    let assistant = system.agent::<Assistant>("a").unwrap();
    // The agent comes into memory, which only reads.
    assert!(!assistant.has_run::<Adder>("r").await.unwrap());
    let before = system.commits();
    let steps = 10;
    let numbers: Vec<u64> = (0..steps).collect();
    assistant.run::<Adder>(numbers).id("r").await.unwrap().completed().unwrap();
    let after = system.commits();
    assert_eq!(after.groups - before.groups, steps + 2);
    assert_eq!(after.commits - before.commits, steps + 2);
}
