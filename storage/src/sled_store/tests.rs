mod acked;
mod damage;
mod full_disk;
mod guards;
mod log_check;

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use super::open::{FORMAT_KEY, SEGMENT_BYTES};
use super::*;
use crate::conformance::{self, Disk};
use crate::store::{BATCH_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};

const ALL: Limit = Limit { entries: usize::MAX, bytes: usize::MAX };

fn open(folder: &Path) -> SledStore {
    SledStore::open(folder, Durability::PowerLoss).unwrap()
}

fn open_error(folder: &Path) -> Error {
    SledStore::open(folder, Durability::PowerLoss).map(drop).unwrap_err()
}

fn put(store: &SledStore, key: &str, value: &str) -> Result<(), Error> {
    store.commit(&[Batch::new().put(key, value)])?.remove(0)
}

/// Opens the files of a closed store without any guard, and closes them again.
fn bare(folder: &Path, change: impl FnOnce(&sled::Db)) -> sled::Result<()> {
    let store = folder.join("store");
    let db = sled::Config::new().path(&store).segment_size(SEGMENT_BYTES).open();
    let changed = db.map(|db| {
        change(&db);
        db.flush().unwrap();
    });
    let log = File::open(store.join("db")).unwrap();
    flock(&log, FlockOperation::LockExclusive).unwrap();
    flock(&log, FlockOperation::Unlock).unwrap();
    changed
}

struct Folder(TempDir, Durability);

impl Disk for Folder {
    fn open(&mut self) -> Box<dyn Store> {
        Box::new(SledStore::open(self.0.path(), self.1).unwrap())
    }
}

#[test]
fn keeps_the_contract() {
    conformance::run(|| Box::new(Folder(tempfile::tempdir().unwrap(), Durability::PowerLoss)));
}

#[test]
fn keeps_the_contract_without_power_loss() {
    conformance::run(|| Box::new(Folder(tempfile::tempdir().unwrap(), Durability::ProcessCrash)));
}

#[test]
fn every_group_is_synced_for_power_loss() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    for n in 1..=10 {
        put(&store, "a", "1").unwrap();
        assert_eq!(store.syncs(), n);
    }
    let refused = Batch::new().expect("a", crate::Expect::Absent);
    assert!(store.commit(&[Batch::new(), refused]).unwrap()[1].is_err());
    assert_eq!(store.syncs(), 10, "nothing was written");
}

/// A file that cannot be synced.
fn unsyncable() -> File {
    let (reader, _writer) = std::io::pipe().unwrap();
    File::from(OwnedFd::from(reader))
}

#[test]
fn a_failed_sync_is_no_acknowledgement_and_the_last_write() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path());
    put(&store, "a", "1").unwrap();
    let log = std::mem::replace(&mut store.engine.parts_mut().log, unsyncable());
    let first = put(&store, "a", "2").unwrap_err();
    assert!(matches!(&first, Error::Poisoned { why } if why.starts_with("cannot sync: ")));
    // A device that works again changes nothing.
    store.engine.parts_mut().log = log;
    for error in [put(&store, "b", "1").unwrap_err(), store.get(b"a").map(drop).unwrap_err()] {
        assert_eq!(error.to_string(), first.to_string());
    }
    assert!(store.scan(b"", None, ALL).is_err());
    drop(store);
    assert_eq!(open(folder.path()).get(b"b").unwrap(), None);
}

#[test]
fn without_power_loss_the_unsynced_tail_is_still_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = SledStore::open(folder.path(), Durability::ProcessCrash).unwrap();
    for _ in 0..64 {
        put(&store, "a", "1").unwrap();
    }
    assert_eq!(store.syncs(), 0);
    put(&store, "a", "1").unwrap();
    assert_eq!(store.syncs(), 1, "64 batches are unsynced at most");

    let large = Batch::new().put("b", vec![0; 30 << 10]).put("c", vec![0; 30 << 10]);
    for _ in 0..12 {
        store.commit(std::slice::from_ref(&large)).unwrap().remove(0).unwrap();
    }
    assert_eq!(store.syncs(), 4, "200 KiB are unsynced at most");

    store.engine.parts_mut().log = unsyncable();
    let failed = (0..65).map(|_| put(&store, "a", "1")).find(Result::is_err);
    assert!(matches!(failed, Some(Err(Error::Poisoned { .. }))));
}

