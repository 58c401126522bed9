//! An agent that charges a card twice when the process dies at the wrong moment is caught, with the
//! moment; the mended one passes.
//!
//! ```text
//! cargo run -p ghostlight-sim --example crash_safe
//! ```
//!
//! Its test is `cargo test -p ghostlight-sim --example crash_safe`.
//!
//! Prints the failure of the first agent, with its timeline and the one crash that shows it, and how
//! many plans the second one has survived.

#![expect(clippy::print_stdout, reason = "an example prints")]

use ghostlight::SystemBuilder;
use ghostlight::prelude::*;
use ghostlight_sim::{Effects, Invariants, Life, Scenario, Simulation, World};

struct Till {
    bank: Effects,
    mended: bool,
}

impl Agent for Till {
    const TYPE: &'static str = "Till";
}

impl Child for Till {
    type Input = u64;
    type Output = String;

    async fn run(&self, cx: &RunContext, cents: u64) -> Result<String, RunError> {
        cx.milestone("asked", json!({ "cents": cents })).await?;
        if self.mended {
            cx.step("charge", async || {
                // The bank recognises the key, if the process died before it heard the answer.
                self.bank.perform("charge", &cx.key());
                Ok(())
            })
            .await?;
        } else {
            // The mistake: an effect between steps happens again each time this code is entered.
            self.bank.perform_unkeyed("charge");
        }
        cx.step("receipt", async || Ok(format!("{cents} cents"))).await
    }
}

/// What is to be proved: the agents, what the outside does with them, and what must hold.
struct Payment {
    mended: bool,
}

impl Scenario for Payment {
    fn agents(&self, system: SystemBuilder, world: &World) -> SystemBuilder {
        system.child(Till { bank: world.effects(), mended: self.mended })
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        let till = life.agent::<Till>("shop")?;
        let receipt = till.run::<Till>(4200).id("payment-1").await?;
        life.world().promise("the receipt", &receipt);
        assert_eq!(receipt.completed()?, "4200 cents");
        Ok(())
    }

    fn invariants(&self) -> Invariants {
        Invariants::none()
            .always("nobody is charged twice", |world| world.effects().count("charge") <= 1)
            .finally("the charge was made", |world| world.effects().count("charge") == 1)
    }
}

#[test]
fn a_payment_survives_any_crash() {
    Simulation::new(Payment { mended: true }).crash_at_every_commit().seeds(100).check();
}

fn main() {
    match Simulation::new(Payment { mended: false }).crash_at_every_commit().run() {
        Ok(report) => println!("not caught: {report}"),
        Err(failure) => println!("{failure}\n"),
    }
    let mended = Simulation::new(Payment { mended: true });
    println!("mended: {}", mended.crash_at_every_commit().seeds(100).check());
}
