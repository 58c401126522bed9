//! Code that awaits what is not recorded is told of, once; all other code is not.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::time::Duration;

use ghostlight::SystemBuilder;
use ghostlight::prelude::*;
use ghostlight_sim::{Life, Plan, Scenario, Simulation, World, scenarios};

struct Awaits;

impl Agent for Awaits {
    const TYPE: &'static str = "Awaits";
}

impl Child for Awaits {
    /// Whether it awaits something that is not recorded.
    type Input = bool;
    type Output = ();

    async fn run(&self, cx: &RunContext, foreign: bool) -> Result<(), RunError> {
        for round in 0..3u64 {
            if foreign {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            cx.step(("nap", round), async || {
                tokio::time::sleep(Duration::from_millis(10)).await;
                Ok(())
            })
            .await?;
            cx.emit(json!(round)).await?;
            cx.flush().await;
        }
        Ok(())
    }
}

struct Waiting(bool);

impl Scenario for Waiting {
    fn agents(&self, system: SystemBuilder, _: &World) -> SystemBuilder {
        system.child(Awaits)
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        Ok(life.agent::<Awaits>("a")?.run::<Awaits>(self.0).id("r").await?.completed()?)
    }
}

fn warnings(simulation: &Simulation) -> usize {
    let trace = simulation.trace(&Plan::calm(1)).unwrap();
    trace.iter().filter(|line| line.text.contains("awaited something that is not recorded")).count()
}

#[test]
fn a_foreign_await_is_told_of_once() {
    assert_eq!(warnings(&Simulation::new(Waiting(true))), 1);
}

#[test]
fn a_report_warns_of_it() {
    let report = Simulation::new(Waiting(true)).seeds(3).check();
    assert!(report.warnings.iter().any(|warning| warning.contains("not recorded")), "{report}");
    assert!(Simulation::new(Waiting(false)).seeds(3).check().warnings.is_empty());
}

#[test]
fn a_stall_of_the_plan_is_no_foreign_await() {
    let simulation = Simulation::new(Waiting(false));
    let plan: Plan =
        "stall-child:5000@1 stall-child:50@2 stall-child:50@3 kill-after@4".parse().unwrap();
    let trace = simulation.trace(&plan).unwrap();
    let stalls = trace.iter().filter(|line| line.text.contains(" stalls for "));
    assert_eq!(stalls.count(), 3, "at the entry, in a step, and after it");
    let report = Simulation::new(Waiting(false)).plan(plan).check();
    assert!(report.warnings.is_empty(), "{report}");
    // What the code awaits after a stall is its own.
    let report = Simulation::new(Waiting(true)).plan("stall-child:5000@1".parse().unwrap()).check();
    assert_eq!(report.warnings.len(), 1, "{report}");
}

#[test]
fn nothing_else_is() {
    assert_eq!(warnings(&Simulation::new(Waiting(false))), 0);
    for shipped in scenarios::all() {
        let (name, simulation) = (shipped.name, (shipped.simulation)());
        assert_eq!(warnings(&simulation), 0, "{name}");
    }
}
