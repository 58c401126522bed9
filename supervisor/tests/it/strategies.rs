//! Which children are restarted along with a failed one, and in which order.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use ghostlight_supervisor::{
    Backoff, Error, Exhausted, RestartPolicy, StopOrder, Strategy, Supervisor,
};
use tokio::time::Instant;

use crate::support::{DRAIN, Do, Log, SECOND, Start, hang, second, tell};

use RestartPolicy::{Permanent, Temporary, Transient};

async fn started(log: &mut Log, strategy: Strategy) -> Supervisor {
    let mut config = log.config().strategy(strategy);
    for id in ["a", "b", "c"] {
        config = config.child(log.spec(id, Permanent));
    }
    let supervisor = Supervisor::start(config, None).await.unwrap();
    assert_eq!(log.lines(), ["start a", "start b", "start c"]);
    supervisor
}

async fn fail(supervisor: &Supervisor, id: &str) {
    tell(&supervisor.ready(id).await.unwrap(), Do::Panic);
}

async fn ids(supervisor: &Supervisor) -> Vec<String> {
    let children = supervisor.children().await.unwrap();
    children.into_iter().map(|(id, _)| id.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn one_for_one_restarts_the_failed_one() {
    let mut log = Log::new();
    let supervisor = started(&mut log, Strategy::OneForOne).await;
    fail(&supervisor, "b").await;
    assert_eq!(log.await_lines(3).await, ["drop b", "exit b failed: boom, again in 1s", "start b"]);
    supervisor.ready("b").await.unwrap();
    assert_eq!(log.lines(), [""; 0]);
    assert_eq!(ids(&supervisor).await, ["a", "b", "c"], "it keeps its place");
}

#[tokio::test(start_paused = true)]
async fn one_for_all_stops_in_reverse_and_starts_in_order() {
    let mut log = Log::new();
    let supervisor = started(&mut log, Strategy::OneForAll).await;
    fail(&supervisor, "b").await;
    let expected = [
        "drop b",
        "exit b failed: boom, again in 1s",
        "stop c",
        "drop c",
        "exit c stopped, again in 1s",
        "stop a",
        "drop a",
        "exit a stopped, again in 1s",
        "start a",
        "start b",
        "start c",
    ];
    assert_eq!(log.await_lines(expected.len()).await, expected);
    assert_eq!(ids(&supervisor).await, ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn rest_for_one_leaves_those_before_alone() {
    let mut log = Log::new();
    let supervisor = started(&mut log, Strategy::RestForOne).await;
    fail(&supervisor, "b").await;
    let expected = [
        "drop b",
        "exit b failed: boom, again in 1s",
        "stop c",
        "drop c",
        "exit c stopped, again in 1s",
        "start b",
        "start c",
    ];
    assert_eq!(log.await_lines(expected.len()).await, expected);
    supervisor.ready("c").await.unwrap();
    assert_eq!(log.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn temporary_children_of_a_group_are_removed() {
    let mut log = Log::new();
    let supervisor = started(&mut log, Strategy::OneForAll).await;
    supervisor.add(log.spec("d", Temporary)).await.unwrap();
    supervisor.add(log.spec("e", Transient)).await.unwrap();
    log.take();
    fail(&supervisor, "a").await;
    supervisor.ready("e").await.unwrap();
    let lines = log.lines();
    assert!(lines.contains(&"exit d stopped, removed".into()), "{lines:?}");
    assert_eq!(lines[lines.len() - 4..], ["start a", "start b", "start c", "start e"]);
    assert_eq!(ids(&supervisor).await, ["a", "b", "c", "e"]);
}

#[tokio::test(start_paused = true)]
async fn a_removed_child_restarts_nobody() {
    for strategy in [Strategy::OneForAll, Strategy::RestForOne] {
        let mut log = Log::new();
        let supervisor = started(&mut log, strategy).await;
        supervisor.remove("a").await.unwrap();
        supervisor.kill("b").await.unwrap();
        let expected =
            ["stop a", "drop a", "exit a stopped, removed", "drop b", "exit b killed, removed"];
        assert_eq!(log.lines(), expected);
        assert_eq!(ids(&supervisor).await, ["c"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_waits_for_a_child_that_does_not_stop() {
    let mut log = Log::new();
    let supervisor = started(&mut log, Strategy::OneForAll).await;
    hang(&supervisor.ready("c").await.unwrap()).await;
    let failed = Instant::now();
    fail(&supervisor, "b").await;
    supervisor.ready("b").await.unwrap();
    // The backoff has run out during the drain.
    assert_eq!(failed.elapsed(), DRAIN);
    let lines = log.lines();
    assert_eq!(lines[2..4], ["drop c", "exit c killed, again in 0ns"]);
}

#[tokio::test(start_paused = true)]
async fn groups_can_be_stopped_together() {
    let mut log = Log::new();
    let mut config = log.config().strategy(Strategy::OneForAll).stop_order(StopOrder::Together);
    for id in ["a", "b", "c"] {
        config = config.child(log.spec(id, Permanent));
    }
    let supervisor = Supervisor::start(config, None).await.unwrap();
    for id in ["a", "c"] {
        hang(&supervisor.ready(id).await.unwrap()).await;
    }
    log.take();
    let failed = Instant::now();
    fail(&supervisor, "b").await;
    supervisor.ready("a").await.unwrap();
    assert_eq!(failed.elapsed(), DRAIN, "the drains overlap");
    supervisor.ready("c").await.unwrap();
    let lines = log.lines();
    assert_eq!(lines[lines.len() - 3..], ["start a", "start b", "start c"]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_during_a_restart_extends_it() {
    let mut log = Log::new();
    let supervisor = started(&mut log, Strategy::RestForOne).await;
    fail(&supervisor, "c").await;
    log.await_lines(2).await;
    // While `c` waits out its backoff.
    tokio::time::sleep(SECOND / 2).await;
    let failed = Instant::now();
    fail(&supervisor, "a").await;
    supervisor.ready("c").await.unwrap();
    assert_eq!(failed.elapsed(), SECOND, "the later of the two waits");
    let expected = [
        "drop a",
        "exit a failed: boom, again in 1s",
        "stop b",
        "drop b",
        "exit b stopped, again in 1s",
        "start a",
        "start b",
        "start c",
    ];
    assert_eq!(log.lines(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_failure_during_a_restart_cuts_no_backoff_short() {
    let mut log = Log::new();
    let supervisor = started(&mut log, Strategy::RestForOne).await;
    let long = Backoff { first: 30 * SECOND, ..second() };
    supervisor.add(log.spec("d", Permanent).backoff(long)).await.unwrap();
    let failed = Instant::now();
    fail(&supervisor, "d").await;
    log.exit().await;
    fail(&supervisor, "a").await;
    supervisor.ready("d").await.unwrap();
    assert_eq!(failed.elapsed(), 30 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_within_a_group_restarts_the_group() {
    let mut log = Log::new();
    let failures = Arc::new(AtomicU32::new(0));
    let config = log
        .config()
        .strategy(Strategy::OneForAll)
        .child(log.spec("a", Permanent))
        .child(log.probe("b", Permanent, Start::FailTimes(failures.clone())))
        .child(log.spec("c", Permanent));
    let supervisor = Supervisor::start(config, None).await.unwrap();
    log.take();
    failures.store(1, std::sync::atomic::Ordering::SeqCst);
    fail(&supervisor, "c").await;
    supervisor.ready("c").await.unwrap();
    let expected = [
        "drop c",
        "exit c failed: boom, again in 1s",
        "stop b",
        "drop b",
        "exit b stopped, again in 1s",
        "stop a",
        "drop a",
        "exit a stopped, again in 1s",
        "start a",
        "exit b failed to start: not yet, again in 1s",
        "stop a",
        "drop a",
        "exit a stopped, again in 1s",
        "start a",
        "start b",
        "start c",
    ];
    assert_eq!(log.lines(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_child_added_during_a_restart_comes_last() {
    let mut log = Log::new();
    let supervisor = started(&mut log, Strategy::OneForAll).await;
    fail(&supervisor, "a").await;
    log.exit().await;
    supervisor.add(log.spec("d", Permanent)).await.unwrap();
    let lines = log.lines();
    assert_eq!(lines[lines.len() - 4..], ["start a", "start b", "start c", "start d"]);
}

#[tokio::test(start_paused = true)]
async fn only_the_failed_one_uses_up_its_intensity() {
    let mut log = Log::new();
    let config = log
        .config()
        .strategy(Strategy::OneForAll)
        .child(log.spec("a", Permanent).intensity(1, 60 * SECOND))
        .child(log.spec("b", Permanent).intensity(5, 60 * SECOND));
    let supervisor = Supervisor::start(config, None).await.unwrap();
    for _ in 0..4 {
        fail(&supervisor, "b").await;
        log.exit().await;
    }
    fail(&supervisor, "a").await;
    supervisor.ready("a").await.expect("its first own restart");
}

#[tokio::test(start_paused = true)]
async fn a_child_given_up_leaves_the_group_running() {
    let mut log = Log::new();
    let supervisor = started(&mut log, Strategy::OneForAll).await;
    let spec = log.spec("d", Permanent).intensity(0, SECOND).on_exhausted(Exhausted::Remove);
    supervisor.add(spec).await.unwrap();
    log.take();
    fail(&supervisor, "d").await;
    assert_eq!(log.await_lines(2).await, ["drop d", "exit d failed: boom, removed"]);
    assert_eq!(ids(&supervisor).await, ["a", "b", "c"]);
    assert_eq!(log.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn static_children_start_one_after_another() {
    for strategy in [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne] {
        let mut log = Log::new();
        let config = log
            .config()
            .strategy(strategy)
            .child(log.probe("a", Permanent, Start::After(5 * SECOND)))
            .child(log.probe("b", Permanent, Start::FailTimes(Arc::new(AtomicU32::new(2)))))
            .child(log.spec("c", Permanent));
        let began = Instant::now();
        let supervisor = Supervisor::start(config, None).await.unwrap();
        let restarts = if strategy == Strategy::OneForAll { 3 } else { 1 };
        assert_eq!(began.elapsed(), SECOND * (5 * restarts + 2), "{strategy:?}");
        let lines = log.lines();
        assert_eq!(lines[lines.len() - 2..], ["start b", "start c"], "{strategy:?}");
        assert_eq!(ids(&supervisor).await, ["a", "b", "c"]);
    }
}

#[tokio::test(start_paused = true)]
async fn static_children_of_the_same_id_are_refused() {
    let mut log = Log::new();
    let config = log.config().child(log.spec("a", Permanent)).child(log.spec("a", Permanent));
    let error = Supervisor::start(config, None).await.unwrap_err();
    assert_eq!(error, Error::AlreadyExists { id: "a".into() });
    assert_eq!(log.lines(), [""; 0]);
}
