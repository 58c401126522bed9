//! SIGKILL.

#![expect(clippy::disallowed_methods, reason = "real processes and disks take real time")]

use std::path::Path;
use std::time::{Duration, Instant};

use fastrand::Rng;
use ghostlight_storage::{Durability, Error, SledStore};

use crate::child::{Line, Writer};
use crate::verify::{Acknowledged, verify};
use crate::{rounds, seeded};

/// Kills during commits, beside which there are others during opens: half as many, by chance.
const ROUNDS: u32 = 10;
/// So many kills share one folder, so that stores of every age are killed.
const KILLS_A_FOLDER: u32 = 10;
const WRITERS: u8 = 16;

#[derive(Debug, Default)]
struct Figures {
    kills_while_committing: u32,
    kills_while_opening: u32,
    unfinished_snapshots: u32,
    acknowledged: u64,
    slowest_open: Duration,
}

#[test]
fn what_was_acknowledged_survives_kills() {
    let (_, mut rng) = seeded();
    let mut figures = Figures::default();
    let mut disk = tempfile::tempdir().unwrap();
    let mut acknowledged = Acknowledged::default();
    let rounds = rounds("GHOSTLIGHT_KILL_ROUNDS").unwrap_or(ROUNDS);
    for kill in 0.. {
        if figures.kills_while_committing == rounds {
            break;
        }
        if kill % KILLS_A_FOLDER == 0 {
            disk = tempfile::tempdir().unwrap();
            acknowledged = Acknowledged::default();
        }
        let folder = disk.path().join("data");
        let durability = if rng.bool() { Durability::PowerLoss } else { Durability::ProcessCrash };
        if rng.u8(..3) > 0 {
            let before = acknowledged.count;
            kill_while_writing(&folder, durability, &mut rng, &mut acknowledged);
            figures.acknowledged += acknowledged.count - before;
            figures.kills_while_committing += 1;
        } else {
            kill_while_opening(&folder, durability, &mut rng, &mut acknowledged);
            figures.kills_while_opening += 1;
        }
        figures.unfinished_snapshots += u32::from(has_unfinished_snapshot(&folder));

        let begun = Instant::now();
        let store = SledStore::open(&folder, durability)
            .unwrap_or_else(|error| panic!("kill {kill}: {error}"));
        figures.slowest_open = figures.slowest_open.max(begun.elapsed());
        verify(&store, WRITERS, &acknowledged);
    }
    println!("{figures:?}");
    assert!(figures.acknowledged > 0);
}

/// Kills it after a random number of acknowledgements.
fn kill_while_writing(
    folder: &Path,
    durability: Durability,
    rng: &mut Rng,
    acknowledged: &mut Acknowledged,
) {
    let child = Writer::start(folder, WRITERS, durability);
    assert_eq!(child.lines.recv().unwrap(), Line::Opened);
    let refused = SledStore::open(folder, durability).map(drop).unwrap_err();
    assert!(matches!(refused, Error::Locked { pid, .. } if pid == child.process.id()), "{refused}");
    for _ in 0..rng.u32(1..1500) {
        acknowledged.note(&child.lines.recv().unwrap());
    }
    // Acknowledgements come in groups; the kill shall not always come behind one.
    spin(Duration::from_micros(rng.u64(..3_000)));
    for line in child.kill() {
        acknowledged.note(&line);
    }
}

/// Kills it at a random moment of its start, half of the time the moment that sled does not bear.
fn kill_while_opening(
    folder: &Path,
    durability: Durability,
    rng: &mut Rng,
    acknowledged: &mut Acknowledged,
) {
    let wait_for_snapshot = rng.bool();
    let moment = Duration::from_micros(rng.u64(..40_000));
    let begun = Instant::now();
    let child = Writer::start(folder, WRITERS, durability);
    let mut said = Vec::new();
    while said.is_empty() {
        said.extend(child.lines.try_recv());
        let now = if wait_for_snapshot {
            has_unfinished_snapshot(folder)
        } else {
            begun.elapsed() > moment
        };
        if now {
            break;
        }
        std::thread::yield_now();
    }
    said.extend(child.kill());
    for line in said {
        acknowledged.note(&line);
    }
}

/// Whether sled has left, or is writing, a snapshot.
fn has_unfinished_snapshot(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder.join("store")) else { return false };
    entries.flatten().any(|entry| entry.file_name().to_string_lossy().ends_with(".generating"))
}

fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}
