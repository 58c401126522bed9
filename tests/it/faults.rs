//! A store that fails, or holds what cannot be read, is told to everybody who waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ghostlight::prelude::*;
use ghostlight::protocol::{AgentKey, RunKey};
use ghostlight::storage::{self, Batch, Key as StoreKey, MemoryStore, Store};
use ghostlight::{AgentPath, Error, SystemBuilder};
use tokio::time::timeout;

use crate::support::code::{Code, Data, assistant, code, until};
use crate::support::disk::Fault;

const LIMIT: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn a_failed_commit_ends_every_wait_with_its_error() {
    // The groups of an undisturbed life: incarnation, dispatch, steps 1 to 3, end.
    for group in 2..=6 {
        eprintln!("group {group} fails");
        let data = Data::new();
        let disk = data.disk(Some((group, Fault::Fail)));
        let told = Arc::new(AtomicU64::new(0));
        let tell = Arc::clone(&told);
        let child = code(move |cx, _| {
            let tell = Arc::clone(&tell);
            Box::pin(async move {
                for n in 1..=3 {
                    cx.step(("step", n), async || Ok(())).await?;
                    tell.fetch_add(1, Ordering::Relaxed);
                }
                Ok(json!(null))
            })
        });
        let system =
            data.on(&disk).agent(crate::support::Assistant).child(child).start().await.unwrap();
        let parent = assistant(&system);
        assert!(system.failure().is_none());
        let waited = timeout(LIMIT, parent.run::<Code>(json!(1)).id("r"));
        let error = waited.await.expect("an answer").unwrap_err();
        assert!(matches!(error, Error::Storage(storage::Error::Poisoned { .. })), "{error:?}");
        // Nothing that was not durable was told to the code.
        assert_eq!(told.load(Ordering::Relaxed), (group - 2).saturating_sub(1).min(3));

        let again = timeout(LIMIT, parent.run::<Code>(json!(1)).id("s"));
        let error = again.await.expect("an answer").unwrap_err();
        assert!(matches!(error, Error::Storage(storage::Error::Poisoned { .. })), "{error:?}");
        assert!(system.failure().is_some(), "the system says so");
        if let Ok(mut tail) = parent.tail("r", After::START).await {
            let end = timeout(LIMIT, async { while let Some(Ok(_)) = tail.next().await {} }).await;
            end.expect("a tail ends, too");
        }
        system.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_inside_another_waits_no_longer_than_its_parent() {
    let data = Data::new();
    let disk = data.disk(Some((6, Fault::Fail)));
    let child = code(|cx, depth| {
        Box::pin(async move {
            cx.step("begin", async || Ok(())).await?;
            if depth == json!(0) {
                cx.step("end", async || Ok(())).await?;
                return Ok(json!(null));
            }
            let child = cx.agent::<Code>();
            let end = child.run::<Code>(json!(0)).await?;
            Ok(end.completed()?)
        })
    });
    let system =
        data.on(&disk).agent(crate::support::Assistant).child(child).start().await.unwrap();
    let waited = assistant(&system).run::<Code>(json!(1));
    let error = timeout(LIMIT, waited).await.expect("an answer").unwrap_err();
    assert!(matches!(error, Error::Storage(storage::Error::Poisoned { .. })), "{error:?}");
}

/// Replaces what the store has under a key by something that is no record.
fn corrupt(data: &Data, key: &StoreKey) {
    let store = data.store.reopen();
    let prefix = key.as_bytes();
    let limit = storage::Limit { entries: 10, bytes: 1 << 20 };
    let entries = store.scan(prefix, None, limit).unwrap();
    assert!(!entries.is_empty(), "there is something to corrupt");
    for entry in entries {
        let batch = Batch::new().put(entry.key, b"no record".to_vec());
        store.commit(&[batch]).unwrap()[0].as_ref().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_corrupt_run_is_a_typed_error_and_others_go_on() {
    let parent = AgentPath::root("Assistant", "a").unwrap();
    let run = ghostlight::protocol::RunKey::new(&parent, &"bad".parse().unwrap());
    for key in [StoreKey::record(run), StoreKey::head(run), StoreKey::log(run)] {
        eprintln!("{key} is corrupt");
        let data = Data::new();
        let child = || {
            code(|cx, _| {
                Box::pin(async move {
                    cx.step("a", async || Ok(())).await?;
                    cx.step("b", async || {
                        tokio::time::sleep(Duration::from_secs(60)).await;
                        Ok(())
                    })
                    .await?;
                    Ok(json!("done"))
                })
            })
        };
        let system = data.start(child()).await;
        for id in ["bad", "good"] {
            assistant(&system).start::<Code>(json!(1)).id(id).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        system.crash().await;
        corrupt(&data, &key);

        let system = data.start(child()).await;
        let parent = assistant(&system);
        let good = parent.run::<Code>(json!(1)).id("good");
        let good = timeout(LIMIT, good).await.expect("others go on").unwrap();
        assert_eq!(good.completed().unwrap(), json!("done"));
        let bad = parent.run::<Code>(json!(1)).id("bad");
        let error = timeout(LIMIT, bad).await.expect("an answer").unwrap_err();
        assert!(matches!(error, Error::Storage(storage::Error::Corrupt { .. })), "{error:?}");
        let error = match parent.tail("bad", After::START).await {
            Ok(mut tail) => timeout(LIMIT, async {
                loop {
                    if let Err(error) = tail.next().await.expect("an error") {
                        return error;
                    }
                }
            })
            .await
            .expect("an answer"),
            Err(error) => error,
        };
        // A tail needs the record and the log; the head alone is for writers.
        assert!(matches!(error, Error::Storage(storage::Error::Corrupt { .. })), "{error:?}");
        system.crash().await;
    }
}

/// Code whose result is lost is not entered: its step would be executed again.
#[tokio::test(start_paused = true)]
async fn a_missing_result_is_a_typed_error_and_executes_nothing_again() {
    let parent = AgentPath::root("Assistant", "a").unwrap();
    let run = RunKey::new(&parent, &"r".parse().unwrap());
    let executed = Arc::new(AtomicU64::new(0));
    let child = || {
        let executed = Arc::clone(&executed);
        code(move |cx, _| {
            let executed = Arc::clone(&executed);
            Box::pin(async move {
                for step in 0..3_u64 {
                    let body = async || {
                        executed.fetch_add(1, Ordering::Relaxed);
                        Ok(())
                    };
                    cx.step(("step", step), body).await?;
                }
                cx.sleep(Duration::from_secs(3600)).await;
                Ok(json!("done"))
            })
        })
    };
    // One in the middle, and the last but for the sleep, with that.
    for lost in [2..3, 3..usize::MAX] {
        executed.store(0, Ordering::Relaxed);
        let data = Data::new();
        let system = data.start(child()).await;
        assistant(&system).start::<Code>(json!(1)).id("r").await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        system.crash().await;
        let store = data.store.reopen();
        let limit = storage::Limit { entries: 10, bytes: 1 << 20 };
        let log = store.scan(StoreKey::log(run).as_bytes(), None, limit).unwrap();
        assert!(log.len() > 4, "{log:?}");
        for (_, entry) in log.into_iter().enumerate().filter(|(n, _)| lost.contains(n)) {
            store.commit(&[Batch::new().delete(entry.key)]).unwrap()[0].as_ref().unwrap();
        }

        let system = data.start(child()).await;
        let again = assistant(&system).run::<Code>(json!(1)).id("r");
        let error = timeout(LIMIT, again).await.expect("an answer").unwrap_err();
        assert!(matches!(error, Error::Storage(storage::Error::Corrupt { .. })), "{error:?}");
        assert_eq!(executed.load(Ordering::Relaxed), 3);
        system.crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_passes_over_a_child_that_cannot_be_read() {
    let store = MemoryStore::new();
    // Run r dispatches a and b, and all of them wait for their cancel.
    let child = code(|cx, input| {
        Box::pin(async move {
            if input.is_null() {
                for id in ["a", "b"] {
                    cx.agent::<Code>().start::<Code>(json!(1)).id(id).await?;
                }
            }
            cx.cancelled().await;
            Ok(json!(null))
        })
    });
    let builder = SystemBuilder::on_memory_store(store.clone()).agent(crate::support::Assistant);
    let system = builder.child(child).start().await.unwrap();
    let run = assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let parent: AgentPath = "Assistant:a/Code:r".parse().unwrap();
    let of = |id: &str| RunKey::new(&parent, &id.parse().unwrap());
    let row = StoreKey::live(AgentKey::from(&parent), of("a"));
    let damage = Batch::new().put(row.into_bytes(), b"no record".to_vec());
    store.commit(&[damage]).unwrap()[0].as_ref().unwrap();

    run.cancel("enough").await.unwrap();
    let end = timeout(LIMIT, run.outcome()).await.expect("an end").unwrap();
    assert_eq!(end.status(), Status::Aborted);
    let inner = system.agent_at(&parent).unwrap();
    let mut tail = inner.tail("b", After::START).await.unwrap();
    let end = async { while tail.next().await.transpose().unwrap().is_some() {} };
    timeout(LIMIT, end).await.expect("an end");
    let b = inner.inspect("b").await.unwrap().unwrap().run;
    assert_eq!(b.status, Status::Aborted);
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_is_too_large_fails_its_run_and_is_not_tried_again() {
    // The groups of an undisturbed life: incarnation, dispatch, step, end.
    for group in [3, 4] {
        let data = Data::new();
        let disk = data.disk(Some((group, Fault::Refuse)));
        let entered = Arc::new(AtomicU64::new(0));
        let enter = Arc::clone(&entered);
        let child = code(move |cx, _| {
            let enter = Arc::clone(&enter);
            Box::pin(async move {
                enter.fetch_add(1, Ordering::Relaxed);
                cx.step("step", async || Ok(())).await?;
                Ok(json!(null))
            })
        });
        let system =
            data.on(&disk).agent(crate::support::Assistant).child(child).start().await.unwrap();
        let failure = crate::bench::failed(crate::support::code::end(&system).await);
        assert_eq!(failure.kind.as_deref(), Some("too-large"), "group {group}: {failure}");
        assert_eq!(entered.load(Ordering::Relaxed), 1, "group {group}");
        assert!(system.failure().is_none(), "group {group}: the store is well");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_fails_by_a_refused_commit_cancels_what_it_said_it_would() {
    let child = || {
        code(|cx, input| {
            Box::pin(async move {
                if input == "child" {
                    cx.sleep(Duration::from_secs(3600)).await;
                    return Ok(json!(null));
                }
                let child = cx.agent::<Code>().run::<Code>(json!("child")).id("child");
                let work = async {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    cx.step("step", async || Ok(())).await
                };
                let (end, step) = tokio::join!(child.cancel_on_drop(), work);
                step?;
                Ok(json!(end?.status().to_string()))
            })
        })
    };
    let mut failed = 0;
    // Later groups are those of the runs leaving memory, which is no failure of the code's.
    for group in 3..7 {
        let data = Data::new();
        let disk = data.disk(Some((group, Fault::Refuse)));
        let builder = data.on(&disk).agent(crate::support::Assistant).child(child());
        let system = builder.start().await.unwrap();
        assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let run = assistant(&system).inspect("r").await.unwrap().unwrap().run;
        let inside = system.agent_at(&"Assistant:a/Code:r".parse().unwrap()).unwrap();
        let child = inside.inspect("child").await.unwrap().map(|child| child.run.status);
        // Which group is whose is not said here: the child's own may be the one that is refused.
        if let (Status::Error, Some(child)) = (run.status, child) {
            assert_ne!(child, Status::Running, "group {group}");
            failed += usize::from(child == Status::Aborted);
        }
    }
    assert!(failed > 0, "a refused commit has failed a run with a child");
}

#[tokio::test(start_paused = true)]
async fn a_dispatch_of_a_run_that_the_store_refuses_is_an_error_that_is_told_again() {
    let child = || {
        code(|cx, input| {
            Box::pin(async move {
                if input == "child" {
                    return Ok(json!("child"));
                }
                let refused = cx.agent::<Code>().start::<Code>(json!("child")).id("child").await;
                cx.sleep(Duration::from_secs(60)).await;
                let Err(Error::Storage(storage::Error::TooLarge { .. })) = &refused else {
                    return Ok(json!("not refused"));
                };
                Ok(json!(refused.err().map(|error| error.to_string())))
            })
        })
    };
    // The groups: incarnation, dispatch, dispatch of the child.
    let data = Data::new();
    let disk = data.disk(Some((3, Fault::Refuse)));
    let builder = data.on(&disk).agent(crate::support::Assistant).child(child());
    let system = builder.start().await.unwrap();
    assistant(&system).start::<Code>(json!(null)).id("r").await.unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    system.crash().await;
    let system = data.start(child()).await;
    let run = assistant(&system).attach::<Code>("r").await.unwrap().unwrap();
    let end = tokio::time::timeout(Duration::from_secs(3600), run.outcome()).await;
    let told = end.expect("no hang").unwrap().completed().unwrap();
    assert!(told.as_str().unwrap().contains("32769"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_corrupt_timer_keeps_nobody_else_from_waking() {
    let data = Data::new();
    let sleeper = || {
        code(|cx, seconds| {
            Box::pin(async move {
                cx.sleep(Duration::from_secs(seconds.as_u64().unwrap_or(0))).await;
                Ok(json!(null))
            })
        })
    };
    let system = data.start(sleeper()).await;
    for (id, seconds) in [("bad", 60), ("good", 70)] {
        let run = assistant(&system).start::<Code>(json!(seconds)).id(id);
        run.await.unwrap();
        until("asleep", async || {
            assistant(&system).inspect(id).await.unwrap().unwrap().run.suspended
        })
        .await;
    }
    system.crash().await;
    let first = storage::Limit { entries: 1, bytes: 1 };
    let timer = data.store.reopen().scan(StoreKey::timers().as_bytes(), None, first).unwrap();
    corrupt(&data, &StoreKey::from_bytes(timer[0].key.clone()));

    let system = data.start(sleeper()).await;
    let good = assistant(&system).attach::<Code>("good").await.unwrap();
    let end = timeout(LIMIT, good.unwrap().outcome()).await.expect("the end").unwrap();
    end.completed().unwrap();
    assert_eq!(
        assistant(&system).inspect("bad").await.unwrap().unwrap().run.status,
        Status::Running
    );
}
