//! What those who look do to the folder, and to each other.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

use crate::support::Place;

#[test]
fn a_reader_that_is_not_read_holds_no_folder() {
    let place = Place::new();
    // More than a pipe holds, of runs and of output.
    let inputs: Vec<String> = (0..150).map(|at| format!("{at:0>500}")).collect();
    let mut args = vec!["map", "--no-sync", "--batch", "many"];
    args.extend(inputs.iter().map(String::as_str));
    args.extend(["--", "true", "{}"]);
    assert_eq!(place.run(&args).code(), Some(0));
    let script = "head -c 300000 /dev/zero";
    assert_eq!(
        place.run(["map", "--batch", "long", "x", "--", "sh", "-c", script]).code(),
        Some(0)
    );

    let mut list = place.start(["runs", "--json"]);
    let long = place.run(["runs", "--json", "--batch", "long"]);
    let long: serde_json::Value = serde_json::from_slice(&long.stdout).unwrap();
    let tail = place.start(["tail", "--batch", "long", long["runId"].as_str().unwrap()]);
    // It has begun to print.
    list.read_lines(1);
    let map = place.run(["map", "--batch", "other", "y", "--", "echo", "{}"]);
    assert_eq!((map.code(), map.stdout), (Some(0), b"y\n".to_vec()), "{}", map.stderr);
    assert_eq!(list.wait().stdout.iter().filter(|byte| **byte == b'\n').count(), 150);
    assert_eq!(tail.wait().stdout.len(), 300_000);
}

#[test]
fn looking_changes_nothing() {
    let place = Place::new();
    let foreign = place.path("foreign");
    std::fs::create_dir(&foreign).unwrap();
    let looks: [&[&str]; 5] = [
        &["runs"],
        &["show", "0123456789"],
        &["tail", "0123456789"],
        &["cancel", "0123456789"],
        &["clear"],
    ];
    let look = |files: usize| {
        for look in looks {
            let ended = place.run([look, &["--data", "foreign"]].concat());
            assert_eq!(ended.code(), Some(2), "{look:?}: {}", ended.stderr);
            assert!(ended.stderr.contains("there are no runs in foreign"), "{}", ended.stderr);
            assert_eq!(std::fs::read_dir(&foreign).unwrap().count(), files, "{look:?}");
        }
    };
    look(0);
    std::fs::write(foreign.join("lock"), "of another program\n").unwrap();
    look(1);
    std::fs::create_dir(foreign.join("store")).unwrap();
    look(2);
    let map = place.run(["map", "--data", "foreign", "a", "--", "true"]);
    assert_eq!(map.code(), Some(2));
    assert!(map.stderr.contains("was not made by this program"), "{}", map.stderr);
    assert_eq!(std::fs::read(foreign.join("lock")).unwrap(), b"of another program\n");
    assert_eq!(std::fs::read_dir(foreign).unwrap().count(), 2);
}

#[test]
fn a_run_is_found_beside_one_that_was_cleared_in_another_batch() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    assert_eq!(place.run(["map", "--batch", "a", "x", "--", "true"]).code(), Some(0));
    assert_eq!(place.run(["map", "--batch", "keep", "y", "--", "true"]).code(), Some(0));
    let cleared = place.run(["runs", "--json", "--batch", "a"]);
    let cleared: serde_json::Value = serde_json::from_slice(&cleared.stdout).unwrap();
    let id = cleared["runId"].as_str().unwrap();
    let script = "echo begin; exec dd bs=1 count=1 < gate 2> /dev/null";
    let mut map = place.start(["map", "--batch", "b", "x", "z", "--", "sh", "-c", script]);
    map.read_lines(1);
    // Through the owner, so that others of its runs are looked at, too.
    assert_eq!(place.run(["clear", "--batch", "a"]).stdout, b"1 run was removed\n");
    assert_eq!(place.run(["show", id]).code(), Some(0));
    let cancelled = place.run(["cancel", id]);
    assert_eq!(cancelled.code(), Some(0), "{}", cancelled.stderr);
    assert_eq!(place.run(["tail", id]).code(), Some(1));
    gate.open(1);
    assert_eq!(map.wait().code(), Some(1));
}

#[test]
fn a_path_of_the_folder_may_be_no_text() {
    let place = Place::new();
    let data = Path::new(OsStr::from_bytes(b"d\xff")).as_os_str();
    let word = OsStr::new;
    let args = [word("map"), word("--data"), data, word("a"), word("--"), word("echo"), word("{}")];
    for _ in 0..2 {
        let ended = place.run(args);
        assert_eq!((ended.code(), ended.stdout), (Some(0), b"a\n".to_vec()), "{}", ended.stderr);
    }
}

