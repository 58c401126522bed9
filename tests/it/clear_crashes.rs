//! A process that is lost while it clears: what was cleared stays cleared, and the next start
//! removes what is left of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use ghostlight::prelude::*;
use ghostlight::storage::{Durability, MemoryStore, SledStore, Store};
use ghostlight::{AgentPath, AgentRef, Error, RunFilter, SystemBuilder, VirtualClock};
use ghostlight_protocol::RunKey;
use tempfile::TempDir;

use crate::support::disk::{Disk, Fault};
use crate::support::image::{Life, keys};
use crate::support::script::Op;
use crate::support::script::ops::{emit, milestone, step};
use crate::support::world::{Director, check_replay, replay, scripts};

/// Runs of `Director:d`, which is cleared, with what they dispatch; those of `Director:e` stay.
const RUNS: [&str; 3] = ["1", "2", "3"];

fn script(id: &str) -> Vec<Op> {
    match id {
        // Parts of a payload, and more records of a log than one slice removes.
        "1" => {
            let mut ops = vec![Op::Step { key: "large".into(), ms: 0, bytes: 200_000 }];
            ops.extend((0..80).flat_map(|n| [emit(), step(&format!("s{n}"))]));
            ops
        }
        "2" => vec![Op::Child(vec![Op::Child(vec![step("a")]), emit()]), milestone("m")],
        _ => vec![step("a"), emit()],
    }
}

fn builder(backend: impl ghostlight::storage::Backend) -> SystemBuilder {
    let clock = VirtualClock::starting_at(1_767_225_600_000);
    scripts(SystemBuilder::on_backend(backend).clock(clock).seed(1), &Arc::default())
}

async fn populate(system: &System) {
    for parent in ["d", "e"] {
        let director = system.agent::<Director>(parent).unwrap();
        for id in RUNS {
            director.run::<super::support::script::Script>(script(id)).id(id).await.unwrap();
        }
    }
}

/// All runs below an agent.
async fn runs_below(system: &System, root: &AgentPath) -> Vec<(AgentPath, String)> {
    let (mut runs, mut agents) = (Vec::new(), vec![root.clone()]);
    while let Some(path) = agents.pop() {
        let agent = system.agent_at(&path).unwrap();
        for run in agent.list(&RunFilter::default(), None, 1000).await.unwrap().runs {
            agents.extend(path.child(&run.agent_type, &run.run_id.parse().unwrap()));
            runs.push((path.clone(), run.run_id));
        }
    }
    runs
}

fn key(parent: &AgentPath, run_id: &str) -> RunKey {
    RunKey::new(parent, &run_id.parse().unwrap())
}

/// The keys that belong to a run.
fn keys_of(all: &[Vec<u8>], run: RunKey) -> BTreeSet<Vec<u8>> {
    all.iter().filter(|key| key.windows(16).any(|part| part == run.0)).cloned().collect()
}

/// What there was before the clear.
struct Before {
    cleared: Vec<(AgentPath, String)>,
    others: Vec<(AgentPath, String)>,
    keys: Vec<Vec<u8>>,
}

impl Before {
    async fn of(system: &System, store: impl FnOnce() -> Vec<Vec<u8>>) -> Self {
        let path = |name| system.agent::<Director>(name).unwrap().agent_ref().path().clone();
        let cleared = runs_below(system, &path("d")).await;
        let others = runs_below(system, &path("e")).await;
        assert_eq!((cleared.len(), others.len()), (5, 5));
        Self { cleared, others, keys: store() }
    }

