//! Events: every frame once, in order, from any position, live.

use std::time::Duration;

use ghostlight_server::ClientError;
use serde_json::json;

use crate::support::{Owner, RUNS, boss};

#[tokio::test]
async fn a_tail_follows_a_run_from_any_position_to_its_end() {
    let owner = Owner::start().await;
    let client = owner.client().await;
    owner.dispatch("r", 5, 0).await;
    let mut tails = Vec::new();
    // At each moment of the run's life one tail for each position there is.
    for emitted in 0..5u64 {
        for after in std::iter::once(None).chain((0..=emitted).map(Some)) {
            let tail = client.tail(&boss(), "r", after).await.unwrap();
            tails.push((after.map_or(0, |after| after + 1), tail));
        }
        owner.gate.add_permits(1);
        let (_, tail) = &mut tails[0];
        assert_eq!(tail.next().await.unwrap().unwrap().sequence, emitted);
    }
    let first = &mut tails[0].1;
    assert_eq!(first.next().await.unwrap().unwrap().sequence, 5);
    assert!(first.next().await.unwrap().unwrap().event.is_hard_end());
    assert!(first.next().await.is_none());
    for (begin, mut tail) in tails.drain(1..) {
        for sequence in begin..=6 {
            assert_eq!(tail.next().await.unwrap().unwrap().sequence, sequence);
        }
        assert!(tail.next().await.is_none());
    }
    // A position at the end is the end.
    let mut tail = client.tail(&boss(), "r", Some(6)).await.unwrap();
    assert!(tail.next().await.is_none());
}

#[tokio::test]
async fn pages_hold_what_a_tail_shows() {
    let owner = Owner::start().await;
    let client = owner.client().await;
    owner.done("r", 20).await;
    let mut tail = client.tail(&boss(), "r", None).await.unwrap();
    let mut shown = Vec::new();
    while let Some(frame) = tail.next().await {
        shown.push(frame.unwrap());
    }
    assert_eq!(shown.len(), 22);
    for limit in [1, 7, 22, 1000] {
        let (mut frames, mut ended) = (Vec::new(), false);
        while !ended {
            let after = frames.last().map(|frame: &ghostlight::frame::Frame| frame.sequence);
            let page = client.frames(&boss(), "r", after, limit).await.unwrap();
            assert!(page.frames.len() <= limit);
            frames.extend(page.frames);
            ended = page.ended;
        }
        assert_eq!(frames, shown);
    }
    let page = client.frames(&boss(), "r", Some(21), 10).await.unwrap();
    assert_eq!((page.frames.len(), page.ended), (0, true));

    owner.dispatch("live", 1, 0).await;
    let page = client.frames(&boss(), "live", Some(0), 10).await.unwrap();
    assert_eq!((page.frames.len(), page.ended), (0, false));
}

#[tokio::test(start_paused = true)]
async fn a_stream_says_at_once_that_it_is_there_and_then_every_15_s() {
    let owner = Owner::start().await;
    owner.dispatch("r", 1, 0).await;
    let get = format!("GET {RUNS}/r/events?after=0 HTTP/1.1\r\nhost: x\r\n");
    let mut stream = owner.raw(&(get + "accept: text/event-stream\r\n\r\n")).await;
    let text = stream.until(": ghostlight").await.to_lowercase();
    assert!(text.starts_with("http/1.1 200 ok\r\n"), "{text}");
    for header in [
        "content-type: text/event-stream\r\n",
        "cache-control: no-store\r\n",
        "x-accel-buffering: no\r\n",
    ] {
        assert!(text.contains(header), "{header} is missing in {text}");
    }
    assert!(!text.contains("content-encoding"));
    assert!(stream.until("\n\n").await.contains("retry"));
    let began = tokio::time::Instant::now();
    for nth in 1..=3 {
        stream.text.clear();
        stream.until(":").await;
        let elapsed = began.elapsed();
        let due = Duration::from_secs(15 * nth);
        assert!(elapsed >= due - Duration::from_secs(1), "{elapsed:?}");
        assert!(elapsed <= due + Duration::from_secs(1), "{elapsed:?}");
    }
    // And what it is there for, with numbers an event source can come back with.
    owner.gate.add_permits(1);
    let text = stream.until("finished").await;
    assert!(text.contains("id: 1\n") && text.contains("id: 2\n"), "{text}");
    assert!(!text.contains("\nevent:"), "{text}");
}

