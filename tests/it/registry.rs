//! List, has, clear and evict.

use std::collections::BTreeMap;

use ghostlight::prelude::*;
use ghostlight::protocol::RunKey;
use ghostlight::storage::{self, Key as StoreKey, MemoryStore, Store};
use ghostlight::{Cursor, Error, Limits, RunFilter, SystemBuilder};

use crate::bench::{Bench, Do, Worker, aborted, bounded, hold, say};
use crate::support::code::{Code, Data, code};
use crate::support::unreadable::Unreadable;
use crate::support::{Adder, Assistant};

async fn started(store: &MemoryStore) -> (System, AgentHandle<Assistant>, Bench) {
    let worker = Worker::default();
    let bench = worker.bench.clone();
    // Short, for the tests that clear again and again what does not listen.
    let limits = Limits { cancel_grace: Duration::from_millis(20), ..Limits::default() };
    let builder =
        SystemBuilder::on_memory_store(store.clone()).seed(1).limits(limits).agent(Assistant);
    let system = builder.child(worker).child(Adder).start().await.unwrap();
    let assistant = system.agent::<Assistant>("a").unwrap();
    (system, assistant, bench)
}

#[tokio::test(start_paused = true)]
async fn a_list_has_every_run_once_in_order_page_by_page() {
    bounded(async {
        let (system, assistant, _bench) = started(&MemoryStore::new()).await;
        let other = system.agent::<Assistant>("b").unwrap();
        other.run::<Worker>(say("a")).id("not mine").await.unwrap();
        for at in 0..1050 {
            let run = assistant.start::<Worker>(say("a")).id(format!("r{at}"));
            run.await.unwrap();
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let (mut ids, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = assistant.list(&RunFilter::default(), after.as_ref(), 100).await.unwrap();
            assert!(page.runs.len() <= 100);
            ids.extend(page.runs.into_iter().map(|run| run.run_id));
            pages += 1;
            // Through its text and back, as a URL would carry it.
            after = page.next.map(|next| next.to_string().parse::<Cursor>().unwrap());
            if after.is_none() {
                break;
            }
        }
        let expected: Vec<String> = (0..1050).map(|at| format!("r{at}")).collect();
        assert_eq!(ids, expected);
        assert!((11..=12).contains(&pages), "{pages}");
        let all = assistant.list(&RunFilter::default(), None, 5000).await.unwrap();
        assert_eq!(all.runs.len(), 1050);
        assert_eq!(assistant.list(&RunFilter::default(), None, 0).await.unwrap().runs.len(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn filters_are_anded() {
    bounded(async {
        let (_system, assistant, _bench) = started(&MemoryStore::new()).await;
        let mut times = Vec::new();
        for at in 0..6 {
            let id = format!("w{at}");
            let work = if at % 2 == 0 { say("a") } else { Do::Fail("no".into()) };
            assistant.run::<Worker>(work).id(&id).await.unwrap();
            assistant.run::<Adder>(vec![at]).id(format!("a{at}")).await.unwrap();
            times.push(assistant.inspect(&id).await.unwrap().unwrap().run.started_at);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let list = async |filter: &RunFilter| -> Vec<String> {
            let page = assistant.list(filter, None, 100).await.unwrap();
            page.runs.into_iter().map(|run| run.run_id).collect()
        };
        let filter = RunFilter {
            status: vec![Status::Completed],
            agent_type: Some("Worker".into()),
            started_before: Some(times[4]),
        };
        assert_eq!(list(&filter).await, ["w0", "w2"]);
        let failed = RunFilter { status: vec![Status::Error], ..RunFilter::default() };
        assert_eq!(list(&failed).await, ["w1", "w3", "w5"]);
        let two = RunFilter {
            status: vec![Status::Error, Status::Completed],
            agent_type: Some("Worker".into()),
            ..RunFilter::default()
        };
        assert_eq!(list(&two).await.len(), 6);
        let live = RunFilter { status: vec![Status::Running], ..RunFilter::default() };
        assert!(list(&live).await.is_empty());
        let nobody = RunFilter { agent_type: Some("Nobody".into()), ..RunFilter::default() };
        assert!(list(&nobody).await.is_empty());

        // A clear takes the same ones.
        assert_eq!(assistant.clear(&filter).await.unwrap(), 2);
        let left = list(&RunFilter::default()).await;
        assert_eq!(left.len(), 10);
        assert!(!left.contains(&"w0".to_owned()) && !left.contains(&"w2".to_owned()));
        assert_eq!(assistant.clear(&filter).await.unwrap(), 0);
    })
    .await;
}

#[test]
fn what_is_no_cursor_is_refused() {
    for text in ["", "zz", &"0".repeat(47), &"g".repeat(48), &"é".repeat(24), &"0".repeat(50)] {
        let refused = text.parse::<Cursor>().unwrap_err();
        assert!(refused.to_string().contains("cursor"), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn has_run_wants_the_exact_id_and_type() {
    bounded(async {
        let (_system, assistant, bench) = started(&MemoryStore::new()).await;
        assistant.start::<Worker>(hold("g")).id("x").await.unwrap();
        bench.seen("enter x", 1).await;
        for ended in [false, true] {
            assert!(assistant.has_run::<Worker>("x").await.unwrap(), "ended: {ended}");
            assert!(!assistant.has_run::<Adder>("x").await.unwrap());
            assert!(!assistant.has_run::<Worker>("X").await.unwrap());
            assert!(!assistant.has_run::<Worker>("").await.unwrap());
            bench.open("g");
            assistant.run::<Worker>(hold("g")).id("x").await.unwrap();
        }
        assistant.clear(&RunFilter::default()).await.unwrap();
        assert!(!assistant.has_run::<Worker>("x").await.unwrap());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_clear_waits_as_long_as_the_one_before_it() {
    let worker = Worker::default();
    let bench = worker.bench.clone();
    let limits = Limits { cancel_grace: Duration::MAX, ..Limits::default() };
    let builder = SystemBuilder::on_memory_store(MemoryStore::new()).limits(limits);
    let system = builder.agent(Assistant).child(worker).start().await.unwrap();
    let assistant = system.agent::<Assistant>("a").unwrap();
    assistant.start::<Worker>(hold("g")).id("x").await.unwrap();
    bench.seen("enter x", 1).await;
    let began = tokio::time::Instant::now();
    let all = RunFilter::default();
    let first = async {
        let refused = assistant.clear(&all).await.unwrap_err();
        assert!(matches!(refused, Error::StillStopping(_)), "{refused:?}");
        let waited = began.elapsed();
        bench.open("g");
        waited
    };
    let second = async {
        tokio::time::sleep(Duration::from_secs(40)).await;
        assistant.clear(&all).await
    };
    let (waited, cleared) = tokio::join!(first, second);
    assert_eq!(waited.as_secs(), 60);
    assert_eq!(cleared.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_grace_time_without_end_is_waited_for_by_no_clear_and_by_nothing_later() {
    let worker = Worker::default();
    let bench = worker.bench.clone();
    let limits = Limits { cancel_grace: Duration::MAX, ..Limits::default() };
    let builder = SystemBuilder::on_memory_store(MemoryStore::new()).limits(limits);
    let system = builder.agent(Assistant).child(worker).start().await.unwrap();
    let assistant = system.agent::<Assistant>("a").unwrap();
    let run = assistant.start::<Worker>(hold("g")).id("x").await.unwrap();
    bench.seen("enter x", 1).await;
    let cleared = assistant.clear(&RunFilter::default()).await;
    assert!(matches!(cleared, Err(Error::StillStopping(_))), "{cleared:?}");
    bench.open("g");
    assert_eq!(aborted(run.outcome().await.unwrap()), "cleared");
    // Each cancel has a timer, which is of no use any more.
    system.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_clear_cancels_what_lives_and_its_tails_say_so() {
    bounded(async {
        let (system, assistant, bench) = started(&MemoryStore::new()).await;
        let run = assistant.start::<Worker>(Do::UntilCancelled).id("live").await.unwrap();
        let asleep = assistant.start::<Worker>(Do::Sleep(3600)).id("asleep").await.unwrap();
        bench.seen("enter live", 1).await;
        bench.seen("leave asleep", 1).await;
        let mut tails = [run.tail(ghostlight::After::START), asleep.tail(ghostlight::After::START)];
        for tail in &mut tails {
            assert_eq!(tail.next().await.unwrap().unwrap().sequence, 0);
        }
        let (outcome, cleared) =
            futures_util::future::join(run.outcome(), assistant.clear(&RunFilter::default())).await;
        assert_eq!(cleared.unwrap(), 2);
        assert_eq!(aborted(outcome.unwrap()), "cleared");
        assert_eq!(bench.count("cancelled live"), 1);
        for tail in &mut tails {
            let mut last = None;
            while let Some(frame) = tail.next().await {
                last = Some(frame);
            }
            // The end of the run may have been read before; the log that is gone never passes for one.
            match last {
                Some(Err(Error::Cleared(_))) => {}
                Some(Ok(frame)) => assert_eq!(frame.sequence, 1),
                other => panic!("{other:?}"),
            }
        }
        let late = run.tail(ghostlight::After::START).next().await;
        assert!(matches!(late, Some(Err(Error::Cleared(_) | Error::UnknownRun(_)))), "{late:?}");
        assert_eq!(aborted(run.outcome().await.unwrap()), "cleared", "late or in time");
        assert!(run.inspect().await.unwrap().is_none());
        assert_eq!(system.live_runs(), 0);

        // What had ended otherwise was not aborted.
        let run = assistant.start::<Worker>(Do::Say("a".to_owned())).id("ended").await.unwrap();
        run.outcome().await.unwrap();
        assert_eq!(assistant.clear(&RunFilter::default()).await.unwrap(), 1);
        assert!(matches!(run.outcome().await, Err(Error::Cleared(_))));
    })
    .await;
}

/// How many keys of each kind the store has, by the first byte.
fn kinds(store: &MemoryStore) -> BTreeMap<u8, usize> {
    let mut kinds = BTreeMap::new();
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page =
            store.scan(b"", after.as_deref(), storage::Limit { entries: 500, bytes: 1 << 20 });
        let page = page.unwrap();
        let Some(last) = page.last() else { return kinds };
        after = Some(last.key.clone());
        for entry in page {
            *kinds.entry(entry.key[0]).or_default() += 1;
        }
    }
}

const META: u8 = 0x01;
const TOMBSTONE: u8 = 0x0b;

/// Waits until a store has nothing left but its meta data and tombstones.
pub(crate) async fn nothing_left(store: &MemoryStore) -> usize {
    let mut left = BTreeMap::new();
    for _ in 0..1000 {
        left = kinds(store);
        left.remove(&META);
        let tombstones = left.remove(&TOMBSTONE).unwrap_or(0);
        if left.is_empty() {
            return tombstones;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("left over, by the kind of key: {left:?}");
}

/// Runs with everything that is ever stored for a run.
async fn populate(assistant: &AgentHandle<Assistant>, bench: &Bench) {
    let large = "x".repeat(30 << 10);
    let _ = assistant.run::<Worker>(say(&large)).id("large").await;
    let kids = vec![
        say(&large).kid("kid"),
        Do::Dispatch(vec![say(&large).kid("grandkid")], Box::new(say(""))).kid("parent"),
        Do::Forever.kid("forever").detached(),
    ];
    let _ = assistant.run::<Worker>(Do::Dispatch(kids, Box::new(say("")))).id("family").await;
    let _ = assistant.start::<Worker>(Do::Sleep(3600)).id("asleep").await;
    let _ = assistant.start::<Worker>(Do::Forever.step_first("s")).id("live").await;
    let _ = bench;
}

#[tokio::test(start_paused = true)]
async fn a_clear_leaves_tombstones_alone() {
    bounded(async {
        let store = MemoryStore::new();
        let (system, assistant, bench) = started(&store).await;
        populate(&assistant, &bench).await;
        bench.seen("leave asleep", 1).await;
        assert_eq!(assistant.clear(&RunFilter::default()).await.unwrap(), 4);
        assert_eq!(nothing_left(&store).await, 8, "four, and four below them");
        assert_eq!(system.live_runs(), 0);
        assert!(system.agents().await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_clear_that_a_crash_cuts_anywhere_is_finished_by_the_next() {
    bounded(async {
        for commits in 0.. {
            let store = MemoryStore::new();
            let (system, assistant, bench) = started(&store).await;
            populate(&assistant, &bench).await;
            bench.seen("leave asleep", 1).await;
            let until = system.commits().commits + commits;
            // Cut once so many more commits are durable.
            let cut = async {
                for polls in 1.. {
                    if system.commits().commits >= until {
                        break;
                    }
                    match polls % 50 {
                        // Lets time go on when nothing else happens.
                        0 => tokio::time::sleep(Duration::from_millis(1)).await,
                        _ => tokio::task::yield_now().await,
                    }
                }
                system.clone().crash().await;
            };
            let all = RunFilter::default();
            let clear = assistant.clear(&all);
            let finished = tokio::select! {
                biased;
                cleared = clear => cleared.is_ok(),
                () = cut => false,
            };
            system.crash().await;
            let store = store.reopen();
            let (system, assistant, _) = started(&store).await;
            let left = assistant.list(&RunFilter::default(), None, 100).await.unwrap().runs;
            for run in &left {
                let inspection = assistant.inspect(&run.run_id).await.unwrap().unwrap();
                assert_eq!(inspection.run.run_id, run.run_id);
            }
            assistant.clear(&RunFilter::default()).await.unwrap();
            assert_eq!(nothing_left(&store).await, 8, "cut after {commits} commits");
            system.crash().await;
            if finished {
                assert!(commits > 8, "the cut never came: {commits}");
                break;
            }
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_evicted_agent_leaves_memory_and_its_runs_go_on() {
    bounded(async {
        let (system, assistant, bench) = started(&MemoryStore::new()).await;
        assistant.evict().await.unwrap();
        let runs: Vec<_> = (0..20).map(|at| format!("r{at}")).collect();
        for id in &runs {
            assistant.start::<Worker>(hold("g")).id(id).await.unwrap();
            bench.seen(&format!("enter {id}"), 1).await;
        }
        let waiting = assistant.run::<Worker>(hold("g")).id("r0");
        let evict = async {
            tokio::task::yield_now().await;
            assistant.evict().await.unwrap();
            assert!(system.agents_in_memory().is_empty());
            bench.open("g");
        };
        let (end, ()) = futures_util::future::join(waiting, evict).await;
        assert_eq!(end.unwrap().completed().unwrap(), "g");
        for id in &runs {
            let run = assistant.attach::<Worker>(id).await.unwrap().unwrap();
            assert_eq!(run.outcome().await.unwrap().completed().unwrap(), "g");
            assert_eq!(run.inspect().await.unwrap().unwrap().run.attempt, 1);
            assert_eq!(bench.count(&format!("enter {id}")), 1);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_with_nothing_to_do_leaves_memory() {
    bounded(async {
        let (system, assistant, bench) = started(&MemoryStore::new()).await;
        assistant.run::<Worker>(say("a")).await.unwrap();
        let asleep = assistant.start::<Worker>(Do::Sleep(3600)).id("asleep").await.unwrap();
        bench.seen("leave asleep", 1).await;
        tokio::time::sleep(Duration::from_secs(180)).await;
        assert!(system.agents_in_memory().is_empty());
        assert_eq!(asleep.outcome().await.unwrap().completed().unwrap(), "");
        assert_eq!(asleep.inspect().await.unwrap().unwrap().run.attempt, 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn who_asks_an_agent_that_is_leaving_waits_for_no_clock() {
    bounded(async {
        let system = System::in_memory().agent(Assistant).child(Adder).start().await.unwrap();
        let assistant = system.agent::<Assistant>("a").unwrap();
        assistant.run::<Adder>(vec![1]).id("x").await.unwrap();
        let begin = tokio::time::Instant::now();
        for _ in 0..100 {
            // The agent leaves with the other requests in its mailbox.
            let evict = assistant.evict();
            let run = assistant.run::<Adder>(vec![1]).id("x").into_future();
            let asked =
                tokio::join!(evict, assistant.inspect("x"), run, assistant.turn(|_| async {}));
            asked.0.unwrap();
            assert!(asked.1.unwrap().is_some());
            assert_eq!(asked.2.unwrap().completed().unwrap(), 1);
            asked.3.unwrap();
        }
        assert_eq!(begin.elapsed(), Duration::ZERO);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_inspection_reads_no_results_of_steps() {
    bounded(async {
        let store = Unreadable::default();
        let child = code(|cx, _| {
            Box::pin(async move {
                let big = "x".repeat(200_000);
                cx.step("big", async || Ok(big)).await?;
                cx.milestone("m", json!({ "text": "y".repeat(50_000) })).await?;
                cx.progress(Progress::fraction(0.5));
                Ok(json!(1))
            })
        });
        let builder = SystemBuilder::on_backend(store.clone()).agent(Assistant);
        let system = builder.child(child).start().await.unwrap();
        let assistant = system.agent::<Assistant>("a").unwrap();
        let run = assistant.start::<Code>(json!(null)).id("x").await.unwrap();
        run.outcome().await.unwrap().completed().unwrap();
        let key = RunKey::new(assistant.path(), &"x".parse().unwrap());
        // The first payload in parts is the step's, the second one the milestone's.
        let mut step = store.first(&StoreKey::parts_of(key)).into_bytes();
        step.truncate(step.len() - size_of::<u32>());
        store.fail(StoreKey::from_bytes(step), 1);
        let seen = assistant.inspect("x").await.unwrap().unwrap();
        assert_eq!((seen.output, seen.milestones.len()), (Some(json!(1)), 1));
        let text = seen.milestones[0].data.as_ref().unwrap()["text"].as_str().unwrap().len();
        assert_eq!((text, seen.progress.unwrap()["fraction"].clone()), (50_000, json!(0.5)));
        assert!(store.failed_at().is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_page_of_runs_does_not_wait_for_a_commit_a_run() {
    bounded(async {
        let data = Data::new();
        let latency = Duration::from_millis(10);
        // A commit is under way all the time once the run `busy` is there.
        let child = code(|cx, input| {
            Box::pin(async move {
                while input == json!("busy") {
                    cx.emit(json!(null)).await?;
                    cx.flush().await;
                }
                Ok(json!(null))
            })
        });
        let disk = data.disk(None).latency(latency);
        let system = data.on(&disk).agent(Assistant).child(child).start().await.unwrap();
        let assistant = system.agent::<Assistant>("a").unwrap();
        for n in 0..100 {
            let run = assistant.run::<Code>(json!(null)).id(format!("r{n}")).await.unwrap();
            run.completed().unwrap();
        }
        assistant.start::<Code>(json!("busy")).id("busy").await.unwrap();
        let begin = tokio::time::Instant::now();
        let page = assistant.list(&RunFilter::default(), None, 500).await.unwrap();
        assert_eq!(page.runs.len(), 101);
        let took = begin.elapsed();
        assert!(took <= 10 * latency, "{took:?}");
        system.crash().await;
    })
    .await;
}
