//! What a system keeps in memory of runs that have ended: nothing, beside what its store keeps.
//!
//! A program of its own, because it counts what is allocated.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::alloc::{GlobalAlloc, Layout, System as SystemAllocator};
use std::sync::atomic::{AtomicIsize, Ordering};

use futures_util::StreamExt as _;
use futures_util::stream::iter;
use ghostlight::prelude::*;
use ghostlight::storage::MemoryStore;
use ghostlight::{Limits, SystemBuilder};
use serde_json::Value;

static ALLOCATED: AtomicIsize = AtomicIsize::new(0);

struct Counting;

// SAFETY: every call is passed on as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as isize, Ordering::Relaxed);
        unsafe { SystemAllocator.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        unsafe { SystemAllocator.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocated() -> isize {
    ALLOCATED.load(Ordering::Relaxed)
}

struct Parent;

impl Agent for Parent {
    const TYPE: &'static str = "Parent";

    fn settings(&self) -> AgentSettings {
        AgentSettings {
            max_concurrent_runs: Some(4),
            at_cap: AtCap::Queue,
            ..AgentSettings::default()
        }
    }

    fn callbacks(callbacks: &mut Callbacks<Self>) {
        callbacks.on_run_finish(Self::finished);
    }
}

impl Parent {
    async fn finished(
        &self,
        _: &AgentContext,
        _: RunInfo,
        _: Outcome<Value>,
    ) -> Result<(), RunError> {
        Ok(())
    }
}

/// Does a little of everything.
struct Worker;

impl Agent for Worker {
    const TYPE: &'static str = "Worker";
}

impl Child for Worker {
    type Input = u64;
    type Output = u64;

    async fn run(&self, cx: &RunContext, input: u64) -> Result<u64, RunError> {
        let doubled = cx.step("double", async || Ok(2 * input)).await?;
        cx.emit("chunk").await?;
        cx.progress(Progress::of(1, 1));
        match input % 4 {
            0 => return Err(RunError::new("told to")),
            1 => cx.sleep(Duration::from_secs(2)).await,
            2 => {
                let child = cx.agent::<Worker>().run::<Worker>(doubled + 1);
                _ = child.await?.completed()?;
            }
            _ => {}
        }
        Ok(doubled)
    }
}

/// Executes runs to their ends; returns what is allocated then beside the store.
async fn held_after(runs: u64) -> isize {
    let before = allocated();
    let store = MemoryStore::new();
    let system = SystemBuilder::on_memory_store(store.clone());
    // Otherwise the tables would keep the room of all parents of a minute.
    let limits = Limits { idle: Duration::from_secs(1), ..Limits::default() };
    let system = system.limits(limits).agent(Parent).child(Worker).start().await.unwrap();
    let parent = &system.agent::<Parent>("p").unwrap();
    let run = async |n: u64| {
        let run = parent.start::<Worker>(n).id(format!("run-{n}")).await.unwrap();
        let mut tail = run.tail(After::START);
        while let Some(frame) = tail.next().await {
            frame.unwrap();
        }
        run.outcome().await.unwrap();
    };
    iter(0..runs).for_each_concurrent(16, run).await;
    // Agents without work leave memory after that time.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(system.live_runs(), 0);
    let with_system = allocated();
    system.shutdown().await;
    let with_store = allocated();
    drop(store);
    let store_bytes = with_store - allocated();
    with_system - store_bytes - before
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_of_runs_that_have_ended() {
    // Tables keep the room of the most runs that ever lived at once, so that has to be reached first.
    held_after(200).await;
    let (few, many) = (held_after(200).await, held_after(1_000).await);
    let a_run = (many - few) as f64 / 800.0;
    assert!(a_run < 8.0, "{a_run} bytes for each run");
}
