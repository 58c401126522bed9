//! A cancelled run that has lost its process comes to its end by the way that it had begun.

use ghostlight::prelude::*;
use tokio::time::Instant;

use crate::bench::Bench;
use crate::support::code::{Code, Data, assistant, code, end};

/// Works, and cleans up in two steps once it is cancelled; gets `reached` so far in attempt 1.
fn cleans_up(bench: &Bench, reached: u64) -> Code {
    let bench = bench.clone();
    code(move |cx, _| {
        let bench = bench.clone();
        Box::pin(async move {
            let work = async {
                cx.step("work", async || Ok(())).await?;
                cx.milestone("half", json!(null)).await?;
                std::future::pending::<Result<(), RunError>>().await
            };
            tokio::select! {
                biased;
                () = cx.cancelled() => {}
                ended = work => ended?,
            }
            for n in 1..=2 {
                let (bench, hangs) = (bench.clone(), cx.attempt() == 1 && reached < n);
                cx.step(("cleanup", n), async move || {
                    if hangs {
                        bench.note("hangs");
                        std::future::pending::<()>().await;
                    }
                    bench.note(format!("cleaned {n}"));
                    Ok(())
                })
                .await?;
            }
            Ok(json!(null))
        })
    })
}

async fn is_cleaned_up_after_a_crash(reached: u64) {
    let (bench, data) = (Bench::default(), Data::new());
    let system = data.start(cleans_up(&bench, reached)).await;
    let run = assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
    run.milestone("half").await.unwrap();
    run.cancel("enough").await.unwrap();
    bench.seen("hangs", 1).await;
    system.crash().await;

    let system = data.start(cleans_up(&bench, reached)).await;
    let begun = Instant::now();
    assert_eq!(end(&system).await.status(), Status::Aborted);
    assert!(begun.elapsed() < Duration::from_secs(1), "by itself: {:?}", begun.elapsed());
    assert_eq!((bench.count("cleaned 1"), bench.count("cleaned 2")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_cleans_up_after_a_crash() {
    is_cleaned_up_after_a_crash(0).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_goes_on_cleaning_up_after_a_crash() {
    is_cleaned_up_after_a_crash(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_that_has_only_emitted_cleans_up_after_a_crash() {
    let make = |bench: &Bench| {
        let bench = bench.clone();
        code(move |cx, _| {
            let bench = bench.clone();
            Box::pin(async move {
                let work = async {
                    cx.emit("one").await?;
                    bench.note("emitted");
                    std::future::pending::<Result<(), RunError>>().await
                };
                tokio::select! {
                    biased;
                    () = cx.cancelled() => {}
                    ended = work => ended?,
                }
                if cx.attempt() == 1 {
                    bench.note("hangs");
                    std::future::pending::<()>().await;
                }
                cx.milestone("cleaned", json!(null)).await?;
                Ok(json!(null))
            })
        })
    };
    let (bench, data) = (Bench::default(), Data::new());
    let system = data.start(make(&bench)).await;
    assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
    bench.seen("emitted", 1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assistant(&system).cancel("r", "enough").await.unwrap();
    bench.seen("hangs", 1).await;
    system.crash().await;

    let system = data.start(make(&bench)).await;
    let begun = Instant::now();
    assert_eq!(end(&system).await.status(), Status::Aborted);
    assert!(begun.elapsed() < Duration::from_secs(1), "by itself: {:?}", begun.elapsed());
    let milestones = assistant(&system).inspect("r").await.unwrap().unwrap().milestones;
    assert_eq!(milestones.iter().map(|m| &*m.name).collect::<Vec<_>>(), ["cleaned"]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_whose_code_does_not_fit_ends_at_once() {
    let (bench, data) = (Bench::default(), Data::new());
    let system = data.start(cleans_up(&bench, 0)).await;
    let run = assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
    run.milestone("half").await.unwrap();
    run.cancel("enough").await.unwrap();
    bench.seen("hangs", 1).await;
    system.crash().await;

    let other = code(|cx, _| {
        Box::pin(async move {
            cx.step("other", async || Ok(())).await?;
            Ok(json!(null))
        })
    });
    let system = data.start(other).await;
    let begun = Instant::now();
    assert_eq!(end(&system).await.status(), Status::Aborted);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

/// It is told of its cancel although its log has more than it has asked for.
#[tokio::test(start_paused = true)]
async fn what_a_cancelled_run_reports_after_a_crash_is_recorded() {
    let make = |bench: &Bench| {
        let bench = bench.clone();
        code(move |cx, _| {
            let bench = bench.clone();
            Box::pin(async move {
                cx.step("a", async || Ok(())).await?;
                if cx.attempt() == 1 {
                    cx.step("b", async || Ok(())).await?;
                    cx.cancelled().await;
                    bench.note("hangs");
                    std::future::pending::<()>().await;
                }
                cx.cancelled().await;
                cx.progress(Progress::fraction(1.0).message("cleaned"));
                Ok(json!(null))
            })
        })
    };
    let (bench, data) = (Bench::default(), Data::new());
    let system = data.start(make(&bench)).await;
    let run = assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    run.cancel("enough").await.unwrap();
    bench.seen("hangs", 1).await;
    system.crash().await;

    let system = data.start(make(&bench)).await;
    assert_eq!(end(&system).await.status(), Status::Aborted);
    let progress = assistant(&system).inspect("r").await.unwrap().unwrap().progress.unwrap();
    assert_eq!(progress["message"], "cleaned");
}
