//! A parked run that better code has entered again: the interruption stands, and the run is alive.

use ghostlight::prelude::*;
use ghostlight::{DispatchOptions, System};
use tokio::time::Instant;

use crate::support::code::{Code, Data, assistant, begin, code, end, until};

const HOUR: Duration = Duration::from_secs(3600);

/// Suspends for an hour in its second attempt. `good`: whether that fits what the first has recorded.
fn sleeps(good: bool) -> Code {
    code(move |cx, _| {
        Box::pin(async move {
            cx.step(if good { "a" } else { "other" }, async || Ok(())).await?;
            if cx.attempt() == 1 {
                std::future::pending::<()>().await;
            }
            cx.sleep(HOUR).await;
            Ok(json!("end"))
        })
    })
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_healed_run_that_sleeps_is_told_its_end() {
    let data = Data::new();
    begin(&data, sleeps(true)).await;
    let system = data.start(sleeps(false)).await;
    assert_eq!(end(&system).await.status(), Status::Interrupted);
    system.crash().await;

    let system = data.start(sleeps(true)).await;
    let a = assistant(&system);
    until("suspended", async || a.inspect("r").await.unwrap().unwrap().run.suspended).await;
    let info = a.inspect("r").await.unwrap().unwrap().run;
    assert_eq!((info.status, info.child_still_running), (Status::Interrupted, Some(true)));
    let run = a.attach::<Code>("r").await.unwrap().unwrap();
    let (asked, joined) = tokio::join!(run.outcome(), end(&system));
    assert_eq!(asked.unwrap().completed().unwrap(), json!("end"));
    assert_eq!(joined.completed().unwrap(), json!("end"));
}

#[tokio::test(start_paused = true)]
async fn a_parent_of_a_healed_run_that_sleeps_gets_its_end() {
    let parent = |good: bool| {
        let kid = sleeps(good);
        code(move |cx, input| {
            let kid = kid.clone();
            Box::pin(async move {
                if input.is_null() {
                    let end = cx.agent::<Code>().run::<Code>(json!(1)).id("kid").await?;
                    return Ok(end.completed()?);
                }
                kid.run(cx, input).await
            })
        })
    };
    let kids = |system: &System| system.agent_at(&"Assistant:a/Code:r".parse().unwrap()).unwrap();
    let data = Data::new();
    let system = data.start(parent(true)).await;
    // The parent itself is new in every life.
    let options = || DispatchOptions { id: Some("kid".into()), ..Default::default() };
    kids(&system).dispatch_json("Code", &json!(1), options()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    system.crash().await;
    let system = data.start(parent(false)).await;
    let status = async |system: &System| {
        kids(system).inspect("kid").await.unwrap().map(|kid| kid.run.status)
    };
    until("parked", async || status(&system).await == Some(Status::Interrupted)).await;
    system.crash().await;

    let system = data.start(parent(true)).await;
    let kid = kids(&system);
    until("suspended", async || kid.inspect("kid").await.unwrap().unwrap().run.suspended).await;
    assert_eq!(end(&system).await.completed().unwrap(), json!("end"));
}

#[tokio::test(start_paused = true)]
async fn a_healed_run_that_is_lost_again_has_lost_an_attempt() {
    let data = Data::new();
    begin(&data, sleeps(true)).await;
    let system = data.start(sleeps(false)).await;
    assert_eq!(end(&system).await.status(), Status::Interrupted);
    system.crash().await;

    let hangs = || {
        let recovery = RecoveryPolicy { attempts_max: 3, ..RecoveryPolicy::default() };
        let hangs = code(|cx, _| {
            Box::pin(async move {
                cx.step("a", async || Ok(())).await?;
                std::future::pending().await
            })
        });
        hangs.recovery(recovery)
    };
    for _ in 0..20 {
        let system = data.start(hangs()).await;
        let begun = Instant::now();
        let inspect = async || assistant(&system).inspect("r").await.unwrap().unwrap().run;
        until("executed", async || {
            system.live_runs() == 1 || inspect().await.status == Status::Error
        })
        .await;
        assert!(begun.elapsed() < HOUR);
        let status = inspect().await.status;
        system.crash().await;
        if status == Status::Error {
            return;
        }
    }
    panic!("it is entered for ever");
}
