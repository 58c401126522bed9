//! A panic in user code fails its run, and nothing else.

use std::sync::Arc;

use ghostlight::Failure;
use ghostlight::prelude::*;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::bench::{aborted, failed};
use crate::support::Assistant;
use crate::support::code::{Code, Data, assistant, code};

const LIMIT: Duration = Duration::from_secs(3600);

async fn failure(child: Code) -> Failure {
    let data = Data::new();
    let system = data.start(child).await;
    let end = timeout(LIMIT, assistant(&system).run::<Code>(json!(null))).await.unwrap().unwrap();
    match end {
        Outcome::NotCompleted(NotCompleted::Error(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

fn check(failure: &Failure) {
    assert_eq!(failure.kind.as_deref(), Some("panic"));
    assert!(failure.message.contains("on purpose"), "{failure}");
    assert!(failure.message.contains("tests/it/panics.rs:"), "no location: {failure}");
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_an_error_with_message_and_location() {
    check(&failure(code(|_, _| Box::pin(async { panic!("on purpose") }))).await);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_step_is_one_too() {
    let child = code(|cx, _| {
        Box::pin(async move {
            cx.step("a", async || -> Result<(), RunError> { panic!("on purpose {}", 7) }).await?;
            Ok(json!(null))
        })
    });
    check(&failure(child).await);
}

#[tokio::test]
async fn a_panic_in_blocking_code_is_one_too() {
    let child = code(|cx, _| {
        Box::pin(async move {
            cx.step_blocking("a", || -> Result<(), RunError> { panic!("on purpose") }).await?;
            Ok(json!(null))
        })
    });
    check(&failure(child).await);
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("on purpose");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_a_step_is_dropped_is_one_too() {
    let child = code(|cx, _| {
        Box::pin(async move {
            let step = cx.step("never", async || {
                let _guard = PanicsWhenDropped;
                std::future::pending::<Result<(), RunError>>().await
            });
            tokio::select! {
                never = step => never?,
                () = cx.sleep(Duration::from_millis(10)) => {}
            }
            Ok(json!(null))
        })
    });
    check(&failure(child).await);
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_a_cancelled_run_is_dropped_changes_nothing() {
    let data = Data::new();
    let child = code(|_, _| {
        Box::pin(async move {
            let _guard = PanicsWhenDropped;
            std::future::pending().await
        })
    });
    let system = data.start(child).await;
    let run = assistant(&system).start::<Code>(json!(null)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    run.cancel("enough").await.unwrap();
    let end = timeout(LIMIT, run.outcome()).await.unwrap().unwrap();
    assert_eq!(end.status(), Status::Aborted);
}

#[tokio::test(start_paused = true)]
async fn code_that_hangs_is_inspected_and_cancelled() {
    let data = Data::new();
    let system = data.start(code(|_, _| Box::pin(std::future::pending()))).await;
    let run = assistant(&system).start::<Code>(json!(null)).await.unwrap();
    assert_eq!(run.inspect().await.unwrap().unwrap().run.status, Status::Running);
    run.cancel("enough").await.unwrap();
    let end = timeout(Duration::from_secs(6), run.outcome()).await.expect("after the grace time");
    assert_eq!(end.unwrap().status(), Status::Aborted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn code_that_blocks_its_thread_is_inspected_and_cancelled() {
    let (blocked, go_on) = (Arc::new(Notify::new()), std::sync::mpsc::channel::<()>());
    let (release, wait) = go_on;
    let wait = Arc::new(std::sync::Mutex::new(wait));
    let tell = Arc::clone(&blocked);
    let child = code(move |_, _| {
        let (tell, wait) = (Arc::clone(&tell), Arc::clone(&wait));
        Box::pin(async move {
            tell.notify_one();
            let _ = wait.lock().unwrap().recv();
            Ok(json!("too late"))
        })
    });
    let limits = ghostlight::Limits {
        cancel_grace: Duration::from_millis(50),
        ..ghostlight::Limits::default()
    };
    let system = System::in_memory()
        .limits(limits)
        .agent(crate::support::Assistant)
        .child(child)
        .start()
        .await
        .unwrap();
    let parent = assistant(&system);
    let run = parent.start::<Code>(json!(null)).id("r").await.unwrap();
    let bounded = Duration::from_secs(60);
    timeout(bounded, blocked.notified()).await.unwrap();
    let seen = timeout(bounded, run.inspect()).await.expect("the mailbox answers").unwrap();
    assert_eq!(seen.unwrap().run.status, Status::Running);
    timeout(bounded, run.cancel("enough")).await.expect("the mailbox answers").unwrap();
    let end = timeout(bounded, run.outcome()).await.expect("whoever waits is told").unwrap();
    assert_eq!(end.status(), Status::Aborted);
    // Its task has not ended: the id is not free yet.
    assert_eq!(system.live_runs(), 1);
    let cleared = timeout(bounded, parent.agent_ref().clear(&Default::default())).await.unwrap();
    assert!(matches!(cleared, Err(ghostlight::Error::StillStopping(_))), "{cleared:?}");
    drop(release);
    timeout(bounded, async {
        while system.live_runs() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    assert_eq!(run.inspect().await.unwrap().unwrap().run.status, Status::Aborted);
    assert_eq!(parent.agent_ref().clear(&Default::default()).await.unwrap(), 1);
}

struct Touchy(bool);

impl Agent for Touchy {
    const TYPE: &'static str = "Touchy";
}

impl Child for Touchy {
    type Input = ();
    type Output = ();

    async fn run(&self, _: &RunContext, (): ()) -> Result<(), RunError> {
        std::future::pending().await
    }

    fn recovery(&self) -> RecoveryPolicy {
        assert!(!self.0, "on purpose");
        RecoveryPolicy::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_where_the_recovery_policy_is_asked_fails_the_run() {
    let data = Data::new();
    let start = async |panics: bool| {
        data.builder().agent(Assistant).child(Touchy(panics)).start().await.unwrap()
    };
    let system = start(false).await;
    assistant(&system).start::<Touchy>(()).id("r").await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    system.crash().await;

    let system = start(true).await;
    let run = assistant(&system).attach::<Touchy>("r").await.unwrap().unwrap();
    check(&failed(timeout(LIMIT, run.outcome()).await.expect("an answer").unwrap()));
    timeout(LIMIT, assistant(&system).evict()).await.expect("an answer").unwrap();
}

struct Hooked;

impl Agent for Hooked {
    const TYPE: &'static str = "Hooked";

    fn callbacks(c: &mut Callbacks<Self>) {
        c.on_run_start(Self::begins);
    }
}

impl Hooked {
    async fn begins(
        &self,
        _: &ghostlight::AgentContext,
        _: ghostlight::RunInfo,
    ) -> Result<(), RunError> {
        let _bomb = PanicsWhenDropped;
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_hook_that_panics_when_it_is_dropped_keeps_no_cancel() {
    let data = Data::new();
    let child = code(|_, _| Box::pin(async { Ok(json!(null)) }));
    let system = data.builder().agent(Hooked).child(child).start().await.unwrap();
    let hooked = system.agent::<Hooked>("h").unwrap();
    let run = hooked.start::<Code>(json!(null)).id("r").await.unwrap();
    timeout(LIMIT, run.cancel("enough")).await.expect("an answer").unwrap();
    let end = timeout(LIMIT, run.outcome()).await.expect("the end").unwrap();
    assert_eq!(aborted(end), "enough");
}
