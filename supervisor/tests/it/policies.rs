//! Which ends are followed by a restart, when, and how often.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use ghostlight_supervisor::{
    Backoff, Config, Decision, Error, Exhausted, ExitReason, RESTART, RestartPolicy, Supervisor,
};
use tokio::time::Instant;

use crate::support::{Do, Log, SECOND, Start, tell};

use RestartPolicy::{Permanent, Temporary, Transient};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Stop,
    StopFor,
    Drain,
    Restart,
    Panic,
    Fail,
    Kill,
}

#[tokio::test(start_paused = true)]
async fn every_policy_and_every_end() {
    let counted = Decision::Restart { after: SECOND };
    let at_once = Decision::Restart { after: Duration::ZERO };
    let remove = Decision::Remove;
    let ways = [
        (Way::Stop, ExitReason::Normal(None), [counted, remove]),
        (Way::StopFor, ExitReason::Normal(Some("done".into())), [counted, remove]),
        (Way::Drain, ExitReason::Normal(Some("Drained".into())), [counted, remove]),
        (Way::Restart, ExitReason::Restart, [at_once, at_once]),
        (Way::Panic, ExitReason::Failed("boom".into()), [counted, counted]),
        (Way::Fail, ExitReason::Failed("oops".into()), [counted, counted]),
        (Way::Kill, ExitReason::Killed, [counted, counted]),
    ];
    for (way, reason, [permanent, transient]) in ways {
        for (policy, decision) in
            [(Permanent, permanent), (Transient, transient), (Temporary, remove)]
        {
            let mut log = Log::new();
            let supervisor = Supervisor::start(log.config(), None).await.unwrap();
            let cell = supervisor.add(log.spec("a", policy)).await.unwrap();
            let first = log.started("a").await;
            match way {
                Way::Stop => tell(&cell, Do::Stop),
                Way::StopFor => tell(&cell, Do::StopFor("done")),
                Way::Drain => cell.drain().unwrap(),
                Way::Restart => tell(&cell, Do::StopFor(RESTART)),
                Way::Panic => tell(&cell, Do::Panic),
                Way::Fail => tell(&cell, Do::Fail),
                Way::Kill => cell.kill(),
            }
            let told = Instant::now();
            let notice = log.exit().await;
            assert_eq!(notice.id.as_str(), "a");
            assert_eq!(notice.actor, Some(first));
            assert_eq!(notice.reason, reason, "{policy:?} {way:?}");
            assert_eq!(notice.decision, decision, "{policy:?} {way:?}");
            if let Decision::Restart { after } = decision {
                let second = log.started("a").await;
                assert_ne!(first, second);
                assert_eq!(told.elapsed(), after, "{policy:?} {way:?}");
                let cell = supervisor.ready("a").await.unwrap();
                assert_eq!(cell.get_id(), second);
            } else {
                assert_eq!(supervisor.child("a").await, Ok(None));
                let unknown = Err(Error::Unknown { id: "a".into() });
                assert_eq!(supervisor.ready("a").await, unknown);
            }
            supervisor.shutdown().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_failed_start() {
    let starts = [
        (Start::PanicInMake, "panicked: no probe today"),
        (Start::Panic, "boom at start"),
        (Start::Fail, "no start"),
    ];
    for (start, text) in starts {
        for policy in [Permanent, Transient, Temporary] {
            let mut log = Log::new();
            let supervisor = Supervisor::start(log.config(), None).await.unwrap();
            let error = supervisor.add(log.probe("a", policy, start.clone())).await.unwrap_err();
            let retry_after = (policy != Temporary).then_some(SECOND);
            assert_eq!(
                error,
                Error::StartFailed { id: "a".into(), error: text.into(), retry_after }
            );
            assert!(error.is_retryable());
            let notice = log.exit().await;
            assert_eq!((notice.actor, notice.reason), (None, ExitReason::StartFailed(text.into())));

            let again = supervisor.add(log.spec("a", policy)).await;
            match retry_after {
                Some(after) => {
                    assert_eq!(again, Err(Error::AlreadyExists { id: "a".into() }));
                    let failed = Instant::now();
                    assert_eq!(log.exit().await.decision, Decision::Restart { after });
                    assert_eq!(failed.elapsed(), after);
                }
                None => assert!(again.is_ok(), "its id is free"),
            }
            supervisor.shutdown().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn failed_starts_are_retried_until_one_succeeds() {
    let log = Log::new();
    let supervisor = Supervisor::start(log.config(), None).await.unwrap();
    let start = Start::FailTimes(Arc::new(AtomicU32::new(3)));
    let began = Instant::now();
    supervisor.add(log.probe("a", Transient, start)).await.unwrap_err();
    let cell = supervisor.ready("a").await.unwrap();
    assert_eq!(began.elapsed(), 3 * SECOND);
    assert_eq!(supervisor.child("a").await, Ok(Some(cell)));
}

#[tokio::test(start_paused = true)]
async fn ready_learns_that_the_child_was_given_up() {
    let log = Log::new();
    let supervisor = Supervisor::start(log.config(), None).await.unwrap();
    let spec = log
        .probe("a", Permanent, Start::Fail)
        .intensity(2, 60 * SECOND)
        .on_exhausted(Exhausted::Remove);
    supervisor.add(spec).await.unwrap_err();
    let (id, error) = ("a".into(), "no start".into());
    assert_eq!(
        supervisor.ready("a").await,
        Err(Error::StartFailed { id, error, retry_after: None })
    );
}

#[tokio::test(start_paused = true)]
async fn an_end_in_post_start_is_an_end_like_any_other() {
    let mut log = Log::new();
    let supervisor = Supervisor::start(log.config(), None).await.unwrap();
    supervisor.add(log.probe("a", Temporary, Start::StopAtOnce)).await.unwrap();
    assert_eq!(log.exit().await.reason, ExitReason::Normal(None));
    supervisor.add(log.probe("b", Temporary, Start::PanicAtOnce)).await.unwrap();
    assert_eq!(log.exit().await.reason, ExitReason::Failed("boom".into()));
    assert_eq!(supervisor.children().await, Ok(vec![]));
}

#[tokio::test(start_paused = true)]
async fn intensity_is_used_up_per_child() {
    let mut log = Log::new();
    let supervisor = Supervisor::start(log.config(), None).await.unwrap();
    for id in ["a", "b"] {
        let spec = log.spec(id, Permanent).intensity(2, 60 * SECOND);
        supervisor.add(spec.on_exhausted(Exhausted::Remove)).await.unwrap();
    }
    let again = Decision::Restart { after: SECOND };
    for (id, decision) in
        [("a", again), ("b", again), ("a", again), ("a", Decision::Remove), ("b", again)]
    {
        tell(&supervisor.ready(id).await.unwrap(), Do::Panic);
        let notice = log.exit().await;
        assert_eq!((notice.id.as_str(), notice.decision), (id, decision));
    }
}

#[tokio::test(start_paused = true)]
async fn asked_restarts_use_up_nothing() {
    let mut log = Log::new();
    let supervisor = Supervisor::start(log.config(), None).await.unwrap();
    supervisor.add(log.spec("a", Transient).intensity(1, 60 * SECOND)).await.unwrap();
    let began = Instant::now();
    for _ in 0..20 {
        tell(&supervisor.ready("a").await.unwrap(), Do::StopFor(RESTART));
        assert_eq!(log.exit().await.decision, Decision::Restart { after: Duration::ZERO });
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    tell(&supervisor.ready("a").await.unwrap(), Do::Panic);
    assert_eq!(log.exit().await.decision, Decision::Restart { after: SECOND });
}

#[tokio::test(start_paused = true)]
async fn retry_at_max_goes_on_for_ever() {
    let mut log = Log::new();
    let supervisor = Supervisor::start(log.config(), None).await.unwrap();
    let spec = log
        .probe("a", Permanent, Start::Fail)
        .intensity(2, 5 * SECOND)
        .on_exhausted(Exhausted::RetryAtMax);
    supervisor.add(spec).await.unwrap_err();
    let mut waits = Vec::new();
    for _ in 0..20 {
        match log.exit().await.decision {
            Decision::Restart { after } => waits.push(after.as_secs()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(waits[..3], [1, 1, 60]);
    assert!(waits[3..].iter().all(|&wait| wait == 60), "{waits:?}");
}

/// The waits of two children that fail four times each, in the given order.
async fn waits(seed: u64, order: [&str; 2]) -> Vec<(String, Duration)> {
    let mut log = Log::new();
    let (tx, mut rx) = tokio::sync::mpsc::unbounded_channel();
    let config = Config::new(seed).on_exit(move |notice| drop(tx.send(notice)));
    let supervisor = Supervisor::start(config, None).await.unwrap();
    let backoff = Backoff { first: SECOND, factor: 2, max: 60 * SECOND, jitter_percent: 50 };
    for id in order {
        supervisor.add(log.spec(id, Permanent).backoff(backoff)).await.unwrap();
    }
    let mut waits = Vec::new();
    for _ in 0..4 {
        for id in order {
            let cell = supervisor.ready(id).await.unwrap();
            let failed = Instant::now();
            tell(&cell, Do::Panic);
            let Decision::Restart { after } = rx.recv().await.unwrap().decision else {
                panic!("given up");
            };
            log.take();
            log.started(id).await;
            // Timers have a resolution of a millisecond.
            assert!(failed.elapsed() >= after && failed.elapsed() < after + SECOND / 500);
            waits.push((id.to_owned(), after));
        }
    }
    waits.sort_by_key(|(id, _)| id.clone());
    waits
}

#[tokio::test(start_paused = true)]
async fn backoff_grows_with_the_jitter_of_the_seed() {
    let first = waits(11, ["a", "b"]).await;
    for child in first.chunks(4) {
        for (n, (_, wait)) in child.iter().enumerate() {
            let full = SECOND * 2_u32.pow(n as u32);
            assert!(*wait > full / 2 && *wait <= full, "seed 11: {first:?}");
        }
    }
    assert_eq!(first, waits(11, ["b", "a"]).await, "whichever child fails first");
    assert_ne!(first, waits(12, ["a", "b"]).await);
    let of = |child: usize| first[child * 4..][..4].iter().map(|wait| wait.1).collect::<Vec<_>>();
    assert_ne!(of(0), of(1), "children do not restart in step");
}
