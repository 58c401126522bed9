//! The simulated disk keeps the contract of a store, and forgets what a power cut takes.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::sync::Mutex;

use ghostlight::storage::{
    Backend, Batch, Committer, CommitterOptions, Entry, Error, Limit, Store, Versioned,
};
use ghostlight_storage::conformance;

use super::{Disk, DiskOfLife};
use crate::invariant::Invariants;
use crate::plan::Plan;
use crate::world::World;

fn world(plan: &str) -> World {
    let world = World::new(plan.parse().unwrap(), Invariants::none(), u64::MAX, crate::LIFE_MAX);
    world.begin_life();
    world
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// The backend of a life as a store.
struct AsStore {
    runtime: tokio::runtime::Runtime,
    disk: Mutex<DiskOfLife>,
}

impl Store for AsStore {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, Error> {
        self.runtime.block_on(self.disk.lock().unwrap().get(key.to_vec()))
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: Limit) -> Result<Vec<Entry>, Error> {
        let (prefix, after) = (prefix.to_vec(), after.map(<[u8]>::to_vec));
        self.runtime.block_on(self.disk.lock().unwrap().scan(prefix, after, limit))
    }

    fn commit(&self, batches: &[Batch]) -> Result<Vec<Result<(), Error>>, Error> {
        self.runtime.block_on(self.disk.lock().unwrap().commit(batches.to_vec()))
    }
}

/// Each opening is a life of the process.
struct Lives(World);

impl conformance::Disk for Lives {
    fn open(&mut self) -> Box<dyn Store> {
        self.0.end_life();
        self.0.begin_life();
        let disk = Mutex::new(DiskOfLife::new(&self.0));
        Box::new(AsStore { runtime: runtime(), disk })
    }
}

#[test]
fn it_keeps_the_contract_of_a_store() {
    conformance::run(|| Box::new(Lives(world("latency=3"))));
}

fn keys(disk: &Disk) -> Vec<&str> {
    disk.written().keys().map(|key| std::str::from_utf8(key).unwrap()).collect()
}

#[test]
fn a_power_cut_leaves_whole_batches_in_order() {
    let group = [
        Batch::new().put("a", "1").put("b", "1"),
        Batch::new().expect("a", ghostlight::storage::Expect::Absent).put("z", "refused"),
        Batch::new().delete("a").put("c", "1"),
    ];
    for (kept, expected) in [
        (0, vec!["0"]),
        (1, vec!["0", "a", "b"]),
        (2, vec!["0", "a", "b"]),
        (3, vec!["0", "b", "c"]),
    ] {
        let mut disk = Disk::default();
        disk.write(&[Batch::new().put("0", "synced")]);
        assert_eq!(disk.sync().len(), 1);
        assert!(disk.write(&group)[1].is_err());
        disk.power_cut(kept);
        assert_eq!(keys(&disk), expected, "{kept} batches were kept");
        disk.sync();
        disk.power_cut(0);
        assert_eq!(keys(&disk), expected, "what was kept stays");
    }
}

/// Two batches of one group under a plan: how they were answered, and the keys in the next life.
fn two_in_a_group(plan: &str) -> (Vec<Option<Result<(), Error>>>, Vec<String>) {
    let world = world(plan);
    let runtime = runtime();
    let answers = runtime.block_on(async {
        let disk = DiskOfLife::new(&world);
        let (committer, _handle) =
            Committer::with_backend_options(disk, CommitterOptions::default());
        let pending = ["a", "b"].map(|key| committer.enqueue(Batch::new().put(key, "1")));
        let mut answers = Vec::new();
        for pending in pending {
            let hour = std::time::Duration::from_secs(3600);
            answers.push(tokio::time::timeout(hour, pending).await.ok());
        }
        if world.store_failed() {
            assert!(matches!(committer.commit(Batch::new()).await, Err(Error::Poisoned { .. })));
        }
        answers
    });
    drop(runtime);
    world.end_life();
    world.begin_life();
    let keys = world.read(|written| written.keys().cloned().collect::<Vec<_>>());
    (answers, keys.into_iter().map(|key| String::from_utf8(key).unwrap()).collect())
}

#[test]
fn a_group_is_killed_at_every_place() {
    for (plan, left) in [
        ("kill-before@1", &[][..]),
        ("latency=5 kill-torn:0@1", &[]),
        ("latency=5 kill-torn:1@1", &["a"]),
        ("kill-torn:2@1", &["a", "b"]),
        ("kill-torn:99@1", &["a", "b"]),
        ("kill-after@1", &["a", "b"]),
    ] {
        let (answers, keys) = two_in_a_group(plan);
        assert_eq!(keys, left, "{plan}");
        assert!(answers.iter().all(Option::is_none), "{plan}: nobody is answered: {answers:?}");
    }
}

#[test]
fn a_disk_that_fails_poisons_the_store_whatever_it_has_kept() {
    for (plan, left) in
        [("fail@1", &[][..]), ("latency=2 fail:1@1", &["a"]), ("fail:2@1", &["a", "b"])]
    {
        let (answers, keys) = two_in_a_group(plan);
        assert_eq!(keys, left, "{plan}");
        for answer in answers {
            assert!(matches!(answer, Some(Err(Error::Poisoned { .. }))), "{plan}: {answer:?}");
        }
    }
}

#[test]
fn reads_take_time_and_fail() {
    for (plan, ms, failed) in
        [("latency=7", 7, false), ("stall-read:40@1", 40, false), ("fail-read@1", 0, true)]
    {
        let world = world(plan);
        runtime().block_on(async {
            let (committer, _handle) = Committer::with_backend(DiskOfLife::new(&world));
            let began = tokio::time::Instant::now();
            let read = committer.get(b"a".to_vec()).await;
            assert_eq!(read.is_err(), failed, "{plan}");
            assert_eq!(began.elapsed().as_millis(), ms, "{plan}");
            let written = committer.commit(Batch::new().put("a", "1")).await;
            assert_eq!(written.is_err(), failed, "{plan}: a store that cannot read is over");
        });
    }
}

#[test]
fn whoever_uses_a_disk_that_has_failed_is_told_on() {
    let world = world("fail@1");
    runtime().block_on(async {
        let mut disk = DiskOfLife::new(&world);
        assert!(disk.commit(vec![Batch::new().put("a", "1")]).await.is_err());
        assert_eq!(world.violation(), None);
        let _ = disk.get(b"a".to_vec()).await;
    });
    let violation = world.violation().unwrap();
    assert_eq!(violation.invariant, "a disk that has failed is left alone");
    assert_eq!(world.plan(), Plan::calm(0).with(crate::Fault::Fail(0), 1));
}

#[test]
fn the_wall_clock_stops_at_its_ends() {
    use ghostlight::Clock as _;
    let world = world("");
    let mut shown = Vec::new();
    for ms in [i64::MIN, i64::MIN, i64::MAX, i64::MAX, i64::MAX] {
        world.jump(ms);
        shown.push(world.clock().now_ms());
    }
    assert_eq!(shown[..2], [0, 0]);
    assert!(shown.is_sorted(), "{shown:?}");
}
