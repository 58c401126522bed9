//! A server that is told to stop.

use ghostlight_server::{Client, ClientError};

use crate::support::{Owner, RUNS, boss};

#[tokio::test(start_paused = true)]
async fn a_stop_ends_streams_and_removes_the_socket() {
    let mut owner = Owner::start().await;
    let client = owner.client().await;
    owner.dispatch("r", 1, 0).await;
    let mut tail = client.tail(&boss(), "r", None).await.unwrap();
    assert_eq!(tail.next().await.unwrap().unwrap().sequence, 0);
    // A connection that is kept open, and idle.
    let mut idle = owner.raw("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    idle.until("ok").await;
    let began = tokio::time::Instant::now();
    owner.stop().await;
    // Nobody had to be cut off.
    assert!(began.elapsed() < std::time::Duration::from_secs(1), "{:?}", began.elapsed());
    let cut = tail.next().await.unwrap();
    assert!(matches!(cut, Err(ClientError::Cut)), "{cut:?}");
    assert!(!owner.path().join("control.sock").exists());
    let refused = Client::connect(owner.path()).await;
    assert!(matches!(refused, Err(ClientError::NoOwner)), "{refused:?}");
    // The system is not the server's to stop.
    owner.gate.add_permits(1);
    owner.ended("r").await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_does_not_read_does_not_hold_up_a_stop() {
    let mut owner = Owner::start().await;
    owner.dispatch("r", 500, 8192).await;
    let get = format!("GET {RUNS}/r/events HTTP/1.1\r\nhost: x\r\n");
    let mut stream = owner.raw(&(get + "accept: text/event-stream\r\n\r\n")).await;
    stream.until("started").await;
    owner.gate.add_permits(500);
    owner.ended("r").await;
    owner.stop().await;
}
