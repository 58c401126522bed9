//! What a run costs, one sync to start, one a step, one to end; and what is told before a sync.

use ghostlight::prelude::*;

use crate::support::code::{Code, Data, assistant, code};
use crate::support::{Adder, Assistant};

#[tokio::test(start_paused = true)]
async fn one_sync_to_start_one_a_step_one_to_end() {
    let system = System::in_memory().agent(Assistant).child(Adder).start().await.unwrap();
    let agent = system.agent::<Assistant>("a").unwrap();
    // The agent comes into memory, which only reads.
    assert!(!agent.has_run::<Adder>("r").await.unwrap());
    let before = system.commits();
    let steps = 10;
    let numbers: Vec<u64> = (0..steps).collect();
    agent.run::<Adder>(numbers).id("r").await.unwrap().completed().unwrap();
    let after = system.commits();
    assert_eq!(after.groups - before.groups, steps + 2);
    assert_eq!(after.commits - before.commits, steps + 2);
}

#[tokio::test(start_paused = true)]
async fn an_inspection_counts_frames_that_no_crash_can_take_back() {
    let emits = code(|cx, _| {
        Box::pin(async move {
            cx.emit("x").await?;
            std::future::pending().await
        })
    });
    let data = Data::new();
    let disk = data.disk(None).latency(Duration::from_millis(50));
    let system = data.on(&disk).agent(Assistant).child(emits).start().await.unwrap();
    assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    let seen = assistant(&system).inspect("r").await.unwrap().unwrap().next_sequence;
    assert_eq!(seen, 1, "the chunk is on its way to the disk");
    tokio::time::sleep(Duration::from_millis(200)).await;
    let seen = assistant(&system).inspect("r").await.unwrap().unwrap().next_sequence;
    assert_eq!(seen, 2);
}
