//! A race between a step and a durable sleep, and a sleep that outlives the memory of its run.
//!
//! ```text
//! cargo run --example race
//! ```
//!
//! Prints that the time limit won, that the run is out of memory while it sleeps, and the outcome.
//! After a crash the race has the same winner: what the code is told, and in which order, is part
//! of the run's history.

#![expect(clippy::print_stdout, reason = "an example prints")]

use ghostlight::prelude::*;

struct Quote;
impl Agent for Quote {
    const TYPE: &'static str = "Quote";
}
impl Child for Quote {
    type Input = ();
    type Output = String;

    async fn run(&self, cx: &RunContext, (): ()) -> Result<String, RunError> {
        let price = tokio::select! {
            price = cx.step("slow supplier", async || ask(10_000, 7).await) => price?,
            () = cx.sleep(Duration::from_millis(200)) => {
                cx.step("list price", async || ask(10, 9).await).await?
            }
        };
        // Nothing of the run is in flight any more: it leaves memory, and comes back in time.
        cx.milestone("asked", json!({ "price": price })).await?;
        cx.sleep(Duration::from_secs(2)).await;
        Ok(format!("{price} a piece, on attempt {}", cx.attempt()))
    }
}

async fn ask(after_ms: u64, price: u64) -> Result<u64, RunError> {
    tokio::time::sleep(Duration::from_millis(after_ms)).await;
    Ok(price)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let system = System::open("race-data").child(Quote).start().await?;
    let buyer = system.agent::<Quote>("buyer")?;
    let quote = buyer.start::<Quote>(()).id("quote-1").await?;

    let asked = quote.milestone("asked").await?;
    println!("price: {}", asked.data.unwrap_or_default()["price"]);
    while system.live_runs() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("runs in memory during the sleep: {}", system.live_runs());
    println!("{}", quote.outcome().await?.completed()?);

    system.shutdown().await;
    Ok(())
}
