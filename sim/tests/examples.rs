//! The example as a process, and the guide against what it is.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::path::Path;
use std::process::Command;

const EXAMPLE: &str = include_str!("../examples/crash_safe.rs");
const GUIDE: &str = include_str!("../../docs/simulation.md");

#[test]
fn crash_safe_catches_the_broken_agent_and_passes_the_mended_one() {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--example", "crash_safe", "--manifest-path"]);
    build.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
    if profile.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success(), "the example does not build");
    let mut example = Command::new(profile.join("examples/crash_safe"));
    let output = example.env_remove("GHOSTLIGHT_SIM_PLAN").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let (failure, mended) = printed.split_once("\n\nmended: ").unwrap();
    assert!(
        GUIDE.contains(failure),
        "the failure in docs/simulation.md is not the one of the example:\n{failure}"
    );
    assert!(mended.contains(" plans, "), "{mended}");
}

#[test]
fn the_guide_shows_the_example() {
    let from = EXAMPLE.find("struct Till").unwrap();
    let to = EXAMPLE.find("fn main").unwrap();
    assert!(
        GUIDE.contains(EXAMPLE[from..to].trim()),
        "the scenario in docs/simulation.md is not the one of the example"
    );
}
