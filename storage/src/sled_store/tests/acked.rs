//! The count of what was acknowledged: exact after a kill, never ahead of the log after a power cut.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use super::super::acked::{self, Mark, SLOTS};
use super::*;
use crate::testing::copy;

/// What a process leaves that is killed while nothing is under way.
fn killed(store: &SledStore) -> TempDir {
    let image = tempfile::tempdir().unwrap();
    copy(store.engine.parts().lock.folder(), image.path());
    image
}

fn files(folder: &Path) -> PathBuf {
    folder.join("store")
}

fn required(folder: &Path) -> Option<u64> {
    acked::read(&files(folder)).map(|acked| acked.required())
}

/// The store of `older` with the word of what was acknowledged in `newer`.
fn mixed(older: &Path, newer: &Path) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy(older, folder.path());
    fs::copy(files(newer).join("acked"), files(folder.path()).join("acked")).unwrap();
    folder
}

/// Lets the machine start again: what is written says another boot.
fn reboot(folder: &Path) {
    let file = files(folder).join("acked");
    let mut bytes = fs::read(&file).unwrap();
    for at in SLOTS.map(|at| at as usize) {
        let end = at + 68;
        bytes[end - 36..end].fill(b'0');
        let checksum = crc32fast::hash(&bytes[at..end]).to_be_bytes();
        bytes[end..end + 4].copy_from_slice(&checksum);
    }
    fs::write(file, bytes).unwrap();
}

#[test]
fn commits_are_counted_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    assert_eq!(required(folder.path()), Some(0));
    put(&store, "a", "1").unwrap();
    let refused = Batch::new().expect("a", crate::Expect::Absent).put("a", "2");
    let put = Batch::new().put("a", "3");
    assert!(store.commit(&[put.clone(), refused.clone(), put.clone()]).unwrap()[1].is_err());
    assert_eq!(required(folder.path()), Some(3));
    assert!(store.commit(&[refused]).unwrap()[0].is_err());
    assert_eq!(required(folder.path()), Some(3));
    let image = killed(&store);
    drop(store);
    for folder in [folder, image] {
        assert_eq!(required(folder.path()), Some(3));
        let store = open(folder.path());
        store.commit(std::slice::from_ref(&put)).unwrap().remove(0).unwrap();
        drop(store);
        reboot(folder.path());
        assert_eq!(required(folder.path()), Some(4));
    }
}

#[test]
fn a_log_behind_what_was_acknowledged_is_refused_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    put(&store, "a", "1").unwrap();
    let older = killed(&store);
    put(&store, "a", "2").unwrap();
    put(&store, "a", "3").unwrap();
    let newer = killed(&store);
    let folder = mixed(older.path(), newer.path());
    for _ in 0..2 {
        let error = open_error(folder.path());
        assert!(matches!(error, Error::CommitsLost { missing: 2, .. }), "{error}");
        assert!(error.to_string().contains("restore a backup"), "{error}");
    }
    // A kill between a commit and the note of it.
    let folder = mixed(newer.path(), older.path());
    assert_eq!(open(folder.path()).get(b"a").unwrap().unwrap().revision, 3);
    assert_eq!(required(folder.path()), Some(3));
}

#[test]
fn without_power_loss_only_a_kill_must_leave_everything() {
    let folder = tempfile::tempdir().unwrap();
    let store = SledStore::open(folder.path(), Durability::ProcessCrash).unwrap();
    for _ in 0..70 {
        put(&store, "a", "1").unwrap();
    }
    let older = killed(&store);
    put(&store, "a", "1").unwrap();
    let newer = killed(&store);
    assert_eq!(required(newer.path()), Some(71));
    let folder = mixed(older.path(), newer.path());
    assert!(matches!(open_error(folder.path()), Error::CommitsLost { missing: 1, .. }));

    // A power cut may take it, but not what was synced.
    reboot(folder.path());
    assert_eq!(required(folder.path()), Some(64));
    let after = open(folder.path());
    assert_eq!(after.get(b"a").unwrap().unwrap().revision, 70);
    put(&after, "a", "1").unwrap();
    assert_eq!(required(folder.path()), Some(71));
    drop(store);
}

#[test]
fn a_word_that_cannot_be_read_is_written_anew() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    for n in 1..=5 {
        put(&store, "a", "1").unwrap();
        assert_eq!(required(folder.path()), Some(n));
    }
    let image = killed(&store);
    drop(store);
    let damage = |slots: &[u64]| {
        let damaged = tempfile::tempdir().unwrap();
        copy(image.path(), damaged.path());
        let file =
            OpenOptions::new().write(true).open(files(damaged.path()).join("acked")).unwrap();
        slots.iter().for_each(|slot| file.write_all_at(b"torn", slot + 20).unwrap());
        damaged
    };
    // With one slot, it is the other one that counts: at most one commit older.
    let counts = SLOTS.map(|slot| required(damage(&[slot]).path()).unwrap());
    assert_eq!(counts.iter().max(), Some(&5));
    assert_eq!(counts.iter().min(), Some(&4));

    let both = damage(&SLOTS);
    let (cut, none) = (damage(&[]), damage(&[]));
    fs::write(files(cut.path()).join("acked"), "short").unwrap();
    fs::remove_file(files(none.path()).join("acked")).unwrap();
    for folder in [both, cut, none] {
        assert_eq!(required(folder.path()), None);
        assert!(open(folder.path()).get(b"a").unwrap().is_some());
        assert_eq!(required(folder.path()), Some(5));
    }
}

#[test]
fn a_store_that_was_made_before_there_was_a_count_is_counted_from_now_on() {
    let folder = tempfile::tempdir().unwrap();
    put(&open(folder.path()), "a", "1").unwrap();
    bare(folder.path(), |db| drop(db.remove(open::COUNT_KEY).unwrap())).unwrap();
    fs::remove_file(files(folder.path()).join("acked")).unwrap();
    put(&open(folder.path()), "a", "2").unwrap();
    assert_eq!(required(folder.path()), Some(1));
    assert_eq!(open(folder.path()).get(b"a").unwrap().unwrap().revision, 2);
}

#[test]
fn after_a_failed_sync_nothing_more_counts() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path());
    put(&store, "a", "1").unwrap();
    let log = std::mem::replace(&mut store.engine.parts_mut().log, unsyncable());
    put(&store, "a", "2").unwrap_err();
    store.engine.parts_mut().log = log;
    assert_eq!(required(folder.path()), Some(1));
    drop(store);
    assert_eq!(required(folder.path()), Some(1));
    open(folder.path());
}

#[test]
fn a_word_that_cannot_be_written_stays_true() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    put(&store, "a", "1").unwrap();
    let unwritable = Mark::unwritable(&files(folder.path()), 1);
    *store.engine.parts().mark.borrow_mut() = Some(unwritable);
    put(&store, "a", "2").unwrap();
    drop(store);
    assert_eq!(required(folder.path()), Some(1));
    assert_eq!(open(folder.path()).get(b"a").unwrap().unwrap().revision, 2);
}
