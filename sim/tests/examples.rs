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
    example.env_remove("GHOSTLIGHT_SIM_PLAN").env_remove("RUSTFLAGS");
    let output = example.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap().replace(" --release", "");
    let (failure, mended) = printed.split_once("\n\nmended: ").unwrap();
    assert!(
        GUIDE.contains(failure),
        "the failure in docs/simulation.md is not the one of the example:\n{failure}"
    );
    assert!(mended.contains(" plans, "), "{mended}");
}

#[test]
fn the_guide_shows_the_example() {
    let parts = ["struct Till", "#[test]", "fn main"].map(|part| EXAMPLE.find(part).unwrap());
    for part in parts.windows(2) {
        let part = EXAMPLE[part[0]..part[1]].trim();
        assert!(GUIDE.contains(part), "docs/simulation.md does not show the example's\n{part}");
    }
}

/// Names that the guide uses in its prose are names of the crate.
#[test]
fn the_guide_names_what_there_is() {
    let sources = ["simulation/settings", "invariant", "effects", "world", "scenario", "plan"];
    let sources = sources.map(|name| {
        let path = format!("{}/src/{name}.rs", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    });
    let sources = sources.concat();
    for name in [
        "crash_at_every_commit",
        "evict_at_every_turn",
        "crash_parent_at_every_turn",
        "pairs",
        "seeds",
        "at_most",
        "plan",
        "exactly_repeatable",
        "always",
        "finally",
        "with",
        "effects",
        "promise",
        "durable",
        "tolerates",
    ] {
        assert!(GUIDE.contains(name), "the guide does not say {name}");
        assert!(
            sources.contains(&format!("pub fn {name}")) || sources.contains(&format!("fn {name}("))
        );
    }
    for fault in [
        "kill-before@4",
        "kill-torn:2@4",
        "kill-after@4",
        "evict@4",
        "crash-parent@4",
        "stall:9@4",
        "fail:0@4",
        "stall-read:9@4",
        "fail-read@4",
        "down:9@4",
        "crash-run@4",
        "jump:-9@4",
        "duplicate@4",
        "cancel@4",
        "panic-child@4",
        "stall-child:9@4",
    ] {
        fault.parse::<ghostlight_sim::Plan>().unwrap();
        let name = fault.split([':', '@']).next().unwrap();
        assert!(GUIDE.contains(&format!("| `{name}")), "the guide has no row for {name}");
    }
}
