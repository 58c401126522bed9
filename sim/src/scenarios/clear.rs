//! An archive throws away papers, finished and unfinished ones, while others are being written.

use std::time::Duration;

use ghostlight::prelude::*;
use ghostlight::{Error, RunFilter, SystemBuilder};

use super::unless_changed;
use crate::{Fault, Invariants, Life, Scenario, World};

/// The shipped scenario of runs that are cleared while others live.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clear;

/// A text that takes more than one value of the store.
const PAGES: usize = 60 << 10;

struct Archive;

impl Agent for Archive {
    const TYPE: &'static str = "Archive";
}

/// A paper with notes, which are children of its own.
struct Paper;

impl Agent for Paper {
    const TYPE: &'static str = "Paper";
}

impl Child for Paper {
    type Input = String;
    type Output = usize;

    async fn run(&self, cx: &RunContext, text: String) -> Result<usize, RunError> {
        cx.emit(json!({ "type": "data-copy", "text": text })).await?;
        cx.agent::<Self>().run::<Note>(Duration::ZERO).id("note").await?.completed()?;
        Ok(text.len())
    }
}

struct Note;

impl Agent for Note {
    const TYPE: &'static str = "Note";
}

impl Child for Note {
    type Input = Duration;
    type Output = ();

    async fn run(&self, cx: &RunContext, thought: Duration) -> Result<(), RunError> {
        cx.milestone("begun", json!(null)).await?;
        cx.sleep(thought).await;
        Ok(())
    }
}

fn only(agent_type: &str, status: &[Status]) -> RunFilter {
    RunFilter {
        agent_type: Some(agent_type.into()),
        status: status.to_vec(),
        ..RunFilter::default()
    }
}

impl Scenario for Clear {
    fn name(&self) -> String {
        "clear".into()
    }

    fn agents(&self, system: SystemBuilder, _: &World) -> SystemBuilder {
        system.agent(Archive).child(Paper).child(Note)
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        let archive = life.agent::<Archive>("cellar")?;
        let text = "x".repeat(PAGES);
        // Still being thought about when the papers, and one like it, are cleared.
        let kept = archive.start::<Note>(Duration::from_secs(3600)).id("kept").await?;
        for paper in ["one", "two"] {
            match archive.run::<Paper>(text.clone()).id(paper).await {
                Ok(outcome) => unless_changed(life, outcome, &PAGES)?,
                // By an earlier life.
                Err(Error::Cleared(_) | Error::UnknownRun(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match archive.start::<Paper>(String::new()).id("unfinished").await {
            Ok(_) | Err(Error::Cleared(_)) => {}
            Err(error) => return Err(error.into()),
        }
        // A disk that stalls for longer than a clear waits for the end of a run's code.
        while let Err(error) = archive.clear(&only(Paper::TYPE, &[])).await {
            match error {
                Error::StillStopping(_) => tokio::time::sleep(Duration::from_secs(1)).await,
                error => return Err(error.into()),
            }
        }
        life.world().promise("cleared", true);
        for paper in ["one", "two", "unfinished"] {
            match archive.start::<Paper>(String::new()).id(paper).await {
                Err(Error::Cleared(_)) => {}
                // It was running, and its code has not been dropped yet.
                Err(Error::StillStopping(_)) => {}
                Ok(_) => panic!("the id {paper} was cleared, and dispatched again"),
                Err(error) => return Err(error.into()),
            }
        }
        let outcome = kept.outcome().await?;
        life.world().promise("kept", &outcome);
        unless_changed(life, outcome, &())?;
        let left = archive.list(&RunFilter::default(), None, 10).await?.runs;
        let left: Vec<_> = left.iter().map(|run| run.run_id.as_str()).collect();
        assert_eq!(left, ["kept"]);
        Ok(())
    }

    fn invariants(&self) -> Invariants {
        Invariants::none().finally("nothing of a cleared run is left but its tombstone", |world| {
            world.durable(|durable| {
                let cleared: Vec<_> = durable.runs().filter(|(_, run)| run.cleared).collect();
                // Three papers; two notes are sure to have been begun.
                let begun = cleared.len() >= if world.ends_may_change() { 3 } else { 5 };
                begun && cleared.iter().all(|(_, run)| run.keys == 0)
            })
        })
    }

    fn tolerates(&self, fault: Fault) -> bool {
        matches!(fault, Fault::Cancel | Fault::PanicChild | Fault::StallChild(_))
    }
}
