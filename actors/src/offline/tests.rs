//! Over a real store: a system makes runs and is lost, tools work on what it left, and the next
//! system goes on.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use ghostlight_protocol::frame::FrameEvent;
use ghostlight_protocol::{NotCompleted, Outcome, Status};
use tempfile::TempDir;
use tokio::sync::mpsc;

use super::*;
use crate::{
    Agent, AgentHandle, AgentRef, AgentSettings, AtCap, Callbacks, Child, RunContext, RunError,
    System,
};

type Ended = (String, Status);

/// Executes one run at a time, and tells who ended.
struct Boss(mpsc::UnboundedSender<Ended>);

impl Agent for Boss {
    const TYPE: &'static str = "Boss";

    fn settings(&self) -> AgentSettings {
        AgentSettings {
            max_concurrent_runs: Some(1),
            at_cap: AtCap::Queue,
            ..AgentSettings::default()
        }
    }

    fn callbacks(callbacks: &mut Callbacks<Self>) {
        callbacks.on_run_finish(Self::finished);
    }
}

impl Boss {
    async fn finished(
        &self,
        _: &crate::AgentContext,
        run: RunInfo,
        end: Outcome<serde_json::Value>,
    ) -> Result<(), RunError> {
        Ok(self.0.send((run.run_id, end.status()))?)
    }
}

/// No cap, no hooks.
struct Free;

impl Agent for Free {
    const TYPE: &'static str = "Free";
}

/// Emits so many chunks, and then does what it is told to.
struct Worker;

impl Agent for Worker {
    const TYPE: &'static str = "Worker";
}

impl Child for Worker {
    type Input = (u64, String);
    type Output = String;

    async fn run(
        &self,
        cx: &RunContext,
        (chunks, then): (u64, String),
    ) -> Result<String, RunError> {
        for chunk in 0..chunks {
            cx.emit(chunk).await?;
        }
        cx.milestone("emitted", ()).await?;
        match then.as_str() {
            "end" => {}
            "sleep" => cx.sleep(Duration::from_secs(3600)).await,
            "fork" => {
                let children = cx.agent::<Self>();
                children.start::<Self>((0, "sleep".to_owned())).id("child").await?;
                cx.sleep(Duration::from_secs(3600)).await;
            }
            _ => std::future::pending().await,
        }
        Ok(then)
    }
}

struct World {
    folder: TempDir,
    ended: mpsc::UnboundedReceiver<Ended>,
    sender: mpsc::UnboundedSender<Ended>,
}

impl World {
    fn new() -> Self {
        let (sender, ended) = mpsc::unbounded_channel();
        Self { folder: tempfile::tempdir().unwrap(), ended, sender }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The next run of the boss that has ended.
    async fn ended(&mut self) -> Ended {
        soon(self.ended.recv()).await.unwrap()
    }

    async fn system(&self) -> System {
        let boss = Boss(self.sender.clone());
        let system = System::open(self.path()).agent(boss).agent(Free).child(Worker);
        system.start().await.unwrap()
    }

    async fn offline(&self) -> Offline {
        Offline::open(FolderLock::acquire(self.path()).unwrap()).await.unwrap()
    }
}

async fn start<A: Agent>(agent: &AgentHandle<A>, id: &str, chunks: u64, then: &str) {
    agent.start::<Worker>((chunks, then.to_owned())).id(id).await.unwrap();
}

/// Waits until a run has emitted all; a run's commits are in order, so that everything is durable.
async fn emitted<A: Agent>(agent: &AgentHandle<A>, id: &str) {
    let run = agent.attach::<Worker>(id).await.unwrap().unwrap();
    run.milestone("emitted").await.unwrap();
}

/// Fails where it would hang.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.unwrap()
}

/// Waits until a run has left memory, which no frame tells.
async fn suspended(agent: &AgentRef, id: &str) {
    let left = async {
        while !agent.inspect(id).await.unwrap().is_some_and(|run| run.run.suspended) {
            tokio::task::yield_now().await;
        }
    };
    soon(left).await;
}