#[test]
fn a_call_is_cut_into_slices_within_the_bound() {
    let sizes = |batches: &[Batch]| slices(batches).map(<[Batch]>::len).collect::<Vec<_>>();
    let small = Batch::new().put("a", "1");
    let many = (0..64_u8).fold(Batch::new(), |batch, n| batch.put([n], ""));
    let large = (0..6_u8).fold(Batch::new(), |batch, n| batch.put([n], vec![0; 32 << 10]));
    assert!(sizes(&[]).is_empty());
    assert_eq!(sizes(&vec![small.clone(); 130]), [64, 64, 2]);
    assert_eq!(sizes(&vec![many.clone(); 5]), [2, 2, 1]);
    assert_eq!(sizes(&vec![large.clone(); 3]), [1, 1, 1]);
    assert_eq!(sizes(&[large, small.clone(), many.clone(), many, small]), [3, 2]);
    assert!(Load { batches: 1, operations: 64, bytes: BATCH_BYTES_MAX }.fits());
}

#[test]
fn an_unfinished_snapshot_is_removed_and_no_other_file() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        put(&open(folder.path()), "a", "1").unwrap();
    }
    let store = folder.path().join("store");
    let unfinished = store.join("snap.FFFFFFFFFFFFFFFF.generating");
    let names = || {
        let mut names: Vec<_> =
            std::fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    assert!(before.iter().any(|name| name.to_string_lossy().starts_with("snap.")));

    std::fs::write(&unfinished, "torn in the middle").unwrap();
    assert!(bare(folder.path(), |_| ()).is_err(), "the guard has become needless");
    open::remove_unfinished_snapshots(&store).unwrap();
    assert_eq!(names(), before);

    std::fs::write(&unfinished, "").unwrap();
    assert_eq!(open(folder.path()).get(b"a").unwrap().unwrap().revision, 3);
}

/// Fills leaf pages with the largest entries, in an order that makes pages as full as they get.
fn largest_pages(mut insert: impl FnMut(Batch)) {
    let key = |n: u8| [&[n][..], &vec![n; KEY_BYTES_MAX - 1]].concat();
    let value = |n: u8| vec![n; VALUE_BYTES_MAX];
    for round in 0..3 {
        for n in (0..60).filter(|n| round == 2 || n % 2 == round) {
            insert(Batch::new().put(key(n), value(n)));
        }
    }
    for n in (0..60).filter(|n| n % 3 > 0) {
        insert(Batch::new().delete(key(n)));
    }
    for n in 60..80 {
        insert((0..5).fold(Batch::new(), |batch, m| batch.put([n, m], value(n))));
    }
    // Small writes between large neighbours rewrite the whole page.
    for n in 0..200 {
        insert(Batch::new().put([70, 2, n], ""));
    }
}

fn blobs(folder: &Path) -> usize {
    std::fs::read_dir(folder.join("blobs")).unwrap().count()
}

#[test]
fn no_page_is_ever_written_to_a_file_that_is_not_synced() {
    let folder = tempfile::tempdir().unwrap();
    let store = SledStore::open(folder.path(), Durability::ProcessCrash).unwrap();
    let files = folder.path().join("store");
    largest_pages(|batch| {
        store.commit(&[batch]).unwrap().remove(0).unwrap();
        assert_eq!(blobs(&files), 0);
    });
    drop(store);
    assert_eq!(open(folder.path()).get(&[70, 2, 199]).unwrap().unwrap().revision, 1);
    assert_eq!(blobs(&files), 0);

    // The same with sled's own segments: the guard is needed.
    let bare = tempfile::tempdir().unwrap();
    let db = sled::Config::new().path(bare.path()).open().unwrap();
    largest_pages(|batch| {
        for operation in batch.operations {
            match operation {
                crate::Operation::Put(key, value) => drop(db.insert(key, value).unwrap()),
                crate::Operation::Delete(key) => drop(db.remove(key).unwrap()),
                crate::Operation::Expect(..) => {}
            }
        }
    });
    db.flush().unwrap();
    assert!(blobs(bare.path()) > 0, "the guard has become needless");
}

