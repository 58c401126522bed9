//! A batch of many inputs, as `map` dispatches them, on real files: all end, and a second process
//! finds them all ended and executes none.
//!
//! `cargo test` has a short form. The long one prints what it costs, each 10 s:
//!
//! ```text
//! GHOSTLIGHT_MANY_INPUTS=1000000 GHOSTLIGHT_MANY_FOLDER=/var/tmp/many \
//!     cargo test --release -p ghostlight-cli --test many -- --nocapture
//! ```
//!
//! It takes an hour, 400 MiB of memory and 700 MiB of disk. The folder is left as it is.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]
#![expect(clippy::print_stdout, reason = "the figures of the long form")]

mod figures;

use std::io::{BufRead, Cursor, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ghostlight::frame::FrameEvent;
use ghostlight::prelude::*;
use ghostlight::{AgentHandle, Lookup};
use ghostlight_cli::inputs::{List, RunIds};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::figures::Figures;

const INPUTS: u64 = 1_000;
const JOBS: usize = 16;
/// As `map` does.
const AHEAD: usize = 4 * JOBS;

/// What a child process is told.
const CHILD: &str = "GHOSTLIGHT_MANY_CHILD";

#[test]
fn all_end_and_none_is_executed_again() {
    let inputs = std::env::var("GHOSTLIGHT_MANY_INPUTS").map_or(INPUTS, |n| n.parse().unwrap());
    let temporary = tempfile::tempdir().unwrap();
    let named = std::env::var_os("GHOSTLIGHT_MANY_FOLDER").map(PathBuf::from);
    let folder = named.as_deref().unwrap_or(temporary.path());
    // Each life is a process, so that its memory is its own.
    for expected in [inputs, 0] {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "life", "--nocapture"])
            .env(CHILD, folder)
            .env("GHOSTLIGHT_MANY_INPUTS", inputs.to_string())
            .env("GHOSTLIGHT_MANY_EXECUTED", expected.to_string())
            .status()
            .unwrap();
        assert!(status.success(), "{status}");
    }
}

/// Not a test of its own: what the test starts as a process.
#[test]
fn life() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    let number = |name| std::env::var(name).unwrap().parse().unwrap();
    let (inputs, expected) = (number("GHOSTLIGHT_MANY_INPUTS"), number("GHOSTLIGHT_MANY_EXECUTED"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let executed = runtime.block_on(live(Path::new(&folder), inputs));
    assert_eq!(executed, expected);
}

struct Batch;

impl Agent for Batch {
    const TYPE: &'static str = "Batch";

    fn settings(&self) -> AgentSettings {
        AgentSettings {
            max_concurrent_runs: Some(JOBS),
            at_cap: AtCap::Queue,
            ..AgentSettings::default()
        }
    }
}

/// Does nothing, and counts how often.
struct Nothing {
    executed: Arc<AtomicU64>,
}

impl Agent for Nothing {
    const TYPE: &'static str = "Nothing";
}

impl Child for Nothing {
    type Input = String;
    type Output = usize;

    async fn run(&self, _: &RunContext, input: String) -> Result<usize, RunError> {
        self.executed.fetch_add(1, Ordering::Relaxed);
        Ok(input.len())
    }
}

/// One process over all inputs; how many runs it has executed.
async fn live(folder: &Path, inputs: u64) -> u64 {
    let executed = Arc::new(AtomicU64::new(0));
    let mut figures = Figures::begin(folder);
    let child = Nothing { executed: Arc::clone(&executed) };
    let system = System::open(folder).agent(Batch).child(child).start().await.unwrap();
    figures.print(0);
    let agent = system.agent::<Batch>("many").unwrap();

    let ahead = Arc::new(Semaphore::new(AHEAD));
    let mut watching = JoinSet::new();
    let mut ids = RunIds::new();
    let mut ended = 0;
    for input in List::new(Numbers::to(inputs), false) {
        let input = input.unwrap();
        let id = format!("{}~0", ids.next_id(&input));
        let permit = Arc::clone(&ahead).acquire_owned().await.unwrap();
        let (agent, input) = (agent.clone(), input.into_string().unwrap());
        watching.spawn(async move {
            watch(&agent, &id, input).await;
            drop(permit);
        });
        while let Some(watched) = watching.try_join_next() {
            watched.unwrap();
            ended += 1;
            figures.print_now_and_then(ended);
        }
    }
    while let Some(watched) = watching.join_next().await {
        watched.unwrap();
        ended += 1;
    }
    assert_eq!(ended, inputs);
    // The actor of the last one goes a moment after its end is told.
    while system.live_runs() > 0 {
        tokio::task::yield_now().await;
    }
    figures.print(ended);
    drop(agent);
    system.shutdown().await;
    figures.print(ended);
    executed.load(Ordering::Relaxed)
}

/// The run of one input, from its dispatch to its end.
async fn watch(agent: &AgentHandle<Batch>, id: &str, input: String) {
    let before = agent.agent_ref().lookup(id).await.unwrap();
    let run = agent.start::<Nothing>(input).id(id).await.unwrap();
    assert_eq!(run.already_existed(), matches!(before, Lookup::Run(_)));
    let mut tail = run.tail(After::START);
    loop {
        match tail.next().await.expect("a tail tells the end").unwrap().event {
            FrameEvent::Started { .. } => {}
            FrameEvent::Finished { .. } => return,
            ref other => panic!("{id}: {other:?}"),
        }
    }
}

/// The numbers from 1, one a line, made as they are read.
struct Numbers {
    next: u64,
    last: u64,
    line: Cursor<Vec<u8>>,
}

impl Numbers {
    fn to(last: u64) -> Self {
        Self { next: 1, last, line: Cursor::default() }
    }
}

impl Read for Numbers {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.line.fill_buf()?.is_empty() && self.next <= self.last {
            self.line = Cursor::new(format!("{}\n", self.next).into_bytes());
            self.next += 1;
        }
        self.line.read(buffer)
    }
}
