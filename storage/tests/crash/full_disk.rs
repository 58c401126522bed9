//! Somebody else fills the disk from one moment to the next.

use std::time::Duration;

use ghostlight_storage::{Durability, SledStore};

use crate::child::{Line, Writer};
use crate::disk::SmallDisk;
use crate::verify::{Acknowledged, verify};
use crate::{rounds, seeded};

const WRITERS: u8 = 16;
/// What a store needs to open, and then to be written to; and a block for the lock of the folder.
const START_BYTES: u64 = (40 << 20) + 4096;
/// Far more than a process needs to notice the full disk and to end.
const HANGS: Duration = Duration::from_secs(30);

#[test]
fn what_was_acknowledged_survives_a_full_disk() {
    let (_, mut rng) = seeded();
    for round in 0..rounds("GHOSTLIGHT_FULL_DISK_ROUNDS").unwrap_or(4) {
        let Some(disk) = SmallDisk::mount("size=160m") else { return };
        let folder = disk.path().join("data");
        let mut acknowledged = Acknowledged::default();
        let child = Writer::start(&folder, WRITERS, Durability::PowerLoss);
        for _ in 0..rng.u32(100..1000) {
            acknowledged.note(&child.lines.recv().unwrap());
        }
        disk.fill(0);
        loop {
            match child.lines.recv_timeout(HANGS).expect("the child says that its store failed") {
                Line::Failed => break,
                line => acknowledged.note(&line),
            }
        }
        assert!(child.wait().success(), "round {round}");
        let refused = SledStore::open(&folder, Durability::PowerLoss).map(drop).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("no space is left: 0 MiB are free in "), "round {round}: {text}");
        assert!(text.ends_with(", and 40 MiB are needed; make space"), "round {round}: {text}");

        disk.fill(START_BYTES);
        let store = SledStore::open(&folder, Durability::PowerLoss).unwrap();
        verify(&store, WRITERS, &acknowledged);
        drop(store);
        disk.fill(START_BYTES);
        let child = Writer::start(&folder, WRITERS, Durability::PowerLoss);
        for _ in 0..100 {
            acknowledged.note(&child.lines.recv_timeout(HANGS).expect("all goes on"));
        }
    }
}
