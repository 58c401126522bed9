//! Batches in the background.

use std::process::Command;

use ghostlight::storage::FolderLock;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Ended, Place};

/// The process that a detached batch goes on in.
fn background(detached: &Ended) -> Pid {
    let said = String::from_utf8_lossy(&detached.stdout);
    let pid = said.split("(process ").nth(1).and_then(|rest| rest.split(')').next());
    Pid::from_raw(pid.unwrap().parse().unwrap()).unwrap()
}

/// Runs the program again for as long as the owner before is not gone.
fn run_once_free(place: &Place, args: &[&str]) -> Ended {
    loop {
        let ended = place.run(args);
        if ended.code() != Some(2) {
            return ended;
        }
        assert!(ended.stderr.contains("is in use by "), "{}", ended.stderr);
    }
}

#[test]
fn inputs_put_aside_before_are_not_lost() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let script = "dd bs=1 count=1 < gate > /dev/null 2>&1; echo {} >> log";
    let detach = ["map", "--batch", "b", "--jobs", "1", "--detach"];
    let command = ["--", "sh", "-c", script];
    let args = |inputs: &[&'static str]| [&detach, inputs, &command].concat();
    let first = place.run(args(&["1", "2", "3", "4", "5", "6", "7", "8", "9"]));
    assert_eq!(first.code(), Some(0), "{}", first.stderr);
    let listed = |file| {
        let path = format!("/proc/{}/{file}", background(&first).as_raw_pid());
        std::fs::read_to_string(path).unwrap()
    };
    assert!(listed("cmdline").starts_with("ghostlight\0map\0"), "{}", listed("cmdline"));
    assert_eq!(listed("comm"), "ghostlight\n");
    kill_process(background(&first), Signal::KILL).unwrap();
    let second = run_once_free(&place, &args(&["9", "10"]));
    assert_eq!(second.code(), Some(0), "{}", second.stderr);
    gate.open(10);
    let ended = run_once_free(&place, &["map", "--batch", "b"]);
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_eq!(place.lines("log"), ["1", "10", "2", "3", "4", "5", "6", "7", "8", "9"]);

    // Once they are done, they are over.
    assert_eq!(place.run(["clear"]).stdout, b"10 runs were removed\n");
    let third = place.run(args(&["11"]));
    assert_eq!(third.code(), Some(0), "{}", third.stderr);
    gate.open(1);
    let ended = run_once_free(&place, &["map", "--batch", "b"]);
    assert!(ended.stderr.contains("1  completed"), "{}", ended.stderr);
}

#[test]
fn a_stop_while_inputs_are_put_aside_says_which() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let place = Place::new();
        let mut map = place.ghostlight(["map", "--detach", "--", "echo", "{}"]);
        let mut map = place.spawn(map.stdin(std::process::Stdio::piped()));
        let list = map.stdin();
        while !place.path(".ghostlight/spool").exists() {}
        map.signal(signal);
        assert_eq!(map.wait().code(), Some(code));
        drop(list);
        assert!(!place.path(".ghostlight").exists());
    }
}

#[test]
fn a_stop_while_inputs_are_put_aside_leaves_what_was_there() {
    let place = Place::new();
    let ended = place.run(["map", "--batch", "a", "x", "--", "true"]);
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    let mut map = place.ghostlight(["map", "--batch", "b", "--detach", "--", "true"]);
    let mut map = place.spawn(map.stdin(std::process::Stdio::piped()));
    let list = map.stdin();
    while !place.path(".ghostlight/spool").exists() {}
    map.signal(Signal::INT);
    assert_eq!(map.wait().code(), Some(130));
    drop(list);
    assert_eq!(place.count_below("spool"), 0);
    assert_eq!(place.run(["map", "--batch", "b"]).code(), Some(2));
}

/// As a shell without job control starts programs in the background.
#[test]
fn signals_that_were_ignored_stay_so() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let script = format!(
        "trap '' INT TERM HUP; exec {} map x -- sh -c 'echo begin; dd bs=1 count=1 < gate 2>&1'",
        env!("CARGO_BIN_EXE_ghostlight")
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(place.path(""));
    let mut map = place.spawn(&mut shell);
    assert_eq!(map.read_lines(1), ["begin"]);
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        map.signal_ignored(signal);
    }
    gate.open(1);
    assert_eq!(map.wait().code(), Some(0));
}