fn boss() -> AgentPath {
    AgentPath::root("Boss", "b").unwrap()
}

fn free() -> AgentPath {
    AgentPath::root("Free", "f").unwrap()
}

fn bodies(page: &FramePage) -> Vec<String> {
    let body = |frame: &ghostlight_protocol::frame::Frame| match &frame.event {
        FrameEvent::Chunk { body, .. } => Some(body.clone()),
        _ => None,
    };
    page.frames.iter().filter_map(body).collect()
}

#[tokio::test]
async fn what_a_lost_system_left_can_be_read() {
    let world = World::new();
    let system = world.system().await;
    let agent = system.agent::<Free>("f").unwrap();
    start(&agent, "done", 5, "end").await;
    start(&agent, "live", 5, "hang").await;
    agent.attach::<Worker>("done").await.unwrap().unwrap().outcome().await.unwrap();
    emitted(&agent, "live").await;
    system.crash().await;

    let offline = world.offline().await;
    assert_eq!(offline.agents().await.unwrap(), [free()]);
    let all = offline.list(&free(), &RunFilter::default(), None, 1).await.unwrap();
    assert_eq!(all.runs[0].run_id, "done");
    let rest = offline.list(&free(), &RunFilter::default(), all.next.as_ref(), 9).await.unwrap();
    assert_eq!(rest.runs[0].run_id, "live");
    let done = offline.inspect(&free(), "done").await.unwrap().unwrap();
    assert_eq!((done.run.status, done.output), (Status::Completed, Some("end".into())));
    assert_eq!(offline.inspect(&free(), "nobody").await.unwrap(), None);

    // Page by page, without gap or repeat, whatever the page's size.
    for limit in [1, 3, 100] {
        let (mut frames, mut after) = (Vec::new(), After::START);
        loop {
            let page = offline.frames(&free(), "done", after, limit).await.unwrap();
            assert!(page.frames.len() <= limit);
            frames.extend(page.frames);
            after = After::number(frames.last().unwrap().sequence);
            if page.ended {
                break;
            }
        }
        assert_eq!(
            frames.iter().map(|frame| frame.sequence).collect::<Vec<_>>(),
            [0, 1, 2, 3, 4, 5, 6, 7]
        );
        assert!(frames[7].event.is_hard_end());
    }
    let at_end = offline.frames(&free(), "done", After::number(7), 9).await.unwrap();
    assert_eq!(at_end, FramePage { frames: Vec::new(), ended: true });
    let beyond = offline.frames(&free(), "done", After::number(8), 9).await;
    assert!(matches!(beyond, Err(Error::BeyondEnd { frames: 8, .. })), "{beyond:?}");
    let live = offline.frames(&free(), "live", After::number(2), 9).await.unwrap();
    assert_eq!(bodies(&live)[..3], ["2", "3", "4"]);
    assert!(!live.ended);
    let unknown = offline.frames(&free(), "nobody", After::START, 9).await;
    assert!(matches!(unknown, Err(Error::UnknownRun(_))), "{unknown:?}");
    offline.close().await.unwrap();

    // Reading has changed nothing: the next system goes on.
    let system = world.system().await;
    let agent = system.agent::<Free>("f").unwrap();
    let live = agent.inspect("live").await.unwrap().unwrap();
    assert_eq!(live.run.status, Status::Running);
    system.crash().await;
}

