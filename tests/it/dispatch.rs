//! Awaited dispatch: one execution an id, and nothing is written for what is refused.

use futures_util::future::join_all;
use ghostlight::prelude::*;
use ghostlight::protocol::RunKey;
use ghostlight::storage::Key as StoreKey;
use ghostlight::{DispatchOptions, Error, RunCall, RunFilter, SystemBuilder, frame::FrameEvent};
use serde_json::Value;

use crate::bench::{Bench, Do, Worker, bounded, failed, hold, say};
use crate::support::code::{Code, Data, assistant, code};
use crate::support::unreadable::Unreadable;
use crate::support::{Adder, Assistant};

async fn started() -> (System, AgentHandle<Assistant>, Bench) {
    let worker = Worker::default();
    let bench = worker.bench.clone();
    let system =
        System::in_memory().seed(1).agent(Assistant).child(worker).child(Adder).start().await;
    let system = system.unwrap();
    let assistant = system.agent::<Assistant>("a").unwrap();
    (system, assistant, bench)
}

#[tokio::test(start_paused = true)]
async fn parallel_dispatches_of_an_id_are_one_execution() {
    bounded(async {
        let (_system, assistant, bench) = started().await;
        let calls = join_all((0..50).map(|_| assistant.run::<Worker>(hold("g")).id("x")));
        let open = async {
            bench.seen("enter x", 1).await;
            bench.open("g");
        };
        let (ends, ()) = futures_util::future::join(calls, open).await;
        for end in ends {
            assert_eq!(end.unwrap().completed().unwrap(), "g");
        }
        assert_eq!(bench.entered(), ["x"]);
        let late = assistant.start::<Worker>(hold("g")).id("x").await.unwrap();
        assert!(late.already_existed());
        let first = assistant.start::<Worker>(hold("g")).id("y").await.unwrap();
        assert!(!first.already_existed());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stored_result_is_returned_and_nothing_is_executed_or_written() {
    bounded(async {
        let (system, assistant, bench) = started().await;
        for (id, work) in [
            ("ok", say("hello")),
            ("bad", Do::Fail("no".into())),
            ("panic", Do::Panic("ouch".into())),
        ] {
            let first = assistant.run::<Worker>(work.clone()).id(id).await.unwrap();
            let frames = assistant.inspect(id).await.unwrap().unwrap().next_sequence;
            let commits = system.commits().commits;
            for _ in 0..3 {
                let again = assistant.run::<Worker>(work.clone()).id(id).await.unwrap();
                assert_eq!(again, first);
            }
            let inspection = assistant.inspect(id).await.unwrap().unwrap();
            assert_eq!(inspection.next_sequence, frames, "{id}: no frame");
            assert_eq!(system.commits().commits, commits, "{id}: nothing is written");
        }
        assert_eq!(bench.entered(), ["ok", "bad", "panic"]);

        let run = assistant.start::<Worker>(Do::UntilCancelled).id("cut").await.unwrap();
        run.cancel("enough").await.unwrap();
        let first = run.outcome().await.unwrap();
        let again = assistant.run::<Worker>(Do::UntilCancelled).id("cut").await.unwrap();
        assert_eq!(again, first);
        assert_eq!(bench.count("enter cut"), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_keeps_its_kind_and_a_panic_its_place() {
    bounded(async {
        let (_system, assistant, _bench) = started().await;
        let failure = failed(assistant.run::<Worker>(Do::Fail("no".into())).await.unwrap());
        assert_eq!((&*failure.message, failure.kind.as_deref()), ("no", Some("told-to")));
        let failure = failed(assistant.run::<Worker>(Do::Panic("ouch".into())).await.unwrap());
        assert_eq!(failure.kind.as_deref(), Some("panic"));
        assert!(failure.message.contains("ouch"), "{failure}");
        assert!(failure.message.contains("tests/it/bench.rs:"), "{failure}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_id_is_refused_to_another_run_while_it_works_and_after_it() {
    bounded(async {
        let (system, assistant, bench) = started().await;
        let run = assistant.start::<Worker>(hold("g")).id("x").await.unwrap();
        bench.seen("enter x", 1).await;
        for ended in [false, true] {
            if ended {
                bench.open("g");
                run.outcome().await.unwrap();
            }
            let commits = system.commits().commits;
            let other = assistant.run::<Worker>(say("b")).id("x").await.unwrap_err();
            assert!(matches!(&other, Error::DifferentInput { run_id } if run_id == "x"), "{other}");
            let other = assistant.run::<Adder>(vec![1]).id("x").await.unwrap_err();
            assert!(
                matches!(&other, Error::WrongType { actual, asked, .. }
                    if actual == "Worker" && asked == "Adder"),
                "{other}"
            );
            let other = assistant.start::<Worker>(hold("g")).id("x").detached().await.unwrap_err();
            assert!(matches!(other, Error::DifferentMode { was: "awaited", .. }), "{other}");
            assert!(assistant.attach::<Adder>("x").await.is_err());
            assert_eq!(system.commits().commits, commits, "ended: {ended}");
        }
        let detached = assistant.start::<Worker>(say("a")).id("d").detached().await.unwrap();
        let other = assistant.run::<Worker>(say("a")).id("d").await.unwrap_err();
        assert!(matches!(other, Error::DifferentMode { was: "detached", .. }), "{other}");
        let again = assistant.start::<Worker>(say("a")).id("d").detached().await.unwrap();
        assert!(again.already_existed());
        assert_eq!(detached.outcome().await.unwrap().completed().unwrap(), "a");
        assert_eq!(bench.entered(), ["x", "d"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cleared_id_is_never_used_again() {
    bounded(async {
        let (_system, assistant, bench) = started().await;
        assistant.run::<Worker>(say("a")).id("x").await.unwrap();
        assert_eq!(assistant.clear(&RunFilter::default()).await.unwrap(), 1);
        for work in [say("a"), say("b")] {
            let refused = assistant.run::<Worker>(work).id("x").await.unwrap_err();
            assert!(matches!(&refused, Error::Cleared(id) if id == "x"), "{refused}");
        }
        assert!(assistant.attach::<Worker>("x").await.unwrap().is_none());
        assert!(assistant.inspect("x").await.unwrap().is_none());
        assert_eq!(bench.entered(), ["x"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_fresh_id_has_twelve_letters_and_digits() {
    bounded(async {
        let (_system, assistant, _bench) = started().await;
        let mut ids = std::collections::BTreeSet::new();
        for _ in 0..100 {
            let run = assistant.start::<Worker>(say("a")).await.unwrap();
            let id = run.id().to_owned();
            assert_eq!(id.len(), 12);
            assert!(id.chars().all(|c| c.is_ascii_alphanumeric()), "{id}");
            assert!(ids.insert(id));
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_leaves_nothing_behind() {
    bounded(async {
        let (system, assistant, bench) = started().await;
        // The agent comes into memory, and reads.
        assert!(assistant.inspect("none").await.unwrap().is_none());
        let commits = system.commits().commits;
        let options = DispatchOptions::default;
        let agent = assistant.agent_ref();
        let json = serde_json::to_value(say("a")).unwrap();

        let refused = agent.dispatch_json("Nobody", &json, options()).await.unwrap_err();
        let Error::UnknownType { asked, registered } = &refused else { panic!("{refused}") };
        assert_eq!(asked, "Nobody");
        assert_eq!(*registered, ["Adder", "Assistant", "Worker"]);
        let refused = agent.dispatch_json("Assistant", &json, options()).await.unwrap_err();
        assert!(matches!(refused, Error::NotAChild(_)), "{refused}");

        for id in ["", ".", "..", "a\0b", &"x".repeat(257)] {
            let refused = assistant.run::<Worker>(say("a")).id(id).await.unwrap_err();
            assert!(matches!(refused, Error::Id(_)), "{id:?}: {refused}");
        }

        let large = say(&"x".repeat(1 << 20));
        let refused = assistant.run::<Worker>(large).await.unwrap_err();
        assert!(matches!(refused, Error::TooLarge(_)), "{refused}");
        let large = Value::String("x".repeat(5 << 10));
        let refused = assistant.run::<Worker>(say("a")).input_preview(large.clone()).await;
        assert!(matches!(refused, Err(Error::TooLarge(_))), "{refused:?}");
        let refused = assistant.run::<Worker>(say("a")).display(json!({ "name": large })).await;
        assert!(matches!(refused, Err(Error::TooLarge(_))), "{refused:?}");
        let refused = assistant.run::<Worker>(say("a")).parent_tool_call_id("x".repeat(257)).await;
        assert!(matches!(refused, Err(Error::TooLarge(_))), "{refused:?}");

        assert_eq!(system.commits().commits, commits, "nothing was written");
        assert!(system.agents().await.unwrap().is_empty());
        assert!(bench.events().is_empty());
        assert!(system.agent::<Capless>("a").is_err());
    })
    .await;
}

struct Capless;

impl Agent for Capless {
    const TYPE: &'static str = "Capless";
}

#[tokio::test(start_paused = true)]
async fn any_other_text_is_an_id() {
    bounded(async {
        let (_system, assistant, _bench) = started().await;
        for id in ["x".repeat(256), "a/b%2F c".into(), "…".into(), " ".into(), "...".into()] {
            let end = assistant.run::<Worker>(say(&id)).id(&id).await.unwrap();
            assert_eq!(end.completed().unwrap(), id);
            assert!(assistant.has_run::<Worker>(&id).await.unwrap());
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn input_that_does_not_fit_fails_the_run() {
    bounded(async {
        let (_system, assistant, bench) = started().await;
        let agent = assistant.agent_ref();
        let options = DispatchOptions { id: Some("x".into()), ..DispatchOptions::default() };
        agent.dispatch_json("Worker", &json!({ "nonsense": 1 }), options).await.unwrap();
        let run = assistant.attach::<Worker>("x").await.unwrap().unwrap();
        let failure = failed(run.outcome().await.unwrap());
        assert_eq!(failure.kind.as_deref(), Some("invalid-input"));
        assert!(failure.permanent);
        assert!(failure.message.contains("Worker"), "{failure}");
        assert!(bench.events().is_empty());
    })
    .await;
}

async fn preview_of(assistant: &AgentHandle<Assistant>, input: &Value) -> Option<Value> {
    let agent = assistant.agent_ref();
    let (id, _) = agent.dispatch_json("Worker", input, DispatchOptions::default()).await.unwrap();
    assistant.inspect(&id).await.unwrap().unwrap().run.input_preview
}

#[tokio::test(start_paused = true)]
async fn a_preview_derives_from_the_input() {
    bounded(async {
        let (_system, assistant, _bench) = started().await;
        let long = "x".repeat(600);
        let pairs = "😀".repeat(300);
        let list = json!([long]);
        let list_text = format!("{}...", &list.to_string()[..497]);
        for (input, preview) in [
            (json!("short"), json!("short")),
            (json!(long), json!("x".repeat(500))),
            (json!(pairs), json!("😀".repeat(250))),
            (json!(null), json!(null)),
            (json!({ "b": 1, "a": [true] }), json!(r#"{"b":1,"a":[true]}"#)),
            (json!(17), json!("17")),
            (list, json!(list_text)),
        ] {
            assert_eq!(preview_of(&assistant, &input).await, Some(preview), "{input}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn frame_and_registry_carry_what_the_caller_gave() {
    bounded(async {
        let (_system, assistant, _bench) = started().await;
        let given = json!("y".repeat(3000));
        let display = json!({ "name": "Importer", "icon": "box", "more": [1] });
        let run = assistant
            .start::<Worker>(say("a"))
            .id("x")
            .parent_tool_call_id("call_1")
            .display_order(-3)
            .display(display.clone())
            .input_preview(given.clone())
            .await
            .unwrap();
        run.outcome().await.unwrap();
        let info = run.inspect().await.unwrap().unwrap().run;
        assert_eq!(info.parent_tool_call_id.as_deref(), Some("call_1"));
        assert_eq!(info.display_order, -3);
        assert_eq!(info.display, Some(display.clone()));
        assert_eq!(info.input_preview, Some(given.clone()), "a given preview is not cut");
        assert_eq!(info.summary.as_deref(), Some("a"));
        let row = serde_json::to_value(&info).unwrap();
        assert_eq!(row["parentToolCallId"], "call_1");
        assert_eq!(row["displayOrder"], -3);
        assert_eq!(row["status"], "completed");
        assert_eq!(row["agentType"], "Worker");

        let mut tail = run.tail(ghostlight::After::START);
        let mut sequences = Vec::new();
        while let Some(frame) = tail.next().await {
            let frame = frame.unwrap();
            assert_eq!(frame.parent_tool_call_id.as_deref(), Some("call_1"));
            sequences.push(frame.sequence);
            if let FrameEvent::Started { run_id, agent_type, input_preview, order, display: d } =
                &frame.event
            {
                assert_eq!((&**run_id, &**agent_type, *order), ("x", "Worker", -3));
                assert_eq!((input_preview.as_ref(), d.as_ref()), (Some(&given), Some(&display)));
            }
        }
        assert_eq!(sequences, [0, 1]);

        let run = assistant.start::<Worker>(say("b")).input_preview(json!(null)).await.unwrap();
        let info = run.inspect().await.unwrap().unwrap().run;
        assert_eq!(info.input_preview, Some(json!(r#"{"Say":"b"}"#)), "null falls back");
        assert_eq!(info.parent_tool_call_id, None, "unbound");
        let row = serde_json::to_value(&info).unwrap();
        assert!(row.get("parentToolCallId").is_none() && row.get("display").is_none());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_joined_caller_does_not_need_the_first_one() {
    bounded(async {
        let (_system, assistant, bench) = started().await;
        let first = {
            let assistant = assistant.clone();
            tokio::spawn(async move { assistant.run::<Worker>(hold("g")).id("x").await })
        };
        bench.seen("enter x", 1).await;
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        let open = async { bench.open("g") };
        let call = assistant.run::<Worker>(hold("g")).id("x");
        let (end, ()) = futures_util::future::join(call, open).await;
        assert_eq!(end.unwrap().completed().unwrap(), "g");
        assert_eq!(bench.entered(), ["x"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_live_run_answers_a_dispatch_of_its_id_itself() {
    bounded(async {
        let (store, worker) = (Unreadable::default(), Worker::default());
        let bench = worker.bench.clone();
        let builder = SystemBuilder::on_backend(store.clone()).agent(Assistant);
        let system = builder.child(worker).child(Adder).start().await.unwrap();
        let assistant = system.agent::<Assistant>("a").unwrap();
        let run = assistant.start::<Worker>(hold("g")).id("x").await.unwrap();
        bench.seen("enter x", 1).await;
        // The store is not asked: the run's actor knows.
        store.fail(StoreKey::record(RunKey::new(assistant.path(), &"x".parse().unwrap())), 1);
        assert!(assistant.start::<Worker>(hold("g")).id("x").await.unwrap().already_existed());
        let refused = [
            assistant.start::<Worker>(hold("h")).id("x").await.unwrap_err(),
            assistant.start::<Worker>(hold("g")).id("x").detached().await.unwrap_err(),
            assistant.start::<Adder>(vec![1]).id("x").await.unwrap_err(),
        ];
        assert!(matches!(&refused[0], Error::DifferentInput { .. }), "{refused:?}");
        assert!(matches!(&refused[1], Error::DifferentMode { was: "awaited", .. }), "{refused:?}");
        assert!(matches!(&refused[2], Error::WrongType { .. }), "{refused:?}");
        assert!(store.failed_at().is_empty());
        bench.open("g");
        run.outcome().await.unwrap_err();
        assert_eq!(run.outcome().await.unwrap().completed().unwrap(), "g");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_cancels_no_run_but_its_own() {
    bounded(async {
        let (_system, assistant, bench) = started().await;
        let theirs = assistant.start::<Worker>(hold("g")).id("x").await.unwrap();
        bench.seen("enter x", 1).await;
        let dropped = async |call: RunCall<Assistant, Worker>| {
            let call = call.id("x").cancel_on_drop();
            assert!(tokio::time::timeout(Duration::ZERO, call).await.is_err());
            tokio::time::sleep(Duration::from_secs(60)).await;
        };
        dropped(assistant.run::<Worker>(say("other input"))).await;
        assert_eq!(theirs.inspect().await.unwrap().unwrap().run.status, Status::Running);
        // The same run, on the other hand, is whose of both.
        dropped(assistant.run::<Worker>(hold("g"))).await;
        assert_eq!(theirs.outcome().await.unwrap().status(), Status::Aborted);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_seed_makes_other_ids_after_a_restart() {
    let data = Data::new();
    for _ in 0..3 {
        let system = data.start(code(|_, _| Box::pin(async move { Ok(json!(null)) }))).await;
        let run = assistant(&system).start::<Code>(json!(null)).await.unwrap();
        assert!(!run.already_existed(), "{:?} is an old run's", run.id());
        run.outcome().await.unwrap().completed().unwrap();
        system.crash().await;
    }
}
