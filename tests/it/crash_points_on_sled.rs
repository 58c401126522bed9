//! A process that is killed after any commit, on real files: nothing is lost, nothing is repeated.
//!
//! The test kills after every few commits. After every one:
//!
//! ```text
//! GHOSTLIGHT_TEST_KILL_STRIDE=1 cargo test -p ghostlight --test it crash_points_on_sled
//! ```

use std::sync::Arc;

use ghostlight::prelude::*;
use ghostlight::storage::{Durability, SledStore};
use ghostlight::{SystemBuilder, VirtualClock};
use tempfile::TempDir;

use crate::support::image::{Killed, Life, keys};
use crate::support::ledger::Ledger;
use crate::support::script::Op;
use crate::support::script::ops::{emit, milestone, progress, sleep, step};
use crate::support::world::{Director, Watch, check_replay, reached, replay, run_script, scripts};

const STRIDE: usize = 6;

/// What outlives the process.
struct Outside {
    ledger: Arc<Ledger>,
    clock: VirtualClock,
}

impl Outside {
    fn new() -> Self {
        let clock = VirtualClock::starting_at(1_767_225_600_000);
        Self { ledger: Arc::default(), clock }
    }

    async fn start(&self, folder: &Arc<TempDir>, kill: Option<u64>) -> (System, Killed) {
        let (life, killed) = Life::open(folder, kill);
        let builder = SystemBuilder::on_backend(life).clock(self.clock).seed(1);
        (scripts(builder, &self.ledger).start().await.unwrap(), killed)
    }

    /// Runs the script in a folder until it ends, or until the kill: the folder as it was left.
    async fn live(
        &self,
        folder: TempDir,
        kill: Option<u64>,
        ops: &[Op],
    ) -> (TempDir, Option<String>, u64) {
        let folder = Arc::new(folder);
        let (life, killed) = Life::open(&folder, kill);
        let builder = SystemBuilder::on_backend(life).clock(self.clock).seed(1);
        let mut started = None;
        let drive = async {
            let builder = scripts(builder, &self.ledger);
            let system = started.insert(builder.start().await.unwrap());
            let _watch = Watch::new(system, &self.ledger);
            run_script(system, ops).await.unwrap()
        };
        let (image, ended) = tokio::select! {
            biased;
            image = killed.image() => (Some(image), None),
            ended = drive => (None, Some(ended)),
        };
        if let Some(system) = started {
            system.crash().await;
        }
        let image = image.unwrap_or_else(|| Arc::into_inner(folder).unwrap());
        (image, ended, killed.groups())
    }

    /// One more life, in which nothing is executed any more.
    async fn check(&self, folder: TempDir, ops: &[Op], ended: &str) {
        let executions = self.ledger.executions();
        let folder = Arc::new(folder);
        let (system, _) = self.start(&folder, None).await;
        assert_eq!(run_script(&system, ops).await.unwrap(), ended, "an end has changed");
        let director = system.agent::<Director>("d").unwrap();
        let frames = replay(director.agent_ref(), "r").await;
        let run = director.agent_ref().path().child("Script", &"r".parse().unwrap()).unwrap();
        check_replay(&frames, &run);
        let milestones: Vec<_> = reached(&frames).into_iter().map(|(name, _)| name).collect();
        assert_eq!(milestones, ["first", "last"]);
        let replayed: Vec<_> = frames.iter().map(|frame| frame.to_json()).collect();
        for (number, frame) in self.ledger.seen(&run) {
            assert_eq!(replayed[number as usize], frame, "an observer saw frame {number}");
        }
        assert_eq!(self.ledger.executions(), executions, "a run that had ended was executed");
        assert_eq!(self.ledger.violations(), Vec::<String>::new());
        system.crash().await;
        let store = SledStore::open(folder.path(), Durability::ProcessCrash).unwrap();
        assert!(!keys(&store).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn killed_after_any_commit_it_goes_on() {
    let stride = std::env::var("GHOSTLIGHT_TEST_KILL_STRIDE").ok();
    let stride = stride.map_or(STRIDE, |stride| stride.parse().unwrap());
    let ops = [
        step("a"),
        emit(),
        milestone("first"),
        Op::Step { key: "large".into(), ms: 0, bytes: 300_000 },
        progress(400),
        Op::Both(
            vec![sleep(5), step("left"), emit()],
            vec![Op::Child(vec![step("b"), sleep(2_000), emit()])],
        ),
        Op::Set { key: "k".into(), bytes: 40_000 },
        Op::Retry { key: "again".into(), failures: 2 },
        sleep(3_600_000),
        Op::StepEmits { key: "c".into(), chunks: 2 },
        milestone("last"),
    ];
    let outside = Outside::new();
    let (folder, ended, commits) = outside.live(tempfile::tempdir().unwrap(), None, &ops).await;
    let ended = ended.unwrap();
    outside.check(folder, &ops, &ended).await;
    assert!(commits > 20, "{commits}");
    for first in (1..=commits).step_by(stride) {
        // Killed once, and then early in the life that recovers.
        let second = 1 + first % 5;
        eprintln!("killed after commit {first} of {commits}, and then after {second}");
        let outside = Outside::new();
        let (left, early, _) = outside.live(tempfile::tempdir().unwrap(), Some(first), &ops).await;
        let (left, late, _) = outside.live(left, Some(second), &ops).await;
        let (folder, last, _) = outside.live(left, None, &ops).await;
        let last = last.unwrap();
        for other in [early, late].into_iter().flatten().chain([ended.clone()]) {
            assert_eq!(other, last, "an end has changed");
        }
        outside.check(folder, &ops, &last).await;
    }
}
