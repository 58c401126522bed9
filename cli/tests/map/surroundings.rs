//! What a map finds around it: folders that are in the way or move, other namespaces and users, limits.

use std::io::Write;

use ghostlight::storage::FolderLock;
use rustix::process::Signal;

use crate::support::{Gate, Place, Running, WAIT, begins, both, only_run};

fn catches(status: &str, signal: Signal) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
    mask & (1 << (signal.as_raw() - 1)) != 0
}

#[test]
fn more_jobs_than_open_files_are_refused() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_ghostlight");
    let script = format!("ulimit -n 100; exec {program} map --jobs 40 a -- true");
    let ended = std::process::Command::new("sh")
        .args(["-c", &script])
        .current_dir(place.path(""))
        .output()
        .unwrap();
    assert_eq!(ended.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("ulimit -n"));
}

#[test]
fn a_launch_folder_that_cannot_be_made_is_waited_for() {
    let place = Place::new();
    std::fs::create_dir(place.path(".ghostlight")).unwrap();
    std::fs::write(place.path(".ghostlight/launches"), "in the way").unwrap();
    let mut map = place.ghostlight(["map", "a", "--", "sh", "-c", "echo {} >> log"]);
    let mut map = place.spawn(map.env("GHOSTLIGHT_LOG", "warn"));
    map.read_note();
    std::fs::remove_file(place.path(".ghostlight/launches")).unwrap();
    let ended = map.wait();
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_eq!(place.lines("log"), ["a"]);
}

#[test]
fn signals_are_served_while_the_folder_is_waited_for() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let place = Place::new();
        let _reader = FolderLock::acquire(place.path(".ghostlight")).unwrap();
        let map = place.start(["map", "a", "--", "true"]);
        // Once it catches signals, it is about to wait for the lock, or does.
        let caught = format!("/proc/{}/status", map.pid());
        while !catches(&std::fs::read_to_string(&caught).unwrap(), signal) {
            std::thread::yield_now();
        }
        map.signal(signal);
        let ended = map.wait();
        assert_eq!(ended.code(), Some(code), "{}", ended.stderr);
        assert_eq!(ended.stderr, "", "the wait was not over");
    }
}

#[test]
fn a_data_folder_that_was_moved_finds_its_commands() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let map = |data| ["map", "--data", data, "1", "--", "sh", "-c", WAIT];
    let mut first = place.start(map("here"));
    assert_eq!(first.read_lines(1), begins(&["1"]));
    first.sigkill();
    std::fs::rename(place.path("here"), place.path("there")).unwrap();
    let mut second = place.start(map("there"));
    second.read_lines(1);
    // Enough for two of them.
    gate.open(2);
    let ended = second.wait();
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_eq!(place.lines("log"), ["1"], "it was not started again");
    assert!(!place.path("here").exists());
}

