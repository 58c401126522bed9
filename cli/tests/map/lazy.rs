//! A list of inputs is read no faster than its runs end.

use std::io::{ErrorKind, Write};
use std::process::Stdio;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::Signal;

use crate::support::Place;

/// How many runs of 2 jobs are dispatched.
const AHEAD: usize = 8;
/// More than a pipe, a reader's buffer and a few inputs hold.
const WRITTEN_MAX: usize = 192 * 1024;
/// So many looks at the runs in which not a byte more is read.
const QUIET_LOOKS: usize = 10;

#[test]
fn an_endless_list_is_read_as_far_as_it_is_dispatched() {
    let place = Place::new();
    let mut gate = place.gate("gate");
    let script = "dd bs=1 count=1 < gate > /dev/null 2>&1";
    let mut map = place.ghostlight(["map", "--jobs", "2", "--", "sh", "-c", script, "sh", "{}"]);
    let mut map = place.spawn(map.stdin(Stdio::piped()));
    let mut list = map.stdin();
    fcntl_setfl(&list, OFlags::NONBLOCK).unwrap();
    let line = [b"x".repeat(999).as_slice(), b"\n"].concat();
    let runs = || {
        let listed = place.run(["runs", "--json"]).stdout;
        listed.iter().filter(|byte| **byte == b'\n').count()
    };
    let (mut written, mut quiet) = (0, 0);
    let mut write_until_blocked = || {
        let before = written;
        loop {
            match list.write(&line) {
                Ok(bytes) => written += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
            assert!(written < WRITTEN_MAX, "the list is read without end");
        }
        written > before
    };
    while quiet < QUIET_LOOKS {
        let more = write_until_blocked();
        let runs = runs();
        assert!(runs <= AHEAD, "{runs} runs are dispatched");
        quiet = if more || runs < AHEAD { 0 } else { quiet + 1 };
    }
    // Ends make room for as many more.
    gate.open(3);
    while runs() < AHEAD + 3 {
        write_until_blocked();
    }
    map.signal(Signal::INT);
    gate.open(2);
    let ended = map.wait();
    assert_eq!(ended.code(), Some(130), "{}", ended.stderr);
    assert_eq!(runs(), AHEAD + 3);
}
