//! Tests of one's own agents: a run without a system, and a crash at an exact point.
//!
//! ```text
//! cargo run --example testing
//! ```
//!
//! Prints what the tests have found. In a project of your own the bodies are tests under
//! `#[tokio::test(start_paused = true)]`: time is virtual, so that an hour of sleep costs nothing.

#![expect(clippy::print_stdout, reason = "an example prints")]

use ghostlight::prelude::*;
use ghostlight::testing::{self, Point, TestSystem};

/// Charges a card, waits an hour, and sends a receipt.
struct Order;
impl Agent for Order {
    const TYPE: &'static str = "Order";
}
impl Child for Order {
    type Input = u64;
    type Output = String;

    async fn run(&self, cx: &RunContext, cents: u64) -> Result<String, RunError> {
        let charge = cx.step("charge", async || Ok(format!("charge of {cents}"))).await?;
        cx.sleep(Duration::from_secs(3600)).await;
        cx.step("receipt", async || Ok(format!("receipt for the {charge}"))).await
    }
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The code alone: no system, no store.
    let receipt = testing::run(&Order, 500).await.map_err(|error| error.to_string())?;
    assert_eq!(receipt, "receipt for the charge of 500");
    println!("alone: {receipt}");

    // A whole system, killed between the commit of the charge and the code that is told of it.
    let mut system = TestSystem::new(7).child(Order).start().await?;
    let shop = system.agent::<Order>("shop")?;
    let crash = system.crash_after(Point::step("charge"));
    shop.start::<Order>(500).id("order-1").await?;
    crash.await?;

    let shop = system.agent::<Order>("shop")?;
    let order = shop.attach::<Order>("order-1").await?.ok_or("the order is lost")?;
    println!("after the crash: {}", order.outcome().await?.completed()?);
    assert_eq!(system.executions("order-1", "charge"), 1);
    assert_eq!(system.executions("order-1", "receipt"), 1);
    println!("the card was charged {} time", system.executions("order-1", "charge"));
    Ok(())
}
