use rustix::process::Signal;

use crate::support::Place;

/// Says that it has begun, waits at the gate, and says that it ends.
const WAIT: &str =
    "echo {} >> log; echo begin {}; dd bs=1 count=1 < gate > /dev/null 2>&1; echo end {}";

fn both(words: &[&str]) -> Vec<String> {
    let mut lines: Vec<String> =
        words.iter().flat_map(|w| [format!("begin {w}"), format!("end {w}")]).collect();
    lines.sort();
    lines
}

fn begins(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| format!("begin {word}")).collect()
}

#[test]
fn sigkill_of_the_program_touches_no_command() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let args = ["map", "--jobs", "4", "1", "2", "3", "4", "--", "sh", "-c", WAIT];
    for _ in 0..3 {
        let mut map = place.start(args);
        assert_eq!(map.read_lines(4), begins(&["1", "2", "3", "4"]));
        map.sigkill();
    }
    gate.open(4);
    let ended = place.run(args);
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_eq!(ended.sorted(), both(&["1", "2", "3", "4"]));
    assert_eq!(place.lines("log"), ["1", "2", "3", "4"], "no command was started twice");
    assert!(place.launch_files().is_empty(), "{:?}", place.launch_files());
}

#[test]
fn a_command_that_ends_without_the_program_is_not_run_again() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let mut done = place.gate("done");
    let script = "echo {} >> log; echo begin; dd bs=1 count=1 < gate > /dev/null 2>&1; \
                  echo end; echo x > done; exit 7";
    let args = ["map", "a", "--", "sh", "-c", script];
    let mut map = place.start(args);
    map.read_lines(1);
    map.sigkill();
    gate.open(1);
    done.read_one();
    let ended = place.run(args);
    assert_eq!(ended.code(), Some(1));
    assert_eq!(ended.stdout, b"begin\nend\n");
    assert!(ended.stderr.contains("exited with code 7"), "{}", ended.stderr);
    assert_eq!(place.lines("log"), ["a"]);
}

#[test]
fn one_interrupt_drains() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let args = ["map", "--jobs", "1", "1", "2", "--", "sh", "-c", WAIT];
    let mut map = place.start(args);
    assert_eq!(map.read_lines(1), ["begin 1"]);
    map.signal(Signal::INT);
    gate.open(1);
    let ended = map.wait();
    assert_eq!(ended.code(), Some(130), "{}", ended.stderr);
    assert_eq!(ended.stdout, b"end 1\n");
    assert!(ended.stderr.contains("the same command line goes on"), "{}", ended.stderr);
    assert_eq!(place.lines("log"), ["1"], "nothing more was started");
    gate.open(1);
    let ended = place.run(args);
    assert_eq!((ended.code(), ended.sorted()), (Some(0), both(&["1", "2"])));
}

#[test]
fn a_second_interrupt_kills_and_is_no_failure_of_the_commands() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let args = ["map", "--jobs", "2", "1", "2", "--", "sh", "-c", WAIT];
    let mut map = place.start(args);
    map.read_lines(2);
    map.signal(Signal::INT);
    map.read_note();
    map.signal(Signal::INT);
    let ended = map.wait();
    assert_eq!(ended.code(), Some(130), "{}", ended.stderr);
    gate.open(2);
    let ended = place.run(args);
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_eq!(place.lines("log"), ["1", "1", "2", "2"], "killed, and started again");
}

#[test]
fn sigterm_and_a_closed_output_leave_the_commands_alone() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let args = ["map", "--jobs", "2", "1", "2", "--", "sh", "-c", WAIT];
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut map = place.start(args);
        map.read_lines(2);
        map.signal(signal);
        assert_eq!(map.wait().code(), Some(code));
    }
    let mut map = place.start(args);
    map.read_lines(2);
    map.close_stdout();
    gate.open(1);
    assert_eq!(map.wait().code(), Some(141));
    gate.open(1);
    let ended = place.run(args);
    assert_eq!((ended.code(), ended.sorted()), (Some(0), both(&["1", "2"])));
    assert_eq!(place.lines("log"), ["1", "2"]);
}

#[test]
fn a_command_that_vanishes_is_started_again_within_bounds() {
    let place = Place::new();
    // The shim dies by a signal that nothing can catch; the command dies with it.
    let script = "echo $GHOSTLIGHT_ATTEMPT >> log; kill -9 $PPID; sleep 60";
    let ended = place.run(["map", "--max-attempts", "3", "a", "--", "sh", "-c", script]);
    assert_eq!(ended.code(), Some(1));
    assert!(ended.stderr.contains("vanished without an exit status, 3 times"), "{}", ended.stderr);
    assert_eq!(place.lines("log"), ["1", "2", "3"]);
}

#[test]
fn live_runs_whose_input_is_gone_go_on_and_count() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let mut map =
        place.start(["map", "--batch", "b", "1", "2", "--jobs", "2", "--", "sh", "-c", WAIT]);
    map.read_lines(2);
    map.sigkill();
    gate.open(2);
    let ended = place.run(["map", "--batch", "b", "1", "--", "sh", "-c", WAIT]);
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_eq!(ended.sorted(), both(&["1", "2"]));
    assert!(ended.stderr.contains("2  completed"), "{}", ended.stderr);
}

#[test]
fn an_owned_folder_refuses_another_map() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let mut map = place.start(["map", "1", "--", "sh", "-c", WAIT]);
    map.read_lines(1);
    let refused = place.run(["map", "x", "--", "echo", "{}"]);
    assert_eq!(refused.code(), Some(2));
    let pid = map.pid().to_string();
    assert!(
        refused.stderr.contains(&pid) && refused.stderr.contains("--data"),
        "{}",
        refused.stderr
    );
    gate.open(1);
    assert_eq!(map.wait().code(), Some(0));
}