#[test]
fn a_copy_of_the_folder_leaves_running_commands_alone() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let script = "echo begin {} >> log; echo begin; dd bs=1 count=1 < gate > /dev/null 2>&1; \
                  echo end {} >> log; echo end";
    let args = ["--jobs", "2", "a", "b", "--", "sh", "-c", script];
    let map = |data: &'static str| [&["map", "--batch", "m", "--data", data], &args[..]].concat();
    let mut original = place.start(map(".ghostlight"));
    original.read_lines(2);
    original.sigkill();
    // The store is nobody's, so its files are of one moment; the commands go on.
    let copied = std::process::Command::new("cp")
        .args(["-a", ".ghostlight", "copy"])
        .current_dir(place.path(""))
        .status();
    assert!(copied.unwrap().success());
    let id = place.run(["runs", "--json", "--data", "copy"]);
    let id: serde_json::Value =
        serde_json::from_slice(id.stdout.split(|b| *b == b'\n').next().unwrap()).unwrap();
    let cancelled = place.run(["cancel", "--data", "copy", id["runId"].as_str().unwrap()]);
    assert_eq!(cancelled.code(), Some(0), "{}", cancelled.stderr);
    // In the copy the other command is started again: its end there is not known.
    let mut copy = place.start(map("copy"));
    copy.read_lines(2);
    gate.open(3);
    assert_eq!(copy.wait().code(), Some(1), "one of them was cancelled");
    let ended = place.run(map(".ghostlight"));
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_eq!(ended.stdout.split(|byte| *byte == b'\n').count(), 5, "both from begin to end");
    assert_eq!(place.lines("log").iter().filter(|line| line.starts_with("end")).count(), 3);
}

#[test]
fn a_folder_of_another_user_is_said_to_be_one() {
    let place = Place::new();
    assert_eq!(place.run(["map", "x", "--", "true"]).code(), Some(0));
    let is_root = rustix::process::geteuid().is_root();
    let everyone = |path: &str| {
        let mode = if is_root { 0o755 } else { 0o700 };
        std::fs::set_permissions(place.path(path), Permissions::from_mode(mode)).unwrap();
    };
    everyone("");
    // A copy of the program, which that user can reach.
    std::fs::copy(env!("CARGO_BIN_EXE_ghostlight"), place.path("program")).unwrap();
    everyone("program");
    let none = if is_root { 0o700 } else { 0 };
    std::fs::set_permissions(place.path(".ghostlight"), Permissions::from_mode(none)).unwrap();
    let looks: [&[&str]; 5] = [
        &["runs"],
        &["show", "0123456789"],
        &["cancel", "0123456789"],
        &["clear"],
        &["map", "x", "--", "true"],
    ];
    for look in looks {
        let mut command = std::process::Command::new(place.path("program"));
        command.args(look).current_dir(place.path("")).stdin(std::process::Stdio::null());
        if is_root {
            command.uid(65_534).gid(65_534);
        }
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{look:?}: {stderr}");
        assert!(stderr.contains("permission denied"), "{look:?}: {stderr}");
        assert!(stderr.contains(".ghostlight"), "{look:?}: {stderr}");
        assert!(!stderr.contains("control socket"), "{look:?}: {stderr}");
    }
    std::fs::set_permissions(place.path(".ghostlight"), Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_working_directory_that_was_removed_is_said_to_be() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_ghostlight");
    for command in ["map x -- true", "map --batch b"] {
        let script = format!("mkdir gone; cd gone; rmdir ../gone; exec {program} {command}");
        let mut shell = std::process::Command::new("sh");
        let output = shell.args(["-c", &script]).current_dir(place.path("")).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command}: {stderr}");
        assert!(stderr.contains("the working directory was removed"), "{command}: {stderr}");
    }
}

#[test]
fn a_refused_start_leaves_nothing_behind() {
    let place = Place::new();
    let names = |path: &str| {
        let entries = std::fs::read_dir(place.path(path)).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap().to_string();
    for detach in [&[][..], &["--detach"]] {
        let args = [&["map", "--listen", &address, "x"], detach, &["--", "true"]].concat();
        let ended = place.run(args);
        assert_eq!(ended.code(), Some(2));
        assert!(ended.stderr.contains("listen on"), "{}", ended.stderr);
        assert!(names("").is_empty(), "{:?}", names(""));
    }
    // A store that cannot be opened.
    std::fs::create_dir(place.path(".ghostlight")).unwrap();
    std::fs::write(place.path(".ghostlight/store"), "no store").unwrap();
    for detach in [&[][..], &["--detach"]] {
        let ended = place.run([&["map", "x"], detach, &["--", "true"]].concat());
        assert_eq!(ended.code(), Some(2), "{}", ended.stderr);
        let left = names(".ghostlight");
        assert!(!left.contains(&"spool".into()), "{left:?}");
        if detach.is_empty() {
            assert!(!left.contains(&"batches".into()), "{left:?}");
        }
    }
}
