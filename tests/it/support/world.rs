//! A store that outlives the systems on it, and the observers that watch over all of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ghostlight::frame::{Frame, FrameEvent, ReservedBody};
use ghostlight::prelude::*;
use ghostlight::storage::MemoryStore;
use ghostlight::{AgentPath, RunFilter, SystemBuilder, VirtualClock};

use super::disk::{Disk, Fault};
use super::ledger::Ledger;
use super::script::{Op, Script, milestones};

/// The parent of all scripts; it may be a subject of the test itself.
pub(crate) struct Director;

impl Agent for Director {
    const TYPE: &'static str = "Director";
}

/// What a test does over and over again, in every life of the system, until it returns.
pub(crate) trait Drive: AsyncFn(&System) -> Result<String, ghostlight::Error> {}
impl<T: AsyncFn(&System) -> Result<String, ghostlight::Error>> Drive for T {}

pub(crate) type Build = fn(SystemBuilder, &Arc<Ledger>) -> SystemBuilder;

/// Registers the agents that most tests need.
pub(crate) fn scripts(builder: SystemBuilder, ledger: &Arc<Ledger>) -> SystemBuilder {
    builder.agent(Director).child(Script(Arc::clone(ledger)))
}

/// The longest that a life may take, in virtual time.
const LIMIT: Duration = Duration::from_secs(24 * 3600);

pub(crate) struct World {
    store: MemoryStore,
    clock: VirtualClock,
    pub(crate) ledger: Arc<Ledger>,
    build: Build,
    latency: Duration,
}

impl World {
    pub(crate) fn new(build: Build) -> Self {
        Self {
            store: MemoryStore::new(),
            clock: VirtualClock::starting_at(1_767_225_600_000),
            ledger: Arc::default(),
            build,
            latency: Duration::ZERO,
        }
    }

    pub(crate) fn latency(self, latency: Duration) -> Self {
        Self { latency, ..self }
    }

    pub(crate) fn builder(&self, disk: &Disk) -> SystemBuilder {
        let builder = SystemBuilder::on_backend(disk.clone()).clock(self.clock).seed(1);
        (self.build)(builder, &self.ledger)
    }

    pub(crate) fn open(&self, fault: Option<(u64, Fault)>) -> Disk {
        Disk::open(&self.store, fault).latency(self.latency)
    }

    /// Starts the next life, which nothing disturbs.
    pub(crate) async fn start(&self) -> System {
        self.builder(&self.open(None)).start().await.unwrap()
    }

    /// One life: drives until the end or until the fault. Returns what the driver returned, and how
    /// many groups the life has begun.
    pub(crate) async fn live(
        &self,
        fault: Option<(u64, Fault)>,
        drive: &impl Drive,
    ) -> (Option<String>, u64) {
        let disk = self.open(fault);
        let mut system = None;
        let life = async {
            let system = system.insert(self.builder(&disk).start().await.unwrap());
            let _watch = Watch::new(system, &self.ledger);
            drive(system).await
        };
        let ended = tokio::select! {
            biased;
            () = disk.reached() => None,
            ended = life => Some(ended),
            () = tokio::time::sleep(LIMIT) => panic!("a life has not come to the end in {LIMIT:?}"),
        };
        let ended = match ended {
            Some(Ok(ended)) => Some(ended),
            Some(Err(error)) => panic!("a driver failed, and no fault had come: {error}"),
            None => None,
        };
        if let Some(system) = system {
            system.crash().await;
        }
        (ended, disk.groups())
    }

    /// Lives through the faults, one a life, and then on to the end. Checks everything that must
    /// hold of any run, and returns what the driver returned in the end.
    pub(crate) async fn drive(&self, faults: &[(u64, Fault)], drive: &impl Drive) -> String {
        let mut ended = None;
        for fault in faults {
            let (earlier, _) = self.live(Some(*fault), drive).await;
            if let (Some(before), Some(now)) = (&ended, &earlier) {
                assert_eq!(before, now, "an end has changed");
            }
            ended = ended.or(earlier);
        }
        let (last, _) = self.live(None, drive).await;
        let last = last.expect("a life without a fault comes to the end");
        assert_eq!(ended.unwrap_or_else(|| last.clone()), last, "an end has changed");
        self.check(drive, &last).await;
        last
    }

    /// Waits for the runs whose cancel is durable, and that have their grace time.
    async fn end_cancelled(&self, system: &System) {
        for agent in system.agents().await.unwrap() {
            let agent = system.agent_at(&agent).unwrap();
            for run in agent.list(&RunFilter::default(), None, 1000).await.unwrap().runs {
                if run.cancelling {
                    replay(&agent, &run.run_id).await;
                }
            }
        }
    }

