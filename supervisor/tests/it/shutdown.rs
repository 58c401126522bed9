//! How supervisors end, and what is left when they do.

use ghostlight_supervisor::{
    ChildSpec, Error, ExitReason, RestartPolicy, StopOrder, Strategy, Supervisor,
};
use tokio::time::Instant;

use crate::support::{DRAIN, Do, Event, Log, SECOND, Start, hang, tell};

use RestartPolicy::{Permanent, Temporary, Transient};

async fn started(log: &mut Log, order: StopOrder, ids: &[&str]) -> Supervisor {
    let config = log.config().stop_order(order);
    let supervisor = Supervisor::start(config, None).await.unwrap();
    for id in ids {
        supervisor.add(log.spec(id, Transient)).await.unwrap();
    }
    log.take();
    supervisor
}

#[tokio::test(start_paused = true)]
async fn children_stop_in_reverse_and_one_that_will_not_is_killed() {
    let mut log = Log::new();
    let supervisor = started(&mut log, StopOrder::OneByOne, &["a", "b", "c"]).await;
    hang(&supervisor.ready("b").await.unwrap()).await;
    let began = Instant::now();
    supervisor.shutdown().await;
    assert_eq!(began.elapsed(), DRAIN);
    let expected = [
        "stop c",
        "drop c",
        "exit c stopped, removed",
        "drop b",
        "exit b killed, removed",
        "stop a",
        "drop a",
        "exit a stopped, removed",
    ];
    assert_eq!(log.lines(), expected);
}

