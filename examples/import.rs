//! A larger child: steps, a milestone, progress, a handle, a tail, a hook of the parent, a cancel.
//!
//! ```text
//! cargo run --example import
//! ```
//!
//! Prints the frames of an import as an observer sees them, the outcome, what the parent's finish
//! hook was told, and how a second import ends that is cancelled halfway. Killed at any point, the
//! next run goes on; `./import-data` holds the store.

#![expect(clippy::print_stdout, reason = "an example prints")]

use ghostlight::prelude::*;
use serde_json::Value;

#[derive(Serialize, Deserialize)]
struct Import {
    lines: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Imported {
    rows: u64,
}

struct Importer;
impl Agent for Importer {
    const TYPE: &'static str = "Importer";
}
impl Child for Importer {
    type Input = Import;
    type Output = Imported;

    async fn run(&self, cx: &RunContext, input: Import) -> Result<Imported, RunError> {
        let columns = cx.step("schema", async || columns(&input.lines)).await?;
        cx.milestone("schema-ready", json!({ "columns": columns })).await?;
        let (mut rows, parts) = (0, input.lines.len() as u64);
        for part in 1..parts {
            rows += cx.step(("part", part), async || ingest(&input.lines, part).await).await?;
            cx.progress(Progress::of(part + 1, parts).message("ingesting"));
            if cx.is_cancelled() {
                return Err(RunError::new("stopped between two parts"));
            }
        }
        Ok(Imported { rows })
    }
}

fn columns(lines: &[String]) -> Result<Vec<String>, RunError> {
    let header = lines.first().ok_or_else(|| RunError::new("an empty file").permanent())?;
    Ok(header.split(',').map(str::to_owned).collect())
}

async fn ingest(lines: &[String], part: u64) -> Result<u64, RunError> {
    tokio::time::sleep(Duration::from_millis(50)).await;
    Ok(u64::from(!lines[usize::try_from(part)?].is_empty()))
}

struct Assistant;
impl Agent for Assistant {
    const TYPE: &'static str = "Assistant";
    fn callbacks(callbacks: &mut Callbacks<Self>) {
        callbacks.on_run_finish(Self::told);
    }
}
impl Assistant {
    async fn told(
        &self,
        _: &AgentContext,
        run: RunInfo,
        _: Outcome<Value>,
    ) -> Result<(), RunError> {
        println!("the parent is told: {} is {}", run.run_id, run.status);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let system = System::open("import-data").child(Importer).agent(Assistant).start().await?;
    let assistant = system.agent::<Assistant>("user-42")?;
    let file = |rows: usize| {
        let rows = (0..rows).map(|row| format!("{row},name {row}"));
        Import { lines: std::iter::once("id,name".to_owned()).chain(rows).collect() }
    };

    let import = assistant.start::<Importer>(file(4)).id("import-7").await?;
    let milestone = import.milestone("schema-ready").await?;
    println!("columns: {}", milestone.data.unwrap_or_default()["columns"]);
    let mut tail = import.tail(After::START);
    while let Some(frame) = tail.next().await {
        println!("{}", frame?.to_json());
    }
    println!("{:?}", import.outcome().await?.completed()?);

    let endless = assistant.start::<Importer>(file(1000)).id("import-8").await?;
    endless.milestone("schema-ready").await?;
    endless.cancel("enough").await?;
    println!("{:?}", endless.outcome().await?);

    system.shutdown().await;
    Ok(())
}
