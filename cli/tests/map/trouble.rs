//! A machine that is short of something, and readers that do not read or are cut off.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};

use crate::support::{Place, only_run};

/// Leaves the program so many file numbers; it keeps the files that it has open.
fn limit_files(pid: u32, limit: Option<u64>) {
    let pid = Pid::from_raw(pid as i32);
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let current = limit.or(maximum);
    prlimit(pid, Resource::Nofile, Rlimit { current, maximum }).unwrap();
}

#[test]
fn a_shortage_of_files_fails_no_input() {
    let place = Place::new();
    let mut map = place.ghostlight(["map", "--jobs", "2", "--", "sh", "-c", "echo {} >> log"]);
    let mut map = place.spawn(map.env("GHOSTLIGHT_LOG", "warn").stdin(Stdio::piped()));
    let mut stdin = map.stdin();
    stdin.write_all(b"before\n").unwrap();
    while place.lines("log").is_empty() {
        std::thread::yield_now();
    }
    limit_files(map.pid(), Some(4));
    stdin.write_all(b"a\nb\nc\n").unwrap();
    drop(stdin);
    // It says what it is short of, and waits.
    map.read_note();
    limit_files(map.pid(), None);
    let ended = map.wait();
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_eq!(place.lines("log"), ["a", "b", "before", "c"]);
    let listed = String::from_utf8(place.run(["runs", "--json"]).stdout).unwrap();
    assert_eq!(listed.matches(r#""status":"completed""#).count(), 4, "{listed}");
}

#[test]
fn a_program_that_is_being_written_is_waited_for() {
    let place = Place::new();
    std::fs::copy("/bin/true", place.path("program")).unwrap();
    let written = std::fs::OpenOptions::new().append(true).open(place.path("program")).unwrap();
    let mut map = place.ghostlight(["map", "a", "--", "./program"]);
    let mut map = place.spawn(map.env("GHOSTLIGHT_LOG", "warn"));
    map.read_note_with("a command is not started yet");
    drop(written);
    let ended = map.wait();
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
}

#[test]
fn a_reader_that_does_not_read_loses_nothing_and_stops_nothing() {
    let place = Place::new();
    let mut done = place.gate("done");
    // More than a pipe holds.
    let script = "for i in 1 2 3; do head -c 100000 /dev/zero | tr '\\0' {}; echo; done; \
                  echo {} >> log; echo x > done";
    let args = ["map", "--jobs", "1", "a", "b", "c", "--", "sh", "-c", script];
    let map = place.start(args);
    for _ in 0..3 {
        done.read_one();
    }
    map.signal(Signal::TERM);
    assert_eq!(map.wait_unread(), Some(143));
    let ended = place.run(args);
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    let lines: Vec<(String, usize)> =
        ended.sorted().iter().map(|line| (line[..1].to_owned(), line.len())).collect();
    let expected = ["a", "b", "c"].map(|input| vec![(input.to_owned(), 100_000); 3]).concat();
    assert_eq!(lines, expected);
    assert_eq!(place.lines("log"), ["a", "b", "c"]);
}

/// Stands between the program and an owner; resets the first stream once it has passed on `until`,
/// and passes everything on from then on.
fn reset_once(listener: &UnixListener, owner: &std::path::Path, until: &str) {
    let mut to_reset = Some(until);
    for stream in listener.incoming() {
        let mut client = stream.unwrap();
        // The last byte of the head is left unread: to close the connection then resets it.
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        let is_stream = head.starts_with(b"GET /agents/") && contains(&head, b"/events");
        head.push(b'\n');
        let mut server = UnixStream::connect(owner).unwrap();
        server.write_all(&head).unwrap();
        let until = if is_stream { to_reset.take() } else { None };
        let Some(until) = until else {
            client.read_exact(&mut [0]).unwrap();
            std::thread::spawn(move || _ = std::io::copy(&mut server, &mut client));
            continue;
        };
        let (mut passed, mut buffer) = (Vec::new(), [0; 4096]);
        while !contains(&passed, until.as_bytes()) {
            let read = server.read(&mut buffer).unwrap();
            assert!(read > 0, "the stream ended early");
            client.write_all(&buffer[..read]).unwrap();
            passed.extend(&buffer[..read]);
        }
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn a_tail_that_is_reset_goes_on_where_it_was() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let script = "echo 1; echo 2; dd bs=1 count=1 < gate > /dev/null 2>&1; echo 3; echo 4";
    let mut map = place.start(["map", "x", "--", "sh", "-c", script]);
    map.read_lines(2);
    let id = only_run(&place);
    let (socket, owner) = (place.path(".ghostlight/control.sock"), place.path("owner.sock"));
    std::fs::rename(&socket, &owner).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || reset_once(&listener, &owner, "2\\\\n"));
    let mut tail = place.start(["tail", &id]);
    assert_eq!(tail.read_lines(2), ["1", "2"]);
    gate.open(1);
    let ended = tail.wait();
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "3\n4\n");
    assert_eq!(map.wait().code(), Some(0));
}

#[test]
fn an_output_that_takes_no_more_is_said() {
    let place = Place::new();
    assert_eq!(place.run(["map", "x", "--", "echo", "{}"]).code(), Some(0));
    let id = only_run(&place);
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let commands: [&[&str]; 9] = [
        &["map", "x", "--", "echo", "{}"],
        &["map", "--json", "x", "--", "echo", "{}"],
        &["runs"],
        &["runs", "--json"],
        &["show", &id],
        &["tail", &id],
        &["tail", "--json", &id],
        &["sim", "--list"],
        &["clear"],
    ];
    for command in commands {
        let ended = place.ghostlight(command).stdout(full()).output().unwrap();
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{command:?}: {stderr}");
        assert!(stderr.contains("write the output: No space left"), "{command:?}: {stderr}");
    }
    // Where nothing is ever said, the exit status says it.
    let mut mute = place.ghostlight(["sim", "--list"]);
    assert_eq!(mute.stdout(full()).stderr(full()).status().unwrap().code(), Some(2));
}

#[test]
fn a_lost_count_of_what_was_acknowledged_is_said_once() {
    let place = Place::new();
    let map = ["map", "--batch", "b", "a", "--", "echo", "{}"];
    let first = place.run(map);
    assert_eq!(first.code(), Some(0), "{}", first.stderr);
    assert!(!first.stderr.contains("acknowledged"), "{}", first.stderr);
    std::fs::remove_file(place.path(".ghostlight/store/acked")).unwrap();
    let second = place.run(map);
    assert_eq!(second.code(), Some(0), "{}", second.stderr);
    assert_eq!(second.stderr.matches("acknowledged").count(), 1, "{}", second.stderr);
    assert!(!second.stderr.contains('\u{1b}'), "{}", second.stderr);
    let third = place.run(map);
    assert!(!third.stderr.contains("acknowledged"), "{}", third.stderr);
}

/// A new terminal, which is nobody's controlling one: its own end, and that of a program in it.
fn terminal() -> (File, OwnedFd) {
    // Neither end may leak into what another test starts.
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    let own = File::options().read(true).write(true).custom_flags(flags).open("/dev/ptmx").unwrap();
    // SAFETY: its descriptor is open.
    assert_eq!(unsafe { libc::unlockpt(own.as_raw_fd()) }, 0);
    // SAFETY: as above; the call takes an int and opens a file.
    let programs = unsafe { libc::ioctl(own.as_raw_fd(), libc::TIOCGPTPEER, flags) };
    assert!(programs >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: it was just opened, and is nobody else's.
    (own, unsafe { OwnedFd::from_raw_fd(programs) })
}

#[test]
fn a_terminal_that_is_gone_is_a_hang_up() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let mut started = place.gate("started");
    let (own, programs) = terminal();
    let wait = "echo x > started; dd bs=1 count=1 < gate 2> /dev/null; echo {}";
    let mut map = place.ghostlight(["map", "--batch", "b", "a", "--", "sh", "-c", wait]);
    map.stdout(programs.try_clone().unwrap()).stderr(programs);
    let mut running = map.spawn().unwrap();
    // What has the program's end open is the program alone.
    drop(map);
    started.read_one();
    drop(own);
    gate.open(1);
    let status = running.wait().unwrap();
    assert_eq!(status.code(), Some(129), "{status}");
}

#[test]
fn a_display_shows_as_running_what_has_been_started() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let (mut own, programs) = terminal();
    let wait = "dd bs=1 count=1 < gate > /dev/null 2>&1";
    let words = ["map", "--jobs", "2", "a", "b", "c", "--", "sh", "-c", wait, "{}"];
    let mut map = place.ghostlight(words);
    map.stdout(programs.try_clone().unwrap()).stderr(programs);
    let mut running = map.spawn().unwrap();
    drop(map);
    let mut read_to = |text: &str| {
        let (mut seen, mut bytes) = (Vec::new(), [0; 4096]);
        while !contains(&seen, text.as_bytes()) {
            let count = own.read(&mut bytes).unwrap();
            seen.extend_from_slice(&bytes[..count]);
            // It is drawn five times a second, whatever happens.
            assert!(count > 0 && seen.len() < 100_000, "{}", String::from_utf8_lossy(&seen));
        }
        String::from_utf8_lossy(&seen).into_owned()
    };
    let seen = read_to("0/3 2 running, 1 waiting -/s");
    assert!(!seen.contains("3 running") && !seen.contains("eta 00"), "{seen}");
    read_to("eta --:--");
    gate.open(1);
    read_to("1/3 2 running");
    gate.open(2);
    read_to("3  completed");
    assert!(running.wait().unwrap().success());
}

#[test]
fn who_types_the_inputs_is_told_so() {
    let place = Place::new();
    let (mut own, programs) = terminal();
    let mut map = place.ghostlight(["map", "--", "echo", "got {}"]);
    let mut running = place.spawn(map.stdin(programs));
    running.read_note_with("reading inputs from the terminal, one a line; Ctrl-D ends them");
    // A line, and the end of the file.
    own.write_all(b"x\n\x04").unwrap();
    let ended = running.wait();
    assert_eq!((ended.code(), ended.stdout.as_slice()), (Some(0), &b"got x\n"[..]));
}
