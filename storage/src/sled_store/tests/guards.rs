//! Guards against sled that nothing else would miss.

use std::os::unix::fs::MetadataExt as _;

use super::super::log_check::newest_snapshot;
use super::super::open::config;
use super::*;

#[test]
fn the_settings_are_not_those_that_sled_would_choose() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(&folder.path().join("store"));
    assert_eq!(config.path, folder.path().join("store"));
    // sled uses a multiple of it, and 1 GiB if it is not told.
    assert_eq!(config.cache_capacity, 32 << 20);
    // With `None` no space is ever used again.
    assert_eq!(config.flush_every_ms, Some(500));
    assert_eq!(config.segment_size, 4 << 20);
    assert!(!config.temporary && !config.create_new && !config.use_compression);
}

#[test]
fn all_is_in_one_tree() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    put(&store, "a", "1").unwrap();
    put(&store, "\u{1}b", "2").unwrap();
    // A batch over several trees is not atomic.
    let trees = store.engine.parts().db.tree_names();
    assert_eq!(trees, [&b"__sled__default"[..]]);
}

#[test]
fn what_is_synced_is_the_log_that_sled_writes() {
    let folder = tempfile::tempdir().unwrap();
    let check = |store: &SledStore| {
        let ours = store.engine.parts().log.metadata().unwrap();
        let log = std::fs::metadata(folder.path().join("store/db")).unwrap();
        assert_eq!((ours.dev(), ours.ino()), (log.dev(), log.ino()));
        // And it is written there: what is large goes to no file of its own.
        let before = log.len();
        for n in 0..64_u8 {
            let large = Batch::new().put([b'k', n], vec![n; VALUE_BYTES_MAX]);
            store.commit(&[large]).unwrap().remove(0).unwrap();
        }
        let after = store.engine.parts().log.metadata().unwrap().len();
        assert!(after > before, "{before} bytes, and {after} after 2 MiB");
    };
    check(&open(folder.path()));
    check(&open(folder.path()));
}

#[test]
fn space_is_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = SledStore::open(folder.path(), Durability::ProcessCrash).unwrap();
    let size = || std::fs::metadata(folder.path().join("store/db")).unwrap().len() >> 20;
    let mut sizes = Vec::new();
    for round in 0..12_u8 {
        for n in 0..128_u8 {
            let large = Batch::new().put([b'k', n], vec![round; VALUE_BYTES_MAX]);
            store.commit(&[large]).unwrap().remove(0).unwrap();
        }
        for n in 0..128_u8 {
            store.commit(&[Batch::new().delete([b'k', n])]).unwrap().remove(0).unwrap();
        }
        sizes.push(size());
    }
    assert!(sizes.iter().all(|mib| *mib <= 36), "4 MiB are live at most: {sizes:?} MiB");
}

#[test]
fn a_panic_of_sled_while_it_opens_is_an_error() {
    let (small, large) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (folder, values) in [(&small, 1), (&large, 400_u16)] {
        let store = SledStore::open(folder.path(), Durability::ProcessCrash).unwrap();
        for n in 0_u16..values {
            let batch = Batch::new().put(n.to_be_bytes(), vec![n as u8; VALUE_BYTES_MAX]);
            store.commit(&[batch]).unwrap().remove(0).unwrap();
        }
        drop(store);
        drop(open(folder.path()));
    }
    // The snapshot is sound, and one of a log with more segments than there are.
    let snapshot =
        |folder: &TempDir| newest_snapshot(&folder.path().join("store")).unwrap().unwrap();
    std::fs::copy(snapshot(&large), snapshot(&small)).unwrap();
    let error = open_error(small.path());
    assert!(
        matches!(error, Error::Open { .. }) && error.to_string().contains("the engine says"),
        "{error}"
    );
    // Nothing was changed, and the lock was given back.
    assert_eq!(open_error(small.path()).to_string(), error.to_string());
}
