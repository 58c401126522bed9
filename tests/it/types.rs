//! What the types promise: errors are errors, futures move between threads, steps can be joined.

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use ghostlight::prelude::*;
use ghostlight::testing;
use ghostlight::{After, protocol, storage};

use crate::support::code::{Code, Data, assistant, code, end};
use crate::support::{Adder, Assistant};

fn is_error<E: std::error::Error + Send + Sync + 'static>() {}

fn is_send<T: Send>(value: T) -> T {
    value
}

#[test]
fn public_errors_are_errors() {
    is_error::<ghostlight::Error>();
    is_error::<ghostlight::StartError>();
    is_error::<ghostlight::InvalidCursor>();
    is_error::<NotCompleted>();
    is_error::<protocol::IdError>();
    is_error::<protocol::TooLarge>();
    is_error::<protocol::frame::FrameError>();
    is_error::<protocol::journal::Mismatch>();
    is_error::<protocol::journal::CallError>();
    is_error::<storage::Error>();
}

#[tokio::test(start_paused = true)]
async fn futures_of_handles_are_send() {
    let builder = System::in_memory().agent(Assistant).child(Adder);
    let system = is_send(builder.start()).await.unwrap();
    let agent = system.agent::<Assistant>("a").unwrap();
    is_send(agent.run::<Adder>(vec![1])).await.unwrap().completed().unwrap();
    let run = is_send(agent.start::<Adder>(vec![2]).id("r")).await.unwrap();
    is_send(run.outcome()).await.unwrap().completed().unwrap();
    is_send(run.inspect()).await.unwrap().unwrap();
    is_send(run.cancel("over already")).await.unwrap();
    is_send(run.milestone("none")).await.unwrap_err();
    let mut tail = is_send(run.tail(After::START));
    is_send(tail.next()).await.unwrap().unwrap();
    is_send(agent.attach::<Adder>("r")).await.unwrap().unwrap();
    is_send(agent.turn(|_| async {})).await.unwrap();
    is_send(agent.evict()).await.unwrap();
    is_send(system.shutdown()).await;
}

/// Doubles its numbers, all at once, by steps of every kind.
struct Doubler;
impl Agent for Doubler {
    const TYPE: &'static str = "Doubler";
}
impl Child for Doubler {
    type Input = Vec<u64>;
    type Output = u64;

    async fn run(&self, cx: &RunContext, numbers: Vec<u64>) -> Result<u64, RunError> {
        let twice = |n: u64| async move { Ok::<_, RunError>(2 * n) };
        let joined = join_all(numbers.iter().map(|&n| cx.step(("a", n), move || twice(n)))).await;
        let mut sum = joined.into_iter().sum::<Result<u64, _>>()?;
        let mut unordered: FuturesUnordered<_> = numbers
            .iter()
            .map(|&n| is_send(cx.step_retry(("b", n), Retry::times(2), move || twice(n))))
            .collect();
        while let Some(number) = unordered.next().await {
            sum += number?;
        }
        let blocking = numbers.iter().map(|&n| cx.step_blocking(("c", n), move || Ok(2 * n)));
        sum += join_all(blocking).await.into_iter().sum::<Result<u64, _>>()?;
        is_send(cx.sleep(Duration::from_secs(1))).await;
        is_send(cx.emit("chunk")).await?;
        is_send(cx.milestone("doubled", json!(null))).await?;
        is_send(cx.state().set("sum", sum)).await?;
        is_send(cx.flush()).await;
        Ok(sum)
    }
}

#[tokio::test(start_paused = true)]
async fn steps_of_every_kind_can_be_joined() {
    assert_eq!(testing::run(&Doubler, vec![1, 2, 3]).await.unwrap(), 3 * 12);
}

struct Big;

impl Agent for Big {
    const TYPE: &'static str = "Big";
}

impl Child for Big {
    type Input = u8;
    type Output = u128;

    async fn run(&self, _: &RunContext, _: u8) -> Result<u128, RunError> {
        Ok(u128::from(u64::MAX) + 5)
    }
}

#[tokio::test(start_paused = true)]
async fn an_output_is_the_same_inside_a_run_as_outside() {
    let parent = code(|cx, _| {
        Box::pin(async move {
            let big = cx.agent::<Code>().run::<Big>(1).await?.completed()?;
            Ok(json!(big.to_string()))
        })
    });
    let data = Data::new();
    let system = data.builder().agent(Assistant).child(parent).child(Big).start().await.unwrap();
    let outside = assistant(&system).run::<Big>(1).await.unwrap().completed().unwrap();
    let inside = end(&system).await.completed().unwrap();
    assert_eq!(inside, json!(outside.to_string()));
}
