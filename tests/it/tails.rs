//! Tails: replay, then live, at any cut.

use std::sync::{Arc, OnceLock};

use futures_util::future::join;
use ghostlight::frame::{Frame, FrameEvent, ReservedBody};
use ghostlight::prelude::*;
use ghostlight::protocol::RunKey;
use ghostlight::storage::{self, Batch, Key, MemoryStore, Store};
use ghostlight::{Error, RunInfo, SystemBuilder};
use tokio::time::{Instant, timeout};

use crate::bench::{Bench, Worker, bounded, hold, say};
use crate::support::Assistant;
use crate::support::code::{Code, Data, assistant, code};

const LIMIT: Duration = Duration::from_secs(3600);

async fn all(tail: &mut ghostlight::Tail) -> Vec<Frame> {
    let mut frames = Vec::new();
    let end = timeout(LIMIT, async {
        while let Some(frame) = tail.next().await {
            frames.push((*frame.unwrap()).clone());
        }
    });
    end.await.expect("the tail ends");
    frames
}

fn numbers(frames: &[Frame]) -> Vec<u64> {
    frames.iter().map(|frame| frame.sequence).collect()
}

/// Emits so many chunks, one in a millisecond.
fn emitter() -> Code {
    code(|cx, chunks| {
        Box::pin(async move {
            for n in 0..chunks.as_u64().unwrap_or(0) {
                cx.emit(json!({ "type": "data-n", "n": n })).await?;
                cx.sleep(Duration::from_millis(1)).await;
            }
            Ok(json!(null))
        })
    })
}

