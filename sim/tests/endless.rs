//! A world that never ends is a failure that says who goes on, since when, and what sets the limit.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::time::Duration;

use ghostlight::SystemBuilder;
use ghostlight::prelude::*;
use ghostlight_sim::{Failure, Life, Scenario, Simulation, World};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Goes {
    /// Virtual time stands still.
    Yielding,
    /// Virtual time runs away, with nothing recorded.
    Napping,
    /// Virtual time runs away, and all of it is recorded.
    Sleeping,
}

struct Endless;

impl Agent for Endless {
    const TYPE: &'static str = "Endless";
}

async fn go_on(goes: Goes) {
    loop {
        match goes {
            Goes::Yielding => tokio::task::yield_now().await,
            Goes::Napping | Goes::Sleeping => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

impl Child for Endless {
    type Input = Goes;
    type Output = ();

    async fn run(&self, cx: &RunContext, goes: Goes) -> Result<(), RunError> {
        if goes == Goes::Sleeping {
            loop {
                cx.sleep(Duration::from_secs(3600)).await;
            }
        }
        cx.step("go on", async || {
            go_on(goes).await;
            Ok(())
        })
        .await
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Where {
    Run,
    /// Nobody waits for it.
    RunAlone,
    Drive,
}

struct GoesOn(Goes, Where);

impl Scenario for GoesOn {
    fn agents(&self, system: SystemBuilder, _: &World) -> SystemBuilder {
        system.child(Endless)
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        let Self(goes, place) = *self;
        if place == Where::Drive {
            go_on(goes).await;
        }
        let run = life.agent::<Endless>("e")?.start::<Endless>(goes).id("r").await?;
        if place == Where::Run {
            run.outcome().await?.completed()?;
        }
        Ok(())
    }
}

fn fails(goes: Goes, place: Where) -> Failure {
    *Simulation::new(GoesOn(goes, place)).run().unwrap_err()
}

#[test]
fn code_that_goes_on_and_on_is_named_with_the_limit() {
    for goes in [Goes::Yielding, Goes::Napping] {
        for (place, who) in [
            (Where::Run, "Endless:e/Endless:r"),
            (Where::RunAlone, "Endless:e/Endless:r"),
            (Where::Drive, "the drive"),
        ] {
            let failure = fails(goes, place);
            assert_eq!(failure.invariant, "a world comes to its end", "{failure}");
            assert!(failure.text.starts_with(who), "{failure}");
            assert!(failure.text.contains("Simulation::commits_max"), "{failure}");
            assert!(failure.text.contains("virtual time"), "{failure}");
            assert!(failure.repeats, "{failure}");
        }
    }
}

#[test]
fn time_that_runs_away_is_told_with_the_limit() {
    const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
    for (place, life_max, limit) in [
        (Where::Run, WEEK, "Simulation::life_max is 7 days"),
        (Where::RunAlone, WEEK, "Simulation::life_max is 7 days"),
        (Where::RunAlone, ghostlight_sim::LIFE_MAX, "SETTLE_MAX is 31 days"),
    ] {
        let simulation = Simulation::new(GoesOn(Goes::Sleeping, place)).life_max(life_max);
        let failure = simulation.run().unwrap_err();
        assert!(failure.text.contains("Endless:e/Endless:r"), "{failure}");
        assert!(failure.text.contains(limit), "{failure}");
    }
}
