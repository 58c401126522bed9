//! Supervisors that give up, and who hears of it.

use ghostlight_supervisor::{
    ChildSpec, Decision, Error, Escalated, Exhausted, ExitNotice, ExitReason, RestartPolicy,
    Supervisor,
};
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::mpsc;

use crate::support::{Do, Log, SECOND, Start, tell};

use RestartPolicy::Permanent;

fn boom(child: &str) -> Escalated {
    Escalated { child: child.into(), reason: ExitReason::Failed("boom".into()) }
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_that_gives_up_stops_the_others_in_order() {
    let mut log = Log::new();
    let supervisor = Supervisor::start(log.config(), None).await.unwrap();
    for id in ["a", "b", "c"] {
        supervisor.add(log.spec(id, Permanent).intensity(0, SECOND)).await.unwrap();
    }
    log.take();
    tell(&supervisor.ready("b").await.unwrap(), Do::Panic);
    supervisor.ended().await;
    let expected = [
        "drop b",
        "exit b failed: boom, escalated",
        "stop c",
        "drop c",
        "exit c stopped, removed",
        "stop a",
        "drop a",
        "exit a stopped, removed",
    ];
    assert_eq!(log.lines(), expected);
    assert_eq!(supervisor.children().await, Err(Error::Stopped));
}

#[tokio::test(start_paused = true)]
async fn escalation_passes_through_two_levels() {
    let mut log = Log::new();
    let lower = log.config().child(log.spec("leaf", Permanent).intensity(1, 60 * SECOND));
    let middle = log.config().child(
        ChildSpec::supervisor("lower", lower)
            .intensity(1, 600 * SECOND)
            .backoff(crate::support::second()),
    );
    let top = log.config().child(
        ChildSpec::supervisor("middle", middle)
            .intensity(0, SECOND)
            .on_exhausted(Exhausted::Escalate),
    );
    let top = Supervisor::start(top, None).await.unwrap();
    let handle = |cell| Supervisor::from_cell(cell).expect("a supervisor");
    let middle = handle(top.ready("middle").await.unwrap());

    // A leaf is restarted once, so `lower` gives up at the second panic; `lower` is restarted once.
    for panics in 0..4 {
        let lower = handle(middle.ready("lower").await.unwrap());
        tell(&lower.ready("leaf").await.unwrap(), Do::Panic);
        let ExitNotice { id, decision, .. } = log.exit().await;
        assert_eq!(id.as_str(), "leaf");
        if panics % 2 == 0 {
            assert_eq!(decision, Decision::Restart { after: SECOND });
            continue;
        }
        assert_eq!(decision, Decision::Escalate);
        let notice = log.exit().await;
        assert_eq!((notice.id.as_str(), notice.actor), ("lower", Some(lower.cell().get_id())));
        assert_eq!(notice.reason, ExitReason::Escalated(Box::new(boom("leaf"))));
        let expected =
            if panics == 1 { Decision::Restart { after: SECOND } } else { Decision::Escalate };
        assert_eq!(notice.decision, expected);
    }

    let notice = log.exit().await;
    let lower = ExitReason::Escalated(Box::new(boom("leaf")));
    let lower = Escalated { child: "lower".into(), reason: lower };
    assert_eq!(notice.id.as_str(), "middle");
    assert_eq!(
        lower.to_string(),
        "child `lower` used up its restarts and escalated: \
         child `leaf` used up its restarts and failed: boom"
    );
    assert_eq!(notice.reason, ExitReason::Escalated(Box::new(lower)));
    assert_eq!(notice.decision, Decision::Escalate);
    top.ended().await;
    assert_eq!(log.exit_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_static_child_that_cannot_start_fails_the_start() {
    let mut log = Log::new();
    let config = log
        .config()
        .child(log.spec("a", Permanent))
        .child(log.probe("b", Permanent, Start::Fail).intensity(2, 60 * SECOND))
        .child(log.spec("c", Permanent));
    let error = Supervisor::start(config, None).await.unwrap_err();
    let reason = ExitReason::StartFailed("no start".into());
    assert_eq!(error, Error::Escalated(Escalated { child: "b".into(), reason }));
    let expected = [
        "start a",
        "exit b failed to start: no start, again in 1s",
        "exit b failed to start: no start, again in 1s",
        "exit b failed to start: no start, escalated",
        "exit c cancelled before it started, removed",
        "stop a",
        "drop a",
        "exit a stopped, removed",
    ];
    assert_eq!(log.lines(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_nested_supervisor_that_cannot_start_is_a_failed_start() {
    let mut log = Log::new();
    let lower = log.config().child(log.probe("leaf", Permanent, Start::Fail).intensity(0, SECOND));
    let upper = Supervisor::start(log.config(), None).await.unwrap();
    let spec = ChildSpec::supervisor("lower", lower).policy(RestartPolicy::Temporary);
    let Err(Error::StartFailed { error, retry_after: None, .. }) = upper.add(spec).await else {
        panic!("it cannot start");
    };
    assert_eq!(error, "child `leaf` used up its restarts and failed to start: no start");
    let ids: Vec<_> = [log.exit().await, log.exit().await].map(|n| n.id.to_string()).into();
    assert_eq!(ids, ["leaf", "lower"]);
    assert_eq!(upper.children().await, Ok(vec![]));
}

/// A supervisor of another make.
struct Foreign;

#[derive(Debug, PartialEq)]
enum Seen {
    Failed(Option<Escalated>),
    Stopped,
}

impl Actor for Foreign {
    type Msg = ();
    type State = mpsc::UnboundedSender<Seen>;
    type Arguments = Self::State;

    async fn pre_start(
        &self,
        _: ActorRef<()>,
        seen: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(seen)
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        event: SupervisionEvent,
        seen: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(_, error) => {
                drop(seen.send(Seen::Failed(error.downcast_ref::<Escalated>().cloned())));
            }
            SupervisionEvent::ActorTerminated(..) => drop(seen.send(Seen::Stopped)),
            _ => {}
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_foreign_parent_sees_the_typed_reason() {
    let (tx, mut seen) = mpsc::unbounded_channel();
    let (parent, _) = Foreign::spawn(None, Foreign, tx).await.unwrap();
    let log = Log::new();
    let config = log.config().child(log.spec("a", Permanent).intensity(0, SECOND));
    let supervisor = Supervisor::start(config, Some(parent.get_cell())).await.unwrap();
    tell(&supervisor.ready("a").await.unwrap(), Do::Panic);
    assert_eq!(seen.recv().await, Some(Seen::Failed(Some(boom("a")))));

    let supervisor = Supervisor::start(log.config(), Some(parent.get_cell())).await.unwrap();
    supervisor.add(log.spec("a", Permanent)).await.unwrap();
    supervisor.shutdown().await;
    assert_eq!(seen.recv().await, Some(Seen::Stopped), "a shutdown is no failure");
}

#[tokio::test(start_paused = true)]
async fn a_parent_that_has_stopped_takes_no_supervisor() {
    let (tx, _) = mpsc::unbounded_channel();
    let (parent, task) = Foreign::spawn(None, Foreign, tx).await.unwrap();
    parent.stop(None);
    task.await.unwrap();
    let mut log = Log::new();
    let config = log.config().child(log.spec("a", Permanent));
    let error = Supervisor::start(config, Some(parent.get_cell())).await.unwrap_err();
    assert_eq!(error, Error::Stopped);
    assert_eq!(log.lines(), ["start a", "stop a", "drop a", "exit a stopped, removed"]);
}
