//! Every fault of a plan does what it says.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::time::Duration;

use ghostlight::prelude::*;
use ghostlight::{Limits, SystemBuilder};
use ghostlight_sim::{Fault, Life, Line, Plan, Scenario, Simulation, World};

const HOUR_MS: u64 = 3600 * 1000;

/// A run with a large input, a nap of an hour outside memory, and a step.
struct Napper;

impl Agent for Napper {
    const TYPE: &'static str = "Napper";
}

impl Child for Napper {
    type Input = String;
    type Output = usize;

    async fn run(&self, cx: &RunContext, text: String) -> Result<usize, RunError> {
        cx.sleep(Duration::from_millis(HOUR_MS)).await;
        cx.step("measure", async || Ok(text.len())).await
    }
}

struct Nap;

impl Scenario for Nap {
    fn agents(&self, system: SystemBuilder, _: &World) -> SystemBuilder {
        system.child(Napper)
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        let bed = life.agent::<Napper>("bed")?;
        let slept = bed.run::<Napper>("z".repeat(60 << 10)).id("nap").await?;
        assert_eq!(slept.completed()?, 60 << 10);
        Ok(())
    }
}

fn trace(plan: Plan) -> Vec<Line> {
    Simulation::new(Nap).trace(&plan).unwrap_or_else(|failure| panic!("{failure}"))
}

fn find<'a>(trace: &'a [Line], text: &str) -> &'a Line {
    let found = trace.iter().find(|line| line.text.contains(text));
    found.unwrap_or_else(|| panic!("no line with {text:?} in {trace:#?}"))
}

/// The group of commits that suspends the run.
fn suspended() -> u64 {
    let trace = trace(Plan::calm(0));
    let (group, _) = find(&trace, "a timer is set").text.split_once(':').unwrap();
    group.parse().unwrap()
}

#[test]
fn the_wall_clock_goes_on_while_nothing_runs() {
    let killed = Plan::calm(0).with(Fault::KillAfter, suspended());
    let at_once = trace(killed.clone());
    let later = trace(killed.clone().with(Fault::Down(HOUR_MS / 2), 1));
    let overdue = trace(killed.with(Fault::Down(2 * HOUR_MS), 1));
    let woken = |trace: &[Line]| {
        let mut entries = trace.iter().filter(|line| line.text.contains("the code is entered"));
        entries.nth(1).unwrap().at_ms
    };
    assert_eq!(woken(&at_once), HOUR_MS);
    assert_eq!(woken(&later), HOUR_MS, "half of the nap was left");
    assert_eq!(woken(&overdue), 2 * HOUR_MS, "it is woken when the process is there again");
}

#[test]
fn a_duplicate_has_the_input_even_if_it_is_in_parts() {
    let trace = trace(Plan::calm(0).with(Fault::Duplicate, suspended()));
    find(&trace, "1 runs are dispatched again");
}

#[test]
fn code_panics_and_stalls_at_entry_inside_a_step_and_after_it() {
    // Two entries, the beginning of the step, and its end.
    for place in 1..=4 {
        let panics = Plan::calm(0).with(Fault::PanicChild, place);
        let failure = Simulation::new(Nap).plan(panics).run().unwrap_err();
        assert!(failure.text.contains("simulated"), "{place}: {failure}");

        let stalls = trace(Plan::calm(0).with(Fault::StallChild(5000), place));
        find(&stalls, "stalls for 5000 ms");
        let ended = find(&stalls, "now completed").at_ms;
        assert_eq!(ended, HOUR_MS + 5000, "{place}");
    }
}

#[test]
fn a_plan_that_strikes_nothing_fails() {
    let beyond = Plan::calm(0).with(Fault::PanicChild, 5);
    let failure = Simulation::new(Nap).plan(beyond.clone()).run().unwrap_err();
    assert_eq!(failure.invariant, "a plan strikes");
    assert_eq!((&failure.plan, &failure.found), (&beyond, &beyond));
    find(&failure.trace, "now completed");
    let strikes = beyond.with(Fault::Evict, 1);
    assert_eq!(Simulation::new(Nap).plan(strikes).check().struck, 1);
    assert_eq!(Simulation::new(Nap).plan(Plan::calm(7)).check().faults, 0);
}

