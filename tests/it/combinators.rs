//! Code that joins its calls through combinators with wakers of their own, and code that waits for
//! what only the outside can tell, when it is entered again and asks in another order.

use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::{self, FuturesUnordered, StreamExt};
use ghostlight::prelude::*;
use ghostlight::testing::{ReplayError, replay_check};
use ghostlight::{InterruptReason, Limits};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::support::Assistant;
use crate::support::code::{Code, Data, assistant, begin, code, end};

/// How long code may be in doubt.
fn doubt() -> Duration {
    Limits::default().mismatch_after
}

type Track<'a> = BoxFuture<'a, Result<(), RunError>>;
type Join = for<'a> fn(Vec<Track<'a>>) -> BoxFuture<'a, Vec<Result<(), RunError>>>;

const JOINS: [(&str, usize, Join); 3] = [
    ("FuturesUnordered", 3, |tracks| {
        let tracks: FuturesUnordered<_> = tracks.into_iter().collect();
        Box::pin(tracks.collect())
    }),
    ("join_all", 40, |tracks| Box::pin(join_all(tracks))),
    ("buffer_unordered", 6, |tracks| Box::pin(stream::iter(tracks).buffer_unordered(2).collect())),
];

async fn step(cx: &RunContext, of: &'static str, n: u64) -> Result<(), RunError> {
    cx.step((of, n), async || Ok(())).await
}

/// Two steps on each of so many tracks, in this order. Attempt 1 gets no further.
fn tracks(count: usize, join: Join, order: [&'static str; 2]) -> Code {
    code(move |cx, _| {
        Box::pin(async move {
            let track = |n| -> Track<'_> {
                Box::pin(async move {
                    step(cx, order[0], n).await?;
                    step(cx, order[1], n).await
                })
            };
            for end in join((0..count as u64).map(track).collect()).await {
                end?;
            }
            if cx.attempt() == 1 {
                std::future::pending::<()>().await;
            }
            Ok(json!("went on"))
        })
    })
}

/// Enters run `r` with this code, and returns the text of the mismatch and when it came.
async fn mismatch(data: &Data, child: Code) -> (String, Duration) {
    let began = Instant::now();
    let system = data.start(child).await;
    let ended = end(&system).await.completed().unwrap_err();
    let took = began.elapsed();
    system.crash().await;
    match ended {
        NotCompleted::Interrupted { error, reason, .. } => {
            assert_eq!(reason, Some(InterruptReason::JournalMismatch));
            (error, took)
        }
        other => panic!("{other:?}"),
    }
}

fn is_in_time(took: Duration) -> bool {
    (doubt()..doubt() + Duration::from_secs(1)).contains(&took)
}

