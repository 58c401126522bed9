//! Agents that the tests share.

pub(crate) mod code;
pub(crate) mod disk;
pub(crate) mod image;
pub(crate) mod ledger;
pub(crate) mod script;
pub(crate) mod unreadable;
pub(crate) mod world;

use ghostlight::prelude::*;

/// A parent and nothing else.
pub(crate) struct Assistant;

impl Agent for Assistant {
    const TYPE: &'static str = "Assistant";
}

/// Adds up its input, one step a number.
pub(crate) struct Adder;

impl Agent for Adder {
    const TYPE: &'static str = "Adder";
}

impl Child for Adder {
    type Input = Vec<u64>;
    type Output = u64;

    async fn run(&self, cx: &RunContext, numbers: Vec<u64>) -> Result<u64, RunError> {
        let mut sum = 0;
        for (at, number) in numbers.iter().enumerate() {
            sum += cx.step(("add", at as u64), async || Ok(*number)).await?;
        }
        Ok(sum)
    }
}