#[test]
fn a_store_that_was_not_made_to_the_end_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let unfinished = folder.path().join("store.new");
    std::fs::create_dir_all(unfinished.join("blobs")).unwrap();
    // A kill between sled's two writes of this file leaves it without its checksum, and then sled
    // takes the last bytes of the text for it.
    std::fs::write(
        unfinished.join("conf"),
        "segment_size: 4194304\nuse_compression: false\nversion: 0.34\n",
    )
    .unwrap();
    assert!(sled::Config::new().path(&unfinished).open().is_err(), "the guard has become needless");
    put(&open(folder.path()), "a", "1").unwrap();
    assert!(!unfinished.exists());
    assert!(open(folder.path()).get(b"a").unwrap().is_some());
}

#[test]
fn the_folder_is_free_as_soon_as_the_store_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    for n in 0..20 {
        let store = open(folder.path());
        let refused = open_error(folder.path());
        assert!(matches!(refused, Error::Locked { pid, .. } if pid == std::process::id()));
        assert_eq!(store.get(b"n").unwrap().map_or(0, |n| n.revision), n);
        for _ in 0..n % 3 {
            put(&store, "other", "1").unwrap();
        }
        put(&store, "n", "1").unwrap();
    }
}

#[test]
fn a_panic_of_the_engine_is_a_failure_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let panicked: Result<(), _> = store.engine.call("test", |_| panic!("torn page"));
    assert_eq!(
        panicked.unwrap_err().to_string(),
        "the store failed and refuses writes until it is reopened: cannot test: panic: torn page"
    );
    assert!(matches!(put(&store, "a", "1"), Err(Error::Poisoned { .. })));
}

#[test]
fn an_error_of_the_engine_is_a_failure_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let failed: Result<(), _> =
        store.engine.call("read", |_| Err(std::io::Error::other("bad sector").into()));
    assert!(matches!(&failed, Err(Error::Poisoned { why }) if why.contains("bad sector")));
    assert!(matches!(put(&store, "a", "1"), Err(Error::Poisoned { .. })));
    assert!(matches!(store.get(b"a"), Err(Error::Poisoned { .. })));
}

#[test]
fn a_newer_format_is_refused_and_a_missing_one_is_not_guessed() {
    let folder = tempfile::tempdir().unwrap();
    put(&open(folder.path()), "a", "1").unwrap();
    let set = |format: Option<&[u8]>| {
        let changed = bare(folder.path(), |db| match format {
            Some(format) => drop(db.insert(FORMAT_KEY, format).unwrap()),
            None => drop(db.remove(FORMAT_KEY).unwrap()),
        });
        changed.unwrap();
    };
    set(Some(&2_u32.to_be_bytes()));
    let error = open_error(folder.path());
    assert!(matches!(error, Error::TooNew { found: 2, known: 1, .. }), "{error}");
    for odd in [Some(&b""[..]), Some(b"\0\0\0\0"), Some(b"\0\0\0\0\x01"), None] {
        set(odd);
        let error = open_error(folder.path());
        let why = "its files are damaged (the format of the store is not written in it); ";
        assert!(error.to_string().contains(why), "{odd:?}: {error}");
    }
    set(Some(&1_u32.to_be_bytes()));
    assert!(open(folder.path()).get(b"a").unwrap().is_some());
}

#[test]
fn a_value_without_a_revision_is_corrupt() {
    let folder = tempfile::tempdir().unwrap();
    put(&open(folder.path()), "a", "1").unwrap();
    bare(folder.path(), |db| drop(db.insert(callers_key(b"a"), "1234567").unwrap())).unwrap();
    let store = open(folder.path());
    for error in
        [store.get(b"a").map(drop).unwrap_err(), store.scan(b"", None, ALL).map(drop).unwrap_err()]
    {
        assert_eq!(error.to_string(), "record a is corrupt: 7 bytes are too few for a revision");
    }
}
