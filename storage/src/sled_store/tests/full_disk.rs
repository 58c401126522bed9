//! What happens when the disk is full, or may not be written.

use std::os::unix::fs::PermissionsExt as _;

use super::super::log_check::newest_snapshot;
use super::super::space::{RESERVE_BYTES, SPARE_BYTES, START_BYTES, opening_bytes};
use super::*;
use crate::testing::{SmallDisk, unprivileged};

/// Of a tmpfs.
const BLOCK_BYTES: u64 = 4096;

fn value(n: u32) -> Vec<u8> {
    // No file system or engine can make this smaller.
    let mut rng = fastrand::Rng::with_seed(n.into());
    (0..20_000).map(|_| rng.u8(..)).collect()
}

/// Commits until it fails; how many batches were acknowledged, and the failure.
fn write_until_it_fails(store: &SledStore, first: u32) -> (u32, Error) {
    for n in first.. {
        let batch = Batch::new().put(n.to_be_bytes(), value(n)).put("last", n.to_be_bytes());
        match store.commit(&[batch]) {
            Ok(mut answers) => answers.remove(0).unwrap(),
            Err(error) => return (n, error),
        }
    }
    unreachable!("the disk is small")
}

fn assert_all_there(store: &SledStore, acknowledged: u32) {
    for n in 0..acknowledged {
        let found = store.get(&n.to_be_bytes()).unwrap();
        assert!(found.is_some_and(|found| found.value == value(n)), "{n} of {acknowledged}");
    }
}

#[test]
fn a_full_disk_is_noticed_before_it_is_full() {
    let Some(disk) = SmallDisk::mount("size=80m") else { return };
    let folder = disk.path().join("data");
    let store = open(&folder);
    let (acknowledged, error) = write_until_it_fails(&store, 0);
    assert!(acknowledged > 100, "{acknowledged}");
    let Error::Poisoned { why } = &error else { panic!("{error}") };
    assert!(why.starts_with("no space is left: 31 MiB are free in "), "{why}");
    let free = rustix::fs::statvfs(disk.path()).unwrap();
    assert!(free.f_bavail * free.f_frsize > RESERVE_BYTES - 2 * SEGMENT_BYTES as u64);

    // Space alone does not bring it back: a store that refused one write takes no later one.
    disk.remount("size=160m");
    assert_eq!(put(&store, "later", "1").unwrap_err().to_string(), error.to_string());
    drop(store);

    disk.remount("size=60m");
    let Error::Open { why, .. } = open_error(&folder) else { panic!("opened without space") };
    assert!(why.starts_with("no space is left: "), "{why}");

    disk.remount("size=160m");
    let store = open(&folder);
    assert_all_there(&store, acknowledged);
    assert_eq!(store.get(b"later").unwrap(), None);
    let (more, _) = write_until_it_fails(&store, acknowledged);
    assert!(more > acknowledged + 100);
}

/// The guard against a full disk can be too late, when others fill it: then sled meets it.
#[test]
fn a_disk_that_is_full_at_once_ends_the_store_and_nothing_else() {
    for free in [0, 100_000, 6_000_000] {
        let Some(disk) = SmallDisk::mount("size=80m") else { return };
        let folder = disk.path().join("data");
        let mut store = open(&folder);
        store.engine.reserve = 0;
        for n in 0..20_u32 {
            let batch = Batch::new().put(n.to_be_bytes(), value(n));
            store.commit(&[batch]).unwrap().remove(0).unwrap();
        }
        disk.fill(free);
        let (_, error) = write_until_it_fails(&store, 20);
        assert!(matches!(error, Error::Poisoned { .. }), "{error}");
        assert!(matches!(put(&store, "later", "1"), Err(Error::Poisoned { .. })));
        drop(store);
        // Whatever sled is doing now, nobody else gets at the files.
        assert!(matches!(open_error(&folder), Error::Locked { pid, .. } if pid != 0));
        // And other stores of this process go on.
        put(&open(tempfile::tempdir().unwrap().path()), "a", "1").unwrap();
    }
}

#[test]
fn a_read_only_disk_is_a_clear_error() {
    let Some(disk) = SmallDisk::mount("size=80m") else { return };
    let folder = disk.path().join("data");
    put(&open(&folder), "a", "1").unwrap();
    disk.remount("ro");
    for folder in [folder, disk.path().join("new")] {
        let Error::Open { why, .. } = open_error(&folder) else {
            panic!("opened a read-only disk")
        };
        assert!(why.starts_with("its file system is read-only; "), "{why}");
    }
}

#[test]
fn files_of_another_user_are_a_clear_error() {
    let parent = tempfile::tempdir().unwrap();
    let everyone = |path: &Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    };
    everyone(parent.path());
    let folder = parent.path().join("data");
    put(&open(&folder), "a", "1").unwrap();
    // The folder and its lock may be used, the store in it not.
    everyone(&folder);
    everyone(&folder.join("lock"));
    let none = std::fs::Permissions::from_mode(0o000);
    std::fs::set_permissions(folder.join("store"), none).unwrap();
    unprivileged(|| {
        let Error::Open { why, .. } = open_error(&folder) else { panic!("opened it") };
        assert!(why.starts_with("permission denied; "), "{why}");
    });
    let usual = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(folder.join("store"), usual).unwrap();
    assert!(open(&folder).get(b"a").unwrap().is_some());
}