#[tokio::test]
async fn a_cancel_of_an_executed_run_is_sealed_by_the_next_owner() {
    let mut world = World::new();
    let system = world.system().await;
    let agent = system.agent::<Boss>("b").unwrap();
    start(&agent, "live", 2, "hang").await;
    start(&agent, "next", 0, "end").await;
    emitted(&agent, "live").await;
    system.crash().await;

    let offline = world.offline().await;
    let info = offline.cancel(&boss(), "live", "enough").await.unwrap();
    assert!(info.cancelling);
    assert_eq!(info.status, Status::Running);
    // The first reason stands.
    offline.cancel(&boss(), "live", "again").await.unwrap();
    let unknown = offline.cancel(&boss(), "nobody", "enough").await;
    assert!(matches!(unknown, Err(Error::UnknownRun(_))), "{unknown:?}");
    offline.close().await.unwrap();

    let system = world.system().await;
    let agent = system.agent::<Boss>("b").unwrap();
    let run = agent.attach::<Worker>("live").await.unwrap().unwrap();
    let end = run.outcome().await.unwrap().completed().unwrap_err();
    assert_eq!(end, NotCompleted::Aborted { reason: "enough".into() });
    // Its slot is free for the one that waits.
    let next = agent.attach::<Worker>("next").await.unwrap().unwrap();
    next.outcome().await.unwrap().completed().unwrap();
    let mut ended = vec![world.ended().await, world.ended().await];
    ended.sort();
    assert_eq!(
        ended,
        [("live".to_owned(), Status::Aborted), ("next".to_owned(), Status::Completed)]
    );
    system.crash().await;
}

#[tokio::test]
async fn a_cancel_ends_what_nobody_executes_and_the_hook_is_still_owed() {
    let mut world = World::new();
    let system = world.system().await;
    let agent = system.agent::<Boss>("b").unwrap();
    start(&agent, "asleep", 1, "sleep").await;
    suspended(agent.agent_ref(), "asleep").await;
    start(&agent, "queued", 0, "end").await;
    start(&agent, "behind", 0, "end").await;
    system.crash().await;

    let offline = world.offline().await;
    let behind = offline.inspect(&boss(), "behind").await.unwrap().unwrap();
    assert_eq!(behind.queue_position, Some(1));
    for id in ["asleep", "queued"] {
        let info = offline.cancel(&boss(), id, "enough").await.unwrap();
        assert_eq!(info.status, Status::Aborted, "{id}");
        assert_eq!(info.error.as_deref(), Some("enough"));
        let page = offline.frames(&boss(), id, After::START, 100).await.unwrap();
        assert!(page.ended);
        let Some(FrameEvent::Aborted { reason, .. }) = page.frames.last().map(|f| &f.event) else {
            panic!("{page:?}")
        };
        assert_eq!(reason.as_deref(), Some("enough"));
        // An ended run is no error, and its end stands.
        let again = offline.cancel(&boss(), id, "again").await.unwrap();
        assert_eq!(again, info);
    }
    let behind = offline.inspect(&boss(), "behind").await.unwrap().unwrap();
    assert_eq!(behind.queue_position, Some(0));
    offline.close().await.unwrap();

    let system = world.system().await;
    let agent = system.agent::<Boss>("b").unwrap();
    let run = agent.attach::<Worker>("behind").await.unwrap().unwrap();
    run.outcome().await.unwrap().completed().unwrap();
    let mut ended = Vec::new();
    while ended.len() < 3 {
        ended.push(world.ended().await);
    }
    ended.sort();
    assert_eq!(
        ended.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(),
        ["asleep", "behind", "queued"]
    );
    system.crash().await;
}

#[tokio::test]
async fn a_cancel_reaches_what_the_run_has_dispatched() {
    let world = World::new();
    let system = world.system().await;
    let agent = system.agent::<Free>("f").unwrap();
    start(&agent, "fork", 0, "fork").await;
    suspended(agent.agent_ref(), "fork").await;
    let fork = free().child("Worker", &RunId::new("fork").unwrap()).unwrap();
    let below = system.agent_at(&fork).unwrap();
    suspended(&below, "child").await;
    system.crash().await;

    let offline = world.offline().await;
    let refused = offline.clear(&free(), &RunFilter::default()).await;
    assert!(matches!(refused, Err(Error::LiveRuns { live: 1, .. })), "{refused:?}");
    offline.cancel(&free(), "fork", "enough").await.unwrap();
    let child = offline.inspect(&fork, "child").await.unwrap().unwrap();
    assert_eq!(child.run.status, Status::Aborted);
    assert_eq!(offline.clear(&free(), &RunFilter::default()).await.unwrap(), 1);
    assert_eq!(offline.agents().await.unwrap(), []);
    assert_eq!(offline.lookup(&fork, "child").await.unwrap(), Lookup::Cleared);
    offline.close().await.unwrap();
}