#[tokio::test]
async fn positions_that_are_none_are_refused() {
    let owner = Owner::start().await;
    owner.done("r", 2).await;
    owner.dispatch("live", 1, 0).await;
    let stream = "accept: text/html, Text/Event-Stream;q=0.9\r\n";
    for accept in ["", stream] {
        for (run, after, status, code) in [
            ("r", "?after=", 400, "invalid-position"),
            ("r", "?after=-1", 400, "invalid-position"),
            ("r", "?after=+1", 400, "invalid-position"),
            ("r", "?after=1.0", 400, "invalid-position"),
            ("r", "?after=0x1", 400, "invalid-position"),
            ("r", "?after=%C3%A9", 400, "invalid-position"),
            ("r", "?after=18446744073709551616", 400, "invalid-position"),
            ("r", "?after=18446744073709551615", 400, "invalid-position"),
            ("r", "?after=4", 400, "invalid-position"),
            ("live", "?after=1", 400, "invalid-position"),
            ("r", "?after=1&after=2", 400, "invalid-parameter"),
            ("r", "?before=1", 400, "invalid-parameter"),
            ("nobody", "", 404, "unknown-run"),
        ] {
            let url = format!("{RUNS}/{run}/events{after}");
            let (got, head, problem) = owner.ask("GET", &url, accept).await;
            assert_eq!((got, problem["code"].as_str()), (status, Some(code)), "{url}: {problem}");
            assert!(head.contains("content-type: application/problem+json"), "{head}");
            assert_eq!(problem["status"], json!(status));
            assert_eq!(problem["type"], json!(format!("urn:ghostlight:problem:{code}")));
        }
        let url = format!("{RUNS}/r/events?after=3");
        assert_eq!(owner.ask("GET", &url, accept).await.0, 204);
        // An event source that comes back sends the header with its first URL.
        for (id, status) in [("3", 204), ("4", 400), ("", 400), ("x", 400), ("\u{e9}", 400)] {
            let headers = format!("{accept}last-event-id: {id}\r\n");
            let url = format!("{RUNS}/r/events?after=0");
            assert_eq!(owner.ask("GET", &url, &headers).await.0, status, "{id:?}");
        }
    }
    let headers = "last-event-id: 2\r\n";
    let (_, _, page) = owner.ask("GET", &format!("{RUNS}/r/events"), headers).await;
    assert_eq!(page["events"].as_array().unwrap().len(), 1);
    assert_eq!(page["ended"], json!(true));
}

#[tokio::test]
async fn a_reader_that_does_not_read_slows_nobody_and_misses_nothing() {
    const CHUNKS: u32 = 2000;
    let owner = Owner::start().await;
    let client = owner.client().await;
    owner.dispatch("r", CHUNKS, 4096).await;
    let mut slow = client.tail(&boss(), "r", None).await.unwrap();
    let mut fast = client.tail(&boss(), "r", None).await.unwrap();
    assert_eq!(slow.next().await.unwrap().unwrap().sequence, 0);
    owner.gate.add_permits(CHUNKS as usize);
    // 8 MB, of which the slow one takes what the sockets hold.
    owner.ended("r").await;
    for (begin, tail) in [(0, &mut fast), (1, &mut slow)] {
        let mut sequences = Vec::new();
        while let Some(frame) = tail.next().await {
            sequences.push(frame.unwrap().sequence);
        }
        assert_eq!(sequences, (begin..=u64::from(CHUNKS) + 1).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_says_so() {
    let owner = Owner::start().await;
    let client = owner.client().await;
    owner.dispatch("r", 2, 0).await;
    let mut tail = client.tail(&boss(), "r", None).await.unwrap();
    assert_eq!(tail.next().await.unwrap().unwrap().sequence, 0);
    // As a kill of the owner does: all its sockets are closed where they stand.
    owner.serving.abort();
    let cut = tail.next().await.unwrap();
    assert!(matches!(cut, Err(ClientError::Cut)), "{cut:?}");
    assert!(tail.next().await.is_none());
    let gone = client.run(&boss(), "r").await;
    assert!(matches!(gone, Err(ClientError::NoOwner)), "{gone:?}");
}
