//! What a run costs, one sync to start, one a step, one to end; and what is told before a sync.

use futures_util::future::join_all;
use ghostlight::Limits;
use ghostlight::prelude::*;
use ghostlight::protocol::limits::COMMIT_QUEUE_BYTES_MIN;

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

/// How long twenty runs take to make 100 KiB each durable, on a disk that takes a second a group, and
/// how many bytes were committed at once at most.
async fn twenty_emit(commit_queue_bytes_max: usize) -> (Duration, usize) {
    let emits = code(|cx, _| {
        Box::pin(async move {
            cx.emit("x".repeat(100 << 10)).await?;
            cx.flush().await;
            Ok(json!(null))
        })
    });
    let data = Data::new();
    let disk = data.disk(None).latency(Duration::from_secs(1));
    let limits = Limits { commit_queue_bytes_max, ..Limits::default() };
    let system = data.on(&disk).limits(limits).agent(Assistant).child(emits).start().await.unwrap();
    let begin = tokio::time::Instant::now();
    let runs = (0..20).map(async |_| assistant(&system).run::<Code>(json!(null)).await);
    for outcome in join_all(runs).await {
        outcome.unwrap().completed().unwrap();
    }
    (begin.elapsed(), disk.group_bytes_max())
}

#[tokio::test(start_paused = true)]
async fn runs_wait_where_the_commits_of_a_system_are_at_their_limit() {
    let (least, default) = (COMMIT_QUEUE_BYTES_MIN, Limits::default().commit_queue_bytes_max);
    let (roomy, bytes) = twenty_emit(default).await;
    assert!(bytes > 2 * least, "{bytes}");
    let (narrow, bytes) = twenty_emit(least).await;
    assert!(bytes <= least, "{bytes}");
    // Two runs at a time.
    assert!(narrow >= roomy + Duration::from_secs(5), "{narrow:?}, and {roomy:?} with room");

    let limits = Limits { commit_queue_bytes_max: least - 1, ..Limits::default() };
    let refused = System::in_memory().limits(limits).start().await.err().unwrap();
    let text =
        "the limit commit_queue_bytes_max is 262143, and has to be from 262144 to 4294967295";
    assert_eq!(refused.to_string(), text);
}
