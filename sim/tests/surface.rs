//! What goes wrong around a scenario is told to whoever executes it, and nothing hangs in silence.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::process::{Command, Output};
use std::time::Duration;

use ghostlight::SystemBuilder;
use ghostlight::prelude::*;
use ghostlight_sim::{Invariants, Life, Scenario, Simulation, World};

/// Lets the tests do what they do when another test executes them.
const INNER: &str = "GHOSTLIGHT_SIM_INNER";

fn is_inner() -> bool {
    std::env::var_os(INNER).is_some()
}

/// Executes one test of this program, which tells its standard error.
fn inner(test: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(INNER, "1");
    command.env_remove("GHOSTLIGHT_SIM_PLAN").output().unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

struct Worker;

impl Agent for Worker {
    const TYPE: &'static str = "Worker";
}

impl Child for Worker {
    type Input = ();
    type Output = ();

    async fn run(&self, cx: &RunContext, (): ()) -> Result<(), RunError> {
        tokio::time::sleep(Duration::from_millis(10)).await;
        cx.step("work", async || Ok(())).await
    }
}

/// Its run awaits what is not recorded, which is a warning.
struct Warns;

impl Scenario for Warns {
    fn agents(&self, system: SystemBuilder, _: &World) -> SystemBuilder {
        system.child(Worker)
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        Ok(life.agent::<Worker>("w")?.run::<Worker>(()).id("r").await?.completed()?)
    }
}

#[test]
fn warnings_are_printed() {
    if is_inner() {
        Simulation::new(Warns).seeds(2).check();
        return;
    }
    let output = inner("warnings_are_printed");
    assert!(output.status.success(), "{output:?}");
    let told = told(&output);
    let warnings: Vec<_> = told.lines().filter(|line| line.contains("not recorded")).collect();
    assert_eq!(warnings.len(), 1, "{told}");
    assert!(warnings[0].starts_with("simulation of Warns: warning: "), "{told}");
}

#[test]
fn warnings_are_failures_if_they_are_denied() {
    let failure = Simulation::new(Warns).deny_warnings().run().unwrap_err();
    assert_eq!(failure.invariant, "there is no warning");
    assert!(failure.text.contains("not recorded"), "{failure}");
    assert!(failure.repeats);
}

/// Where code panics that is neither a run's nor a drive's.
#[derive(Clone, Copy, PartialEq)]
enum Where {
    Agents,
    Drop,
    TaskOfTheDrive,
}

struct Fragile(Where);

impl Agent for Fragile {
    const TYPE: &'static str = "Fragile";
}

impl Drop for Fragile {
    fn drop(&mut self) {
        assert!(self.0 != Where::Drop, "planned in a drop");
    }
}

struct Panics(Where);

impl Scenario for Panics {
    fn agents(&self, system: SystemBuilder, _: &World) -> SystemBuilder {
        assert!(self.0 != Where::Agents, "planned in agents");
        system.agent(Fragile(self.0))
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        life.agent::<Fragile>("f")?;
        if self.0 == Where::TaskOfTheDrive {
            tokio::spawn(async { panic!("planned in a task") });
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

#[test]
fn a_panic_around_the_drive_is_a_failure_with_its_place() {
    for (place, message) in
        [(Where::Agents, "planned in agents"), (Where::Drop, "planned in a drop")]
    {
        let failure = Simulation::new(Panics(place)).run().unwrap_err();
        assert!(failure.text.contains(message), "{failure}");
        assert!(failure.text.contains("surface.rs:"), "{failure}");
    }
}

#[test]
fn a_panic_of_a_task_is_a_warning() {
    let report = Simulation::new(Panics(Where::TaskOfTheDrive)).run().unwrap();
    let warnings: Vec<_> = report.warnings.into_iter().collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("planned in a task"), "{warnings:?}");
    assert!(warnings[0].contains("surface.rs:"), "{warnings:?}");
}

#[test]
fn there_may_be_more_plans_than_fit_into_memory() {
    let report = Simulation::new(Warns).seeds(u64::MAX).at_most(3).run().unwrap();
    assert_eq!(report.plans, 4, "and the calm one");
    let stop = |done, all| assert!(done < 3, "stopped at {done} of {all}");
    let stopped =
        std::panic::catch_unwind(|| Simulation::new(Warns).seeds(u64::MAX).watch(stop).run());
    let panic = stopped.unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert_eq!(*text, format!("stopped at 3 of {}", u64::MAX));
}

struct ActsWhileItJudges;

impl Scenario for ActsWhileItJudges {
    fn agents(&self, system: SystemBuilder, _: &World) -> SystemBuilder {
        system
    }

    async fn drive(&self, _: &Life) -> Result<(), RunError> {
        Ok(())
    }

    fn invariants(&self) -> Invariants {
        Invariants::none().always("it is charged", |world| world.effects().perform("charge", "key"))
    }
}

#[test]
fn a_closure_that_performs_an_effect_fails() {
    let failure = Simulation::new(ActsWhileItJudges).run().unwrap_err();
    assert_eq!(failure.invariant, "closures of invariants only look at the world");
}

struct WaitsForEver;

impl Scenario for WaitsForEver {
    fn agents(&self, system: SystemBuilder, _: &World) -> SystemBuilder {
        system
    }

    async fn drive(&self, _: &Life) -> Result<(), RunError> {
        std::future::pending().await
    }
}

#[test]
fn a_drive_that_waits_for_ever_is_named() {
    let failure = Simulation::new(WaitsForEver).run().unwrap_err();
    assert!(failure.text.contains("the drive still waits"), "{failure}");
}

#[test]
fn a_single_plan_knows_the_calm_world() {
    let all = Simulation::new(Warns).run().unwrap();
    let one = Simulation::new(Warns).plan("kill-before@2".parse().unwrap()).run().unwrap();
    assert!(one.calm_commits > 0);
    assert_eq!(one.calm_commits, all.calm_commits);
    assert_eq!(one.calm_messages, all.calm_messages);
}

/// Whether its drive panics, or else returns an error, once anything has failed.
struct MisjudgesFailures(bool);

impl Scenario for MisjudgesFailures {
    fn agents(&self, system: SystemBuilder, _: &World) -> SystemBuilder {
        system.child(Worker)
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        match life.agent::<Worker>("w")?.run::<Worker>(()).id("r").await {
            Ok(_) => Ok(()),
            Err(_) if self.0 => panic!("a wrong output"),
            Err(_) => Err(RunError::new("a wrong output")),
        }
    }
}

#[test]
fn a_disk_that_has_failed_excuses_only_what_comes_of_it() {
    for (panics, invariant) in [(true, "the drive does not panic"), (false, "the drive succeeds")] {
        let simulation = Simulation::new(MisjudgesFailures(panics));
        let failure = simulation.plan("fail@3".parse().unwrap()).run().unwrap_err();
        assert_eq!(failure.invariant, invariant);
        assert!(failure.text.contains("a wrong output"), "{failure}");
    }
    Simulation::new(Warns).plan("fail@3".parse().unwrap()).check();
}