#[test]
fn inputs_of_a_detach_that_failed_are_not_kept() {
    let place = Place::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap().to_string();
    let detach = ["map", "--detach", "--batch", "b"];
    let command = |word| ["--", "sh", "-c", word];
    let wrong = command("echo wrong {} >> log");
    let args = [&detach[..], &["--listen", &address, "a", "c"], &wrong].concat();
    let refused = place.run(args);
    assert_eq!(refused.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stdout));
    assert!(refused.stderr.contains(&address), "{}", refused.stderr);
    assert_eq!(place.count_below("spool"), 0);
    for right in [command("echo right {} >> log"), wrong] {
        let args = [&detach[..], &["c"], &right].concat();
        let detached = run_once_free(&place, &args);
        assert_eq!(detached.code(), Some(0), "{}", detached.stderr);
        run_once_free(&place, &["map", "--batch", "b"]);
        run_once_free(&place, &["clear"]);
    }
    assert_eq!(place.lines("log"), ["right c", "wrong c"]);
}

#[test]
fn only_who_got_the_folder_goes_on_in_the_background() {
    for _ in 0..8 {
        let place = Place::new();
        let detach = |batch| {
            let script = format!("echo {batch} >> log");
            place.start(["map", "--detach", "--batch", batch, "x", "--", "sh", "-c", &script])
        };
        let ended = [detach("a"), detach("b")].map(crate::support::Running::wait);
        // Those that are in the background are over once the folder is free.
        run_once_free(&place, &["map", "--batch", "c", "x", "--", "true"]);
        let done = place.lines("log");
        for (batch, ended) in ["a", "b"].iter().zip(&ended) {
            let said = String::from_utf8_lossy(&ended.stdout);
            let is_done = done.iter().any(|line| line == batch);
            assert_eq!(ended.code() == Some(0), is_done, "{batch}: {said}{}", ended.stderr);
        }
    }
}

#[test]
fn a_detached_batch_with_failures_was_started() {
    let place = Place::new();
    let ended = place.run(["map", "--detach", "--batch", "b", "x", "--", "false"]);
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
}

#[test]
fn nobody_gets_the_folder_between_a_detach_and_its_background_program() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let script = "dd bs=1 count=1 < gate > /dev/null 2>&1";
    let detach = place.start(["map", "--detach", "--batch", "b", "x", "--", "sh", "-c", script]);
    while !place.path(".ghostlight/spool").exists() {}
    let detach = std::thread::spawn(move || detach.wait());
    let mut looked = 0;
    while !detach.is_finished() {
        let taken = FolderLock::acquire(place.path(".ghostlight"));
        assert!(taken.is_err(), "taken at look {looked}");
        looked += 1;
    }
    let ended = detach.join().unwrap();
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    gate.open(1);
    let ended = run_once_free(&place, &["map", "--batch", "b"]);
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
}

#[test]
fn of_several_detaches_of_one_batch_each_runs_or_is_refused() {
    for _ in 0..6 {
        let place = Place::new();
        let mut gate = place.gate("gate");
        let script = "dd bs=1 count=1 < gate > /dev/null 2>&1; echo {} >> log";
        let inputs = ["1", "2", "3", "4"];
        let detach = |input| {
            place.start(["map", "--detach", "--batch", "b", input, "--", "sh", "-c", script])
        };
        let ended = inputs.map(detach).map(crate::support::Running::wait);
        gate.open(inputs.len());
        // Goes on with what is put aside, if there is any.
        run_once_free(&place, &["map", "--batch", "b"]);
        let done = place.lines("log");
        for (input, ended) in inputs.iter().zip(&ended) {
            let said = String::from_utf8_lossy(&ended.stdout);
            let times = done.iter().filter(|line| line == input).count();
            let expected = usize::from(ended.code() == Some(0));
            assert_eq!(times, expected, "{input}: {said}{}", ended.stderr);
        }
    }
}

#[test]
fn a_batch_goes_on_with_another_number_of_attempts() {
    let place = Place::new();
    let script = "echo $GHOSTLIGHT_ATTEMPT >> log; kill -9 $PPID; sleep 60";
    let command = ["--max-attempts", "1", "x", "--", "sh", "-c", script];
    let detached = place.run([&["map", "--batch", "b", "--detach"], &command[..]].concat());
    assert_eq!(detached.code(), Some(0), "{}", detached.stderr);
    assert_eq!(run_once_free(&place, &["map", "--batch", "b"]).code(), Some(1));
    assert_eq!(place.lines("log"), ["1"]);
    place.run(["map", "--batch", "b", "--retry-failed", "--max-attempts", "2"]);
    assert_eq!(place.lines("log"), ["1", "1", "2"]);
}

#[test]
fn how_the_background_program_ended_is_known_where_child_signals_are_ignored() {
    let place = Place::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap().to_string();
    let mut ignoring = Command::new("env");
    ignoring.args(["--ignore-signal=CHLD", env!("CARGO_BIN_EXE_ghostlight"), "map", "--detach"]);
    ignoring.args(["--listen", &address, "x", "--", "true"]);
    let refused = place.spawn(ignoring.current_dir(place.path(""))).wait();
    assert_eq!(refused.code(), Some(2));
    assert!(refused.stderr.contains(&address), "{}", refused.stderr);
}
