//! Somebody else fills the disk from one moment to the next.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ghostlight_storage::{Durability, SledStore};

use crate::child::{Line, Writer};
use crate::verify::{Acknowledged, verify};
use crate::{rounds, seeded};

const WRITERS: u8 = 16;
/// Far more than a process needs to notice the full disk and to end.
const HANGS: Duration = Duration::from_secs(30);

#[test]
fn what_was_acknowledged_survives_a_full_disk() {
    if std::env::var_os("GHOSTLIGHT_TEST_NO_MOUNT").is_some() {
        return;
    }
    let (_, mut rng) = seeded();
    for round in 0..rounds("GHOSTLIGHT_FULL_DISK_ROUNDS").unwrap_or(4) {
        let disk = Disk::mount();
        let folder = disk.0.path().join("data");
        let mut acknowledged = Acknowledged::default();
        let child = Writer::start(&folder, WRITERS, Durability::PowerLoss);
        for _ in 0..rng.u32(100..1000) {
            acknowledged.note(&child.lines.recv().unwrap());
        }
        let filler = disk.fill();
        loop {
            match child.lines.recv_timeout(HANGS).expect("the child says that its store failed") {
                Line::Failed => break,
                line => acknowledged.note(&line),
            }
        }
        assert!(child.wait().success(), "round {round}");
        assert!(SledStore::open(&folder, Durability::PowerLoss).is_err(), "the disk is still full");

        // Removing it is not enough: a process that another test has just forked may still have it
        // open.
        std::fs::File::create(filler).unwrap();
        let store = SledStore::open(&folder, Durability::PowerLoss).unwrap();
        verify(&store, WRITERS, &acknowledged);
        drop(store);
        let child = Writer::start(&folder, WRITERS, Durability::PowerLoss);
        for _ in 0..100 {
            acknowledged.note(&child.lines.recv_timeout(HANGS).expect("all goes on"));
        }
    }
}

struct Disk(tempfile::TempDir);

impl Disk {
    fn mount() -> Self {
        let mount = tempfile::tempdir().unwrap();
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=160m", "tmpfs"])
            .arg(mount.path())
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "this test mounts a small tmpfs, which needs root: {error}\n\
             set GHOSTLIGHT_TEST_NO_MOUNT=1 to leave it out"
        );
        Self(mount)
    }

    /// Writes until nothing fits.
    fn fill(&self) -> impl AsRef<Path> + use<> {
        let path = self.0.path().join("filler");
        let mut file = std::fs::File::create(&path).unwrap();
        let block = vec![0; 1 << 20];
        while file.write_all(&block).is_ok() {}
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}
