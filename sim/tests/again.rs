//! What a failure prints is enough to repeat it: the command is executed, and fails in the same way.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::process::{Command, Output};

use ghostlight::SystemBuilder;
use ghostlight::prelude::*;
use ghostlight_sim::{Effects, Invariants, Life, Plan, Scenario, Simulation, World};

/// Lets the tests fail that are there to fail.
const FAIL: &str = "GHOSTLIGHT_SIM_FAIL";
const PLAN: &str = "GHOSTLIGHT_SIM_PLAN";

struct Mailer(Effects);

impl Agent for Mailer {
    const TYPE: &'static str = "Mailer";
}

impl Child for Mailer {
    type Input = u32;
    type Output = ();

    async fn run(&self, cx: &RunContext, mails: u32) -> Result<(), RunError> {
        for n in 0..mails {
            cx.step(("write", u64::from(n)), async || Ok(())).await?;
            self.0.perform_unkeyed(&format!("mail {n}"));
        }
        cx.step("archive", async || Ok(())).await
    }
}

/// Sends so many mails, each of which may be sent twice.
struct Mailing(u32);

impl Scenario for Mailing {
    fn agents(&self, system: SystemBuilder, world: &World) -> SystemBuilder {
        system.child(Mailer(world.effects()))
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        let me = life.agent::<Mailer>("me")?;
        Ok(me.run::<Mailer>(self.0).id("m").await?.completed()?)
    }

    fn invariants(&self) -> Invariants {
        let last = format!("mail {}", self.0 - 1);
        Invariants::none()
            .always("the last mail is sent once", move |world| world.effects().count(&last) <= 1)
    }
}

/// Fails when it is told to.
#[test]
fn mailing() {
    if std::env::var_os(FAIL).is_some() {
        Simulation::new(Mailing(3)).seeds(100).check();
    }
}

/// Has the name of the other one in its own.
#[test]
fn mailing_of_one() {
    if std::env::var_os(FAIL).is_some() {
        Simulation::new(Mailing(1)).crash_at_every_commit().check();
    }
}

/// Simulates on a thread that has a name of its own.
#[test]
fn mailing_elsewhere() {
    if std::env::var_os(FAIL).is_some() {
        let worker = std::thread::Builder::new().name("worker".into());
        let simulate = || Simulation::new(Mailing(2)).crash_at_every_commit().check();
        let failed = worker.spawn(simulate).unwrap().join().unwrap_err();
        std::panic::resume_unwind(failed);
    }
}

fn fail(mut command: Command) -> String {
    let Output { status, stdout, stderr } = command.env(FAIL, "1").output().unwrap();
    let told = [stdout, stderr].map(|told| String::from_utf8(told).unwrap()).concat();
    assert!(!status.success(), "it fails: {told}");
    told
}

fn this_test(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(args).env_remove(PLAN);
    command
}

/// What a failure says, from its scenario on.
fn failure(told: &str) -> (Vec<&str>, &str) {
    let begin = told.find("scenario Mailing").expect(told);
    let lines = told[begin..].lines();
    let timeline = lines.take_while(|line| !line.starts_with("found under")).collect();
    let command = told.lines().find_map(|line| line.strip_prefix("again:")).expect(told).trim();
    (timeline, command)
}

#[test]
fn the_command_of_a_test_repeats_its_failure() {
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().nth(3).unwrap();
    for args in [&["mailing", "--exact"][..], &["mailing", "--test-threads=1"]] {
        let told = fail(this_test(args));
        let (timeline, command) = failure(&told);
        assert!(
            command.contains(" -p ghostlight-sim --test again -- --exact mailing"),
            "{command}"
        );
        let mut again = Command::new("sh");
        again.args(["-c", command]).env("CARGO_TARGET_DIR", target).env_remove(PLAN);
        let told_again = fail(again);
        assert!(told_again.contains("test result: FAILED. 0 passed; 1 failed;"), "{told_again}");
        assert!(told_again.contains("GHOSTLIGHT_SIM_PLAN is set"), "{told_again}");
        assert_eq!(failure(&told_again), (timeline, command));
        assert!(told_again.contains("(plan 1)"), "{told_again}");
    }
}

#[test]
fn the_name_of_a_thread_is_not_taken_for_that_of_a_test() {
    let told = fail(this_test(&["mailing_elsewhere", "--exact"]));
    let (_, command) = failure(&told);
    assert!(command.ends_with(" -p ghostlight-sim --test again"), "{command}");
}

#[test]
fn a_program_without_cargo_is_repeated_as_it_was_started() {
    let mut command = this_test(&["mailing", "--exact"]);
    command.env_remove("CARGO_PKG_NAME");
    let told = fail(command);
    let (timeline, command) = failure(&told);
    let mut again = Command::new("sh");
    again.args(["-c", command]).env_remove("CARGO_PKG_NAME").env_remove(PLAN);
    assert_eq!(failure(&fail(again)), (timeline, command));
}

#[test]
fn a_plan_of_the_environment_that_strikes_nothing_fails_a_test() {
    let mut command = this_test(&["mailing", "--exact"]);
    command.env(PLAN, "kill-before@9999");
    let told = fail(command);
    assert!(told.contains("nothing has struck, which proves nothing"), "{told}");
}

#[test]
fn a_text_that_is_no_plan_fails_a_test() {
    for text in ["kill-befor@1", "seed=x", "kill-before@1 \u{1F47B}"] {
        let mut command = this_test(&["mailing", "--exact"]);
        command.env(PLAN, text);
        let told = fail(command);
        assert!(
            told.contains("the environment variable GHOSTLIGHT_SIM_PLAN holds no plan"),
            "{told}"
        );
        assert!(told.contains("one looks like this"), "{told}");
    }
    // What is set to nothing is not set.
    let mut command = this_test(&["mailing", "--exact"]);
    command.env(PLAN, "");
    assert!(failure(&fail(command)).0.len() > 3);
}

#[test]
fn a_plan_is_shrunk_to_the_lowest_numbers_and_fails_in_the_same_way() {
    let found: Plan =
        "seed=5 latency=20 stall:700@2 kill-before@7 evict@5 jump:5000@3".parse().unwrap();
    let failure = Simulation::new(Mailing(3)).plan(found.clone()).run().unwrap_err();
    assert_eq!(failure.found, found);
    assert!(failure.repeats);
    // The last mail is sent after commit 5, and the run goes on with commit 6.
    assert_eq!(failure.plan.to_string(), "seed=0 latency=0 kill-before@6", "{failure}");
    let again = Simulation::new(Mailing(3)).plan(failure.plan.clone()).run().unwrap_err();
    assert_eq!((again.invariant, again.trace), (failure.invariant, failure.trace));
}