    /// One more life, in which nothing happens any more.
    async fn check(&self, drive: &impl Drive, ended: &str) {
        let system = self.start().await;
        self.end_cancelled(&system).await;
        let executions = self.ledger.executions();
        for agent in system.agents().await.unwrap() {
            let agent = system.agent_at(&agent).unwrap();
            for run in agent.list(&RunFilter::default(), None, 1000).await.unwrap().runs {
                assert!(run.status.is_hard(), "has not ended: {run:?}");
                let id = run.run_id.parse().unwrap();
                let path = agent.path().child(&run.agent_type, &id).unwrap();
                let frames = replay(&agent, &run.run_id).await;
                check_replay(&frames, &path);
                let replayed: BTreeMap<u64, String> =
                    frames.iter().map(|frame| (frame.sequence, frame.to_json())).collect();
                for (number, frame) in self.ledger.seen(&path) {
                    let what = format!("frame {number} of {path}, which an observer saw");
                    assert_eq!(replayed.get(&number), Some(&frame), "{what}");
                }
            }
        }
        assert_eq!(drive(&system).await.unwrap(), ended, "an end has changed");
        assert_eq!(self.ledger.executions(), executions, "a run that had ended was executed");
        assert_eq!(self.ledger.violations(), Vec::<String>::new());
        system.crash().await;
    }
}

/// All frames of a run that has ended.
pub(crate) async fn replay(agent: &ghostlight::AgentRef, run_id: &str) -> Vec<Frame> {
    let mut tail = agent.tail(run_id, After::START).await.unwrap();
    let mut frames = Vec::new();
    while let Some(frame) = tail.next().await {
        frames.push((*frame.unwrap()).clone());
    }
    frames
}

/// Dense, begun and ended once, and milestones in order.
pub(crate) fn check_replay(frames: &[Frame], run: &AgentPath) {
    let numbers: Vec<u64> = frames.iter().map(|frame| frame.sequence).collect();
    assert_eq!(numbers, (0..frames.len() as u64).collect::<Vec<_>>(), "the frames of {run}");
    assert!(matches!(frames[0].event, FrameEvent::Started { .. }));
    let ends: Vec<usize> = (0..frames.len()).filter(|at| frames[*at].event.is_hard_end()).collect();
    assert_eq!(ends, [frames.len() - 1], "the ends of {run}");
    let sequences: Vec<u64> = reached(frames).into_iter().map(|(_, sequence)| sequence).collect();
    assert_eq!(sequences, (0..sequences.len() as u64).collect::<Vec<_>>(), "milestones of {run}");
}

/// The milestones in frames.
pub(crate) fn reached(frames: &[Frame]) -> Vec<(String, u64)> {
    let mut reached = Vec::new();
    for frame in frames {
        if let FrameEvent::Chunk { body, .. } = &frame.event
            && let Some(ReservedBody::Milestone(milestone)) = ReservedBody::parse(body)
        {
            reached.push((milestone.name, milestone.sequence));
        }
    }
    reached
}

/// Runs a script as run `r` of `Director:d`.
pub(crate) async fn run_script(system: &System, ops: &[Op]) -> Result<String, ghostlight::Error> {
    let director = system.agent::<Director>("d")?;
    let outcome = director.run::<Script>(ops.to_vec()).id("r").await?;
    Ok(format!("{outcome:?}"))
}

/// Checks that the run of a script has reached its milestones once each, as its own chunks.
pub(crate) async fn check_script(world: &World, ops: &[Op]) {
    let system = world.start().await;
    let director = system.agent::<Director>("d").unwrap();
    let frames = replay(director.agent_ref(), "r").await;
    let mut names: Vec<String> = reached(&frames).into_iter().map(|(name, _)| name).collect();
    let mut expected = milestones(ops);
    names.sort();
    expected.sort();
    assert_eq!(names, expected);
    system.crash().await;
}

/// Watches every run from its first frame on, and from somewhere later.
pub(crate) struct Watch {
    task: tokio::task::JoinHandle<()>,
}

impl Watch {
    pub(crate) fn new(system: &System, ledger: &Arc<Ledger>) -> Self {
        let mut entered = ledger.watch();
        let (system, ledger) = (System::clone(system), Arc::clone(ledger));
        let task = tokio::spawn(async move {
            let mut watched = std::collections::BTreeSet::new();
            while let Some(path) = entered.recv().await {
                if !watched.insert(path.clone()) {
                    continue;
                }
                let Some((parent, run_id)) = path.parent() else { continue };
                let seen = ledger.seen(&path).len() as u64;
                for after in [After::START, After::number(seen / 2)] {
                    let agent = system.agent_at(&parent).unwrap();
                    let (path, run_id) = (path.clone(), run_id.to_string());
                    let ledger = Arc::clone(&ledger);
                    tokio::spawn(async move {
                        let Ok(mut tail) = agent.tail(&run_id, after).await else { return };
                        let mut last: Option<u64> = None;
                        while let Some(Ok(frame)) = tail.next().await {
                            if last.is_some_and(|last| frame.sequence != last + 1) {
                                ledger.violation(format!(
                                    "{path}: frame {} after {last:?}",
                                    frame.sequence
                                ));
                            }
                            last = Some(frame.sequence);
                            ledger.saw(&path, &frame);
                        }
                    });
                }
            }
        });
        Self { task }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}