/// Opens the store of a folder as tools do.
fn open_spare(folder: &Path) -> Result<SledStore, Error> {
    SledStore::open_spare(FolderLock::acquire(folder).unwrap(), Durability::PowerLoss)
}

#[test]
fn below_the_reserve_a_store_is_still_read_and_emptied() {
    let Some(disk) = SmallDisk::mount("size=120m") else { return };
    let folder = disk.path().join("data");
    let store = open(&folder);
    let (acknowledged, _) = write_until_it_fails(&store, 0);
    let log_bytes = || std::fs::metadata(folder.join("store/db")).unwrap().len();
    let full = log_bytes();
    drop(store);
    disk.fill(20 << 20);
    assert!(open_error(&folder).to_string().contains("no space is left: "));

    let store = open_spare(&folder).unwrap();
    assert_all_there(&store, acknowledged);
    for n in 0..acknowledged {
        store.commit(&[Batch::new().delete(n.to_be_bytes())]).unwrap().remove(0).unwrap();
    }
    put(&store, "last", "cleared").unwrap();
    drop(store);

    // Nobody who adds something gets in before there is space.
    assert!(open_error(&folder).to_string().contains("no space is left"));
    disk.remount("size=160m");
    let store = open(&folder);
    assert_eq!(store.scan(b"", None, ALL).unwrap().len(), 1);
    // What was freed is used again, or given back: sled may cut off free segments at the log's end.
    for n in 0..acknowledged / 2 {
        store.commit(&[Batch::new().put(n.to_be_bytes(), value(n))]).unwrap().remove(0).unwrap();
    }
    let grown = log_bytes().saturating_sub(full);
    assert!(grown < 20_000 * u64::from(acknowledged / 2) / 2, "{grown} over {full}");
}

#[test]
fn a_store_that_opens_is_written_to() {
    let Some(disk) = SmallDisk::mount("size=120m") else { return };
    let folder = disk.path().join("data");
    let (acknowledged, _) = write_until_it_fails(&open(&folder), 0);
    disk.remount("size=200m");
    disk.fill(START_BYTES - BLOCK_BYTES);
    let Error::Open { why, .. } = open_error(&folder) else { panic!("opened without space") };
    assert!(why.starts_with("no space is left: 39 MiB are free in "), "{why}");
    assert!(why.ends_with(", and 40 MiB are needed; make space"), "{why}");

    // The lock of the folder takes a block.
    disk.fill(START_BYTES + BLOCK_BYTES);
    let store = open(&folder);
    put(&store, "more", "1").unwrap();
    assert_all_there(&store, acknowledged);
}

#[test]
fn with_hardly_any_space_a_store_is_still_read() {
    let Some(disk) = SmallDisk::mount("size=80m") else { return };
    let folder = disk.path().join("data");
    let (acknowledged, _) = write_until_it_fails(&open(&folder), 0);
    let store = folder.join("store");
    disk.fill(0);
    for _ in 0..3 {
        let Err(Error::Open { why, .. }) = open_spare(&folder) else { panic!("opened it") };
        assert!(why.starts_with("no space is left: 0 MiB are free in "), "{why}");
        let needed = opening_bytes(&store).div_ceil(1 << 20);
        assert!(why.ends_with(&format!(", and {needed} MiB are needed; make space")), "{why}");
    }
    for _ in 0..3 {
        disk.fill(opening_bytes(&store));
        let store = open_spare(&folder).unwrap();
        assert_all_there(&store, acknowledged);
        disk.fill(SPARE_BYTES - BLOCK_BYTES);
        let error = put(&store, "more", "1").unwrap_err();
        assert!(error.to_string().contains("no space is left: "), "{error}");
    }
    disk.remount("size=160m");
    assert_all_there(&open(&folder), acknowledged);
}

/// The smallest entries make the largest index.
#[test]
fn an_eighth_of_the_log_is_more_than_the_index() {
    let folder = tempfile::tempdir().unwrap();
    let store = SledStore::open(folder.path(), Durability::ProcessCrash).unwrap();
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..600 {
        let batch =
            (0..64).fold(Batch::new(), |batch, _| batch.put(rng.u128(..).to_be_bytes(), []));
        store.commit(&[batch]).unwrap().remove(0).unwrap();
    }
    drop(store);
    let files = folder.path().join("store");
    let expected = opening_bytes(&files) - SEGMENT_BYTES as u64;
    drop(open(folder.path()));
    let snapshot = newest_snapshot(&files).unwrap().unwrap();
    let index = std::fs::metadata(snapshot).unwrap().len();
    assert!(index < expected, "{index} bytes, and {expected} were expected");
}
