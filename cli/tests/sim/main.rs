//! `ghostlight sim` as its users see it.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::process::{Command, Output};

fn sim(args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_ghostlight");
    Command::new(program).arg("sim").args(args).env_remove("GHOSTLIGHT_SIM_PLAN").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn the_scenarios_are_listed() {
    let listed = sim(&["--list"]);
    assert_eq!(listed.status.code(), Some(0));
    let names: Vec<_> = text(&listed.stdout)
        .lines()
        .map(|line| line.split(' ').next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(
        names,
        [
            "order", "fan-out", "cancel", "hooks", "clear", "retry", "batch", "nest", "tail",
            "refuse"
        ]
    );
    let json = sim(&["--list", "--json", "--scenario", "order"]);
    let line: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(line["scenario"], "order");
}

#[test]
fn a_plan_is_executed_and_reported() {
    let plan = "seed=7 latency=4 kill-before@12 evict@31";
    let output = sim(&["--scenario", "order", "--plan", plan]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).starts_with("order      ok: 1 plans"), "{output:?}");

    let output = sim(&["--scenario", "retry", "--plan", plan, "--json"]);
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&line["scenario"], &line["ok"]), (&"retry".into(), &true.into()));
    assert_eq!(line["plans"], 1);
}

/// A panic changes how an order ends, so that its scenario does not tolerate one.
#[test]
fn what_fails_is_told_in_full() {
    // The actors of the runs crash until one run has no attempt left.
    let crashes = "crash-run@1 crash-run@5 crash-run@6 crash-run@7 crash-run@8 crash-run@9 \
                   crash-run@10 crash-run@11 crash-run@12 crash-run@13 crash-run@14";
    let shortest = format!("seed=0 latency=0 {crashes}");
    let plan = format!("seed=1 latency=5 evict@2 {crashes}");
    let args = ["--scenario", "refuse", "--plan", &plan];
    let output = sim(&args);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = text(&output.stdout);
    for part in [
        "scenario refuse: ",
        " does not hold: ",
        &format!("found under: {plan} (plan 1)\n"),
        &format!("shortest:    {shortest}\n"),
        &format!("again:       ghostlight sim --scenario refuse --plan '{shortest}'\n"),
    ] {
        assert!(told.contains(part), "{part:?} is missing in {told}");
    }
    assert_eq!(text(&output.stderr), "", "a panic on purpose is told in the timeline");

    // The command that is printed does the same again.
    let again = told.lines().find_map(|line| line.strip_prefix("again:")).unwrap().trim();
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_ghostlight"));
    let mut path = program.parent().unwrap().as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let again = Command::new("sh").args(["-c", again]).env("PATH", path).output().unwrap();
    assert_eq!(again.status.code(), Some(1), "{again:?}");
    let failure = |told: &str| told.split("found under").next().map(str::to_owned);
    assert_eq!(failure(&text(&again.stdout)), failure(&told));

    let json = sim(&[&args[..], &["--json"]].concat());
    assert_eq!(json.status.code(), Some(1));
    let line: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(line["plan"], shortest.as_str());
    assert_eq!((&line["scenario"], &line["repeats"]), (&"refuse".into(), &true.into()));
}

#[test]
fn a_plan_of_the_environment_is_refused() {
    for plan in ["seed=1 kill-before@2", "nonsense"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ghostlight"));
        let output = command.arg("sim").env("GHOSTLIGHT_SIM_PLAN", plan).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let told = text(&output.stderr);
        assert!(told.contains("GHOSTLIGHT_SIM_PLAN is set"), "{told}");
        assert!(told.contains(&format!("--plan '{plan}'")), "{told}");
        assert_eq!((told.lines().count(), output.stdout.len()), (1, 0), "{output:?}");
    }
}

#[test]
fn a_summary_has_what_was_done_a_second() {
    let args = ["--scenario", "retry", "--plan", "kill-before@4 kill-after@7"];
    let output = sim(&args);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let told = text(&output.stdout);
    for part in ["retry      ok: 1 plans, ", " runs, 2 crashes", "; ", " runs/s, ", " crashes/s\n"]
    {
        assert!(told.contains(part), "{part:?} is missing in {told}");
    }
    let json = sim(&[&args[..], &["--json"]].concat());
    let line: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(line["crashes"], 2);
    for name in ["runs", "lives", "struck", "runsPerSecond", "crashesPerSecond"] {
        assert!(line[name].as_u64().is_some_and(|figure| figure > 0), "{name}: {line}");
    }
}

#[test]
fn help_says_what_is_done_and_what_the_exit_status_means() {
    let output = sim(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let told = text(&output.stdout);
    for part in
        ["--scenario <NAME>", "--plan <PLAN>", "--seeds <N>", "--json", "--list", "Exit status: 0"]
    {
        assert!(told.contains(part), "{part:?} is missing in {told}");
    }
}

#[test]
fn wrong_usage_is_told_what_is_right() {
    for (args, told) in [
        (&["--scenario", "ordre"][..], "order, fan-out, cancel, hooks, clear, retry, batch"),
        (&["--scenario", "order", "--plan", "kill-befor@1"], "kill-before"),
        (&["--plan", "seed=1"], "--scenario"),
        (&["--scenario", "order", "--plan", ""], "empty"),
        (&["--scenario", "order", "--plan", "seed=1", "--seeds", "5"], "--seeds"),
    ] {
        let output = sim(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        assert!(text(&output.stderr).contains(told), "{args:?}: {output:?}");
    }
}

#[test]
fn a_plan_that_strikes_nothing_proves_nothing() {
    let args = ["--scenario", "retry", "--plan", "kill-before@9999"];
    let output = sim(&args);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stdout).contains("nothing has struck, which proves"), "{output:?}");
    let json = sim(&[&args[..], &["--json"]].concat());
    let line: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(line["ok"], false);
}
