use std::io::Write;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Place, WAIT, begins, both, only_run, restarts};

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
    let runs = String::from_utf8(place.run(["runs", "--json"]).stdout).unwrap();
    assert_eq!(runs.matches(r#""attempt":1,"#).count(), 4, "taking over is no attempt: {runs}");
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
    assert_eq!(restarts(&place, &only_run(&place)), 0, "taking over is none");
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
    let listed = String::from_utf8(place.run(["runs"]).stdout).unwrap();
    assert_eq!(listed.matches("suspended").count(), 2, "nothing runs any more: {listed}");
    let runs = String::from_utf8(place.run(["runs", "--json"]).stdout).unwrap();
    assert_eq!(runs.matches(r#""suspended":true"#).count(), 2, "{runs}");
    gate.open(2);
    let ended = place.run(args);
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_eq!(place.lines("log"), ["1", "1", "2", "2"], "killed, and started again");
    let runs = String::from_utf8(place.run(["runs", "--json"]).stdout).unwrap();
    assert_eq!(runs.matches(r#""attempt":1,"#).count(), 2, "no attempt is counted: {runs}");
    for run in runs.lines() {
        let run: serde_json::Value = serde_json::from_str(run).unwrap();
        assert_eq!(restarts(&place, run["runId"].as_str().unwrap()), 1);
    }
}

#[test]
fn a_kill_whose_status_comes_late_is_no_failure_of_the_command() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let args = ["map", "a", "--", "sh", "-c", WAIT];
    let mut map = place.start(args);
    map.read_lines(1);
    let claim = place.launch_files().into_iter().find(|path| path.ends_with("claim")).unwrap();
    let text = std::fs::read(&claim).unwrap();
    let claim: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let number = |name: &str| claim["claim"]["shim"][name].as_i64().unwrap() as i32;
    let shim = Pid::from_raw(number("pid")).unwrap();
    kill_process(shim, Signal::STOP).unwrap();
    map.signal(Signal::INT);
    map.read_note();
    map.signal(Signal::INT);
    let command = format!("/proc/{}/stat", number("processGroup"));
    while !std::fs::read_to_string(&command).unwrap().contains(") Z ") {
        std::thread::yield_now();
    }
    map.sigkill();
    let mut map = place.start(args);
    map.read_lines(1);
    kill_process(shim, Signal::CONT).unwrap();
    gate.open(1);
    let ended = map.wait();
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_eq!(place.lines("log"), ["a", "a"], "killed by us, and started again");
    assert_eq!(restarts(&place, &only_run(&place)), 1);
}

#[test]
fn a_kill_that_did_not_happen_excuses_no_death() {
    // The signal, and whether the next owner sees the command alive.
    for (signal, taken_over) in [("SEGV", false), ("SEGV", true), ("KILL", true)] {
        let place = Place::new();
        let (mut gate, mut done) = (place.gate("gate"), place.gate("done"));
        let script = format!(
            "echo {{}} >> log; echo begin; dd bs=1 count=1 < gate > /dev/null 2>&1; \
             (echo x > done) & wait; kill -{signal} $$"
        );
        let args = ["map", "a", "--", "sh", "-c", &script];
        let mut map = place.start(args);
        map.read_lines(1);
        let status = place.launch_files().into_iter().find(|path| path.ends_with("claim"));
        map.sigkill();
        // As a program leaves it that dies between the mark and the kill.
        std::fs::write(status.unwrap().with_file_name("stopped-by-owner"), "").unwrap();
        let map = taken_over.then(|| {
            let mut map = place.start(args);
            map.read_lines(1);
            map
        });
        gate.open(2);
        done.read_one();
        let ended = map.map_or_else(|| place.run(args), |map| map.wait());
        assert_eq!(ended.code(), Some(1), "{signal}: {}", ended.stderr);
        assert!(ended.stderr.contains("killed by signal"), "{}", ended.stderr);
        assert_eq!(place.lines("log"), ["a"], "{signal}: its death is its own");
    }
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
    let id = only_run(&place);
    assert_eq!(restarts(&place, &id), 2);
    let tail = place.run(["tail", &id]);
    assert_eq!(String::from_utf8_lossy(&tail.stdout), "", "notes are no output");
    assert_eq!(tail.stderr.matches("is started again").count(), 2, "{}", tail.stderr);
}

#[test]
fn live_runs_whose_input_is_gone_go_on_and_count() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let mut map =
        place.start(["map", "--batch", "b", "1", "2", "--jobs", "2", "--", "sh", "-c", WAIT]);
    map.read_lines(2);
    map.sigkill();
    let mut map = place.start(["map", "--batch", "b", "1", "--", "sh", "-c", WAIT]);
    assert_eq!(map.read_lines(2), begins(&["1", "2"]));
    gate.open(2);
    let ended = map.wait();
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_eq!(ended.sorted(), ["end 1", "end 2"]);
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

#[test]
fn batches_with_the_same_inputs_have_nothing_to_do_with_each_other() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let one = "dd bs=1 count=1 < gate > /dev/null 2>&1; echo {} >> one; echo one {}";
    let args = ["map", "--jobs", "1", "a", "b", "c", "--", "sh", "-c", one];
    let mut map = place.start(["map", "--jobs", "1", "a", "b", "c", "--", "sh", "-c", one]);
    gate.open(1);
    map.read_lines(1);
    map.sigkill();
    // The first batch's runs go on beside it, and it reports its own alone.
    let two = "echo {} >> two; echo two {}";
    let ended = place.run(["map", "--jobs", "3", "a", "b", "c", "--", "sh", "-c", two]);
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_eq!(ended.sorted(), ["two a", "two b", "two c"]);
    assert_eq!(place.lines("two"), ["a", "b", "c"]);
    gate.open(2);
    let ended = place.run(args);
    assert_eq!(ended.sorted(), ["one a", "one b", "one c"]);
    assert_eq!(place.lines("one"), ["a", "b", "c"]);
}

#[test]
fn sigterm_in_a_drain_leaves_the_commands_alone() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let args = ["map", "1", "--", "sh", "-c", WAIT];
    let mut map = place.start(args);
    map.read_lines(1);
    map.signal(Signal::INT);
    map.read_note();
    map.signal(Signal::TERM);
    assert_eq!(map.wait().code(), Some(143));
    gate.open(1);
    let ended = place.run(args);
    assert_eq!((ended.code(), ended.sorted()), (Some(0), both(&["1"])));
    assert_eq!(place.lines("log"), ["1"]);
}

#[test]
fn a_port_is_for_looking() {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpStream;
    let place = Place::new();
    let mut gate = place.gate("gate");
    let mut map = place
        .ghostlight(["map", "--listen", "127.0.0.1:0", "1", "--", "sh", "-c", WAIT])
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(map.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    let (address, path) = line.trim().split("http://").nth(1).unwrap().split_once('/').unwrap();
    let ask = |request: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.lines().next().unwrap_or_default().to_owned()
    };
    let tail = "Connection: close\r\nContent-Length: 0\r\n\r\n";
    assert!(ask(&format!("GET /{path} HTTP/1.1\r\nHost: {address}\r\n{tail}")).contains("200"));
    let post = format!("POST /agents/batch/x/runs HTTP/1.1\r\nHost: {address}\r\n{tail}");
    assert!(ask(&post).contains("403"), "{}", ask(&post));
    let page = format!("GET /agents HTTP/1.1\r\nHost: evil.example\r\n{tail}");
    assert!(ask(&page).contains("403"), "{}", ask(&page));
    gate.open(1);
    assert!(map.wait().unwrap().success());
}

/// More lines than wait to be printed, and then the end of the list of inputs.
#[test]
fn signals_are_served_while_nobody_reads_the_output() {
    let place = Place::new();
    let script = "yes \"$(printf %01000d 0)\" | head -n 12000";
    let mut map = place.ghostlight(["map", "--", "sh", "-c", script]);
    let mut map = place.spawn(map.stdin(Stdio::piped()));
    let mut list = map.stdin();
    list.write_all(b"x\n").unwrap();
    let runs = || String::from_utf8(place.run(["runs", "--json"]).stdout).unwrap();
    while !runs().contains(r#""status":"completed""#) {}
    drop(list);
    let tasks = format!("/proc/{}/task", map.pid());
    let reads_inputs = || {
        let tasks = std::fs::read_dir(&tasks).unwrap().map(|task| task.unwrap().path());
        let names = tasks.map(|task| std::fs::read_to_string(task.join("comm")));
        names.into_iter().any(|name| name.is_ok_and(|name| name.trim() == "inputs"))
    };
    while reads_inputs() {
        std::thread::yield_now();
    }
    // The end of the list is on its way to where it waits behind the lines.
    runs();
    map.signal(Signal::TERM);
    assert_eq!(map.wait_unread(), Some(143));
}

#[test]
fn nothing_is_started_where_the_port_is_taken() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let args = ["map", "--jobs", "1", "1", "2", "--", "sh", "-c", WAIT];
    let mut map = place.start(args);
    map.read_lines(1);
    map.signal(Signal::INT);
    gate.open(1);
    assert_eq!(map.wait().code(), Some(130));
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap().to_string();
    // Whoever asked the store first would tell of that.
    let conf = place.path(".ghostlight/store/conf");
    let sound = std::fs::read(&conf).unwrap();
    std::fs::write(&conf, "damaged").unwrap();
    let refused = place.run([&args[..1], &["--listen", &address], &args[1..]].concat());
    assert_eq!(refused.code(), Some(2));
    assert!(refused.stderr.contains(&address), "{}", refused.stderr);
    std::fs::write(&conf, sound).unwrap();
    gate.open(1);
    assert_eq!(place.run(args).code(), Some(0));
    assert_eq!(place.lines("log"), ["1", "2"]);
}

#[test]
fn nothing_vanished_is_started_again_during_a_drain() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let script = "echo $GHOSTLIGHT_ATTEMPT >> log; echo begin; [ $GHOSTLIGHT_ATTEMPT = 2 ] && exit 0; \
                  dd bs=1 count=1 < gate > /dev/null 2>&1; kill -9 $PPID; sleep 60";
    let args = ["map", "a", "--", "sh", "-c", script];
    let mut map = place.start(args);
    map.read_lines(1);
    map.signal(Signal::INT);
    // It says what it waits for once nothing is started any more.
    map.read_note();
    gate.open(1);
    let ended = map.wait();
    assert_eq!(ended.code(), Some(130), "{}", ended.stderr);
    assert_eq!(place.lines("log"), ["1"], "no second attempt");
    let ended = place.run(args);
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_eq!(place.lines("log"), ["1", "2"]);
    assert_eq!(restarts(&place, &only_run(&place)), 1);
}
