//! Following output while it is written.

use std::fs;

use ghostlight_cli::launch::{LaunchDir, Offsets, OutputFollower, OutputWatcher};
use ghostlight_cli::lines::{CHUNK_BYTES_MAX, LineChunk, OutputLine};

use crate::support::{Output, Place, bounded, spawn};

async fn rest(dir: &LaunchDir, from: Offsets, watcher: &OutputWatcher) -> Vec<OutputLine> {
    let mut follower = OutputFollower::open(dir, from, watcher).expect("follow");
    let mut lines = Vec::new();
    while let Some(line) = follower.next().await.expect("follow") {
        lines.push(line);
    }
    assert_eq!(follower.next().await.expect("follow"), None, "the end stays the end");
    lines
}

#[tokio::test]
async fn a_line_comes_once_it_is_whole() {
    bounded(async {
        for watcher in [OutputWatcher::new(), OutputWatcher::polling()] {
            let place = Place::new();
            let gate = place.gate("gate");
            let dir = place.launch("launch");
            let script = r#"printf a; read x < "$1"; echo b; read x < "$1"; printf c"#;
            let shim = spawn(&dir, &place.script(script, &[&gate.path])).await.expect("spawn");
            let mut follower =
                OutputFollower::open(&dir, Offsets::default(), &watcher).expect("follow");
            {
                // Dropped in the middle of waiting, again and again.
                let waiting = follower.next();
                tokio::select! {
                    biased;
                    line = waiting => panic!("half a line: {line:?}"),
                    () = async { gate.open() } => {}
                }
            }
            let line = follower.next().await.expect("follow").expect("a line");
            assert_eq!((line.chunk.bytes.as_slice(), line.end), (&b"ab\n"[..], 3));
            gate.open();
            let line = follower.next().await.expect("follow").expect("a line");
            assert_eq!((line.chunk.bytes.as_slice(), line.end), (&b"c"[..], 4));
            assert_eq!(follower.next().await.expect("follow"), None);
            shim.ended().await.expect("end");
        }
    })
    .await;
}

#[tokio::test]
async fn following_can_begin_again_after_any_line() {
    bounded(async {
        let place = Place::new();
        let dir = place.launch("launch");
        let script = r#"
            echo one; echo two >&2; printf '\377\n'
            head -c 700000 /dev/zero | tr '\0' x; echo; echo after; printf end >&2
        "#;
        let shim = spawn(&dir, &place.script(script, &[])).await.expect("spawn");
        let watcher = OutputWatcher::new();
        let live = rest(&dir, Offsets::default(), &watcher).await;
        shim.ended().await.expect("end");

        let mut output = Output::default();
        let mut at = Offsets::default();
        for line in &live {
            let body = line.chunk.encode();
            assert!(body.len() <= CHUNK_BYTES_MAX);
            assert_eq!(LineChunk::decode(&body).expect("own chunk"), line.chunk);
            output.push(line);
            at.advance(line);
            let mut expected = live.clone();
            expected.retain(|other| match other.chunk.stream {
                ghostlight_cli::lines::Stream::Stdout => other.end > at.stdout,
                ghostlight_cli::lines::Stream::Stderr => other.end > at.stderr,
            });
            let mut again = rest(&dir, at, &watcher).await;
            for lines in [&mut expected, &mut again] {
                // Order holds within a stream only.
                lines.sort_by_key(|line| (line.chunk.stream, line.end));
            }
            assert_eq!(again, expected, "from {at:?}");
        }
        let mut expected = b"one\n\xff\n".to_vec();
        expected.extend(std::iter::repeat_n(b'x', 700_000));
        expected.extend_from_slice(b"\nafter\n");
        assert!(output.stdout == expected);
        assert_eq!(output.stderr, b"two\nend");
    })
    .await;
}

