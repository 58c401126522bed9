//! Random requests and ends, one after another and at once, under every strategy.

use std::collections::HashMap;
use std::time::Duration;

use ghostlight_supervisor::{
    Backoff, Decision, Exhausted, ExitReason, RestartPolicy, StopOrder, Strategy, Supervisor,
};
use ractor::ActorId;
use tokio::task::JoinSet;

use crate::support::{DRAIN, Do, Event, Log, SECOND, Start};

const IDS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Whether waiting costs nothing.
#[derive(Clone, Copy, PartialEq)]
enum Time {
    Virtual,
    Real,
}

/// Does `steps` random things, then shuts down. Returns all that happened.
async fn play(
    seed: u64,
    steps: usize,
    strategy: Strategy,
    order: StopOrder,
    time: Time,
) -> Vec<Event> {
    let (drain, slow) = match time {
        Time::Virtual => (DRAIN / 100, Start::After(SECOND / 100)),
        Time::Real => (Duration::ZERO, Start::Up),
    };
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut log = Log::new();
    let config = log.config().strategy(strategy).stop_order(order);
    let supervisor = Supervisor::start(config, None).await.unwrap();
    let mut calls = JoinSet::new();
    for _ in 0..steps {
        let supervisor = supervisor.clone();
        let id = IDS[rng.usize(..IDS.len())];
        match rng.u32(..12) {
            0..4 => {
                let policies =
                    [RestartPolicy::Permanent, RestartPolicy::Transient, RestartPolicy::Temporary];
                let starts = [
                    Start::Up,
                    Start::Up,
                    Start::Up,
                    Start::Fail,
                    Start::Hang,
                    slow.clone(),
                    Start::StopAtOnce,
                    Start::PanicAtOnce,
                ];
                let spec = log
                    .probe(
                        id,
                        policies[rng.usize(..policies.len())],
                        starts[rng.usize(..starts.len())].clone(),
                    )
                    .intensity(rng.u32(..5), SECOND)
                    .drain(drain);
                // Without a pause, retries for ever would leave virtual time no room.
                let spec = if rng.bool() {
                    spec.backoff(Backoff::default()).on_exhausted(Exhausted::RetryAtMax)
                } else {
                    spec.backoff(Backoff::NONE).on_exhausted(Exhausted::Remove)
                };
                calls.spawn(async move { drop(supervisor.add(spec).await) });
            }
            4 | 5 => drop(calls.spawn(async move { drop(supervisor.remove(id).await) })),
            6 => drop(calls.spawn(async move { drop(supervisor.kill(id).await) })),
            7 => drop(calls.spawn(async move { drop(supervisor.ready(id).await) })),
            8 if time == Time::Virtual => {
                tokio::time::sleep(SECOND / 100 * rng.u32(..40)).await;
            }
            how => {
                if let Some(cell) = supervisor.child(id).await.unwrap() {
                    let _ = match how {
                        9 => cell.send_message(Do::Fail),
                        10 => cell.send_message(Do::Stop),
                        _ => cell.send_message(Do::Hang),
                    };
                }
            }
        }
    }
    supervisor.shutdown().await;
    calls.join_all().await;
    log.take()
}

/// What must hold of every history.
fn check(events: &[Event], seed: u64) {
    let mut alive: HashMap<&str, ActorId> = HashMap::new();
    let mut dropped: Vec<ActorId> = Vec::new();
    let mut given_notice: Vec<ActorId> = Vec::new();
    let mut open: HashMap<&str, bool> = HashMap::new();
    for event in events {
        match event {
            Event::Started(name, actor) => {
                let other = alive.insert(name, *actor);
                assert_eq!(other, None, "seed {seed}: two of {name} alive");
                open.insert(name, true);
            }
            Event::Stopped(_) => {}
            Event::Dropped(_, actor) => dropped.push(*actor),
            Event::Exit(notice) => {
                let name = notice.id.as_str();
                assert_eq!(notice.actor, alive.remove(name), "seed {seed}: {notice:?}");
                match (notice.actor, &notice.reason) {
                    (Some(actor), ExitReason::StartFailed(_) | ExitReason::Cancelled) => {
                        panic!("seed {seed}: {actor} was alive: {notice:?}");
                    }
                    (Some(actor), reason) => {
                        assert_ne!(*reason, ExitReason::Lost, "seed {seed}: {notice:?}");
                        assert!(dropped.contains(&actor), "seed {seed}: not ended: {notice:?}");
                        given_notice.push(actor);
                    }
                    (None, ExitReason::StartFailed(_)) => {}
                    (None, reason) => {
                        assert_eq!(*reason, ExitReason::Cancelled, "seed {seed}");
                        assert_eq!(notice.decision, Decision::Remove, "seed {seed}");
                    }
                }
                open.insert(name, notice.decision != Decision::Remove);
            }
        }
    }
    assert!(alive.is_empty(), "seed {seed}: ended without notice: {alive:?}");
    assert!(open.values().all(|open| !open), "seed {seed}: no last notice: {open:?}");
    let mut once = given_notice.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), given_notice.len(), "seed {seed}: two notices of one end");
}

fn setups() -> impl Iterator<Item = (Strategy, StopOrder)> {
    [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne].into_iter().flat_map(|s| {
        [StopOrder::OneByOne, StopOrder::Together].into_iter().map(move |order| (s, order))
    })
}

#[tokio::test(start_paused = true)]
async fn random_histories_in_virtual_time() {
    for (strategy, order) in setups() {
        for seed in 0..60 {
            let events = play(seed, 120, strategy, order, Time::Virtual).await;
            check(&events, seed);
        }
    }
}

/// On two threads, where messages and events overtake each other for real.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_histories_on_two_threads() {
    for (strategy, order) in setups() {
        for seed in 0..50 {
            let events = play(seed, 60, strategy, order, Time::Real).await;
            check(&events, seed);
        }
    }
}

/// A removal, a kill and a crash of the same child at the same moment, over and over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removals_race_crashes() {
    let mut log = Log::new();
    let supervisor = Supervisor::start(log.config(), None).await.unwrap();
    for round in 0..3_000 {
        let spec = log.spec("a", RestartPolicy::Permanent).backoff(Backoff::NONE);
        let cell = supervisor.add(spec.on_exhausted(Exhausted::Remove)).await.unwrap();
        let crash = tokio::spawn(async move { drop(cell.send_message(Do::Fail)) });
        let removal =
            if round % 2 == 0 { supervisor.remove("a").await } else { supervisor.kill("a").await };
        removal.expect("restarts are granted, so it is there");
        crash.await.unwrap();
        assert_eq!(supervisor.children().await, Ok(vec![]));
    }
    supervisor.shutdown().await;
    check(&log.take(), 0);
}
