//! A finish hook is called until it succeeds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ghostlight::prelude::*;
use ghostlight::storage::{Key, Limit, MemoryStore, Store};
use ghostlight::{RunFilter, SystemBuilder};
use serde_json::Value;
use tokio::sync::Notify;

use crate::support::Adder;

#[derive(Clone, Default)]
struct Host {
    calls: Arc<AtomicU32>,
    called: Arc<Notify>,
}
impl Agent for Host {
    const TYPE: &'static str = "Host";
    fn callbacks(callbacks: &mut Callbacks<Self>) {
        callbacks.on_run_finish(Self::finished);
    }
}
impl Host {
    async fn finished(
        &self,
        _: &AgentContext,
        _: RunInfo,
        _: Outcome<Value>,
    ) -> Result<(), RunError> {
        self.called.notify_one();
        match self.calls.fetch_add(1, Ordering::Relaxed) {
            0 => Err(RunError::new("not yet")),
            _ => Ok(()),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_is_made_although_the_agent_is_evicted_at_once() {
    let host = Host::default();
    host.calls.store(1, Ordering::Relaxed);
    let system = System::in_memory().agent(host.clone()).child(Adder).start().await.unwrap();
    let agent = system.agent::<Host>("a").unwrap();
    for round in 0..100 {
        agent.run::<Adder>(vec![1]).await.unwrap().completed().unwrap();
        agent.evict().await.unwrap();
        let called = tokio::time::timeout(Duration::from_secs(60), host.called.notified()).await;
        assert!(called.is_ok(), "nothing in round {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_delivery_is_made_again_by_an_evicted_agent() {
    let host = Host::default();
    let system = System::in_memory().agent(host.clone()).child(Adder).start().await.unwrap();
    let agent = system.agent::<Host>("a").unwrap();
    agent.run::<Adder>(vec![1]).await.unwrap().completed().unwrap();
    host.called.notified().await;
    agent.evict().await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(host.calls.load(Ordering::Relaxed), 2);
}

/// Its finish hook fails as soon as it may.
#[derive(Clone, Default)]
struct Sorry {
    called: Arc<Notify>,
    go_on: Arc<Notify>,
}
impl Agent for Sorry {
    const TYPE: &'static str = "Sorry";
    fn callbacks(callbacks: &mut Callbacks<Self>) {
        callbacks.on_run_finish(Self::finished);
    }
}
impl Sorry {
    async fn finished(
        &self,
        _: &AgentContext,
        _: RunInfo,
        _: Outcome<Value>,
    ) -> Result<(), RunError> {
        self.called.notify_one();
        self.go_on.notified().await;
        Err(RunError::new("sorry"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_fails_after_its_run_was_cleared_leaves_nothing_behind() {
    let (sorry, store) = (Sorry::default(), MemoryStore::new());
    let system = SystemBuilder::on_memory_store(store.clone());
    let system = system.agent(sorry.clone()).child(Adder).start().await.unwrap();
    let agent = system.agent::<Sorry>("a").unwrap();
    agent.run::<Adder>(vec![1]).await.unwrap().completed().unwrap();
    sorry.called.notified().await;
    assert_eq!(agent.clear(&RunFilter::default()).await.unwrap(), 1);
    sorry.go_on.notify_one();
    // Another turn comes after the hook's.
    agent.turn(async |_| ()).await.unwrap();
    let limit = Limit { entries: 10, bytes: 1 << 20 };
    let owed = store.scan(Key::owed_all().as_bytes(), None, limit).unwrap();
    assert!(owed.is_empty(), "{owed:?}");
}
