//! What is damage in a log, and what is left by a crash of a sound one.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use super::super::log_check::{check, first_replayed, newest_snapshot};
use super::*;
use crate::testing::copy;

const SEGMENT: u64 = SEGMENT_BYTES as u64;
const VALUE_BYTES: usize = 30_000;

/// A process that is killed after so many commits, each of one of so many keys.
fn killed(commits: u32, keys: u32) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let store = SledStore::open(folder.path(), Durability::ProcessCrash).unwrap();
    for n in 0..commits {
        let batch = Batch::new().put((n % keys).to_be_bytes(), vec![n as u8; VALUE_BYTES]);
        store.commit(&[batch]).unwrap().remove(0).unwrap();
    }
    let image = tempfile::tempdir().unwrap();
    copy(folder.path(), image.path());
    image
}

fn log(folder: &Path) -> PathBuf {
    folder.join("store/db")
}

/// The segments by their numbers in the log: where in the file they are.
fn segments(folder: &Path) -> Vec<(u64, u64)> {
    let bytes = fs::read(log(folder)).unwrap();
    let segments = bytes.chunks(SEGMENT_BYTES).enumerate().filter_map(|(n, segment)| {
        let place = u64::from_le_bytes(segment[4..12].try_into().unwrap());
        (place != 0).then_some(((place ^ (u64::MAX >> 1)) / SEGMENT, n as u64 * SEGMENT))
    });
    let mut segments: Vec<_> = segments.collect();
    segments.sort_unstable();
    segments
}

/// A copy with these bytes in the log.
fn with(folder: &Path, at: u64, bytes: &[u8]) -> TempDir {
    let copied = tempfile::tempdir().unwrap();
    copy(folder, copied.path());
    let file = OpenOptions::new().write(true).open(log(copied.path())).unwrap();
    file.write_all_at(bytes, at).unwrap();
    copied
}

fn assert_lost_and_untouched(folder: &Path) {
    let before = fs::read(log(folder)).unwrap();
    let error = open_error(folder);
    assert!(matches!(error, Error::CommitsLost { .. }), "{error}");
    assert!(error.to_string().contains("of store/db; nothing was changed"), "{error}");
    assert!(fs::read(log(folder)).unwrap() == before, "{error}");
}

fn assert_whole(folder: &Path, commits: u32, keys: u32) {
    let store = open(folder);
    for key in 0..keys {
        let last = (commits - 1 - key) / keys * keys + key;
        let found = store.get(&key.to_be_bytes()).unwrap().unwrap();
        assert_eq!(found.value, vec![last as u8; VALUE_BYTES], "key {key}");
    }
}

#[test]
fn what_is_replayed_begins_where_the_name_of_the_snapshot_says() {
    let folder = tempfile::tempdir().unwrap();
    let mut numbers = Vec::new();
    for n in 0..12_u8 {
        let store = open(folder.path());
        for key in 0..30_u8 {
            let batch = Batch::new().put([n, key], vec![n; VALUE_BYTES]);
            store.commit(&[batch]).unwrap().remove(0).unwrap();
        }
        drop(store);
        drop(open(folder.path()));
        let store = folder.path().join("store");
        let content = fs::read(newest_snapshot(&store).unwrap().unwrap()).unwrap();
        // An optional number: 0 is none, and others are stored with 1 added.
        let place = u64::from_le_bytes(content[..8].try_into().unwrap()) - 1;
        assert_eq!(first_replayed(&store).unwrap(), Some(place / SEGMENT));
        numbers.push(place / SEGMENT);
    }
    assert!(numbers.is_sorted() && numbers[0] < numbers[11], "{numbers:?}");
}

#[test]
fn damage_of_a_segment_in_use_is_found_before_anything_is_changed() {
    let (commits, keys) = (300, 300);
    let sound = killed(commits, keys);
    let segments = segments(sound.path());
    assert!(segments.len() > 2, "{segments:?}");
    // What the last two replace is not settled.
    let begun = segments.len() - 3;
    for (_, at) in &segments[begun..begun + 2] {
        assert_lost_and_untouched(with(sound.path(), at + SEGMENT / 2, b"damage").path());
        assert_lost_and_untouched(with(sound.path(), at + 6, b"damage").path());
        assert_lost_and_untouched(with(sound.path(), *at, &[0; 4096]).path());
    }
    assert_whole(sound.path(), commits, keys);
}

#[test]
fn what_a_crash_leaves_of_a_segment_that_is_not_in_use_is_no_damage() {
    let (commits, keys) = (900, 10);
    let sound = killed(commits, keys);
    let segments = segments(sound.path());
    let newest = segments.last().unwrap().0;
    let unused: Vec<_> = segments.iter().filter(|(number, _)| number + 4 <= newest).collect();
    assert!(!unused.is_empty(), "{segments:?}");
    for (_, at) in unused {
        // Zeroed in part; overwritten from the middle; with a torn header.
        for (from, bytes) in [(0, 1_000_000), (0, 4096), (SEGMENT / 2, 2_000_000), (SEGMENT / 2, 9)]
        {
            let zeros = vec![0; bytes];
            assert_whole(with(sound.path(), at + from, &zeros).path(), commits, keys);
        }
        assert_whole(with(sound.path(), at + 6, b"torn").path(), commits, keys);
    }
}

#[test]
fn free_segments_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    put(&open(folder.path()), "a", "1").unwrap();
    let file = OpenOptions::new().write(true).open(log(folder.path())).unwrap();
    let free = 2_000;
    file.set_len(SEGMENT * (1 + free)).unwrap();
    let bytes_read = || {
        let io = fs::read_to_string("/proc/thread-self/io").unwrap();
        let (_, rest) = io.split_once("rchar: ").unwrap();
        rest.lines().next().unwrap().parse::<u64>().unwrap()
    };
    let before = bytes_read();
    assert_eq!(check(&folder.path().join("store"), 1, true).unwrap(), None);
    let bytes = bytes_read() - before;
    assert!((SEGMENT / 1000..2 * SEGMENT + free * 5_000).contains(&bytes), "{bytes} bytes");
}
