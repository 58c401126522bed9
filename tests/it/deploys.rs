//! Other code at the place of what is recorded: a run never takes one result for another.

use ghostlight::prelude::*;
use ghostlight::{Inspection, InterruptReason};

use crate::support::code::{Code, Data, assistant, begin, code, until};

/// What the code of a run waits for.
#[derive(Clone, Copy)]
enum Ask {
    Run(&'static str, u64),
    Start(&'static str, u64),
    StartThenOutcome(&'static str),
    Milestone(&'static str),
    /// A milestone that does not come, within so many seconds.
    Within(&'static str, u64),
    /// A sleep of so many seconds.
    Sleep(u64),
}

/// Children end with their input at once, as numbers, and never as texts. Whatever else the code asks
/// for, it sleeps a long time afterwards, so that it is still there to be entered by other code.
fn asks(ask: Ask) -> Code {
    code(move |cx, input| {
        Box::pin(async move {
            match input {
                Value::Number(number) => return Ok(Value::Number(number)),
                Value::String(_) => std::future::pending::<()>().await,
                _ => {}
            }
            let me = cx.agent::<Code>();
            let told = match ask {
                Ask::Run(id, input) => me.run::<Code>(json!(input)).id(id).await?.completed()?,
                Ask::Start(id, input) => {
                    json!(me.start::<Code>(json!(input)).id(id).await?.already_existed())
                }
                Ask::StartThenOutcome(id) => {
                    me.start::<Code>(json!(1)).id("a").await?;
                    me.start::<Code>(json!(1)).id("b").await?;
                    let run = me.attach::<Code>(id).await?.ok_or("no run")?;
                    run.outcome().await?.completed()?
                }
                Ask::Milestone(name) => {
                    let run = me.start::<Code>(json!(1)).id("a").await?;
                    json!(run.milestone(name).await.is_err())
                }
                Ask::Within(name, seconds) => {
                    let run = me.start::<Code>(json!("open")).id("open").await?;
                    let told = run.milestone_within(name, Duration::from_secs(seconds)).await;
                    json!(told.is_err())
                }
                Ask::Sleep(seconds) => {
                    me.start::<Code>(json!("open")).id("open").await?;
                    cx.sleep(Duration::from_secs(seconds)).await;
                    json!("slept")
                }
            };
            cx.milestone("told", told).await?;
            cx.sleep(Duration::from_secs(100)).await;
            Ok(json!("end"))
        })
    })
}

/// Lets run `r` ask with the first code, and enters it again with the other.
async fn deployed(first: Ask, other: Ask) -> (System, Inspection) {
    let data = Data::new();
    let system = data.start(asks(first)).await;
    let run = assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
    run.milestone("told").await.unwrap();
    system.crash().await;
    let system = data.start(asks(other)).await;
    let assistant = assistant(&system);
    let settled =
        async || assistant.inspect("r").await.unwrap().unwrap().run.status != Status::Running;
    until("it ends, or is parked", settled).await;
    let inspection = assistant.inspect("r").await.unwrap().unwrap();
    (system, inspection)
}

#[tokio::test(start_paused = true)]
async fn the_outcome_of_one_run_is_not_taken_for_that_of_another() {
    let (system, found) = deployed(Ask::Run("pay", 1), Ask::Run("refund", 2)).await;
    assert_eq!(found.run.status, Status::Interrupted, "{:?}", found.output);
    assert_eq!(found.run.reason, Some(InterruptReason::JournalMismatch));
    let error = found.run.error.unwrap();
    assert!(error.contains("\"pay\"") && error.contains("\"refund\""), "{error}");
    let inside = system.agent_at(&"Assistant:a/Code:r".parse().unwrap()).unwrap();
    assert!(!inside.has_run("Code", "refund").await.unwrap(), "the code went on");
}

#[tokio::test(start_paused = true)]
async fn whatever_differs_is_found() {
    let differ = [
        (Ask::Run("a", 1), Ask::Run("a", 2)),
        (Ask::Run("a", 1), Ask::Start("a", 1)),
        (Ask::Start("a", 1), Ask::Run("a", 1)),
        (Ask::Start("a", 1), Ask::Start("b", 1)),
        (Ask::Start("a", 1), Ask::Start("a", 2)),
        (Ask::StartThenOutcome("a"), Ask::StartThenOutcome("b")),
        (Ask::Milestone("x"), Ask::Milestone("y")),
        (Ask::Within("x", 5), Ask::Sleep(5)),
        (Ask::Sleep(5), Ask::Within("x", 5)),
    ];
    for (at, (first, other)) in differ.into_iter().enumerate() {
        let (_system, found) = deployed(first, other).await;
        let run = found.run;
        assert_eq!(run.reason, Some(InterruptReason::JournalMismatch), "{at}: {:?}", run.status);
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_code_fits() {
    let same = [
        Ask::Run("a", 1),
        Ask::Start("a", 1),
        Ask::StartThenOutcome("a"),
        Ask::Milestone("x"),
        Ask::Within("x", 5),
        Ask::Sleep(3),
    ];
    for (at, ask) in same.into_iter().enumerate() {
        let (_system, found) = deployed(ask, ask).await;
        assert_eq!(found.run.status, Status::Completed, "{at}: {:?}", found.run.error);
    }
}

#[tokio::test(start_paused = true)]
async fn a_sleep_does_not_last_until_the_limit_of_a_wait() {
    for (first, other) in
        [(Ask::Within("x", 3600), Ask::Sleep(3)), (Ask::Within("x", 3), Ask::Within("x", 3600))]
    {
        let data = Data::new();
        begin(&data, asks(first)).await;
        let system = data.start(asks(other)).await;
        let run = assistant(&system).attach::<Code>("r").await.unwrap().unwrap();
        let told = run.milestone_within("told", Duration::from_secs(5)).await;
        assert!(told.is_ok(), "{told:?}");
    }
}
