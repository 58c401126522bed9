//! The simulation finds faults: each that is planted in Ghostlight's own code, soon.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use ghostlight::prelude::*;
use ghostlight::protocol::planted::{Planted, plant};
use ghostlight::storage::records::LogEntry;
use ghostlight::{Error, RunFilter, SystemBuilder};
use ghostlight_sim::{Effects, Failure, Invariants, Life, Scenario, Simulation, World};

/// A parent with two slots and a queue, whose finish hook fails at first.
struct Boss(Effects);

impl Agent for Boss {
    const TYPE: &'static str = "Boss";

    fn settings(&self) -> AgentSettings {
        AgentSettings {
            max_concurrent_runs: Some(2),
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
        _: &AgentContext,
        run: RunInfo,
        _: Outcome<Value>,
    ) -> Result<(), RunError> {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if self.0.perform("first try", &run.run_id) {
            return Err(RunError::new("not now"));
        }
        self.0.perform("told", &run.run_id);
        Ok(())
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Task {
    Work,
    /// Waits outside memory for one that works.
    Wait,
    Nest,
    Hang,
}

struct Worker;

impl Agent for Worker {
    const TYPE: &'static str = "Worker";
}

impl Child for Worker {
    type Input = Task;
    type Output = u32;

    async fn run(&self, cx: &RunContext, task: Task) -> Result<u32, RunError> {
        match task {
            Task::Work => {
                let a = cx.step("a", async || Ok(1)).await?;
                cx.milestone("half", json!(null)).await?;
                cx.sleep(Duration::from_secs(5)).await;
                let b = cx.step("b", async || Ok(2)).await?;
                Ok(a + b)
            }
            Task::Wait => {
                let worked = cx.agent::<Self>().run::<Self>(Task::Work).await?;
                Ok(worked.completed()? + 1)
            }
            Task::Nest => {
                let hung = cx.agent::<Self>().start::<Self>(Task::Hang).await?;
                cx.milestone("up", json!(null)).await?;
                hung.outcome().await?;
                Ok(0)
            }
            Task::Hang => {
                cx.sleep(Duration::from_secs(365 * 24 * 3600)).await;
                Ok(0)
            }
        }
    }
}

/// A bit of everything.
struct Office;

impl Scenario for Office {
    fn agents(&self, system: SystemBuilder, world: &World) -> SystemBuilder {
        system.agent(Boss(world.effects())).child(Worker)
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        let boss = life.agent::<Boss>("b")?;
        let mut works = Vec::new();
        for id in ["1", "2", "3", "4"] {
            works.push(boss.start::<Worker>(Task::Work).id(id).await?);
        }
        for work in works {
            let end = work.outcome().await?;
            life.world().promise(work.id(), &end);
            assert_eq!(end.completed()?, 3);
        }
        let waited = boss.run::<Worker>(Task::Wait).id("waits").await?;
        life.world().promise("waits", &waited);
        assert_eq!(waited.completed()?, 4);
        let nest = boss.start::<Worker>(Task::Nest).id("nest").await?;
        if nest.milestone("up").await.is_ok() {
            boss.cancel("nest", "enough").await?;
        }
        let end = nest.outcome().await?;
        life.world().promise("nest", &end);
        assert_eq!(end.status(), Status::Aborted);
        let other = life.agent::<Boss>("c")?;
        match other.run::<Worker>(Task::Work).id("gone").await {
            Ok(_) => _ = other.clear(&RunFilter::default()).await?,
            Err(Error::Cleared(_)) => {}
            Err(error) => return Err(error.into()),
        }
        match other.start::<Worker>(Task::Work).id("gone").await {
            Err(Error::Cleared(_)) => Ok(()),
            other => Err(RunError::new(format!("a cleared id was used again: {other:?}"))),
        }
    }

    fn invariants(&self) -> Invariants {
        Invariants::none()
            .always("a milestone is reached once", |world| {
                world.durable(|durable| {
                    durable.runs().all(|(_, run)| {
                        let reached =
                            run.frames.values().filter(|f| matches!(f, LogEntry::Milestone { .. }));
                        reached.count() <= 1
                    })
                })
            })
            .finally("the boss was told of every end", |world| world.effects().count("told") >= 6)
    }
}

fn find(fault: Planted) -> Option<Failure> {
    plant(Some(fault));
    let found = Simulation::new(Office)
        .crash_at_every_commit()
        .evict_at_every_turn()
        .seeds(100)
        .commits_max(2_000)
        .run();
    plant(None);
    found.err().map(|failure| *failure)
}

#[test]
fn every_planted_fault_is_found() {
    let left = Mutex::new(Planted::ALL.to_vec());
    let found = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(fault) = { left.lock().unwrap().pop() } {
                    let failure = find(fault);
                    match &failure {
                        Some(f) => eprintln!("{fault:?}: plan {}, {}: {}", f.plans, f.plan, f.text),
                        None => eprintln!("{fault:?}: NOT FOUND"),
                    }
                    found.lock().unwrap().insert(fault, failure);
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    for (fault, failure) in &found {
        match failure {
            Some(failure) => eprintln!(
                "{fault:?}: plan {}, {}: {}: {}",
                failure.plans, failure.plan, failure.invariant, failure.text
            ),
            None => eprintln!("{fault:?}: NOT FOUND"),
        }
    }
    let missed: Vec<_> = found.iter().filter(|(_, failure)| failure.is_none()).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn without_a_planted_fault_all_is_well() {
    let report = Simulation::new(Office).crash_at_every_commit().evict_at_every_turn().check();
    eprintln!("{report}");
}
