//! A parent run that fans out over many children and adds up what they return.
//!
//! ```text
//! cargo run --example fan_out
//! ```
//!
//! Prints how many words each of twenty texts has, and the total. The parent's logic is a run
//! itself, so that it survives a crash like its children: after `kill -9`, the next process counts
//! what is left to be counted, and only that, with the texts that were being counted just then. In
//! `main` it would be lost with the process.

#![expect(clippy::print_stdout, reason = "an example prints")]

use futures_util::future::join_all;
use ghostlight::prelude::*;

/// Counts the words of one text.
struct Counter;
impl Agent for Counter {
    const TYPE: &'static str = "Counter";
}
impl Child for Counter {
    type Input = String;
    type Output = usize;

    async fn run(&self, cx: &RunContext, text: String) -> Result<usize, RunError> {
        cx.step("count", async || {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let words = text.split_whitespace().count();
            println!("{text:?} has {words} words");
            Ok(words)
        })
        .await
    }
}

/// Counts the words of many texts, at most four at a time.
struct Survey;
impl Agent for Survey {
    const TYPE: &'static str = "Survey";

    fn settings(&self) -> AgentSettings {
        AgentSettings {
            max_concurrent_runs: Some(4),
            at_cap: AtCap::Queue,
            ..AgentSettings::default()
        }
    }
}
impl Child for Survey {
    type Input = Vec<String>;
    type Output = usize;

    async fn run(&self, cx: &RunContext, texts: Vec<String>) -> Result<usize, RunError> {
        let me = cx.agent::<Self>();
        // No ids: inside a run they derive from its history, so that a re-entry joins the children
        // of the entry before it.
        let counts = join_all(texts.into_iter().map(|text| me.run::<Counter>(text))).await;
        let mut total = 0;
        for count in counts {
            total += count?.completed()?;
        }
        Ok(total)
    }
}

struct Program;
impl Agent for Program {
    const TYPE: &'static str = "Program";
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let system =
        System::open("fan-out-data").agent(Program).child(Survey).child(Counter).start().await?;
    let texts = (1..=20).map(|n| vec!["word"; n].join(" ")).collect();
    let survey = system.agent::<Program>("main")?.run::<Survey>(texts).id("survey").await?;
    println!("total: {}", survey.completed()?);
    system.shutdown().await;
    Ok(())
}
