//! The same plan gives the same timeline, byte for byte, in every process.
//!
//! That needs tokio's seeded scheduler: `./check repeat` builds with it.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::fmt::Write as _;
use std::process::Command;

use ghostlight_sim::{Simulation, scenarios};

/// Set in the processes that print timelines.
const PRINT: &str = "GHOSTLIGHT_SIM_PRINT_TRACES";
/// Of all scenarios together.
const SEEDS: u64 = 100;

fn traces() -> String {
    let all = scenarios::all();
    let mut text = String::new();
    let mut first = 1;
    for (left, shipped) in (1..=all.len() as u64).rev().zip(all) {
        let last = first + (SEEDS + 1 - first).div_ceil(left) - 1;
        let simulation = (shipped.simulation)().exactly_repeatable();
        for plan in simulation.random_plans(first..=last).unwrap() {
            writeln!(text, "scenario {} plan {plan}", shipped.name).unwrap();
            for line in simulation.trace(&plan).unwrap() {
                writeln!(text, "{line}").unwrap();
            }
        }
        first = last + 1;
    }
    assert_eq!(first, SEEDS + 1);
    text
}

/// The timelines as another process prints them.
fn traces_of_a_process() -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "timelines_are_the_same_in_every_process", "--nocapture"])
        .env(PRINT, "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
#[cfg_attr(not(tokio_unstable), ignore = "needs RUSTFLAGS=\"--cfg tokio_unstable\"")]
fn timelines_are_the_same_in_every_process() {
    if std::env::var_os(PRINT).is_some() {
        eprint!("{}", traces());
        return;
    }
    let (one, other) = (traces_of_a_process(), traces_of_a_process());
    assert!(one.lines().count() > 1000, "there is something to compare");
    for (number, (one, other)) in one.lines().zip(other.lines()).enumerate() {
        assert_eq!(one, other, "line {number}");
    }
    assert_eq!(one, other);
}

#[test]
#[cfg_attr(tokio_unstable, ignore = "this build can repeat a timeline exactly")]
#[should_panic(expected = "--cfg tokio_unstable")]
fn a_build_that_cannot_repeat_a_timeline_says_so() {
    let _ = Simulation::new(scenarios::OrderFulfilment).exactly_repeatable();
}
