//! Kills while the store opens, of a log whose segments were used again, with free ones among them.
//!
//! sled zeroes every free segment when it opens, a write of 4 MiB each. What a kill leaves of that looks
//! like damage, and must not be taken for it.

#![expect(clippy::disallowed_methods, reason = "real processes and disks take real time")]

use std::path::Path;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use fastrand::Rng;
use ghostlight_storage::{Batch, Durability, Limit, SledStore, Store};

use crate::child::{Line, Writer};
use crate::verify::{Acknowledged, verify};
use crate::{rounds, seeded};

const ROUNDS: u32 = 3;
/// So many rounds share one folder.
const ROUNDS_A_FOLDER: u32 = 40;
const WRITERS: u8 = 16;
/// What is put, and deleted again, before the kills: some segments, which the next open frees.
const FILLED_BYTES: usize = 12 << 20;

#[derive(Debug, Default)]
struct Figures {
    kills: u32,
    /// Before the child said that it had opened.
    while_opening: u32,
    /// With a segment that was zeroed in part.
    partly_zeroed: u32,
    log_bytes: u64,
}

#[test]
fn a_kill_while_it_opens_leaves_what_opens() {
    let (_, mut rng) = seeded();
    let mut figures = Figures::default();
    let mut disk = tempfile::tempdir().unwrap();
    let mut acknowledged = Acknowledged::default();
    for round in 0..rounds("GHOSTLIGHT_OPENING_ROUNDS").unwrap_or(ROUNDS) {
        if round % ROUNDS_A_FOLDER == 0 {
            disk = tempfile::tempdir().unwrap();
            acknowledged = Acknowledged::default();
        }
        let folder = disk.path().join("data");
        let child = Writer::start(&folder, WRITERS, Durability::PowerLoss);
        for _ in 0..rng.u32(1..800) {
            acknowledged.note(&child.lines.recv().unwrap());
        }
        child.kill().iter().for_each(|line| acknowledged.note(line));
        fill_and_delete(&folder);
        for _ in 0..rng.u32(2..9) {
            figures.while_opening += u32::from(kill_opening(&folder, &mut rng, &mut acknowledged));
            figures.kills += 1;
            figures.partly_zeroed += u32::from(has_headless_content(&folder.join("store/db")));
        }
        figures.log_bytes = std::fs::metadata(folder.join("store/db")).unwrap().len();
        // None is ever refused.
        let store = SledStore::open(&folder, Durability::PowerLoss)
            .unwrap_or_else(|error| panic!("round {round}: {error}"));
        verify(&store, WRITERS, &acknowledged);
    }
    println!("{figures:?}");
    assert!(figures.while_opening > 0, "{figures:?}");
}

/// Leaves a store whose next open replays some segments and finds most of them free.
fn fill_and_delete(folder: &Path) {
    let store = SledStore::open(folder, Durability::ProcessCrash).unwrap();
    let key = |n: usize| [&b"filled"[..], &n.to_be_bytes()].concat();
    let value = vec![7; 16 << 10];
    let numbers: Vec<_> = (0..FILLED_BYTES / value.len()).collect();
    for numbers in numbers.chunks(8) {
        let batch = numbers.iter().fold(Batch::new(), |batch, n| batch.put(key(*n), value.clone()));
        store.commit(&[batch]).unwrap().remove(0).unwrap();
    }
    for numbers in numbers.chunks(60) {
        let batch = numbers.iter().fold(Batch::new(), |batch, n| batch.delete(key(*n)));
        store.commit(&[batch]).unwrap().remove(0).unwrap();
    }
    let limit = Limit { entries: 1, bytes: usize::MAX };
    assert!(store.scan(b"filled", None, limit).unwrap().is_empty());
}

/// Kills the child at a moment of its start; whether it had not opened.
fn kill_opening(folder: &Path, rng: &mut Rng, acknowledged: &mut Acknowledged) -> bool {
    let log = std::fs::File::open(folder.join("store/db")).unwrap();
    let before = log.metadata().unwrap().modified().unwrap();
    let child = Writer::start(folder, WRITERS, Durability::PowerLoss);
    let mut said = Vec::new();
    // The first write of the open cuts the log; the zeros come after it.
    let mut moment = None;
    while said.is_empty() && moment.is_none_or(|moment| Instant::now() < moment) {
        match child.lines.try_recv() {
            Ok(line) => said.push(line),
            Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => std::thread::yield_now(),
        }
        if moment.is_none() && log.metadata().unwrap().modified().unwrap() != before {
            moment = Some(Instant::now() + Duration::from_micros(rng.u64(..30_000)));
        }
    }
    said.extend(child.kill());
    said.iter().for_each(|line| acknowledged.note(line));
    !said.contains(&Line::Opened)
}

/// Whether a segment begins in zeros and goes on with something else.
fn has_headless_content(log: &Path) -> bool {
    let bytes = std::fs::read(log).unwrap();
    bytes.chunks(4 << 20).any(|segment| {
        segment.iter().take(20).all(|byte| *byte == 0) && segment.iter().any(|byte| *byte != 0)
    })
}