#[test]
fn the_actor_of_a_run_crashes_and_the_run_goes_on() {
    for place in 1..=4 {
        let trace = trace(Plan::calm(0).with(Fault::CrashRun, place));
        find(&trace, "the actor of Napper:bed/Napper:nap crashes");
        find(&trace, "the code is entered, attempt 2");
        find(&trace, "now completed");
    }
}

#[test]
fn a_disk_that_fails_ends_the_life_and_keeps_what_the_plan_says() {
    let group = suspended();
    for (kept, goes_on) in [(0, "a timer is set"), (u32::MAX, "a timer is set")] {
        let trace = trace(Plan::calm(0).with(Fault::Fail(kept), group));
        find(&trace, "the disk fails");
        let second: Vec<_> = trace.into_iter().filter(|line| line.life == 2).collect();
        find(&second, goes_on);
        let survived = second
            .iter()
            .any(|line| line.kind == "commit" && line.text.starts_with(&format!("{group}: ")));
        assert_eq!(survived, kept > 0, "{second:#?}");
    }
    let reads = trace(Plan::calm(0).with(Fault::FailRead, 12));
    find(&reads, "the disk fails");
}

#[test]
fn no_plan_of_extremes_overflows_or_hangs() {
    for fault in [
        Fault::Stall(u64::MAX),
        Fault::StallRead(u64::MAX),
        Fault::Jump(i64::MAX),
        Fault::Down(u64::MAX),
        Fault::Fail(u32::MAX),
        Fault::KillTorn(u32::MAX),
    ] {
        // What stalls for ever is a failure; nothing panics, and nothing hangs.
        let plan = Plan::calm(u64::MAX).with(Fault::KillAfter, 3).with(fault, 1).with(fault, 4);
        let _ = Simulation::new(Nap).plan(plan).life_max(Duration::from_secs(24 * 3600)).run();
    }
    let slow = Plan { latency_ms: u64::MAX, ..Plan::calm(0) };
    let failure = Simulation::new(Nap).plan(slow).run().unwrap_err();
    assert_eq!(failure.invariant, "every start succeeds");
}

#[test]
fn a_process_that_is_asked_to_stop_waits_for_what_is_executed() {
    let trace = trace(Plan::calm(0).with(Fault::Stop, suspended()));
    find(&trace, "the process is asked to stop");
    let second: Vec<_> = trace.into_iter().filter(|line| line.life == 2).collect();
    find(&second, "now completed");
    let report = Simulation::new(Nap).stop_at_every_commit().check();
    assert_eq!(
        (report.faults, report.struck, report.kills),
        (report.calm_commits, report.calm_commits, 0)
    );
}

/// Does not look whether it is cancelled.
struct Stubborn;

impl Agent for Stubborn {
    const TYPE: &'static str = "Stubborn";
}

impl Child for Stubborn {
    type Input = ();
    type Output = ();

    async fn run(&self, cx: &RunContext, (): ()) -> Result<(), RunError> {
        cx.milestone("up", json!(null)).await?;
        cx.step("hang", async || {
            tokio::time::sleep(Duration::from_millis(48 * HOUR_MS)).await;
            Ok(())
        })
        .await
    }
}

/// Its system lets code go on for an hour after a cancel.
struct Patient;

impl Scenario for Patient {
    fn agents(&self, system: SystemBuilder, _: &World) -> SystemBuilder {
        let cancel_grace = Duration::from_millis(HOUR_MS);
        system.child(Stubborn).limits(Limits { cancel_grace, ..Limits::default() })
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        let run = life.agent::<Stubborn>("s")?.start::<Stubborn>(()).id("r").await?;
        if run.milestone("up").await.is_ok() {
            run.cancel("enough").await?;
        }
        assert_eq!(run.outcome().await?.status(), Status::Aborted);
        Ok(())
    }
}

#[test]
fn code_may_go_on_after_its_cancel_as_long_as_its_system_lets_it() {
    let trace = Simulation::new(Patient).trace(&Plan::calm(0)).unwrap();
    let ended = find(&trace, "now aborted").at_ms;
    assert_eq!(ended, HOUR_MS);
    Simulation::new(Patient).crash_at_every_commit().check();
}
