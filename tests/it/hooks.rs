//! Start hooks, finish hooks and turns.

mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use futures_util::future::{join, join_all};
use ghostlight::prelude::*;
use ghostlight::storage::MemoryStore;
use ghostlight::testing::{TestSystem, crash_agent};
use ghostlight::{Error, RunFilter, SystemBuilder};
use serde_json::Value;

use crate::bench::{Bench, Do, Worker, aborted, bounded, failed, hold, say};
use crate::support::code::Data;
use crate::support::disk::Fault;

/// A parent whose hooks note that they are called, and then do what the bench says.
#[derive(Clone, Default)]
struct Hooked {
    bench: Bench,
    /// How many calls of the finish hook fail before the first good one.
    bad: Arc<AtomicUsize>,
    panics: bool,
}

impl Agent for Hooked {
    const TYPE: &'static str = "Hooked";

    fn callbacks(callbacks: &mut Callbacks<Self>) {
        callbacks.on_run_start(Self::started);
        callbacks.on_run_finish(Self::finished);
    }
}

impl Hooked {
    async fn started(&self, cx: &AgentContext, run: RunInfo) -> Result<(), RunError> {
        self.bench.note(format!("start {}", run.run_id));
        assert_eq!(run.status, Status::Starting);
        assert_eq!(cx.path().to_string(), "Hooked:h");
        match run.run_id.split('-').next().unwrap_or_default() {
            "fail" => Err(RunError::new("not today").kind("hook")),
            "panic" => panic!("hook panic"),
            "cancel" => {
                // A hook may do to its run what everybody may.
                let me = cx.agent::<Self>();
                assert!(me.inspect(&run.run_id).await?.is_some());
                me.cancel(&run.run_id, "by the hook").await?;
                Ok(())
            }
            "wait" => {
                self.bench.gate("start").await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn finished(
        &self,
        _: &AgentContext,
        run: RunInfo,
        end: Outcome<Value>,
    ) -> Result<(), RunError> {
        assert_eq!(run.status, end.status());
        assert!(run.completed_at.is_some());
        self.bench.note(format!("finish {} {}", run.run_id, end.status()));
        if run.run_id.starts_with("slow") {
            self.bench.gate("finish").await;
        }
        if run.run_id.starts_with("bad") {
            let left =
                self.bad.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
            if left.is_ok() {
                if self.panics {
                    panic!("finish panic");
                }
                return Err(RunError::new("finish error"));
            }
            self.bench.note(format!("good {}", run.run_id));
        }
        Ok(())
    }
}

async fn started(hooked: Hooked) -> (TestSystem, AgentHandle<Hooked>, Bench) {
    let bench = hooked.bench.clone();
    let worker = Worker { bench: bench.clone(), ..Worker::default() };
    let system = TestSystem::new(1).agent(hooked).child(worker).start().await.unwrap();
    let agent = system.agent::<Hooked>("h").unwrap();
    (system, agent, bench)
}

#[tokio::test(start_paused = true)]
async fn a_start_hook_comes_before_the_code() {
    bounded(async {
        let (_system, agent, bench) = started(Hooked::default()).await;
        agent.run::<Worker>(say("a")).id("x").await.unwrap().completed().unwrap();
        assert_eq!(bench.events()[..3], ["start x", "enter x", "leave x"]);
        // A join calls no hook.
        agent.run::<Worker>(say("a")).id("x").await.unwrap();
        assert_eq!(bench.count("start x"), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn no_tail_shows_a_run_before_its_start_hook_is_done() {
    bounded(async {
        let (_system, agent, bench) = started(Hooked::default()).await;
        let run = agent.start::<Worker>(say("a")).id("wait").await.unwrap();
        bench.seen("start wait", 1).await;
        let mut tail = run.tail(ghostlight::After::START);
        let early = tokio::time::timeout(Duration::from_secs(60), tail.next()).await;
        assert!(early.is_err(), "{early:?}");
        bench.open("start");
        assert_eq!(tail.next().await.unwrap().unwrap().sequence, 0);
        run.outcome().await.unwrap().completed().unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_start_hook_that_fails_or_panics_fails_the_run() {
    bounded(async {
        let (_system, agent, bench) = started(Hooked::default()).await;
        let failure = failed(agent.run::<Worker>(say("a")).id("fail").await.unwrap());
        assert_eq!(failure.message, "start hook: not today");
        assert_eq!(failure.kind.as_deref(), Some("hook"));
        let failure = failed(agent.run::<Worker>(say("a")).id("panic").await.unwrap());
        assert!(failure.message.contains("hook panic"), "{failure}");
        assert!(bench.entered().is_empty());
        bench.seen("finish fail error", 1).await;
        bench.seen("finish panic error", 1).await;
        agent.run::<Worker>(say("a")).id("ok").await.unwrap().completed().unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_start_hook_is_called_again_after_a_crash() {
    bounded(async {
        let (mut system, agent, bench) = started(Hooked::default()).await;
        let run = agent.start::<Worker>(say("a")).id("wait").await.unwrap();
        assert!(!run.already_existed(), "the caller does not wait for the hook");
        bench.seen("start wait", 1).await;
        system.crash().await.unwrap();
        bench.seen("start wait", 2).await;
        assert!(bench.entered().is_empty());
        bench.open("start");
        let agent = system.agent::<Hooked>("h").unwrap();
        agent.run::<Worker>(say("a")).id("wait").await.unwrap().completed().unwrap();
        assert_eq!(bench.entered(), ["wait"]);
        system.crash().await.unwrap();
        system.advance(Duration::from_secs(60)).await;
        assert_eq!(bench.count("start wait"), 2);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_run_answers_while_its_start_hook_hangs() {
    bounded(async {
        let (_system, agent, bench) = started(Hooked::default()).await;
        let run = agent.start::<Worker>(say("a")).id("wait").await.unwrap();
        bench.seen("start wait", 1).await;
        let inspection = run.inspect().await.unwrap().unwrap();
        assert_eq!(inspection.run.status, Status::Starting);
        assert!(agent.start::<Worker>(say("a")).id("wait").await.unwrap().already_existed());
        let other = agent.start::<Worker>(say("b")).id("wait").await.unwrap_err();
        assert!(matches!(other, Error::DifferentInput { .. }), "{other}");
        run.cancel("enough").await.unwrap();
        assert_eq!(aborted(run.outcome().await.unwrap()), "enough");
        assert!(bench.entered().is_empty());
        bench.open("start");
        bench.seen("finish wait aborted", 1).await;
        assert_eq!(agent.clear(&RunFilter::default()).await.unwrap(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_start_hook_may_cancel_its_run() {
    bounded(async {
        let (_system, agent, bench) = started(Hooked::default()).await;
        let end = agent.run::<Worker>(say("a")).id("cancel").await.unwrap();
        assert_eq!(aborted(end), "by the hook");
        assert!(bench.entered().is_empty());
        bench.seen("finish cancel aborted", 1).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_clear_does_not_wait_for_a_start_hook() {
    bounded(async {
        let (_system, agent, bench) = started(Hooked::default()).await;
        let run = agent.start::<Worker>(say("a")).id("wait").await.unwrap();
        bench.seen("start wait", 1).await;
        assert_eq!(agent.clear(&RunFilter::default()).await.unwrap(), 1);
        assert!(run.inspect().await.unwrap().is_none());
        bench.open("start");
        assert!(bench.entered().is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_no_start_hook() {
    bounded(async {
        let (mut system, agent, bench) = started(Hooked::default()).await;
        agent.start::<Worker>(say("a")).id("wait").await.unwrap();
        bench.seen("start wait", 1).await;
        let begin = tokio::time::Instant::now();
        assert_eq!(system.system().clone().shutdown().await, 0);
        assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
        bench.open("start");
        system.crash().await.unwrap();
        bench.seen("start wait", 2).await;
        bench.seen("finish wait completed", 1).await;
        assert_eq!(bench.count("enter wait"), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_leaves_memory_and_comes_back_while_a_start_hook_hangs() {
    bounded(async {
        let (_system, agent, bench) = started(Hooked::default()).await;
        let run = agent.start::<Worker>(say("a")).id("wait").await.unwrap();
        bench.seen("start wait", 1).await;
        let panicking = agent.turn(|_| async { panic!("a bug") }).await;
        assert!(matches!(panicking, Err(Error::AgentDown { .. })), "{panicking:?}");
        agent.run::<Worker>(say("b")).id("other").await.unwrap().completed().unwrap();
        bench.open("start");
        run.outcome().await.unwrap().completed().unwrap();
        assert_eq!(bench.count("enter wait"), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_finish_hook_is_called_once_for_every_end() {
    bounded(async {
        let (mut system, agent, bench) = started(Hooked::default()).await;
        agent.run::<Worker>(say("a")).id("ok").await.unwrap();
        agent.run::<Worker>(Do::Fail("no".into())).id("no").await.unwrap();
        let run = agent.start::<Worker>(Do::UntilCancelled).id("cut").await.unwrap();
        run.cancel("enough").await.unwrap();
        run.outcome().await.unwrap();
        let ends = ["finish ok completed", "finish no error", "finish cut aborted"];
        for end in ends {
            bench.seen(end, 1).await;
        }
        // A join, an eviction and a crash later there is still one call each.
        agent.run::<Worker>(say("a")).id("ok").await.unwrap();
        agent.evict().await.unwrap();
        agent.run::<Worker>(say("a")).id("ok").await.unwrap();
        system.advance(Duration::from_secs(600)).await;
        system.crash().await.unwrap();
        system.advance(Duration::from_secs(600)).await;
        for end in ends {
            assert_eq!(bench.count(end), 1, "{end}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_finish_hook_and_no_crash_loses_it() {
    bounded(async {
        let (mut system, agent, bench) = started(Hooked::default()).await;
        agent.run::<Worker>(say("a")).id("slow").await.unwrap().completed().unwrap();
        // The queue is held by the first hook; runs come and go all the same.
        agent.run::<Worker>(say("a")).id("second").await.unwrap().completed().unwrap();
        bench.seen("finish slow completed", 1).await;
        assert_eq!(bench.count("finish second completed"), 0, "one turn at a time");
        system.crash().await.unwrap();
        bench.seen("finish slow completed", 2).await;
        bench.open("finish");
        bench.seen("finish second completed", 1).await;
        system.advance(Duration::from_secs(600)).await;
        system.crash().await.unwrap();
        system.advance(Duration::from_secs(600)).await;
        assert_eq!(bench.count("finish slow completed"), 2);
        assert_eq!(bench.count("finish second completed"), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_delivery_is_tried_again_with_backoff_behind_the_others() {
    for panics in [false, true] {
        bounded(async {
            let bad = Arc::new(AtomicUsize::new(3));
            let hooked = Hooked { bad, panics, ..Hooked::default() };
            let (_system, agent, bench) = started(hooked).await;
            let begin = tokio::time::Instant::now();
            agent.run::<Worker>(say("a")).id("bad").await.unwrap().completed().unwrap();
            agent.run::<Worker>(say("a")).id("next").await.unwrap().completed().unwrap();
            bench.seen("good bad", 1).await;
            let took = begin.elapsed();
            assert!((7..8).contains(&took.as_secs()), "1 + 2 + 4 s, not {took:?}");
            assert_eq!(bench.count("finish bad completed"), 4, "panics: {panics}");
            let events = bench.events();
            let at = |event: &str| events.iter().position(|e| e == event).unwrap();
            assert!(at("finish next completed") < at("good bad"));
            assert_eq!(bench.count("finish next completed"), 1);
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_backs_off_survives_a_crash() {
    bounded(async {
        let bad = Arc::new(AtomicUsize::new(2));
        let (mut system, agent, bench) = started(Hooked { bad, ..Hooked::default() }).await;
        agent.run::<Worker>(say("a")).id("bad").await.unwrap();
        bench.seen("finish bad completed", 1).await;
        system.advance(Duration::from_millis(10)).await;
        let begin = tokio::time::Instant::now();
        system.crash().await.unwrap();
        bench.seen("good bad", 1).await;
        assert_eq!(bench.count("finish bad completed"), 3);
        assert!(begin.elapsed() >= Duration::from_millis(2900), "{:?}", begin.elapsed());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_hook_or_turn_disturbs_no_child() {
    bounded(async {
        let bad = Arc::new(AtomicUsize::new(1));
        let (_system, agent, bench) =
            started(Hooked { bad, panics: true, ..Hooked::default() }).await;
        let ids: Vec<_> = (0..100).map(|at| format!("r{at}")).collect();
        let waiting = join_all(ids.iter().map(|id| agent.run::<Worker>(hold("g")).id(id)));
        let trouble = async {
            bench.seen("enter r99", 1).await;
            agent.run::<Worker>(say("a")).id("bad").await.unwrap();
            bench.seen("good bad", 1).await;
            for _ in 0..20 {
                let begin = tokio::time::Instant::now();
                let down = agent.turn(|_| async { panic!("a bug") }).await;
                assert!(matches!(down, Err(Error::AgentDown { .. })), "{down:?}");
                // At once, and outside the restart intensity.
                agent.run::<Worker>(say("b")).await.unwrap().completed().unwrap();
                assert!(begin.elapsed() < Duration::from_millis(100), "{:?}", begin.elapsed());
            }
            bench.open("g");
        };
        let (ends, ()) = join(waiting, trouble).await;
        for end in ends {
            assert_eq!(end.unwrap().completed().unwrap(), "g");
        }
        for id in &ids {
            let info = agent.inspect(id).await.unwrap().unwrap().run;
            assert_eq!(info.attempt, 1);
            assert_eq!(bench.count(&format!("enter {id}")), 1);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_beside_the_first_commit_after_the_hook_is_durable_once_answered() {
    bounded(async {
        let hooked = Hooked::default();
        let bench = hooked.bench.clone();
        let worker = Worker { bench: bench.clone(), ..Worker::default() };
        let data = Data::new();
        let disk = data.disk(None).latency(Duration::from_millis(100));
        let builder = data.on(&disk).agent(hooked.clone()).child(worker.clone());
        let system = builder.start().await.unwrap();
        let agent = system.agent::<Hooked>("h").unwrap();
        let work = Do::Forever.step_first("s");
        let run = agent.start::<Worker>(work).id("x").await.unwrap();
        // Its first commit, which records that it is running, too, takes its time from here on.
        bench.seen("enter x", 1).await;
        run.cancel("enough").await.unwrap();
        system.crash().await;

        let system = data.builder().agent(hooked).child(worker).start().await.unwrap();
        let agent = system.agent::<Hooked>("h").unwrap();
        let run = agent.attach::<Worker>("x").await.unwrap().unwrap();
        assert_eq!(aborted(run.outcome().await.unwrap()), "enough");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_cancel_fails_before_it_is_entered_goes_on() {
    for clears in [false, true] {
        bounded(async {
            let (data, hooked) = (Data::new(), Hooked::default());
            let bench = hooked.bench.clone();
            let worker = Worker { bench: bench.clone(), ..Worker::default() };
            // The incarnation, the dispatch, the cancel.
            let disk = data.disk(Some((3, Fault::Refuse)));
            let system = data.on(&disk).agent(hooked).child(worker).start().await.unwrap();
            let agent = system.agent::<Hooked>("h").unwrap();
            let run = agent.start::<Worker>(say("a")).id("wait-a").await.unwrap();
            bench.seen("start wait-a", 1).await;
            let refused = match clears {
                true => agent.clear(&RunFilter::default()).await.unwrap_err(),
                false => run.cancel("enough").await.unwrap_err(),
            };
            assert!(matches!(refused, Error::Storage(_)), "{refused}");
            // Nobody asks for the run any more, and no idle agent looks for what it has left.
            bench.open("start");
            let entered = bench.seen("enter wait-a", 1);
            tokio::time::timeout(Duration::from_secs(1), entered).await.expect("entered at once");
            assert_eq!(run.outcome().await.unwrap().completed().unwrap(), "a");
        })
        .await;
    }
}

/// The parts of a system whose agent `h` is [`Hooked`].
async fn hooked_on(store: &MemoryStore, hooked: &Hooked) -> (System, AgentHandle<Hooked>) {
    let worker = Worker { bench: hooked.bench.clone(), ..Worker::default() };
    let builder = SystemBuilder::on_memory_store(store.reopen()).seed(1);
    let system = builder.agent(hooked.clone()).child(worker).start().await.unwrap();
    let agent = system.agent::<Hooked>("h").unwrap();
    (system, agent)
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_the_finish_hooks_that_are_due() {
    bounded(async {
        let (store, hooked) = (MemoryStore::new(), Hooked::default());
        let bench = hooked.bench.clone();
        let (system, agent) = hooked_on(&store, &hooked).await;
        // The hook of the first is at work, that of the second is due, and the third run ends later.
        for id in ["slow-1", "slow-2"] {
            agent.run::<Worker>(say("a")).id(id).await.unwrap();
        }
        agent.start::<Worker>(hold("g")).id("slow-3").await.unwrap();
        bench.seen("enter slow-3", 1).await;
        bench.seen("finish slow-1 completed", 1).await;
        let open = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            bench.open("g");
            tokio::time::sleep(Duration::from_secs(1)).await;
            bench.open("finish");
        };
        let begin = tokio::time::Instant::now();
        let (left, ()) = join(system.shutdown(), open).await;
        assert_eq!((left, begin.elapsed().as_secs()), (0, 2));
        let _next = hooked_on(&store, &hooked).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        for id in 1..=3 {
            assert_eq!(bench.count(&format!("finish slow-{id} completed")), 1, "slow-{id}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_no_longer_than_the_drain_for_a_hook_that_hangs() {
    bounded(async {
        let (store, hooked) = (MemoryStore::new(), Hooked::default());
        let bench = hooked.bench.clone();
        let (system, agent) = hooked_on(&store, &hooked).await;
        for id in ["slow-1", "2"] {
            agent.run::<Worker>(say("a")).id(id).await.unwrap();
        }
        bench.seen("finish slow-1 completed", 1).await;
        let begin = tokio::time::Instant::now();
        assert_eq!(system.shutdown().await, 0);
        assert_eq!(begin.elapsed().as_secs(), 10);
        assert_eq!(bench.count("finish 2 completed"), 0);
        bench.open("finish");
        let _next = hooked_on(&store, &hooked).await;
        bench.seen("finish 2 completed", 1).await;
        bench.seen("finish slow-1 completed", 2).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_in_a_start_hook_is_no_attempt() {
    bounded(async {
        let (store, hooked) = (MemoryStore::new(), Hooked::default());
        let bench = hooked.bench.clone();
        for time in 1..=12 {
            let (system, agent) = hooked_on(&store, &hooked).await;
            agent.start::<Worker>(hold("g")).id("wait").await.unwrap();
            bench.seen("start wait", time).await;
            system.crash().await;
        }
        bench.open("start");
        let (system, agent) = hooked_on(&store, &hooked).await;
        bench.seen("enter wait", 1).await;
        let run = agent.attach::<Worker>("wait").await.unwrap().unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let info = run.inspect().await.unwrap().unwrap().run;
        assert_eq!((info.status, info.attempt), (Status::Running, 1));
        system.crash().await;
        let (_system, agent) = hooked_on(&store, &hooked).await;
        bench.seen("enter wait", 2).await;
        let info = agent.inspect("wait").await.unwrap().unwrap().run;
        assert_eq!((info.status, info.attempt), (Status::Running, 2));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn code_that_takes_the_process_down_at_once_is_not_entered_for_ever() {
    bounded(async {
        let (data, hooked) = (Data::new(), Hooked::default());
        let bench = hooked.bench.clone();
        for time in 1.. {
            let recovery = RecoveryPolicy { attempts_max: 3, ..RecoveryPolicy::default() };
            let worker = Worker { bench: bench.clone(), recovery, ..Worker::default() };
            // Nothing that the run's actor commits is there before the crash.
            let disk = data.disk(None).latency(Duration::from_millis(10));
            let system = data.on(&disk).agent(hooked.clone()).child(worker).start().await.unwrap();
            let agent = system.agent::<Hooked>("h").unwrap();
            let run = agent.start::<Worker>(Do::Forever).id("a").await.unwrap();
            let ended = tokio::select! {
                () = bench.seen("enter a", time) => None,
                ended = run.outcome() => Some(ended.unwrap()),
            };
            if let Some(ended) = ended {
                assert_eq!(failed(ended).kind.as_deref(), Some("attempts-exhausted"));
                // The first one may have been the hook's.
                assert_eq!(time, 3 + 1 + 1);
                break;
            }
            system.crash().await;
        }
    })
    .await;
}
