//! A crash right before and right after every group of commits loses nothing and repeats nothing.

use std::sync::Arc;

use ghostlight::frame::FrameEvent;
use ghostlight::prelude::*;
use ghostlight::storage::MemoryStore;

use crate::support::disk::Fault;
use crate::support::ledger::Ledger;
use crate::support::script::ops::{emit, milestone, progress, sleep, slow_step, step};
use crate::support::script::{Op, Script};
use crate::support::world::{
    Build, Director, Drive, World, check_script, replay, run_script, scripts,
};

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
async fn waits_that_leave_memory() {
    let leaf = vec![step("a"), sleep(5_000), milestone("leaf"), slow_step("b", 3_000)];
    let ops = vec![
        Op::Hears {
            id: "hears".into(),
            milestone: "leaf".into(),
            within_ms: 60_000,
            ops: leaf.clone(),
        },
        Op::Hears {
            id: "late".into(),
            milestone: "leaf".into(),
            within_ms: 3_000,
            ops: leaf.clone(),
        },
        Op::Either { id: "slow".into(), sleep_ms: 2_500, ops: leaf.clone() },
        step("z"),
    ];
    script_everywhere(false, ops).await;
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

/// Reads lines from an outside stream, which keeps them all.
struct Reader;

const LINES: u64 = 20;

impl Agent for Reader {
    const TYPE: &'static str = "Reader";
}

impl Child for Reader {
    type Input = ();
    type Output = u64;

    async fn run(&self, cx: &RunContext, (): ()) -> Result<u64, RunError> {
        let mut at = cx.source_offset("lines");
        while at < LINES {
            cx.emit_from("lines", at + 1, json!({ "line": at })).await?;
            at += 1;
            if at.is_multiple_of(3) {
                cx.flush().await;
            }
        }
        cx.flush().await;
        Ok(at)
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_from_outside() {
    let build: Build = |builder, ledger| scripts(builder, ledger).child(Reader);
    everywhere(build, true, async |system: &System| {
        let director = system.agent::<Director>("d")?;
        let end = director.run::<Reader>(()).id("r").await?;
        let lines: Vec<String> = replay(director.agent_ref(), "r")
            .await
            .into_iter()
            .filter_map(|frame| match frame.event {
                FrameEvent::Chunk { body, .. } => Some(body),
                _ => None,
            })
            .collect();
        let expected: Vec<String> = (0..LINES).map(|n| json!({ "line": n }).to_string()).collect();
        assert_eq!(lines, expected, "every line once");
        Ok(format!("{end:?}"))
    })
    .await;
}

/// A parent that is told of every end, and fails to take note of the first one.
struct Told(Arc<Ledger>);

impl Agent for Told {
    const TYPE: &'static str = "Told";

    fn callbacks(callbacks: &mut Callbacks<Self>) {
        callbacks.on_run_finish(Self::finished);
    }
}

impl Told {
    async fn finished(
        &self,
        cx: &AgentContext,
        run: RunInfo,
        end: Outcome<serde_json::Value>,
    ) -> Result<(), RunError> {
        let path = cx.path().child(&run.agent_type, &run.run_id.parse()?)?;
        if self.0.executes(&path, "finish hook") == 1 {
            return Err(RunError::new("not now"));
        }
        self.0.told(&path, &format!("{:?}", end.status()));
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn finish_hooks() {
    let build: Build = |builder, ledger| scripts(builder, ledger).agent(Told(Arc::clone(ledger)));
    everywhere(build, true, async |system: &System| {
        let told = system.agent::<Told>("t")?;
        let mut ends = Vec::new();
        for id in ["1", "2"] {
            ends.push(told.run::<Script>(vec![step("a"), emit()]).id(id).await?);
        }
        // Both hooks are called, fail, and are called again 1 s later.
        tokio::time::sleep(Duration::from_secs(60)).await;
        Ok(format!("{ends:?}"))
    })
    .await;
}

/// The order in which results come is that of real threads here, and no crash may change it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn steps_side_by_side_on_several_threads() {
    let ops = vec![
        Op::Both(
            vec![slow_step("a", 1), emit(), slow_step("b", 0), milestone("left"), emit()],
            vec![
                step("c"),
                Op::Both(
                    vec![milestone("m"), emit(), Op::Set { key: "k".into(), bytes: 1 }, sleep(1)],
                    vec![step("d"), emit(), sleep(2), step("e"), milestone("n")],
                ),
            ],
        ),
        Op::Race { key: "race".into(), ms: vec![2, 1, 0, 1] },
        Op::Deadline { key: "close".into(), step_ms: 2, sleep_ms: 2 },
        emit(),
    ];
    for round in 0..10 {
        let (store, ledger) = (MemoryStore::new(), Arc::<Ledger>::default());
        for life in 0..8 {
            let builder = System::on_store(store.reopen()).seed(life);
            let system = scripts(builder, &ledger).start().await.unwrap();
            let director = system.agent::<Director>("d").unwrap();
            let mut runs = Vec::new();
            for n in 0..20 {
                let id = n.to_string();
                runs.push(director.start::<Script>(ops.clone()).id(id).await.unwrap());
            }
            if life < 7 {
                tokio::time::sleep(Duration::from_millis(life * 2 + round % 3)).await;
            } else {
                let ends = runs.iter().map(Run::outcome);
                let ends = futures_util::future::join_all(ends);
                let ends = tokio::time::timeout(Duration::from_secs(60), ends).await.unwrap();
                for end in ends {
                    end.unwrap().completed().unwrap();
                }
            }
            system.crash().await;
        }
        assert_eq!(ledger.violations(), Vec::<String>::new());
    }
}

/// Makes up scripts.
struct Author {
    chance: Chance,
    named: u64,
}

impl Author {
    fn name(&mut self) -> String {
        self.named += 1;
        format!("n{}", self.named)
    }

    fn ms(&mut self) -> u64 {
        [0, 1, 10, 50, 900, 1_100, 30_000][self.chance.below(7) as usize]
    }

    fn script(&mut self, depth: u64) -> Vec<Op> {
        let length = 1 + self.chance.below(5);
        (0..length).map(|_| self.op(depth)).collect()
    }

    fn op(&mut self, depth: u64) -> Op {
        match self.chance.below(if depth == 0 { 10 } else { 19 }) {
            0 | 1 => Op::Step { key: self.name(), ms: self.ms(), bytes: 0 },
            2 => Op::Step { key: self.name(), ms: 0, bytes: 40_000 },
            3 => Op::StepEmits { key: self.name(), chunks: 1 + self.chance.below(3) as u32 },
            4 => Op::Retry { key: self.name(), failures: self.chance.below(3) as u32 },
            5 => Op::Emit { bytes: 1 + self.chance.below(60_000) as usize },
            6 => Op::Milestone { name: self.name(), bytes: 10 },
            7 => Op::Sleep { ms: self.ms() },
            8 => Op::Set { key: "k".into(), bytes: self.chance.below(100) as usize },
            9 => Op::Progress { permille: self.chance.below(1000) as u32 },
            10 | 11 => Op::Both(self.script(depth - 1), self.script(depth - 1)),
            12 => Op::Race { key: self.name(), ms: vec![self.ms(), self.ms(), self.ms()] },
            13 => {
                let (step_ms, sleep_ms) = (self.ms(), self.ms());
                Op::Deadline { key: self.name(), step_ms, sleep_ms }
            }
            14 | 15 => {
                let (id, milestone, within_ms) = (self.name(), self.name(), self.ms());
                let mut ops = self.script(depth - 1);
                let at = self.chance.below(ops.len() as u64 + 1) as usize;
                ops.insert(at, Op::Milestone { name: milestone.clone(), bytes: 10 });
                Op::Hears { id, milestone, within_ms, ops }
            }
            16 => {
                let (id, sleep_ms) = (self.name(), self.ms());
                Op::Either { id, sleep_ms, ops: self.script(depth - 1) }
            }
            _ => Op::Child(self.script(depth - 1)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn scripts_of_chance() {
    // More of them: GHOSTLIGHT_TEST_SEEDS=5000 cargo test --test it scripts_of_chance
    let seeds = std::env::var("GHOSTLIGHT_TEST_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    for seed in 0..seeds.unwrap_or(150) {
        let mut author = Author { chance: Chance(seed), named: 0 };
        let ops = author.script(2);
        let mut chance = author.chance;
        let latency = Duration::from_millis(chance.below(3) * 4);
        let faults: Vec<_> = (0..chance.below(5))
            .map(|_| {
                let fault = [Fault::Before, Fault::After][chance.below(2) as usize];
                (1 + chance.below(20), fault)
            })
            .collect();
        eprintln!("seed {seed}: latency {latency:?}, crashes {faults:?}, {ops:?}");
        let world = World::new(scripts).latency(latency);
        let drive = async |system: &System| run_script(system, &ops).await;
        let end = world.drive(&faults, &drive).await;
        assert!(end.starts_with("Completed"), "{end}");
        check_script(&world, &ops).await;
    }
}
