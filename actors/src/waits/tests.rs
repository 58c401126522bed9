//! Who is woken, when, and that nothing stays behind of those who have waited.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ghostlight_protocol::{AgentPath, RunId, RunKey};

use super::{Waiter, Waits};
use crate::{Agent, Child, RunContext, RunError, System};

fn waiter(id: &str) -> Waiter {
    let parent = AgentPath::root("Test", "test").unwrap();
    let run_id = RunId::new(id).unwrap();
    Waiter { run: RunKey::new(&parent, &run_id), parent, run_id }
}

fn ids(woken: Vec<Waiter>) -> Vec<String> {
    woken.into_iter().map(|waiter| waiter.run_id.to_string()).collect()
}

impl Waits {
    /// How many waits are registered, and by how many runs.
    fn count(&self) -> (usize, usize) {
        let table = self.lock();
        let waits = table.waiting.values().map(|entry| entry.waits.len()).sum();
        let awaited: usize = table.awaited.values().map(std::collections::BTreeMap::len).sum();
        assert_eq!(waits, awaited, "both sides agree");
        (waits, table.waiting.len())
    }
}

#[test]
fn a_run_outside_memory_is_woken_once() {
    let (waits, a, b) = (Waits::default(), waiter("a").run, waiter("b").run);
    waits.register(waiter("w"), a, None);
    waits.register(waiter("w"), b, None);
    assert!(!waits.suspended(waiter("w").run));
    assert!(waits.is_outside(waiter("w").run) && !waits.is_called(waiter("w").run));
    assert_eq!(ids(waits.call(a, None)), ["w"]);
    assert!(waits.is_called(waiter("w").run));
    assert!(ids(waits.call(a, None)).is_empty());
    assert!(ids(waits.call(b, None)).is_empty());
    waits.exited(waiter("w").run);
    assert_eq!(waits.count(), (2, 1), "it goes on outside");
    waits.release(waiter("w").run);
    assert_eq!(waits.count(), (0, 0));
}

#[test]
fn what_comes_on_the_way_out_is_told_once_the_run_is_outside() {
    let (waits, a) = (Waits::default(), waiter("a").run);
    waits.register(waiter("w"), a, None);
    assert!(ids(waits.call(a, None)).is_empty());
    assert!(waits.suspended(waiter("w").run));
}

#[test]
fn a_milestone_calls_those_who_wait_for_it_and_an_end_calls_all() {
    let (waits, a) = (Waits::default(), waiter("a").run);
    for (id, milestone) in [("end", None), ("m", Some("m")), ("n", Some("n"))] {
        waits.register(waiter(id), a, milestone);
        waits.suspended(waiter(id).run);
    }
    assert_eq!(ids(waits.call(a, Some("m"))), ["m"]);
    assert_eq!(ids(waits.call(a, None)), ["end", "n"]);
}

#[test]
fn a_wait_that_is_over_calls_nobody() {
    let (waits, a, b) = (Waits::default(), waiter("a").run, waiter("b").run);
    let first = waits.register(waiter("w"), a, None);
    let second = waits.register(waiter("w"), b, None);
    assert!(ids(waits.call(a, None)).is_empty());
    waits.remove(waiter("w").run, first);
    assert!(!waits.suspended(waiter("w").run));
    assert_eq!(ids(waits.call(b, None)), ["w"]);
    waits.remove(waiter("w").run, second);
    assert_eq!(waits.count(), (0, 0));
    // An actor that is lost leaves nothing behind either.
    waits.register(waiter("w"), a, None);
    waits.exited(waiter("w").run);
    assert_eq!(waits.count(), (0, 0));
}

/// Awaits a child that sleeps an hour, in one of several ways.
#[derive(Default)]
struct Worker(Arc<AtomicU32>);

impl Agent for Worker {
    const TYPE: &'static str = "Worker";
}

impl Child for Worker {
    type Input = String;
    type Output = ();

    async fn run(&self, cx: &RunContext, input: String) -> Result<(), RunError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let agent = cx.agent::<Self>();
        match &*input {
            "sleeps" => cx.sleep(Duration::from_secs(3600)).await,
            "awaits" => _ = agent.run::<Self>("sleeps".into()).await?,
            "short" => {
                let child = agent.start::<Self>("sleeps".into()).await?;
                let hour = Duration::from_secs(3600);
                let late = child.milestone_within("m", hour / 4).await;
                assert!(late.is_err());
                tokio::select! {
                    end = child.outcome() => { end?; }
                    () = cx.sleep(hour / 4) => {}
                }
            }
            _ => {
                tokio::join!(agent.run::<Self>("sleeps".into()), async {
                    cx.sleep(Duration::from_secs(60)).await;
                    panic!("on purpose")
                })
                .0?;
            }
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_becomes_of_a_run_nothing_of_its_waits_is_left() {
    let system = System::in_memory().child(Worker::default()).start().await.unwrap();
    let waits = &system.node().waits;
    let agent = system.agent::<Worker>("a").unwrap();
    for input in ["awaits", "short", "panics"] {
        for by in ["itself", "cancel", "clear", "child"] {
            let run = agent.start::<Worker>(input.into()).await.unwrap();
            tokio::time::sleep(Duration::from_secs(30)).await;
            assert_eq!(waits.count(), (1, 1), "{input}");
            assert_eq!(system.live_runs(), 0, "{input}");
            match by {
                "cancel" => run.cancel("enough").await.unwrap(),
                "clear" => _ = agent.clear(&crate::RunFilter::default()).await.unwrap(),
                "child" => {
                    let path = agent.path().child("Worker", &run.id().parse().unwrap()).unwrap();
                    let inside = system.agent_at(&path).unwrap();
                    let child = inside.unfinished().await.unwrap().remove(0);
                    inside.cancel(&child, "enough").await.unwrap();
                }
                _ => {}
            }
            tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
            assert_eq!(waits.count(), (0, 0), "{input}, ended by {by}");
        }
    }
    let live = system.node().agents.ids().len();
    assert_eq!((live, system.live_runs()), (0, 0));
}
