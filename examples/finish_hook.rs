//! A parent that is told how its runs end, even if it was not in memory, or the hook fails at first.
//!
//! ```text
//! cargo run --example finish_hook
//! ```
//!
//! Prints each call of the hook. The first delivery fails on purpose and is made again a second
//! later, by an agent that was evicted meanwhile. What is owed is written in the commit that ends
//! the run, so that no crash loses it.

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::sync::atomic::{AtomicU32, Ordering};

use ghostlight::prelude::*;
use serde_json::Value;
use tokio::sync::Notify;

struct Greeter;
impl Agent for Greeter {
    const TYPE: &'static str = "Greeter";
}
impl Child for Greeter {
    type Input = String;
    type Output = String;

    async fn run(&self, _: &RunContext, name: String) -> Result<String, RunError> {
        Ok(format!("hello {name}"))
    }
}

/// One value serves all agents of its kind: it holds what the process needs, not an agent's data.
#[derive(Clone)]
struct Host {
    calls: std::sync::Arc<AtomicU32>,
    delivered: std::sync::Arc<Notify>,
}
impl Agent for Host {
    const TYPE: &'static str = "Host";

    fn callbacks(callbacks: &mut Callbacks<Self>) {
        callbacks.on_run_finish(Self::finished);
    }
}
impl Host {
    async fn finished(
        &self,
        cx: &AgentContext,
        run: RunInfo,
        end: Outcome<Value>,
    ) -> Result<(), RunError> {
        if self.calls.fetch_add(1, Ordering::Relaxed) == 0 {
            println!("{}: {} has ended, but my hook fails", cx.path(), run.run_id);
            return Err(RunError::new("the network is down"));
        }
        println!("{}: {} returned {}", cx.path(), run.run_id, end.completed()?);
        self.delivered.notify_one();
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let host = Host { calls: Default::default(), delivered: Default::default() };
    let system = System::in_memory().agent(host.clone()).child(Greeter).start().await?;
    let lobby = system.agent::<Host>("lobby")?;
    let greeting = lobby.run::<Greeter>("ada".to_owned()).id("greet-ada").await?;
    println!("whoever awaits the run does not wait for the hook: {}", greeting.completed()?);
    lobby.evict().await?;
    host.delivered.notified().await;
    system.shutdown().await;
    Ok(())
}