/// Cancels the only run, whose command cannot be stopped, and lets the command end.
fn cancel_in_vain(place: &Place, mut map: Running, gate: &mut Gate) {
    let id = only_run(place);
    let cancelled = place.run(["cancel", &id]);
    assert_eq!(cancelled.code(), Some(0), "{}", cancelled.stderr);
    map.read_note_with("a cancelled command cannot be stopped");
    let runs = String::from_utf8(place.run(["runs", "--json"]).stdout).unwrap();
    assert!(runs.contains(r#""status":"running""#), "its command lives: {runs}");
    gate.open(1);
    let ended = map.wait();
    assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
    assert_eq!(ended.sorted().last().unwrap(), "end 1", "all that it wrote is kept");
    let runs = String::from_utf8(place.run(["runs", "--json"]).stdout).unwrap();
    assert!(runs.contains(r#""status":"aborted""#), "{runs}");
    assert!(place.launch_files().is_empty(), "{:?}", place.launch_files());
}

#[test]
fn a_cancelled_command_in_another_namespace_is_waited_for() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let args = ["map", "1", "--", "sh", "-c", WAIT];
    let mut map = place.start(args);
    map.read_lines(1);
    map.sigkill();
    let claim = place.launch_files().into_iter().find(|path| path.ends_with("claim")).unwrap();
    let text = std::fs::read_to_string(&claim).unwrap();
    let (before, after) = text.split_once(r#""pidNamespace":"#).unwrap();
    let (_, after) = after.split_once(',').unwrap();
    std::fs::write(&claim, format!(r#"{before}"pidNamespace":1,{after}"#)).unwrap();
    let mut map = place.spawn(place.ghostlight(args).env("GHOSTLIGHT_LOG", "warn"));
    // It owns the folder.
    map.read_lines(1);
    cancel_in_vain(&place, map, &mut gate);
}

#[test]
fn a_cancelled_command_of_another_user_is_waited_for() {
    use std::os::unix::fs::PermissionsExt;

    // Nobody else can make a process of another user.
    if !rustix::process::getuid().is_root() {
        // Past what captures the output of tests that pass.
        let why = "LEFT OUT: only root can start a command of another user";
        let _ = writeln!(std::io::stderr(), "{why}");
        return;
    }
    let place = Place::new();
    let mut gate = place.gate("gate");
    for (name, mode) in [("", 0o755), ("gate", 0o666)] {
        std::fs::set_permissions(place.path(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    let script = "echo begin {}; dd bs=1 count=1 < gate > /dev/null 2>&1; echo end {}";
    let user = ["setpriv", "--reuid", "65534", "--clear-groups"];
    let mut map = std::process::Command::new("setpriv");
    // Root as others are: without the right to signal everybody.
    map.args(["--bounding-set", "-kill", env!("CARGO_BIN_EXE_ghostlight"), "map", "1", "--"])
        .args(user)
        .args(["sh", "-c", script])
        .current_dir(place.path(""))
        .env("GHOSTLIGHT_LOG", "warn");
    let mut map = place.spawn(&mut map);
    map.read_lines(1);
    cancel_in_vain(&place, map, &mut gate);
}

#[test]
fn a_data_folder_that_is_away_for_a_while_fails_no_run() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let args = ["map", "1", "--", "sh", "-c", WAIT];
    let mut map = place.spawn(place.ghostlight(args).env("GHOSTLIGHT_LOG", "warn"));
    map.read_lines(1);
    let (here, away) = (place.path(".ghostlight/launches"), place.path(".ghostlight/away"));
    std::fs::rename(&here, &away).unwrap();
    gate.open(1);
    map.read_note_with("a command is not watched for a while");
    map.read_note_with("a command is not watched for a while");
    std::fs::rename(&away, &here).unwrap();
    let ended = map.wait();
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_eq!(ended.sorted(), both(&["1"])[1..]);
    assert_eq!(place.lines("log"), ["1"], "it was not started again");
}

#[test]
fn commands_have_the_users_limit_of_open_files() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_ghostlight");
    let script = format!("ulimit -S -n 100; exec {program} map --jobs 4 a -- sh -c 'ulimit -n'");
    let ended = std::process::Command::new("sh")
        .args(["-c", &script])
        .current_dir(place.path(""))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "100\n");
}

/// What goes beyond the limit kills a command, and is an error of the program.
#[test]
fn a_limit_of_file_sizes_is_an_error() {
    let place = Place::new();
    let limited = |blocks: u32, args: &str| {
        let program = env!("CARGO_BIN_EXE_ghostlight");
        let script = format!("ulimit -f {blocks}; exec {program} map a -- {args}");
        let mut shell = std::process::Command::new("sh");
        shell.arg("-c").arg(script).current_dir(place.path("")).output().unwrap()
    };
    let ended = limited(100, "echo {}");
    let told = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{told}");
    assert!(told.contains("File too large"), "{told}");

    let ended = limited(40_000, "sh -c 'head -c 50000000 /dev/zero > out' {}");
    let told = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{told}");
    // By the signal, as the shell tells it.
    assert!(told.contains("exited with code 153"), "{told}");
}

/// Nothing that is recorded there is found again.
#[test]
fn a_map_whose_store_is_removed_ends() {
    for removed in [".ghostlight", ".ghostlight/store"] {
        for drains in [false, true] {
            let place = Place::new();
            let mut gate = place.gate("gate");
            let mut map = place.start(["map", "--jobs", "1", "1", "2", "--", "sh", "-c", WAIT]);
            map.read_lines(1);
            if drains {
                map.signal(Signal::INT);
                map.read_note();
            }
            std::fs::remove_dir_all(place.path(removed)).unwrap();
            let ended = map.wait();
            gate.open(1);
            assert_eq!(ended.code(), Some(2), "{}", ended.stderr);
            assert!(ended.stderr.contains("was removed while"), "{}", ended.stderr);
        }
    }
}