#[tokio::test]
async fn a_clear_takes_what_has_ended_and_names_the_rest() {
    let world = World::new();
    let system = world.system().await;
    let agent = system.agent::<Free>("f").unwrap();
    for id in ["a", "b"] {
        start(&agent, id, 3, "end").await;
        agent.attach::<Worker>(id).await.unwrap().unwrap().outcome().await.unwrap();
    }
    start(&agent, "live", 0, "hang").await;
    emitted(&agent, "live").await;
    system.crash().await;

    let offline = world.offline().await;
    let none = RunFilter { started_before: Some(1), ..RunFilter::default() };
    assert_eq!(offline.clear(&free(), &none).await.unwrap(), 0);
    let refused = offline.clear(&free(), &RunFilter::default()).await;
    let Err(Error::LiveRuns { cleared, live, examples }) = refused else { panic!("{refused:?}") };
    assert_eq!((cleared, live, examples), (2, 1, vec!["live".to_owned()]));
    let left = offline.list(&free(), &RunFilter::default(), None, 9).await.unwrap();
    assert_eq!(left.runs.len(), 1);
    let cleared = offline.frames(&free(), "a", After::START, 9).await;
    assert!(matches!(cleared, Err(Error::Cleared(_))), "{cleared:?}");
    // No key of theirs is left behind.
    let run = RunKey::new(&free(), &RunId::new("a").unwrap());
    let limit = storage::Limit { entries: 9, bytes: 1 << 20 };
    let log =
        offline.committer.scan(storage::Key::log(run).into_bytes(), None, limit).await.unwrap();
    assert_eq!(log, []);
    offline.close().await.unwrap();

    let system = world.system().await;
    let agent = system.agent::<Free>("f").unwrap();
    let again = agent.start::<Worker>((0, "end".to_owned())).id("a").await;
    assert!(matches!(again, Err(Error::Cleared(_))));
    assert_eq!(agent.inspect("live").await.unwrap().unwrap().run.status, Status::Running);
    system.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_tail_that_begins_at_the_end_ends() {
    let system = System::in_memory().agent(Free).child(Worker).start().await.unwrap();
    let agent = system.agent::<Free>("f").unwrap();
    start(&agent, "done", 1, "end").await;
    let run = agent.attach::<Worker>("done").await.unwrap().unwrap();
    run.outcome().await.unwrap();
    for after in [After::number(3), After::number(4), After::number(u64::MAX)] {
        assert!(soon(run.tail(after).next()).await.is_none(), "{after:?}");
    }
    let last = run.tail(After::number(2)).next().await.unwrap().unwrap();
    assert!(last.event.is_hard_end());

    // One that is ahead of a live run ends with it, too.
    start(&agent, "live", 0, "hang").await;
    let run = agent.attach::<Worker>("live").await.unwrap().unwrap();
    let mut ahead = run.tail(After::number(1000));
    let (end, cancelled) = tokio::join!(soon(ahead.next()), run.cancel("enough"));
    cancelled.unwrap();
    assert!(end.is_none(), "{end:?}");
}

#[tokio::test]
async fn a_folder_is_owned_by_one() {
    let world = World::new();
    let offline = world.offline().await;
    assert_eq!(offline.agents().await.unwrap(), []);
    let refused = FolderLock::acquire(world.path());
    assert!(matches!(refused, Err(storage::Error::Locked { .. })));
    offline.close().await.unwrap();
    FolderLock::acquire(world.path()).unwrap();
}
