//! What the code of a run asks of agents is answered before the run leaves memory.

use std::sync::{Arc, OnceLock};

use ghostlight::RunFilter;
use ghostlight::prelude::*;

use crate::bench::{Bench, bounded};
use crate::support::Assistant;
use crate::support::code::{Code, Data, assistant, code};
use crate::support::disk::Disk;

const HOURS: Duration = Duration::from_secs(10 * 3600);

/// A run that asks for something of the agent `Assistant:a` beside a long sleep. The other runs end 2 s
/// after they are cancelled.
fn asking(what: &'static str, bench: &Bench, root: &Arc<OnceLock<AgentHandle<Assistant>>>) -> Code {
    let (bench, root) = (bench.clone(), Arc::clone(root));
    code(move |cx, input| {
        let (bench, root) = (bench.clone(), Arc::clone(&root));
        Box::pin(async move {
            if !input.is_null() {
                cx.cancelled().await;
                tokio::time::sleep(Duration::from_secs(2)).await;
                return Ok(json!(null));
            }
            let root = root.get().unwrap();
            let asks = async {
                match what {
                    "cancel" => root.attach::<Code>("kid").await?.unwrap().cancel("enough").await?,
                    "clear" => _ = cx.agent::<Code>().clear(&RunFilter::default()).await?,
                    "inspect" => {
                        for _ in 0..20 {
                            root.inspect("kid").await?;
                        }
                    }
                    "turn" => {
                        let work = tokio::time::sleep(Duration::from_secs(5));
                        root.turn(move |_| work).await?;
                    }
                    other => panic!("{other}"),
                }
                bench.note("answered");
                Ok::<_, RunError>(())
            };
            if what == "clear" {
                let mine = cx.agent::<Code>();
                for id in ["one", "two", "three"] {
                    mine.start::<Code>(json!(1)).id(id).detached().await?;
                }
            }
            let (_, asked) = tokio::join!(cx.sleep(HOURS), asks);
            asked?;
            Ok(json!(null))
        })
    })
}

#[tokio::test(start_paused = true)]
async fn a_run_that_sleeps_stays_in_memory_for_what_it_asks_of_agents() {
    for what in ["cancel", "clear", "inspect", "turn"] {
        bounded(async {
            let (bench, root) = (Bench::default(), Arc::default());
            let data = Data::new();
            let disk: Disk = data.disk(None).latency(Duration::from_millis(10));
            let child = asking(what, &bench, &root);
            let system = data.on(&disk).agent(Assistant).child(child).start().await.unwrap();
            let assistant = assistant(&system);
            assert!(root.set(assistant.clone()).is_ok());
            assistant.start::<Code>(json!(1)).id("kid").await.unwrap();
            let run = assistant.start::<Code>(json!(null)).id("r").await.unwrap();
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert_eq!(bench.count("answered"), 1, "{what}");
            assert!(run.inspect().await.unwrap().unwrap().run.suspended, "{what}");
            run.outcome().await.unwrap().completed().unwrap();
        })
        .await;
    }
}
