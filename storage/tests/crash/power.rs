//! Power cuts: what was never handed to the block device is gone.
//!
//! The store lies on an ext4 image on a loop device. The child is stopped, the image is copied as
//! it is, and the copy is mounted, which replays the journal, and verified. The disk of this model
//! has no volatile cache of its own.

#![expect(clippy::disallowed_methods, reason = "real processes and disks take real time")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ghostlight_storage::{Durability, SledStore};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::child::{Line, Writer};
use crate::verify::{Acknowledged, verify};
use crate::{rounds, seeded};

const IMAGE_MIB: u64 = 192;

#[derive(Debug, Default)]
struct Figures {
    cuts: u32,
    acknowledged: u64,
    aged: u32,
    slowest_open: Duration,
}

#[test]
fn what_was_acknowledged_survives_power_cuts() {
    let Some(rounds) = rounds("GHOSTLIGHT_POWER_ROUNDS") else { return };
    let (_, mut rng) = seeded();
    let mut figures = Figures::default();
    for round in 0..rounds {
        // Without the promise of power loss the latest batches may be lost, but not the store, and
        // still no batch may be torn.
        let durability =
            if round % 4 == 3 { Durability::ProcessCrash } else { Durability::PowerLoss };
        let writers = [1, 16, 200][rng.usize(..3)];
        let disk = Disk::new();
        let folder = disk.mount.path().join("data");
        let mut acknowledged = Acknowledged::default();
        if rng.bool() {
            figures.aged += 1;
            let child = Writer::start(&folder, writers, durability);
            for _ in 0..rng.u32(500..3000) {
                acknowledged.note(&child.lines.recv().unwrap());
            }
            child.kill().iter().for_each(|line| acknowledged.note(line));
        }
        let child = Writer::start(&folder, writers, durability);
        for _ in 0..rng.u32(..3000) {
            acknowledged.note(&child.lines.recv().unwrap());
        }
        stop(&child);
        let cut = disk.cut();
        let heard: Vec<Line> = child.kill();
        heard.iter().for_each(|line| acknowledged.note(line));
        drop(disk);

        let folder = cut.mount.path().join("data");
        let begun = Instant::now();
        let store = SledStore::open(&folder, durability)
            .unwrap_or_else(|error| panic!("round {round}, {writers} writers: {error}"));
        figures.slowest_open = figures.slowest_open.max(begun.elapsed());
        figures.cuts += 1;
        if durability == Durability::PowerLoss {
            figures.acknowledged += acknowledged.count;
        } else {
            acknowledged = Acknowledged::default();
        }
        verify(&store, writers, &acknowledged);
    }
    println!("{figures:?}");
}

/// Stops the child; returns when none of its threads is in a call of the kernel any more.
fn stop(child: &Writer) {
    let pid = child.process.id();
    let raw = i32::try_from(pid).unwrap();
    kill_process(Pid::from_raw(raw).unwrap(), Signal::STOP).unwrap();
    let stopped = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The state follows the name, which is in parentheses.
        stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('T'))
    };
    while !std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten().all(stopped) {
        std::thread::yield_now();
    }
}

/// A mounted image in memory.
struct Disk {
    images: TempDir,
    image: PathBuf,
    mount: TempDir,
}

impl Disk {
    fn new() -> Self {
        let images = tempfile::tempdir_in("/dev/shm").unwrap();
        let image = images.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(IMAGE_MIB << 20).unwrap();
        run("mkfs.ext4", &["-q", "-E", "lazy_itable_init=0"], &[&image]);
        Self::attach(images, image)
    }

    fn attach(images: TempDir, image: PathBuf) -> Self {
        let mount = tempfile::tempdir().unwrap();
        // Nothing but the child's own calls shall reach the image while it is copied.
        run("mount", &["-o", "loop,commit=600"], &[&image, mount.path()]);
        Self { images, image, mount }
    }

    /// The disk as it would be found after a power cut at this moment.
    fn cut(&self) -> Self {
        let images = tempfile::tempdir_in("/dev/shm").unwrap();
        let image = images.path().join("image");
        run("cp", &["--sparse=always"], &[&self.image, &image]);
        Self::attach(images, image)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.mount.path()).status();
        let _ = &self.images;
    }
}

fn run(program: &str, options: &[&str], paths: &[&Path]) {
    let output = Command::new(program).args(options).args(paths).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {error}");
}
