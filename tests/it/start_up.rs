//! Starting costs as much as is live, whatever is retained.

use ghostlight::prelude::*;

use crate::bench::bounded;
use crate::support::code::{Code, Data, assistant, code};
use crate::support::disk::Reads;

/// Ends at once when asked to, and otherwise waits for ever.
fn obedient() -> Code {
    code(|_, ends| {
        Box::pin(async move {
            if ends != json!(true) {
                std::future::pending::<()>().await;
            }
            Ok(json!("a result"))
        })
    })
}

/// What the start of a system reads, and all that follows from it, with one live run beside ended ones.
async fn start_beside(ended: usize) -> Reads {
    let data = Data::new();
    let system = data.start(obedient()).await;
    for number in 0..ended {
        // Some are the live run's siblings, and some another agent's.
        let agent = if number % 2 == 0 { "a" } else { "b" };
        let agent = system.agent::<crate::support::Assistant>(agent).unwrap();
        agent.run::<Code>(json!(true)).await.unwrap().completed().unwrap();
    }
    assistant(&system).start::<Code>(json!(null)).id("live").await.unwrap();
    system.crash().await;

    let disk = data.disk(None);
    let builder = data.on(&disk).agent(crate::support::Assistant).child(obedient());
    let system = builder.start().await.unwrap();
    // Agents come into memory in the background, and so does what sweeps.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let reads = disk.reads();
    let live = assistant(&system).inspect("live").await.unwrap().unwrap();
    assert_eq!((live.run.status, live.run.attempt), (Status::Running, 2));
    reads
}

#[tokio::test(start_paused = true)]
async fn a_start_reads_nothing_of_the_runs_that_have_ended() {
    let (few, many) = bounded(async { (start_beside(10).await, start_beside(500).await) }).await;
    assert_eq!(few, many);
    assert_ne!(few, Reads::default());
}