#[tokio::test(start_paused = true)]
async fn another_order_through_a_combinator_parks_the_run_in_time() {
    for (name, count, join) in JOINS {
        let data = Data::new();
        begin(&data, tracks(count, join, ["a", "b"])).await;
        let (error, took) = mismatch(&data, tracks(count, join, ["b", "a"])).await;
        let says = "the log has step \"a#0\", the code asks for step \"b#0\" first";
        assert!(error.contains(says), "{name}: {error}");
        assert!(is_in_time(took), "{name}: {took:?}");
        // The code that it began with goes on, from wherever the log ends.
        let system = data.start(tracks(count, join, ["a", "b"])).await;
        assert_eq!(end(&system).await.completed().unwrap(), json!("went on"), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_step_through_a_combinator_parks_the_run_in_time() {
    for (name, count, join) in JOINS {
        let data = Data::new();
        begin(&data, tracks(count, join, ["a", "b"])).await;
        let (error, took) = mismatch(&data, tracks(count, join, ["new", "a"])).await;
        let says = "the log has step \"a#0\", the code asks for step \"new#0\"";
        assert!(error.contains(says), "{name}: {error}");
        assert!(is_in_time(took), "{name}: {took:?}");
    }
}

/// A check that enters this code from each prefix of its log: the order of the steps is another one
/// in every second entry.
#[tokio::test(start_paused = true)]
async fn replay_check_finds_another_order_through_a_combinator() {
    for (name, count, join) in JOINS {
        let entries = std::sync::atomic::AtomicU64::new(0);
        let child = code(move |cx, input| {
            let entry = entries.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let order = if entry.is_multiple_of(2) { ["a", "b"] } else { ["b", "a"] };
            let child = tracks(count, join, order);
            Box::pin(async move {
                tokio::select! {
                    biased;
                    end = child.run(cx, input) => end,
                    () = cx.sleep(Duration::from_secs(1)) => Ok(json!("slept")),
                }
            })
        });
        let found = tokio::time::timeout(2 * doubt(), replay_check(&child, json!(null))).await;
        let found = found.expect("an answer").unwrap_err();
        assert!(matches!(&found, ReplayError::Mismatch { .. }), "{name}: {found}");
        assert!(found.to_string().contains("step \"a#0\""), "{name}: {found}");
    }
}

/// A step that attempt 1 does not finish, beside two steps that the outside has to ask for.
fn told_from_outside(outside: &Arc<Notify>) -> Code {
    let outside = Arc::clone(outside);
    code(move |cx, _| {
        let outside = Arc::clone(&outside);
        Box::pin(async move {
            let long = cx.step("long", async || {
                if cx.attempt() == 1 {
                    std::future::pending::<()>().await;
                }
                Ok(())
            });
            let told = async {
                for n in 0..2 {
                    outside.notified().await;
                    step(cx, "told", n).await?;
                }
                Ok(())
            };
            let (long, told): (_, Result<_, RunError>) = tokio::join!(long, told);
            long.and(told)?;
            Ok(json!("went on"))
        })
    })
}

/// What runs beside a run, and tells it to go on, this long after one another.
async fn tell(outside: &Notify, after: Duration) {
    for _ in 0..2 {
        tokio::time::sleep(after).await;
        outside.notify_one();
    }
}

#[tokio::test(start_paused = true)]
async fn code_that_is_told_from_outside_in_time_goes_on() {
    let (data, outside) = (Data::new(), Arc::new(Notify::new()));
    let first = begin(&data, told_from_outside(&outside));
    tokio::join!(first, tell(&outside, Duration::from_millis(100)));
    let system = data.start(told_from_outside(&outside)).await;
    // Each comes in time; the second would be too late if the first had not begun the time anew.
    let (ended, ()) = tokio::join!(end(&system), tell(&outside, doubt() * 9 / 10));
    assert_eq!(ended.completed().unwrap(), json!("went on"));
}

#[tokio::test(start_paused = true)]
async fn code_that_is_told_nothing_is_parked_in_time() {
    let (data, outside) = (Data::new(), Arc::new(Notify::new()));
    let first = begin(&data, told_from_outside(&outside));
    tokio::join!(first, tell(&outside, Duration::from_millis(100)));
    let (error, took) = mismatch(&data, told_from_outside(&outside)).await;
    let says = "the log has step \"told#0\", the code asks for step \"long\"";
    assert!(error.contains(says), "{error}");
    assert!(is_in_time(took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn code_that_waits_for_the_outside_alone_has_any_time() {
    let (data, outside) = (Data::new(), Arc::new(Notify::new()));
    let child = || {
        let outside = Arc::clone(&outside);
        code(move |cx, _| {
            let outside = Arc::clone(&outside);
            Box::pin(async move {
                for n in 0..2 {
                    outside.notified().await;
                    step(cx, "told", n).await?;
                }
                cx.step("last", async || {
                    if cx.attempt() == 1 {
                        std::future::pending::<()>().await;
                    }
                    Ok(())
                })
                .await?;
                Ok(json!("went on"))
            })
        })
    };
    tokio::join!(begin(&data, child()), tell(&outside, Duration::from_millis(100)));
    let system = data.start(child()).await;
    let (ended, ()) = tokio::join!(end(&system), tell(&outside, 60 * doubt()));
    assert_eq!(ended.completed().unwrap(), json!("went on"));
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_the_cancel_is_none_for_the_outside() {
    let child = |name: &'static str| {
        code(move |cx, _| {
            Box::pin(async move {
                tokio::select! {
                    biased;
                    () = cx.cancelled() => return Ok(json!("cancelled")),
                    done = step(cx, name, 0) => done?,
                }
                cx.cancelled().await;
                Ok(json!("cancelled"))
            })
        })
    };
    let data = Data::new();
    begin(&data, child("a")).await;
    let (error, took) = mismatch(&data, child("b")).await;
    assert!(error.contains("the log has step \"a#0\", the code asks for step \"b#0\""), "{error}");
    assert!(took < Duration::from_secs(1), "{took:?}");
    // And it is woken by the cancel all the same.
    let system = data.start(child("a")).await;
    let cancels = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assistant(&system).cancel("r", "enough").await.unwrap();
    };
    let began = Instant::now();
    let (ended, ()) = tokio::join!(end(&system), cancels);
    assert_eq!(ended.status(), Status::Aborted);
    assert!(began.elapsed() < Duration::from_secs(2), "no grace time is needed");
}

#[tokio::test(start_paused = true)]
async fn what_is_recorded_for_a_future_that_nobody_polls_holds_nobody_up() {
    let make = || {
        code(|cx, _| {
            Box::pin(async move {
                let mut j = pin!(cx.step("j", async || Ok(())));
                let mut k = pin!(cx.step("k", async || Ok(())));
                tokio::select! { biased; r = &mut j => r?, r = &mut k => r? }
                if cx.attempt() == 1 {
                    std::future::pending::<()>().await;
                }
                let mut a = pin!(cx.milestone("a", json!(null)));
                tokio::select! { biased; r = &mut a => r?, r = &mut k => r? }
                // Both are recorded in one commit, and the code waits for the second alone.
                cx.milestone("b", json!(null)).await?;
                a.await?;
                Ok(json!("end"))
            })
        })
    };
    let data = Data::new();
    begin(&data, make()).await;
    assert_eq!(end(&data.start(make()).await).await.completed().unwrap(), json!("end"));
}

/// Two steps in a combinator that is not polled again once the first of them has woken it.
fn held(cx: &RunContext) -> FuturesUnordered<impl Future<Output = Result<(), RunError>>> {
    (0..2).map(|n| step(cx, "held", n)).collect()
}

/// Whether this code ends, and ends again when it is entered with all that it did before the end.
async fn ends(child: impl Fn() -> Code) {
    let data = Data::new();
    begin(&data, child()).await;
    assert_eq!(end(&data.start(child()).await).await.completed().unwrap(), json!("end"));
}

/// The last step, which attempt 1 does not finish.
async fn last(cx: &RunContext) -> Result<Value, RunError> {
    step(cx, "c", 0).await?;
    cx.step("last", async || {
        if cx.attempt() == 1 {
            std::future::pending::<()>().await;
        }
        Ok(())
    })
    .await?;
    Ok(json!("end"))
}

#[tokio::test(start_paused = true)]
async fn steps_in_a_combinator_that_is_polled_no_more_hold_nobody_up() {
    ends(|| {
        code(|cx, _| {
            Box::pin(async move {
                let mut held = held(cx);
                assert!(futures_util::poll!(held.next()).is_pending());
                let ended = last(cx).await;
                drop(held);
                ended
            })
        })
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_losers_of_a_select_may_be_awaited_after_other_steps() {
    ends(|| {
        code(|cx, _| {
            Box::pin(async move {
                let mut held = held(cx);
                tokio::select! {
                    biased;
                    urgent = step(cx, "urgent", 0) => urgent?,
                    first = held.next() => first.unwrap()?,
                }
                step(cx, "between", 0).await?;
                while let Some(held) = held.next().await {
                    held?;
                }
                last(cx).await
            })
        })
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_shared_step_whose_polled_clone_is_gone_holds_nobody_up() {
    ends(|| {
        code(|cx, _| {
            Box::pin(async move {
                let shared = step(cx, "shared", 0).map(Result::unwrap).shared();
                tokio::select! {
                    biased;
                    urgent = step(cx, "urgent", 0) => urgent?,
                    () = shared.clone() => {}
                }
                step(cx, "between", 0).await?;
                shared.await;
                last(cx).await
            })
        })
    })
    .await;
}

/// What a combinator's futures have been woken in, and what they wake in turn.
#[derive(Default)]
struct Woken {
    order: Mutex<Vec<usize>>,
    changed: Condvar,
    code: Mutex<Option<(Waker, tokio::task::Id)>>,
}

/// The waker of one future of a combinator. Woken by another task than that of the code, it takes its
/// time, as a thread does that is interrupted there, and the code is polled meanwhile.
struct Slow(usize, Arc<Woken>);

impl Wake for Slow {
    fn wake(self: Arc<Self>) {
        let Self(number, woken) = &*self;
        let Some((code, task)) = woken.code.lock().unwrap().clone() else { return };
        let mut order = woken.order.lock().unwrap();
        if tokio::task::try_id() != Some(task) {
            // From outside, so that another worker than this one polls it.
            let code = code.clone();
            std::thread::spawn(move || code.wake()).join().unwrap();
            let limit = Duration::from_millis(200);
            (order, _) = woken.changed.wait_timeout_while(order, limit, |o| o.is_empty()).unwrap();
        }
        order.push(*number);
        drop(order);
        woken.changed.notify_all();
        code.wake();
    }
}

/// Polls its futures in the order in which they are woken, and returns the order of their results.
async fn in_order_of_wakes(mut futures: Vec<Track<'_>>) -> Vec<usize> {
    let woken = Arc::new(Woken::default());
    woken.order.lock().unwrap().extend(0..futures.len());
    let mut ended = Vec::new();
    std::future::poll_fn(|cx| {
        *woken.code.lock().unwrap() = Some((cx.waker().clone(), tokio::task::id()));
        let order = std::mem::take(&mut *woken.order.lock().unwrap());
        for number in order {
            let waker = Waker::from(Arc::new(Slow(number, Arc::clone(&woken))));
            if futures[number].as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                ended.push(number);
            }
        }
        if ended.len() == futures.len() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    ended
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_wake_a_combinator_in_the_order_of_the_log_on_several_threads() {
    let child = code(|cx, _| {
        Box::pin(async move {
            let tracks = (0..3).map(|n| -> Track<'_> { Box::pin(step(cx, "s", n)) });
            Ok(json!(in_order_of_wakes(tracks.collect()).await))
        })
    });
    let system = System::in_memory().agent(Assistant).child(child).start().await.unwrap();
    let assistant = system.agent::<Assistant>("a").unwrap();
    for _ in 0..50 {
        let order = assistant.run::<Code>(Value::Null).await.unwrap().completed().unwrap();
        assert_eq!(order, json!([0, 1, 2]));
    }
}
