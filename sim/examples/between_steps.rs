//! An agent that asks the world between its steps, and so goes another way when it is entered again, is
//! caught, with the crash that shows it; the mended one, which asks in a step, passes.
//!
//! ```text
//! cargo run -p ghostlight-sim --example between_steps
//! ```
//!
//! Prints the failure of the first agent, a journal mismatch, and how many plans the second one has
//! survived.

#![expect(clippy::print_stdout, reason = "an example prints")]

use ghostlight::SystemBuilder;
use ghostlight::prelude::*;
use ghostlight_sim::{Effects, Invariants, Life, Scenario, Simulation, World};

struct Clerk {
    shop: Effects,
    mended: bool,
}

impl Agent for Clerk {
    const TYPE: &'static str = "Clerk";
}

impl Child for Clerk {
    type Input = ();
    type Output = ();

    async fn run(&self, cx: &RunContext, (): ()) -> Result<(), RunError> {
        let is_new = async || Ok(self.shop.count("sale") == 0);
        // The mistake: after a crash the answer is another, and so is what the code does next.
        let is_new = if self.mended { cx.step("ask", is_new).await? } else { is_new().await? };
        cx.step("sell", async || {
            self.shop.perform("sale", &cx.key());
            Ok(())
        })
        .await?;
        cx.milestone(if is_new { "welcomed" } else { "thanked" }, json!({})).await?;
        cx.step("file", async || Ok(())).await
    }
}

struct Sale {
    mended: bool,
}

impl Scenario for Sale {
    fn agents(&self, system: SystemBuilder, world: &World) -> SystemBuilder {
        system.child(Clerk { shop: world.effects(), mended: self.mended })
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        let clerk = life.agent::<Clerk>("till")?;
        Ok(clerk.run::<Clerk>(()).id("sale-1").await?.completed()?)
    }

    fn invariants(&self) -> Invariants {
        Invariants::none().finally("it was sold once", |world| world.effects().count("sale") == 1)
    }
}

#[test]
fn a_sale_goes_the_same_way_after_any_crash() {
    let failure = Simulation::new(Sale { mended: false }).crash_at_every_commit().run();
    let failure = failure.expect_err("the mistake is found");
    assert!(failure.text.contains("journal mismatch"), "{failure}");
    assert_eq!(failure.plan.faults.len(), 1, "one crash is enough: {failure}");
    Simulation::new(Sale { mended: true }).crash_at_every_commit().seeds(50).check();
}

fn main() {
    match Simulation::new(Sale { mended: false }).crash_at_every_commit().run() {
        Ok(report) => println!("not caught: {report}"),
        Err(failure) => println!("{failure}\n"),
    }
    let mended = Simulation::new(Sale { mended: true });
    println!("mended: {}", mended.crash_at_every_commit().seeds(50).check());
}
