//! The smallest durable run: six slow steps, each executed once, whatever happens to the process.
//!
//! Run it, kill it with `kill -9` in the middle, and run it again:
//!
//! ```text
//! cargo run --example hello
//! ```
//!
//! Every step prints `step N ... done`. The second process goes on with the step that the first one
//! was killed in; a third one prints the sum at once, from the store in `./hello-data`.

use ghostlight::prelude::*;

struct Squares;
impl Agent for Squares {
    const TYPE: &'static str = "Squares";
}
impl Child for Squares {
    type Input = u64;
    type Output = u64;

    async fn run(&self, cx: &RunContext, count: u64) -> Result<u64, RunError> {
        let mut sum = 0;
        for n in 1..=count {
            sum += cx.step(("square", n), async || slow_square(n).await).await?;
        }
        Ok(sum)
    }
}

async fn slow_square(n: u64) -> Result<u64, RunError> {
    eprint!("step {n} ... ");
    tokio::time::sleep(Duration::from_secs(1)).await;
    eprintln!("done");
    Ok(n * n)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let system = System::open("hello-data").child(Squares).start().await?;
    let me = system.agent::<Squares>("me")?;
    let sum = me.run::<Squares>(6).id("first").await?.completed()?;
    eprintln!("sum: {sum}");
    Ok(())
}
