//! How a map ends that was told to stop, and what it leaves alone.

use rustix::process::Signal;

use crate::support::{Place, only_run};

#[test]
fn the_rest_of_another_batch_waits_for_its_own_map() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let script =
        "echo {} >> begun; dd bs=1 count=1 < gate > /dev/null 2>&1; echo {} >> log; echo {}";
    let args = ["map", "--batch", "a", "--jobs", "1", "1", "2", "3", "4", "--", "sh", "-c", script];
    let mut map = place.start(args);
    while place.lines("begun").is_empty() {}
    map.signal(Signal::INT);
    map.read_note();
    gate.open(1);
    assert_eq!(map.wait().code(), Some(130));
    let listed = String::from_utf8(place.run(["runs"]).stdout).unwrap();
    assert_eq!(listed.matches("queued").count(), 3, "{listed}");

    let mut map = place.start(["map", "--batch", "b", "5", "--", "sh", "-c", script]);
    while place.run(["runs", "--batch", "b", "--status", "running"]).stdout.is_empty() {}
    // Shown, which needs no execution of anything.
    assert_eq!(place.run(["runs", "--json", "--batch", "a"]).code(), Some(0));
    gate.open(1);
    assert_eq!(map.read_lines(1), ["5"]);
    let ended = map.wait();
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert!(!ended.stderr.contains("ERROR"), "{}", ended.stderr);
    assert_eq!(place.lines("log"), ["1", "5"]);
    let listed = String::from_utf8(place.run(["runs", "--batch", "a"]).stdout).unwrap();
    assert_eq!(listed.matches("queued").count(), 3, "{listed}");

    gate.open(3);
    assert_eq!(place.run(args).sorted(), ["1", "2", "3", "4"]);
}

#[test]
fn a_command_of_another_batch_is_cancelled_through_the_owner() {
    let place = Place::new();
    let gate = place.gate("gate");
    let script = "echo begin; exec dd bs=1 count=1 < gate 2>&1";
    let mut map = place.start(["map", "--batch", "a", "1", "--", "sh", "-c", script]);
    map.read_lines(1);
    map.sigkill();
    let run = only_run(&place);
    let mut gate_of_b = place.gate("other");
    let script = "echo begin; dd bs=1 count=1 < other 2>&1";
    let mut map = place.start(["map", "--batch", "b", "2", "--", "sh", "-c", script]);
    map.read_lines(1);
    let cancelled = place.run(["cancel", "--batch", "a", &run]);
    assert_eq!(cancelled.code(), Some(0), "{}", cancelled.stderr);
    let tailed = place.run(["tail", "--batch", "a", &run]);
    assert_eq!((tailed.code(), tailed.stdout), (Some(1), b"begin\n".to_vec()));
    assert!(place.launch_files().iter().all(|file| !file.to_string_lossy().contains(&run)));
    gate_of_b.open(1);
    assert_eq!(map.wait().code(), Some(0));
    drop(gate);
}

#[test]
fn a_map_that_drains_answers() {
    let place = Place::new();
    let _gate = place.gate("gate");
    let script = "echo begin; exec dd bs=1 count=1 < gate 2>&1";
    let mut map = place.start(["map", "1", "--", "sh", "-c", script]);
    map.read_lines(1);
    let run = only_run(&place);
    let tail = place.start(["tail", &run]);
    map.signal(Signal::INT);
    map.read_note();
    let shown = place.run(["show", &run]);
    assert_eq!(shown.code(), Some(0), "{}", shown.stderr);
    let cancelled = place.run(["cancel", &run]);
    assert_eq!(cancelled.code(), Some(0), "{}", cancelled.stderr);
    assert_eq!(tail.wait().code(), Some(1));
    assert_eq!(map.wait().code(), Some(130));
}

#[test]
fn signals_end_a_map_whose_last_words_nobody_reads() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let place = Place::new();
        // More than a pipe holds.
        let script = "head -c 300000 /dev/zero; echo {}";
        let map = place.start(["map", "1", "--", "sh", "-c", script]);
        while place.run(["runs", "--status", "completed"]).code() == Some(2)
            || place.run(["runs", "--status", "completed"]).stdout.is_empty()
        {}
        // The folder is free: nothing is left to be done but to print.
        while place.path(".ghostlight/control.sock").exists() {}
        map.signal(signal);
        assert_eq!(map.wait_unread(), Some(code));
    }
}

#[test]
fn a_map_that_was_stopped_says_so_at_its_end() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let script = "echo begin; dd bs=1 count=1 < gate > /dev/null 2>&1";
    for json in [true, false] {
        let mut args = vec!["map", "--json", "1", "--", "sh", "-c", script];
        if !json {
            args.remove(1);
        }
        let mut map = place.start(&args);
        map.read_lines(1);
        map.signal(Signal::TERM);
        let ended = map.wait();
        assert_eq!(ended.code(), Some(143));
        let out = String::from_utf8(ended.stdout).unwrap();
        match json {
            true => assert!(out.contains(r#""stopped":true"#), "{out}"),
            false => assert!(ended.stderr.contains("stopped before the end"), "{}", ended.stderr),
        }
    }
    gate.open(1);
    assert_eq!(place.run(["map", "1", "--", "sh", "-c", script]).code(), Some(0));
}