#[tokio::test(start_paused = true)]
async fn drains_add_up_one_by_one_and_overlap_together() {
    for (order, expected) in [(StopOrder::OneByOne, 3 * DRAIN), (StopOrder::Together, DRAIN)] {
        let mut log = Log::new();
        let supervisor = started(&mut log, order, &["a", "b", "c"]).await;
        for id in ["a", "b", "c"] {
            hang(&supervisor.ready(id).await.unwrap()).await;
        }
        let began = Instant::now();
        supervisor.shutdown().await;
        assert_eq!(began.elapsed(), expected, "{order:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn together_still_tells_in_reverse() {
    let mut log = Log::new();
    let supervisor = started(&mut log, StopOrder::Together, &["a", "b", "c", "d"]).await;
    supervisor.shutdown().await;
    let lines = log.lines();
    let stops: Vec<_> = lines.iter().filter(|line| line.starts_with("stop")).collect();
    assert_eq!(stops, ["stop d", "stop c", "stop b", "stop a"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_added_or_restarted_while_shutting_down() {
    let mut log = Log::new();
    let supervisor = started(&mut log, StopOrder::OneByOne, &["a", "b"]).await;
    let (a, b) = (supervisor.ready("a").await.unwrap(), supervisor.ready("b").await.unwrap());
    hang(&b).await;
    let shutdown = tokio::spawn({
        let supervisor = supervisor.clone();
        async move { supervisor.shutdown().await }
    });
    tokio::time::sleep(SECOND).await;

    let add = supervisor.add(log.spec("c", Permanent)).await;
    assert_eq!(add, Err(Error::ShuttingDown));
    assert_eq!(supervisor.ready("a").await, Err(Error::ShuttingDown));
    let children = vec![("a".into(), a.clone()), ("b".into(), b.clone())];
    assert_eq!(supervisor.children().await, Ok(children), "the mailbox still answers");
    tell(&a, Do::Panic);
    assert_eq!(log.await_lines(2).await, ["drop a", "exit a failed: boom, removed"]);
    supervisor.kill("b").await.expect("a shutdown can be hurried");

    shutdown.await.unwrap();
    assert_eq!(log.lines(), ["drop b", "exit b killed, removed"]);
    assert_eq!(supervisor.add(log.spec("c", Permanent)).await, Err(Error::Stopped));
}

#[tokio::test(start_paused = true)]
async fn waiting_and_starting_children_are_called_off() {
    let mut log = Log::new();
    let supervisor = started(&mut log, StopOrder::OneByOne, &["waiting"]).await;
    tell(&supervisor.ready("waiting").await.unwrap(), Do::Panic);
    log.exit().await;
    let ready = tokio::spawn({
        let supervisor = supervisor.clone();
        async move { supervisor.ready("waiting").await }
    });
    let add = tokio::spawn({
        let (supervisor, spec) =
            (supervisor.clone(), log.probe("starting", Transient, Start::Hang));
        async move { supervisor.add(spec).await }
    });
    tokio::task::yield_now().await;
    let began = Instant::now();
    supervisor.shutdown().await;
    assert_eq!(began.elapsed(), DRAIN, "a start is given the drain time");
    // The backoff of the other is over by then, but nothing is started any more.
    let expected = [
        "exit starting cancelled before it started, removed",
        "exit waiting cancelled before it started, removed",
    ];
    assert_eq!(log.lines(), expected);
    assert_eq!(add.await.unwrap(), Err(Error::Removed { id: "starting".into() }));
    assert_eq!(ready.await.unwrap(), Err(Error::Removed { id: "waiting".into() }));
}

#[tokio::test(start_paused = true)]
async fn shutdown_of_the_idle_and_of_the_stopped() {
    let mut log = Log::new();
    let supervisor = started(&mut log, StopOrder::OneByOne, &[]).await;
    supervisor.shutdown().await;
    supervisor.shutdown().await;
    supervisor.ended().await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_interrupts_a_joint_restart() {
    let mut log = Log::new();
    let config = log
        .config()
        .strategy(Strategy::OneForAll)
        .child(log.spec("a", Permanent))
        .child(log.spec("b", Permanent));
    let supervisor = Supervisor::start(config, None).await.unwrap();
    tell(&supervisor.ready("b").await.unwrap(), Do::Panic);
    log.exit().await;
    log.exit().await;
    supervisor.shutdown().await;
    let cancelled = |id| format!("exit {id} cancelled before it started, removed");
    assert_eq!(log.lines(), [cancelled("b"), cancelled("a")]);
}

#[tokio::test(start_paused = true)]
async fn nested_supervisors_stop_their_own_in_order_without_a_limit() {
    let mut log = Log::new();
    let lower = log.config().child(log.spec("x", Permanent)).child(log.spec("y", Permanent));
    let upper = log
        .config()
        .child(log.spec("a", Permanent))
        .child(ChildSpec::supervisor("lower", lower))
        .child(log.spec("b", Permanent));
    let upper = Supervisor::start(upper, None).await.unwrap();
    let lower = Supervisor::from_cell(upper.ready("lower").await.unwrap()).unwrap();
    for id in ["x", "y"] {
        hang(&lower.ready(id).await.unwrap()).await;
    }
    log.take();
    let began = Instant::now();
    upper.shutdown().await;
    assert_eq!(began.elapsed(), 2 * DRAIN);
    let lines = log.lines();
    let exits: Vec<_> = lines.iter().filter(|line| line.starts_with("exit")).collect();
    let expected = [
        "exit b stopped, removed",
        "exit y killed, removed",
        "exit x killed, removed",
        "exit lower stopped, removed",
        "exit a stopped, removed",
    ];
    assert_eq!(exits, expected);
    assert!(Supervisor::from_cell(upper.cell()).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_nested_supervisor_still_starting_can_be_removed() {
    let mut log = Log::new();
    let stuck = log.probe("y", Permanent, Start::Hang).drain(SECOND);
    let lower = log.config().child(log.spec("x", Permanent)).child(stuck);
    let upper = Supervisor::start(log.config(), None).await.unwrap();
    let add = tokio::spawn({
        let upper = upper.clone();
        async move { upper.add(ChildSpec::supervisor("lower", lower)).await }
    });
    log.started("x").await;
    let began = Instant::now();
    upper.remove("lower").await.unwrap();
    assert_eq!(began.elapsed(), SECOND);
    let lines = log.lines();
    assert_eq!(lines[0], "exit y cancelled before it started, removed");
    assert_eq!(lines[1..4], ["stop x", "drop x", "exit x stopped, removed"]);
    assert!(matches!(add.await.unwrap(), Err(Error::StartFailed { retry_after: None, .. })));
}

#[tokio::test(start_paused = true)]
async fn a_stop_through_the_cell_is_ordered_too() {
    for drain in [false, true] {
        let mut log = Log::new();
        let supervisor = started(&mut log, StopOrder::OneByOne, &["a", "b", "c"]).await;
        tell(&supervisor.ready("c").await.unwrap(), Do::Panic);
        log.exit().await;
        hang(&supervisor.ready("b").await.unwrap()).await;
        let starting = log.probe("d", Permanent, Start::Hang);
        let add = tokio::spawn({
            let supervisor = supervisor.clone();
            async move { supervisor.add(starting).await }
        });
        tokio::task::yield_now().await;
        let began = Instant::now();
        if drain {
            supervisor.cell().drain().unwrap();
        } else {
            supervisor.cell().stop(None);
        }
        supervisor.ended().await;
        assert_eq!(began.elapsed(), DRAIN);
        let expected = [
            "exit d cancelled before it started, removed",
            "exit c cancelled before it started, removed",
            "exit b ended without a reason, removed",
            "stop a",
            "exit a ended without a reason, removed",
            // Their states lay in the supervisor's closed mailbox.
            "drop b",
            "drop a",
        ];
        assert_eq!(log.lines(), expected);
        assert!(add.await.unwrap().is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_killed_supervisor_answers_and_leaves_nobody_alive() {
    let mut log = Log::new();
    let supervisor = started(&mut log, StopOrder::OneByOne, &["a", "b"]).await;
    let cells = supervisor.children().await.unwrap();
    tell(&supervisor.ready("b").await.unwrap(), Do::Panic);
    log.exit().await;
    let pending = [
        tokio::spawn({
            let supervisor = supervisor.clone();
            async move { supervisor.ready("b").await.err() }
        }),
        tokio::spawn({
            let (supervisor, spec) = (supervisor.clone(), log.probe("c", Permanent, Start::Hang));
            async move { supervisor.add(spec).await.err() }
        }),
        tokio::spawn({
            let supervisor = supervisor.clone();
            let a = supervisor.ready("a").await.unwrap();
            hang(&a).await;
            async move { supervisor.remove("a").await.err() }
        }),
    ];
    tokio::task::yield_now().await;
    supervisor.cell().kill();
    for call in pending {
        assert_eq!(call.await.unwrap(), Some(Error::Stopped));
    }
    supervisor.shutdown().await;
    for (_, cell) in cells {
        cell.wait(None).await.unwrap();
    }
    assert_eq!(supervisor.children().await, Err(Error::Stopped));
    assert_eq!(supervisor.child("a").await, Err(Error::Stopped));
    assert_eq!(supervisor.remove("a").await, Err(Error::Stopped));
    assert_eq!(supervisor.kill("a").await, Err(Error::Stopped));
    assert_eq!(supervisor.ready("a").await, Err(Error::Stopped));
    assert_eq!(supervisor.add(log.spec("a", Temporary)).await, Err(Error::Stopped));
    assert!(!log.take().iter().any(|event| matches!(event, Event::Exit(_))));
}

#[tokio::test(start_paused = true)]
async fn callers_are_answered_while_a_parent_holds_the_dead_state() {
    // The state of a killed supervisor, reply ports and all, lies in its parent's mailbox.
    let mut log = Log::new();
    let parent = started(&mut log, StopOrder::OneByOne, &["parent"]).await;
    let parent = parent.ready("parent").await.unwrap();
    hang(&parent).await;
    let supervisor = Supervisor::start(log.config(), Some(parent)).await.unwrap();
    let add = tokio::spawn({
        let (supervisor, spec) = (supervisor.clone(), log.probe("a", Permanent, Start::Hang));
        async move { supervisor.add(spec).await }
    });
    tokio::task::yield_now().await;
    supervisor.cell().kill();
    assert_eq!(add.await.unwrap(), Err(Error::Stopped));
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_dropped_leaves_nothing_behind() {
    let mut log = Log::new();
    let config =
        log.config().child(log.spec("a", Permanent)).child(log.probe("b", Permanent, Start::Hang));
    let start = tokio::time::timeout(SECOND, Supervisor::start(config, None));
    assert!(start.await.is_err());
    log.started("a").await;
    let Event::Dropped(name, _) = log.next().await else { panic!("not killed") };
    assert_eq!(name, "a");
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_exit_callback_changes_nothing() {
    let mut log = Log::new();
    let config = ghostlight_supervisor::Config::new(1).on_exit(|notice| {
        assert_ne!(notice.reason, ExitReason::Failed("boom".into()), "a bug of the owner");
    });
    let supervisor = Supervisor::start(config, None).await.unwrap();
    tell(&supervisor.add(log.spec("a", Permanent)).await.unwrap(), Do::Panic);
    log.started("a").await;
    log.started("a").await;
    supervisor.shutdown().await;
}
