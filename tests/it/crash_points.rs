//! A crash right before and right after every group of commits loses nothing and repeats nothing.

use std::time::Duration;

use ghostlight::prelude::*;

use crate::support::disk::Fault;
use crate::support::script::ops::{emit, milestone, progress, sleep, slow_step, step};
use crate::support::script::{Op, Script};
use crate::support::world::{Build, Director, Drive, World, check_script, run_script, scripts};

/// Runs a scenario undisturbed, then once for each point at which it can crash, and then through
/// several crashes in a row.
async fn everywhere(build: Build, exact: bool, drive: impl Drive) {
    for latency in [Duration::ZERO, Duration::from_millis(3)] {
        at_every_group(build, latency, exact, &drive).await;
        through_many(build, latency, exact, &drive).await;
    }
}

async fn at_every_group(build: Build, latency: Duration, exact: bool, drive: &impl Drive) {
    let world = World::new(build).latency(latency);
    let (expected, groups) = world.live(None, drive).await;
    let expected = expected.unwrap();
    assert_eq!(world.drive(&[], drive).await, expected);
    for group in 1..=groups {
        for fault in [Fault::Before, Fault::After] {
            eprintln!("latency {latency:?}, crash {fault:?} group {group} of {groups}");
            let ended = World::new(build).latency(latency).drive(&[(group, fault)], drive).await;
            assert!(!exact || ended == expected, "{ended} instead of {expected}");
        }
    }
}

async fn through_many(build: Build, latency: Duration, exact: bool, drive: &impl Drive) {
    let expected = World::new(build).latency(latency).drive(&[], drive).await;
    for seed in 0..12 {
        let mut chance = Chance(seed);
        let faults: Vec<_> = (0..chance.below(6) + 1)
            .map(|_| {
                let fault = [Fault::Before, Fault::After][chance.below(2) as usize];
                (1 + chance.below(8), fault)
            })
            .collect();
        eprintln!("latency {latency:?}, seed {seed}: crashes {faults:?}");
        let ended = World::new(build).latency(latency).drive(&faults, drive).await;
        assert!(!exact || ended == expected, "{ended} instead of {expected}");
    }
}

/// A small generator: the tests choose few things at random.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

async fn script_everywhere(exact: bool, ops: Vec<Op>) {
    everywhere(scripts, exact, async |system: &System| run_script(system, &ops).await).await;
    let world = World::new(scripts);
    world.drive(&[], &async |system: &System| run_script(system, &ops).await).await;
    check_script(&world, &ops).await;
}

#[tokio::test(start_paused = true)]
async fn steps_events_milestones_and_progress() {
    let ops = vec![
        step("a"),
        emit(),
        milestone("first"),
        progress(100),
        step("b"),
        emit(),
        emit(),
        Op::StepEmits { key: "c".into(), chunks: 3 },
        progress(900),
        milestone("second"),
        milestone("second"),
        progress(1000),
        slow_step("d", 300),
    ];
    script_everywhere(true, ops).await;
}

#[tokio::test(start_paused = true)]
async fn steps_side_by_side() {
    let ops = vec![
        Op::Both(
            vec![slow_step("a", 5), emit(), slow_step("b", 5), milestone("left")],
            vec![slow_step("c", 7), emit(), sleep(10), milestone("right")],
        ),
        Op::Race { key: "race".into(), ms: vec![30, 10, 20, 10] },
        Op::Deadline { key: "early".into(), step_ms: 10, sleep_ms: 500 },
        Op::Deadline { key: "late".into(), step_ms: 500, sleep_ms: 10 },
        step("z"),
    ];
    script_everywhere(false, ops).await;
}

#[tokio::test(start_paused = true)]
async fn sleeps_short_and_long() {
    let ops = vec![
        sleep(10),
        step("a"),
        sleep(5_000),
        emit(),
        sleep(3_600_000),
        Op::Both(vec![sleep(20_000), milestone("left")], vec![sleep(30_000)]),
        step("b"),
    ];
    script_everywhere(true, ops).await;
}

#[tokio::test(start_paused = true)]
async fn children_of_children() {
    let leaf = vec![step("a"), milestone("leaf"), sleep(2_000), emit()];
    let middle = vec![Op::Child(leaf.clone()), step("m"), Op::Child(leaf.clone())];
    let ops = vec![
        Op::Child(middle),
        Op::Started { id: "started".into(), milestone: "leaf".into(), ops: leaf.clone() },
        Op::Both(vec![Op::Child(leaf.clone())], vec![Op::Child(vec![step("b")])]),
    ];
    script_everywhere(true, ops).await;
}

#[tokio::test(start_paused = true)]
async fn retries_failures_and_state() {
    let ops = vec![
        Op::Retry { key: "r".into(), failures: 3 },
        Op::Set { key: "k".into(), bytes: 10 },
        Op::StepFails { key: "f".into() },
        Op::Set { key: "k".into(), bytes: 20 },
        step("a"),
        Op::Set { key: "k".into(), bytes: 30 },
    ];
    script_everywhere(false, ops).await;
}

#[tokio::test(start_paused = true)]
async fn large_payloads() {
    let ops = vec![
        Op::Filler("f".repeat((1 << 20) - 4000)),
        Op::Step { key: "big".into(), ms: 0, bytes: (1 << 20) - 100 },
        Op::Emit { bytes: (256 << 10) - 100 },
        Op::Milestone { name: "big".into(), bytes: (64 << 10) - 100 },
        Op::Set { key: "big".into(), bytes: (1 << 20) - 100 },
        step("a"),
    ];
    let drive = async |system: &System| run_script(system, &ops).await;
    at_every_group(scripts, Duration::ZERO, true, &drive).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_in_the_middle() {
    let ops =
        [step("a"), Op::Both(vec![Op::Child(vec![milestone("deep"), Op::Hang])], vec![Op::Hang])];
    everywhere(scripts, true, async |system: &System| {
        let director = system.agent::<Director>("d")?;
        let run = director.start::<Script>(ops.to_vec()).id("r").await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        director.cancel("r", "enough").await?;
        Ok(format!("{:?}", run.outcome().await?))
    })
    .await;
}

/// A parent with one slot, and a queue.
struct Single;

impl Agent for Single {
    const TYPE: &'static str = "Single";

    fn settings(&self) -> AgentSettings {
        AgentSettings {
            max_concurrent_runs: Some(1),
            at_cap: AtCap::Queue,
            ..AgentSettings::default()
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue() {
    let build: Build = |builder, ledger| scripts(builder, ledger).agent(Single);
    everywhere(build, true, async |system: &System| {
        let single = system.agent::<Single>("s")?;
        let ops = vec![step("a"), sleep(1_500), milestone("m")];
        let mut runs = Vec::new();
        for id in ["1", "2", "3", "4"] {
            runs.push(single.start::<Script>(ops.clone()).id(id).await?);
        }
        single.cancel("3", "not needed").await?;
        let mut ends = Vec::new();
        for run in runs {
            ends.push(run.outcome().await?);
        }
        Ok(format!("{ends:?}"))
    })
    .await;
}
