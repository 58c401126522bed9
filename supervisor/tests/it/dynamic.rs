//! Children added and removed while the supervisor runs, and what races.

use std::time::Duration;

use ghostlight_supervisor::{ChildSpec, Decision, Error, ExitReason, RestartPolicy, Supervisor};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::support::{DRAIN, Do, Event, Log, SECOND, Start, hang, tell};

use RestartPolicy::{Permanent, Temporary, Transient};

#[tokio::test(start_paused = true)]
async fn a_removed_child_has_really_ended() {
    let mut log = Log::new();
    let supervisor = Supervisor::start(log.config(), None).await.unwrap();
    supervisor.add(log.spec("a", Permanent)).await.unwrap();
    supervisor.remove("a").await.unwrap();
    assert_eq!(log.lines(), ["start a", "stop a", "drop a", "exit a stopped, removed"]);
    assert_eq!(supervisor.remove("a").await, Err(Error::Unknown { id: "a".into() }));
    supervisor.add(log.spec("a", Permanent)).await.expect("its id is free");
}

#[tokio::test(start_paused = true)]
async fn ids_are_unique_until_the_real_end() {
    let log = Log::new();
    let supervisor = Supervisor::start(log.config(), None).await.unwrap();
    let cell = supervisor.add(log.spec("a", Permanent)).await.unwrap();
    let exists = Err(Error::AlreadyExists { id: "a".into() });
    assert_eq!(supervisor.add(log.spec("a", Temporary)).await, exists);

    hang(&cell).await;
    let mut removals = JoinSet::new();
    for _ in 0..3 {
        let supervisor = supervisor.clone();
        removals.spawn(async move { supervisor.remove("a").await });
    }
    tokio::time::sleep(SECOND).await;
    assert_eq!(supervisor.add(log.spec("a", Temporary)).await, exists, "still stopping");
    assert_eq!(supervisor.child("a").await, Ok(Some(cell)), "still alive");
    assert!(removals.join_all().await.into_iter().all(|removed| removed == Ok(())));
    assert!(supervisor.add(log.spec("a", Temporary)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn drains_of_many_removals_overlap_and_block_nothing() {
    let log = Log::new();
    let supervisor = Supervisor::start(log.config(), None).await.unwrap();
    let mut removals = JoinSet::new();
    let began = Instant::now();
    for n in 0..100 {
        let id = format!("hanging-{n}");
        hang(&supervisor.add(log.spec(&id, Transient)).await.unwrap()).await;
        let supervisor = supervisor.clone();
        removals.spawn(async move { supervisor.remove(id).await });
    }
    supervisor.add(log.spec("other", Transient)).await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert!(removals.join_all().await.into_iter().all(|removed| removed == Ok(())));
    assert_eq!(began.elapsed(), DRAIN);
}

#[tokio::test(start_paused = true)]
async fn kill_hurries_a_removal() {
    let mut log = Log::new();
    let supervisor = Supervisor::start(log.config(), None).await.unwrap();
    hang(&supervisor.add(log.spec("a", Permanent)).await.unwrap()).await;
    let removal = tokio::spawn({
        let supervisor = supervisor.clone();
        async move { supervisor.remove("a").await }
    });
    tokio::time::sleep(SECOND).await;
    let began = Instant::now();
    supervisor.kill("a").await.unwrap();
    removal.await.unwrap().unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(log.lines(), ["start a", "drop a", "exit a killed, removed"]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_start_blocks_nobody_and_loses_to_a_removal() {
    for kill in [false, true] {
        let mut log = Log::new();
        let supervisor = Supervisor::start(log.config(), None).await.unwrap();
        let add = tokio::spawn({
            let (supervisor, spec) =
                (supervisor.clone(), log.probe("slow", Permanent, Start::Hang));
            async move { supervisor.add(spec).await }
        });
        tokio::task::yield_now().await;
        supervisor.add(log.spec("quick", Transient)).await.unwrap();
        assert_eq!(supervisor.child("slow").await, Ok(None));
        log.take();

        let began = Instant::now();
        if kill {
            supervisor.kill("slow").await.unwrap();
        } else {
            supervisor.remove("slow").await.unwrap();
        }
        assert_eq!(began.elapsed(), if kill { Duration::ZERO } else { DRAIN });
        assert_eq!(add.await.unwrap(), Err(Error::Removed { id: "slow".into() }));
        assert_eq!(log.lines(), ["exit slow cancelled before it started, removed"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_within_the_drain_time_of_its_removal_is_stopped() {
    let mut log = Log::new();
    let supervisor = Supervisor::start(log.config(), None).await.unwrap();
    let spec = log.probe("slow", Permanent, Start::After(3 * SECOND));
    let add = tokio::spawn({
        let supervisor = supervisor.clone();
        async move { supervisor.add(spec).await }
    });
    tokio::task::yield_now().await;
    let began = Instant::now();
    supervisor.remove("slow").await.unwrap();
    assert_eq!(began.elapsed(), 3 * SECOND);
    assert_eq!(add.await.unwrap(), Err(Error::Removed { id: "slow".into() }));
    let expected = ["start slow", "stop slow", "drop slow", "exit slow stopped, removed"];
    assert_eq!(log.lines(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_removal_calls_off_a_restart() {
    let mut log = Log::new();
    let supervisor = Supervisor::start(log.config(), None).await.unwrap();
    tell(&supervisor.add(log.spec("a", Permanent)).await.unwrap(), Do::Panic);
    log.exit().await;
    supervisor.remove("a").await.unwrap();
    assert_eq!(log.lines(), ["exit a cancelled before it started, removed"]);
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(log.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_crash_during_a_removal_is_removed_not_restarted() {
    let mut log = Log::new();
    let supervisor = Supervisor::start(log.config(), None).await.unwrap();
    let cell = supervisor.add(log.spec("a", Permanent)).await.unwrap();
    let removal = tokio::spawn({
        let supervisor = supervisor.clone();
        async move { supervisor.remove("a").await }
    });
    // Handled before the supervisor has heard of the removal.
    tell(&cell, Do::Panic);
    removal.await.unwrap().unwrap();
    let mut notices = Vec::new();
    for event in log.take() {
        if let Event::Exit(notice) = event {
            notices.push((notice.actor.is_some(), notice.reason, notice.decision));
        }
    }
    let last = notices.pop().unwrap();
    assert_eq!(last.2, Decision::Remove);
    for (alive, reason, decision) in notices {
        assert_eq!((alive, reason), (true, ExitReason::Failed("boom".into())));
        assert_eq!(decision, Decision::Restart { after: SECOND });
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_linked_away_is_still_removed() {
    let mut log = Log::new();
    let supervisor = Supervisor::start(log.config(), None).await.unwrap();
    let other = Supervisor::start(log.config(), None).await.unwrap();
    let cell = supervisor.add(log.spec("a", Permanent)).await.unwrap();
    cell.link(other.cell());
    let began = Instant::now();
    supervisor.remove("a").await.unwrap();
    assert_eq!(began.elapsed(), SECOND, "a late word from it is waited for");
    let expected = ["start a", "stop a", "drop a", "exit a ended without a reason, removed"];
    assert_eq!(log.lines(), expected);
}

#[tokio::test(start_paused = true)]
async fn foreign_actors_linked_by_hand_are_none_of_its_business() {
    let mut log = Log::new();
    let supervisor = Supervisor::start(log.config(), None).await.unwrap();
    let other = Supervisor::start(log.config(), None).await.unwrap();
    let stranger = other.add(log.spec("stranger", Transient)).await.unwrap();
    stranger.link(supervisor.cell());
    tell(&stranger, Do::Panic);
    stranger.wait(None).await.unwrap();
    assert_eq!(supervisor.children().await, Ok(vec![]));
    assert_eq!(log.lines(), ["start stranger", "drop stranger"]);
}

#[tokio::test(start_paused = true)]
async fn callers_that_go_away_change_nothing() {
    let log = Log::new();
    let supervisor = Supervisor::start(log.config(), None).await.unwrap();
    let spec = log.probe("a", Permanent, Start::After(SECOND));
    assert!(tokio::time::timeout(SECOND / 2, supervisor.add(spec)).await.is_err());
    let cell = supervisor.ready("a").await.expect("added all the same");
    hang(&cell).await;
    assert!(tokio::time::timeout(SECOND, supervisor.remove("a")).await.is_err());
    cell.wait(None).await.expect("removed all the same");
    tokio::task::yield_now().await;
    assert_eq!(supervisor.children().await, Ok(vec![]));
}

#[tokio::test(start_paused = true)]
async fn panics_in_drop_are_contained() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("boom in drop");
        }
    }

    let mut log = Log::new();
    let supervisor = Supervisor::start(log.config(), None).await.unwrap();
    let cell = supervisor.add(log.probe("a", Permanent, Start::PanicInDrop)).await.unwrap();
    tell(&cell, Do::Stop);
    assert_eq!(log.exit().await.reason, ExitReason::Normal(None));
    let cell = supervisor.ready("a").await.unwrap();
    tell(&cell, Do::Fail);
    assert_eq!(log.exit().await.reason, ExitReason::Failed("oops".into()));
    supervisor.ready("a").await.expect("it goes on");

    for expected in [true, false] {
        let bomb = Bomb;
        let quiet = ChildSpec::temporary("b", move || {
            let _captured = &bomb;
            (Quiet, ())
        });
        assert_eq!(supervisor.add(quiet).await.is_ok(), expected, "the second is refused");
    }
    supervisor.remove("b").await.unwrap();
    supervisor.ready("a").await.expect("it goes on");
}

struct Quiet;

impl Actor for Quiet {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}
