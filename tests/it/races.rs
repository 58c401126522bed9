//! Many callers at once, on several threads: nobody hangs, and no rule bends.

use ghostlight::prelude::*;
use ghostlight::storage::MemoryStore;
use ghostlight::{Error, Limits, RunFilter, SystemBuilder};

use crate::bench::{Bench, Capped, Do, Worker, bounded_real, say};
use crate::registry::nothing_left;

const CAP: usize = 2;
const CALLERS: u64 = 8;
const CALLS: u64 = 150;

/// A small generator, so that a seed repeats a caller's choices.
struct Choice(u64);

impl Choice {
    fn of(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// What may be answered to a caller whose run others cancel and clear.
fn fair<T>(what: &str, result: Result<T, Error>) {
    if let Err(error) = result {
        let fair = matches!(
            error,
            Error::Cleared(_)
                | Error::StillStopping(_)
                | Error::CapExceeded { .. }
                | Error::UnknownRun(_)
        );
        assert!(fair, "{what}: {error}");
    }
}

async fn call(capped: &AgentHandle<Capped>, choice: &mut Choice, round: u64) {
    // Few ids at a time, and new ones as time goes on: cleared ones are spent.
    let id = format!("r{}-{}", round / 10, choice.of(4));
    let work = match id.as_bytes().last() {
        Some(b'0') => Do::UntilCancelled,
        Some(b'1') => Do::Dispatch(vec![Do::Work.kid("k")], Box::new(Do::Work)),
        Some(b'2') => Do::Work.step_first("s"),
        _ => say("x"),
    };
    let awaited = capped.run::<Worker>(work.clone()).id(&id);
    match choice.of(12) {
        0..=3 => fair("start", capped.start::<Worker>(work).id(&id).await),
        4 if !id.ends_with('0') => fair("run", awaited.await),
        4 => fair("cancel", capped.cancel(&id, "enough").await),
        5 => {
            let ms = choice.of(8);
            let call = tokio::time::timeout(Duration::from_millis(ms), awaited.cancel_on_drop());
            if let Ok(result) = call.await {
                fair("run", result);
            }
        }
        6 | 7 => fair("cancel", capped.cancel(&id, "enough").await),
        8 => fair("inspect", capped.inspect(&id).await),
        9 => fair("evict", capped.evict().await),
        10 => assert_eq!(capped.turn(|_| async { 5 }).await.unwrap(), 5),
        _ if round % 10 == 9 => fair("clear", capped.clear(&RunFilter::default()).await),
        _ => fair("list", capped.list(&RunFilter::default(), None, 10).await),
    }
}

async fn storm(seed: u64, at_cap: AtCap) {
    eprintln!("seed {seed}, {at_cap:?}");
    let worker = Worker::default();
    let bench: Bench = worker.bench.clone();
    let store = MemoryStore::new();
    let limits = Limits { cancel_grace: Duration::from_millis(20), ..Limits::default() };
    let builder = SystemBuilder::on_memory_store(store.clone()).seed(seed).limits(limits);
    let system = builder.agent(Capped(CAP, at_cap)).child(worker).start().await.unwrap();
    let capped = system.agent::<Capped>("c").unwrap();
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let capped = capped.clone();
            let mut choice = Choice(seed * CALLERS + caller);
            tokio::spawn(async move {
                for round in 0..CALLS {
                    call(&capped, &mut choice, round).await;
                }
            })
        })
        .collect();
    // What waits for a cancel gets one, sooner or later.
    let sweeper = {
        let capped = capped.clone();
        tokio::spawn(async move {
            loop {
                let page = capped.list(&RunFilter::default(), None, 1000).await.unwrap();
                for run in page.runs.iter().filter(|run| !run.status.is_hard()) {
                    fair("cancel", capped.cancel(&run.run_id, "swept").await);
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
    };
    for caller in callers {
        caller.await.unwrap();
    }
    while system.live_runs() > 0 {
        tokio::task::yield_now().await;
    }
    sweeper.abort();
    let _ = sweeper.await;
    // The children of the capped runs count, too: each capped run has one at most.
    assert!(bench.peak() <= 2 * CAP, "{} at once", bench.peak());
    let end = capped.run::<Worker>(say("after")).id("after").await.unwrap();
    assert_eq!(end.completed().unwrap(), "after");
    for run in capped.list(&RunFilter::default(), None, 10_000).await.unwrap().runs {
        assert!(run.status.is_hard(), "{run:?}");
    }
    capped.clear(&RunFilter::default()).await.unwrap();
    nothing_left(&store).await;
    assert_eq!(system.shutdown().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_storm_of_callers_with_a_queue() {
    for seed in 1..=4 {
        bounded_real(storm(seed, AtCap::Queue)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_storm_of_callers_with_refusals() {
    for seed in 1..=4 {
        bounded_real(storm(seed, AtCap::Refuse)).await;
    }
}
