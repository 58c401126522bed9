//! What a batch leaves behind, by counting: processes, descriptors, launch folders.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{Place, WAIT, begins};

/// Nothing tells of the end of a process that is nobody's child.
const PATIENCE: Duration = Duration::from_secs(20);

/// The processes that work below a folder, or have its path in their environment.
fn processes_of(folder: &Path) -> Vec<String> {
    let name = folder.as_os_str().as_bytes();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap() {
        let process = entry.unwrap().path();
        let works_there =
            std::fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
        let environment = std::fs::read(process.join("environ")).unwrap_or_default();
        if works_there || environment.windows(name.len()).any(|part| part == name) {
            let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            found.push(format!("{}: {line}", process.display()));
        }
    }
    found
}

/// The children of a process that are there or were not waited for, by its threads.
fn children_of(pid: u32) -> String {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    // A thread that is gone meanwhile has none.
    threads
        .map(|thread| thread.unwrap().path().join("children"))
        .map(|children| std::fs::read_to_string(children).unwrap_or_default())
        .collect()
}

fn descriptors_of(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

#[expect(clippy::disallowed_methods, reason = "real processes take real time")]
fn wait_until(what: impl Fn() -> Result<(), String>) {
    let began = Instant::now();
    while let Err(left) = what() {
        assert!(began.elapsed() < PATIENCE, "{left}");
        std::thread::yield_now();
    }
}

#[test]
fn a_batch_that_was_killed_leaves_no_process() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let folder = place.path("").canonicalize().unwrap();
    let args = ["map", "--jobs", "3", "1", "2", "3", "--", "sh", "-c", WAIT];
    // Whatever comes of the program has it, whatever its working directory.
    let start = || place.spawn(place.ghostlight(args).env("TEST_FOLDER", &folder));
    let mut map = start();
    assert_eq!(map.read_lines(3), begins(&["1", "2", "3"]));
    map.sigkill();
    let orphans = processes_of(&folder);
    assert!(orphans.len() >= 9, "a shim, a shell and what it waits for, each: {orphans:#?}");
    let mut map = start();
    map.read_lines(3);
    gate.open(3);
    assert_eq!(map.wait().code(), Some(0));
    wait_until(|| match processes_of(&folder) {
        left if left.is_empty() => Ok(()),
        left => Err(format!("{left:#?}")),
    });
    assert!(place.launch_files().is_empty(), "{:?}", place.launch_files());
}

#[test]
fn a_long_batch_holds_no_more_than_a_short_one() {
    let place = Place::new();
    let mut map = place.ghostlight(["map", "--no-sync", "--jobs", "8", "--", "echo", "{}"]);
    let mut map = place.spawn(map.stdin(Stdio::piped()));
    let mut list = map.stdin();
    let mut descriptors = usize::MAX;
    for inputs in [0..10, 10..500] {
        let lines: String = inputs.clone().map(|number| format!("{number}\n")).collect();
        list.write_all(lines.as_bytes()).unwrap();
        map.read_lines(inputs.len());
        let pid = map.pid();
        wait_until(|| {
            let left = (children_of(pid), place.launch_files(), descriptors_of(pid));
            let is_clean = left.0.is_empty() && left.1.is_empty() && left.2 <= descriptors;
            is_clean.then_some(()).ok_or(format!("more than {descriptors} descriptors: {left:?}"))
        });
        descriptors = descriptors_of(pid);
    }
    drop(list);
    let ended = map.wait();
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
}
