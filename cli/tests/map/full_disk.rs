//! A disk that is nearly full: runs are still shown and cleared.

use std::path::PathBuf;
use std::process::Command;

use self::disk::mount_tmpfs;
use crate::support::Place;

#[path = "../../../storage/src/testing/disk.rs"]
#[expect(dead_code, reason = "shared with the tests of the store, which use all of it")]
mod disk;

/// A small file system in a place.
struct Disk(PathBuf);

impl Disk {
    /// `None` as [`mount_tmpfs`] says.
    fn mount(place: &Place) -> Option<Self> {
        let path = place.path("disk");
        std::fs::create_dir(&path).unwrap();
        mount_tmpfs(&path, "size=64m").then(|| Self(path))
    }

    /// Fills it until only so many bytes are free.
    fn fill(&self, free: u64) -> PathBuf {
        let now = rustix::fs::statvfs(&self.0).unwrap();
        let filler = self.0.join("filler");
        std::fs::write(&filler, vec![0; (now.f_bavail * now.f_frsize - free) as usize]).unwrap();
        filler
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn runs_are_shown_and_cleared_below_the_reserve() {
    let place = Place::new();
    let Some(disk) = Disk::mount(&place) else { return };
    let map = ["map", "--data", "disk/data", "--batch", "b", "a", "b", "c", "--", "echo", "{}"];
    assert_eq!(place.run(map).code(), Some(0));
    let filler = disk.fill(12 << 20);

    let refused = place.run(map);
    assert_eq!(refused.code(), Some(2));
    assert!(refused.stderr.contains("no space is left: "), "{}", refused.stderr);
    let runs = place.run(["runs", "--json", "--data", "disk/data"]);
    assert_eq!(runs.code(), Some(0), "{}", runs.stderr);
    let lines = String::from_utf8(runs.stdout).unwrap();
    assert_eq!(lines.lines().count(), 3);
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    let id = first["runId"].as_str().unwrap();
    for command in ["show", "tail", "cancel"] {
        let ended = place.run([command, id, "--data", "disk/data"]);
        assert_eq!(ended.code(), Some(0), "{command}: {}", ended.stderr);
    }
    let cleared = place.run(["clear", "--data", "disk/data"]);
    assert_eq!(cleared.code(), Some(0), "{}", cleared.stderr);
    let runs = place.run(["runs", "--json", "--data", "disk/data"]);
    assert_eq!((runs.code(), runs.stdout.len()), (Some(0), 0));

    // Far less, and the store refuses to write, and says so.
    std::fs::remove_file(filler).unwrap();
    let more = ["map", "--data", "disk/data", "--batch", "c", "d", "--", "echo", "{}"];
    let ended = place.run(more);
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    let filler = disk.fill(1 << 20);
    let refused = place.run(["clear", "--data", "disk/data"]);
    assert_eq!(refused.code(), Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("no space is left: "), "{}", refused.stderr);
    let runs = place.run(["runs", "--json", "--data", "disk/data"]);
    assert_eq!(String::from_utf8(runs.stdout).unwrap().lines().count(), 1, "{}", runs.stderr);

    std::fs::remove_file(filler).unwrap();
    assert_eq!(place.run(["clear", "--data", "disk/data"]).code(), Some(0));
    assert_eq!(place.run(more[..6].iter().chain(&["--", "echo", "{}"])).code(), Some(0));
}

#[test]
fn a_disk_that_fills_up_is_said_once_and_without_colours() {
    let place = Place::new();
    let Some(disk) = Disk::mount(&place) else { return };
    let mut gate = place.gate("gate");
    let inputs: Vec<String> = (0..40).map(|n| format!("i{n}")).collect();
    let wait = "echo started; dd bs=1 count=1 < gate 2> /dev/null; echo {}";
    let map = ["map", "--data", "disk/data", "-j", "8"]
        .into_iter()
        .chain(inputs.iter().map(String::as_str).chain(["--", "sh", "-c", wait]));
    let mut running = place.start(map);
    running.read_lines(8);
    let _filler = disk.fill(1 << 20);
    gate.open(40);
    let ended = running.wait();
    assert_eq!(ended.code(), Some(2), "{}", ended.stderr);
    assert!(!ended.stderr.contains('\u{1b}'), "{}", ended.stderr);
    assert_eq!(ended.stderr.matches("no space is left").count(), 1, "{}", ended.stderr);
    let last = ended.stderr.lines().last().unwrap();
    assert!(last.starts_with("ghostlight: ") && last.contains("no space is left"), "{last}");
}

#[test]
fn a_first_start_without_space_leaves_nothing_behind() {
    let place = Place::new();
    let Some(disk) = Disk::mount(&place) else { return };
    let _filler = disk.fill(12 << 20);
    for detach in [&[][..], &["--detach"]] {
        let args = [&["map", "--data", "disk/data", "x"], detach, &["--", "true"]].concat();
        let refused = place.run(args);
        assert_eq!(refused.code(), Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains("no space is left: "), "{}", refused.stderr);
        assert!(!place.path("disk/data").exists(), "{detach:?}");
    }
}