#[tokio::test]
async fn a_stream_that_never_stops_does_not_starve_the_other() {
    bounded(async {
        let place = Place::new();
        let dir = place.launch("launch");
        let script = "while :; do echo more; done & echo hello >&2; wait";
        let shim = spawn(&dir, &place.script(script, &[])).await.expect("spawn");
        let mut follower =
            OutputFollower::open(&dir, Offsets::default(), &OutputWatcher::new()).expect("follow");
        loop {
            let line = follower.next().await.expect("follow").expect("endless output");
            if line.chunk.bytes == b"hello\n" {
                break;
            }
        }
        ghostlight_cli::launch::cancel(&dir, std::time::Duration::ZERO).await.expect("cancel");
        shim.ended().await.expect("end");
    })
    .await;
}

#[tokio::test]
async fn what_follows_a_truncation_is_read_from_its_beginning() {
    bounded(async {
        let place = Place::new();
        let gate = place.gate("gate");
        let dir = place.launch("launch");
        // Cut off in the middle of a line, and then so that the file is as long as it was.
        let script = r#"printf 'a long line\nhalf' >&2; read x < "$1"
            echo short > /dev/stderr; echo x >&2
            read x < "$1"; echo sh0rt > /dev/stderr; echo y >&2; echo z >&2"#;
        let shim = spawn(&dir, &place.script(script, &[&gate.path])).await.expect("spawn");
        let mut follower =
            OutputFollower::open(&dir, Offsets::default(), &OutputWatcher::new()).expect("follow");
        let line = follower.next().await.expect("follow").expect("a line");
        assert_eq!(line.chunk.bytes, b"a long line\n");
        gate.open();
        let mut seen = Vec::new();
        while let Some(line) = follower.next().await.expect("follow") {
            if line.chunk.bytes == b"x\n" {
                gate.open();
            }
            match line.chunk.truncated {
                true => {
                    assert_eq!((line.chunk.bytes.as_slice(), line.end), (&b""[..], 0));
                    seen.extend(b"<cut>");
                }
                false => seen.extend(line.chunk.bytes),
            }
        }
        assert_eq!(seen, b"half<cut>short\nx\n<cut>sh0rt\ny\nz\n");
        shim.ended().await.expect("end");
    })
    .await;
}

#[tokio::test]
async fn many_followers_share_one_watcher() {
    bounded(async {
        let place = Place::new();
        let gate = place.gate("gate");
        let dir = place.launch("launch");
        let script = r#"read x < "$1"; echo all of you"#;
        let shim = spawn(&dir, &place.script(script, &[&gate.path])).await.expect("spawn");
        let watcher = OutputWatcher::new();
        let mut followers = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let (dir, watcher) = (dir.clone(), watcher.clone());
            followers.spawn(async move { rest(&dir, Offsets::default(), &watcher).await });
        }
        drop(watcher);
        gate.open();
        while let Some(lines) = followers.join_next().await {
            assert_eq!(lines.expect("no panic").len(), 1);
        }
        shim.ended().await.expect("end");
    })
    .await;
}

/// What has left the launch may write for ever, and truncate, too.
#[tokio::test]
async fn the_end_of_what_has_no_status_is_looked_for_once() {
    bounded(async {
        let place = Place::new();
        let dir = place.launch("launch");
        let stdout = dir.path().join("stdout");
        fs::write(&stdout, "a\nb\n").expect("stdout");
        let watcher = OutputWatcher::polling();
        let mut follower =
            OutputFollower::open(&dir, Offsets::default(), &watcher).expect("follow");
        follower.stop_at_end();
        let line = follower.next().await.expect("follow").expect("a line");
        assert_eq!(line.chunk.bytes, b"a\n");
        fs::write(&stdout, "a\nb\nc\n").expect("stdout");
        let line = follower.next().await.expect("follow").expect("a line");
        assert_eq!(line.chunk.bytes, b"b\n");
        assert_eq!(follower.next().await.expect("follow"), None);

        let mut follower =
            OutputFollower::open(&dir, Offsets::default(), &watcher).expect("follow");
        follower.stop_at_end();
        let (mut lines, mut cuts) = (0, 0);
        while let Some(line) = follower.next().await.expect("follow") {
            lines += 1;
            cuts += i32::from(line.chunk.truncated);
            assert!(lines < 10, "this goes on for ever");
            fs::write(&stdout, format!("{lines}\n")).expect("stdout");
        }
        assert_eq!(cuts, 1);
    })
    .await;
}