#[tokio::test(start_paused = true)]
async fn a_tail_begun_anywhere_at_any_time_has_no_gap_and_no_repeat() {
    let data = Data::new();
    let system = data.start(emitter()).await;
    let run = assistant(&system).start::<Code>(json!(50)).id("r").await.unwrap();
    let mut readers = Vec::new();
    for after in 0..52u64 {
        let mut tail = run.tail(After::number(after));
        readers.push(tokio::spawn(async move { (after, all(&mut tail).await) }));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for reader in readers {
        let (after, frames) = reader.await.unwrap();
        assert_eq!(numbers(&frames), (after + 1..=51).collect::<Vec<_>>(), "after {after}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tail_after_the_end_is_over() {
    let data = Data::new();
    let system = data.start(emitter()).await;
    let run = assistant(&system).start::<Code>(json!(3)).id("r").await.unwrap();
    run.outcome().await.unwrap();
    assert_eq!(numbers(&all(&mut run.tail(After::number(3))).await), [4]);
    for beyond in [4, 5, u64::MAX] {
        assert_eq!(numbers(&all(&mut run.tail(After::number(beyond))).await), [0u64; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_is_caught_up_from_the_log_and_slows_nobody() {
    let chunks = 5000;
    let data = Data::new();
    let child = code(|cx, chunks| {
        Box::pin(async move {
            for n in 0..chunks.as_u64().unwrap_or(0) {
                cx.emit(json!({ "type": "data-n", "n": n })).await?;
            }
            Ok(json!(null))
        })
    });
    let system = data.start(child).await;
    let run = assistant(&system).start::<Code>(json!(chunks)).id("r").await.unwrap();
    let mut slow = run.tail(After::START);
    assert_eq!(slow.next().await.unwrap().unwrap().sequence, 0);
    drop(run.tail(After::START));
    let mut dropped = run.tail(After::START);
    let _ = dropped.next().await;
    drop(dropped);
    run.outcome().await.unwrap().completed().unwrap();
    assert_eq!(numbers(&all(&mut slow).await), (1..=chunks + 1).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_tail_goes_on_across_suspension_and_the_death_of_the_parent() {
    let data = Data::new();
    let child = code(|cx, _| {
        Box::pin(async move {
            for n in 0..3 {
                cx.emit(json!({ "type": "data-n", "n": n })).await?;
                cx.sleep(Duration::from_secs(100)).await;
            }
            Ok(json!(null))
        })
    });
    let system = data.start(child).await;
    let parent = assistant(&system);
    let run = parent.start::<Code>(json!(null)).id("r").await.unwrap();
    let mut tail = run.tail(After::START);
    let reader = tokio::spawn(async move { all(&mut tail).await });
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(system.live_runs(), 0, "suspended");
    parent.agent_ref().evict().await.unwrap();
    tokio::time::sleep(Duration::from_secs(100)).await;
    let panicked = parent.turn(async |_| panic!("on purpose")).await;
    assert!(panicked.is_err());
    assert_eq!(numbers(&reader.await.unwrap()), [0, 1, 2, 3, 4]);
}

/// When each progress frame came, and its fraction.
async fn progress_of(run: &Run<Code>) -> (Vec<(u64, f64)>, Vec<Frame>) {
    let begin = Instant::now();
    let mut tail = run.tail(After::START);
    let (mut progress, mut frames) = (Vec::new(), Vec::new());
    while let Some(frame) = tail.next().await {
        let frame = (*frame.unwrap()).clone();
        if let FrameEvent::Chunk { body, .. } = &frame.event
            && let Some(ReservedBody::Progress(data)) = ReservedBody::parse(body)
        {
            progress.push((begin.elapsed().as_millis() as u64, data.fraction.unwrap()));
        }
        frames.push(frame);
    }
    (progress, frames)
}

#[tokio::test(start_paused = true)]
async fn progress_is_coalesced_and_the_newest_always_comes() {
    let data = Data::new();
    let child = code(|cx, _| {
        Box::pin(async move {
            cx.step("all", async || {
                for n in 0..=50u64 {
                    cx.progress(Progress::fraction(n as f64 / 100.0));
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                tokio::time::sleep(Duration::from_millis(1000)).await;
                cx.progress(Progress::fraction(0.9));
                tokio::time::sleep(Duration::from_millis(10)).await;
                cx.progress(Progress::fraction(1.0));
                tokio::time::sleep(Duration::from_millis(10)).await;
                cx.progress(Progress::fraction(0.99).message("last"));
                Ok(())
            })
            .await?;
            Ok(json!(null))
        })
    });
    let system = data.start(child).await;
    let run = assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
    let (progress, frames) = timeout(LIMIT, progress_of(&run)).await.unwrap();
    let fractions: Vec<f64> = progress.iter().map(|(_, fraction)| *fraction).collect();
    assert_eq!(fractions, [0.0, 0.2, 0.4, 0.5, 0.9, 1.0, 0.99], "{progress:?}");
    let held_back = &progress[..5];
    for pair in held_back.windows(2) {
        assert!(pair[1].0 - pair[0].0 >= 199, "at most one in 200 ms: {progress:?}");
    }
    assert!(progress[5].0 - progress[4].0 <= 11, "a whole is never held back: {progress:?}");
    assert!(frames.last().unwrap().event.is_hard_end(), "what is left comes before the end");
}

#[tokio::test(start_paused = true)]
async fn frames_are_those_of_the_contract() {
    let data = Data::new();
    let child = code(|cx, _| {
        Box::pin(async move {
            cx.emit(json!({ "type": "text-delta", "delta": "hi" })).await?;
            cx.milestone("gathered", json!({ "n": 1 })).await?;
            cx.progress(Progress::fraction(0.6).message("m").phase("reading").data(json!({})));
            Ok(json!("the result"))
        })
    });
    let system = data.start(child).await;
    let run = assistant(&system)
        .start::<Code>(json!({ "query": "x" }))
        .id("r1")
        .parent_tool_call_id("call_1")
        .display(json!({ "name": "Researcher" }))
        .await
        .unwrap();
    let frames: Vec<String> =
        all(&mut run.tail(After::START)).await.iter().map(Frame::to_json).collect();
    let frame = |sequence: u64, event: &str| {
        format!(
            r#"{{"type":"agent-tool-event","parentToolCallId":"call_1","sequence":{sequence},"event":{event}}}"#
        )
    };
    assert_eq!(
        frames,
        [
            frame(
                0,
                r#"{"kind":"started","runId":"r1","agentType":"Code","inputPreview":"{\"query\":\"x\"}","order":0,"display":{"name":"Researcher"}}"#
            ),
            frame(
                1,
                r#"{"kind":"chunk","runId":"r1","body":"{\"type\":\"text-delta\",\"delta\":\"hi\"}"}"#
            ),
            frame(
                2,
                r#"{"kind":"chunk","runId":"r1","body":"{\"type\":\"data-agent-milestone\",\"data\":{\"name\":\"gathered\",\"sequence\":0,\"at\":1767225600000,\"data\":{\"n\":1}}}"}"#
            ),
            frame(
                3,
                r#"{"kind":"chunk","runId":"r1","body":"{\"type\":\"data-agent-progress\",\"transient\":true,\"data\":{\"fraction\":0.6,\"message\":\"m\",\"phase\":\"reading\",\"data\":{},\"at\":1767225600000}}"}"#
            ),
            frame(4, r#"{"kind":"finished","runId":"r1","summary":"the result"}"#),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn long_texts_are_cut_with_a_marker() {
    let data = Data::new();
    let child = code(|_, ok| {
        Box::pin(async move {
            match ok.as_bool() {
                Some(true) => Ok(json!("ü".repeat(10_000))),
                _ => Err(RunError::new("ü".repeat(10_000))),
            }
        })
    });
    let system = data.start(child).await;
    for ok in [true, false] {
        let run = assistant(&system).start::<Code>(json!(ok)).await.unwrap();
        let frames = all(&mut run.tail(After::START)).await;
        let text = match &frames.last().unwrap().event {
            FrameEvent::Finished { summary: text, .. } | FrameEvent::Error { error: text, .. } => {
                text.clone()
            }
            other => panic!("{other:?}"),
        };
        assert!(text.len() <= 4096 && text.len() > 4000, "{} bytes", text.len());
        if ok {
            let output = run.outcome().await.unwrap().completed().unwrap();
            assert_eq!(output.as_str().unwrap().len(), 20_000, "outputs are not cut");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_code_of_a_run_reads_a_tail_in_a_step_only() {
    let root: Arc<OnceLock<AgentHandle<Assistant>>> = Arc::default();
    let captured = Arc::clone(&root);
    let child = code(move |cx, input| {
        let root = Arc::clone(&captured);
        Box::pin(async move {
            if input == "child" {
                for n in 0..3 {
                    cx.sleep(Duration::from_secs(10)).await;
                    cx.emit(json!(n)).await?;
                }
                return Ok(json!(null));
            }
            let run = match root.get() {
                Some(root) => root.start::<Code>(json!("child")).id("child").await?,
                None => cx.agent::<Code>().start::<Code>(json!("child")).await?,
            };
            if let Some(root) = root.get() {
                let refused = root.tail("child", After::START).await.err();
                assert!(matches!(refused, Some(Error::TailOutsideStep(_))), "{refused:?}");
            }
            let mut tail = run.tail(After::START);
            let first = tail.next().await;
            assert!(matches!(first, Some(Err(Error::TailOutsideStep(_)))), "{first:?}");
            assert!(tail.next().await.is_none());
            let read = cx.step("read", async || {
                let (mut tail, mut chunks) = (run.tail(After::START), 0);
                while let Some(frame) = tail.next().await {
                    if let FrameEvent::Chunk { .. } = frame?.event {
                        cx.emit(json!("forwarded")).await?;
                        chunks += 1;
                    }
                }
                Ok(chunks)
            });
            let (end, read) = tokio::join!(run.outcome(), read);
            cx.sleep(Duration::from_secs(60)).await;
            Ok(json!([end?.status().to_string(), read?]))
        })
    });
    let data = Data::new();
    let system = data.start(child).await;
    for of in ["own", "captured"] {
        let run = assistant(&system).start::<Code>(json!("parent")).id(of).await.unwrap();
        let (mut tail, begin) = (run.tail(After::START), Instant::now());
        tail.next().await.unwrap().unwrap();
        for n in 1..=3 {
            tail.next().await.unwrap().unwrap();
            assert_eq!(begin.elapsed().as_secs(), n * 10, "it stays in memory to read");
        }
        let end = timeout(LIMIT, run.outcome()).await.unwrap().unwrap();
        assert_eq!(end.completed().unwrap(), json!(["completed", 3]), "{of}");
        let _ = root.set(system.agent::<Assistant>("b").unwrap());
    }
}

/// A parent with a start hook, and one slot.
struct Hooked(Bench);

impl Agent for Hooked {
    const TYPE: &'static str = "Hooked";

    fn settings(&self) -> AgentSettings {
        AgentSettings {
            max_concurrent_runs: Some(1),
            at_cap: AtCap::Queue,
            ..AgentSettings::default()
        }
    }

    fn callbacks(callbacks: &mut Callbacks<Self>) {
        callbacks.on_run_start(Self::started);
    }
}

impl Hooked {
    async fn started(&self, _: &ghostlight::AgentContext, run: RunInfo) -> Result<(), RunError> {
        self.0.note(format!("hook {}", run.run_id));
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_queued_run_is_shown_only_after_its_start_hook() {
    bounded(async {
        let worker = Worker::default();
        let bench = worker.bench.clone();
        let builder = System::in_memory().seed(1).agent(Hooked(bench.clone())).child(worker);
        let system = builder.start().await.unwrap();
        let hooked = system.agent::<Hooked>("h").unwrap();
        hooked.start::<Worker>(hold("g")).id("first").await.unwrap();
        hooked.start::<Worker>(say("b")).id("second").await.unwrap();
        hooked.start::<Worker>(say("c")).id("third").await.unwrap();
        let shown = async |id: &str| {
            let run = hooked.attach::<Worker>(id).await.unwrap().unwrap();
            let mut tail = run.tail(After::START);
            let frame = tail.next().await.unwrap().unwrap();
            (frame.sequence, bench.count(&format!("hook {id}")))
        };
        let mut shows = Box::pin(join(shown("second"), shown("third")));
        let early = tokio::time::timeout(Duration::from_secs(60), &mut shows).await;
        assert!(early.is_err(), "{early:?}");
        // One that ends before needs no hook.
        hooked.cancel("third", "enough").await.unwrap();
        bench.open("g");
        assert_eq!(shows.await, ((0, 1), (0, 0)));
    })
    .await;
}

/// Lets a run of six chunks end, deletes the records of its log that `choose` names, and returns what
/// a tail and a page of frames say.
async fn with_records_missing(choose: fn(usize) -> usize) -> [Error; 2] {
    let store = MemoryStore::new();
    let child = code(|cx, _| {
        Box::pin(async move {
            for n in 0..6 {
                cx.emit(n).await?;
                cx.flush().await;
            }
            Ok(json!(null))
        })
    });
    let builder = SystemBuilder::on_memory_store(store.clone()).agent(Assistant);
    let system = builder.child(child).start().await.unwrap();
    let agent = system.agent::<Assistant>("a").unwrap();
    let run = agent.start::<Code>(json!(null)).id("r").await.unwrap();
    run.outcome().await.unwrap().completed().unwrap();
    let log = Key::log(RunKey::new(agent.path(), &"r".parse().unwrap()));
    let limit = storage::Limit { entries: 100, bytes: 1 << 20 };
    let records = store.scan(log.as_bytes(), None, limit).unwrap();
    let key = records[choose(records.len())].key.clone();
    store.commit(&[Batch::new().delete(key)]).unwrap()[0].as_ref().unwrap();

    let mut tail = run.tail(After::START);
    let tailed = async {
        loop {
            if let Err(error) = tail.next().await.expect("an error before the end") {
                return error;
            }
        }
    };
    let tailed = timeout(Duration::from_secs(60), tailed).await.expect("an answer");
    let page = agent.agent_ref().frames("r", After::START, 100);
    let paged = timeout(Duration::from_secs(60), page).await.expect("an answer").unwrap_err();
    system.crash().await;
    [tailed, paged]
}

#[tokio::test(start_paused = true)]
async fn frames_that_the_log_has_lost_are_a_typed_error() {
    for choose in [|records| records - 1, |records: usize| records / 2] {
        for error in with_records_missing(choose).await {
            let corrupt = matches!(error, Error::Storage(storage::Error::Corrupt { .. }));
            assert!(corrupt && error.to_string().contains("missing"), "{error:?}");
        }
    }
}