    /// What a start after the crash finds once it has swept.
    async fn check(&self, system: &System, store: impl Fn() -> Vec<Vec<u8>>) -> usize {
        // On the virtual clock: whatever can be done is done by then.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let root = self.others[0].0.clone();
        let others = runs_below(system, &root).await;
        assert_eq!(others, self.others, "other runs were touched");
        let visible: BTreeSet<_> =
            runs_below(system, system.agent::<Director>("d").unwrap().agent_ref().path())
                .await
                .into_iter()
                .collect();
        let after = store();
        let mut cleared = 0;
        for (parent, run_id) in &self.cleared {
            let run = key(parent, run_id);
            let agent = system.agent_at(parent).unwrap();
            let left = keys_of(&after, run);
            if visible.contains(&(parent.clone(), run_id.clone())) {
                assert_eq!(left, keys_of(&self.keys, run), "{parent} {run_id} was touched");
                let path = parent.child("Script", &run_id.parse().unwrap()).unwrap();
                check_replay(&replay(&agent, run_id).await, &path);
            } else {
                cleared += 1;
                assert_eq!(
                    left.len(),
                    1,
                    "only a tombstone is left of {parent} {run_id}: {left:?}"
                );
                assert!(agent.inspect(run_id).await.unwrap().is_none());
                let tail = agent.tail(run_id, After::START).await;
                assert!(matches!(tail, Err(Error::UnknownRun(_))), "{parent} {run_id}");
            }
        }
        for id in RUNS {
            let director = system.agent::<Director>("d").unwrap();
            let parent = director.agent_ref().path().clone();
            let again = director.start::<super::support::script::Script>(script(id)).id(id).await;
            let is_visible = visible.contains(&(parent, id.to_owned()));
            assert_eq!(again.is_ok(), is_visible, "the id {id}: {:?}", again.err());
        }
        cleared
    }
}

async fn clear(agent: &AgentRef) {
    agent.clear(&RunFilter::default()).await.unwrap();
    // The keys go after the answer.
    tokio::time::sleep(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn at_every_commit_of_a_clear() {
    let mut cleared = BTreeSet::new();
    for group in 1.. {
        for fault in [Fault::Before, Fault::After] {
            let store = MemoryStore::new();
            let system = builder(Disk::open(&store, None)).start().await.unwrap();
            populate(&system).await;
            let before = Before::of(&system, || keys(&store)).await;
            system.crash().await;

            // The first group of a life is the start's own.
            let disk = Disk::open(&store, Some((group + 1, fault)));
            let system = builder(disk.clone()).start().await.unwrap();
            let agent = system.agent::<Director>("d").unwrap().agent_ref().clone();
            let finished = tokio::select! {
                biased;
                () = disk.reached() => false,
                () = clear(&agent) => true,
            };
            system.crash().await;
            let system = builder(Disk::open(&store, None)).start().await.unwrap();
            cleared.insert(before.check(&system, || keys(&store)).await);
            system.crash().await;
            if finished {
                assert!(group > 8, "{group}");
                assert_eq!(cleared, (0..=5).collect(), "each run was once the last one");
                return;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn killed_in_the_middle_of_a_clear_on_sled() {
    // After every commit: GHOSTLIGHT_TEST_KILL_STRIDE=1
    let stride = std::env::var("GHOSTLIGHT_TEST_KILL_STRIDE").ok();
    let stride: usize = stride.map_or(4, |stride| stride.parse().unwrap());
    let entries = |folder: &TempDir| {
        keys(&SledStore::open(folder.path(), Durability::ProcessCrash).unwrap() as &dyn Store)
    };
    for commit in (2..).step_by(stride) {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let (life, _) = Life::open(&folder, None);
        let system = builder(life).start().await.unwrap();
        populate(&system).await;
        let mut before = Before::of(&system, Vec::new).await;
        system.shutdown().await;
        before.keys = entries(&folder);

        let (life, killed) = Life::open(&folder, Some(commit));
        let system = builder(life).start().await.unwrap();
        let agent = system.agent::<Director>("d").unwrap().agent_ref().clone();
        let image = tokio::select! {
            biased;
            image = killed.image() => Some(image),
            () = clear(&agent) => None,
        };
        system.crash().await;
        let Some(image) = image else {
            assert!(commit > 8, "{commit}");
            return;
        };
        // One life that sweeps and is lost, so that its store can be looked into.
        let image = Arc::new(image);
        let (life, _) = Life::open(&image, None);
        let system = builder(life).start().await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        system.shutdown().await;
        let swept = entries(&image);
        let (life, _) = Life::open(&image, None);
        let system = builder(life).start().await.unwrap();
        before.check(&system, || swept.clone()).await;
        system.crash().await;
    }
}
