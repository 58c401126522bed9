//! What the faults are looked for with, beside the shipped scenarios.

use std::sync::Mutex;
use std::time::Duration;

use ghostlight::prelude::*;
use ghostlight::storage::records::LogEntry;
use ghostlight::{Error, RunFilter, SystemBuilder};
use ghostlight_sim::{Effects, Invariants, Life, Scenario, World};

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
pub(crate) struct Office;

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
            .always("a milestone is reached once", milestones_are_reached_once)
            .finally("the boss was told of every end", |world| world.effects().count("told") >= 6)
    }
}

fn milestones_are_reached_once(world: &World) -> bool {
    world.durable(|durable| {
        durable.runs().all(|(_, run)| {
            let reached = run.frames.values().filter(|f| matches!(f, LogEntry::Milestone { .. }));
            reached.count() <= 1
        })
    })
}

/// A run that never leaves memory.
struct Sprinter;

impl Agent for Sprinter {
    const TYPE: &'static str = "Sprinter";
}

impl Child for Sprinter {
    type Input = ();
    type Output = String;

    async fn run(&self, cx: &RunContext, (): ()) -> Result<String, RunError> {
        let order = Mutex::new(String::new());
        let step = async |key: &'static str, ms| {
            let ended = cx.step(key, async || {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                Ok(())
            });
            ended.await?;
            order.lock().unwrap().push_str(key);
            Ok::<_, RunError>(())
        };
        let (slow, fast) = tokio::join!(step("slow", 20), step("fast", 10));
        slow.and(fast)?;
        let order = order.into_inner().unwrap();
        cx.milestone(&order, json!(null)).await?;
        cx.step("last", async || Ok(())).await?;
        Ok(order)
    }
}

/// A single run that never leaves memory, so that it is entered again only after a crash.
pub(crate) struct Sprint;

impl Scenario for Sprint {
    fn agents(&self, system: SystemBuilder, _: &World) -> SystemBuilder {
        system.child(Sprinter)
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        let order = life.agent::<Sprinter>("s")?.run::<Sprinter>(()).id("r").await?.completed()?;
        life.world().promise("the order", &order);
        Ok(())
    }

    fn invariants(&self) -> Invariants {
        Invariants::none().always("a milestone is reached once", milestones_are_reached_once)
    }
}

/// A run that somebody sends on an errand, for which nobody waits: only recovery looks at it again.
struct Errand;

impl Agent for Errand {
    const TYPE: &'static str = "Errand";
}

impl Child for Errand {
    /// Whether it sends another one.
    type Input = bool;
    type Output = ();

    async fn run(&self, cx: &RunContext, sends: bool) -> Result<(), RunError> {
        if sends {
            cx.agent::<Self>().start::<Self>(false).id("far").detached().await?;
            return Ok(());
        }
        cx.step("there", async || Ok(())).await?;
        cx.sleep(Duration::from_secs(3600)).await;
        cx.step("back", async || Ok(())).await
    }
}

/// A run that is left alone by everybody.
pub(crate) struct Errands;

impl Scenario for Errands {
    fn agents(&self, system: SystemBuilder, _: &World) -> SystemBuilder {
        system.child(Errand)
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        Ok(life.agent::<Errand>("home")?.run::<Errand>(true).id("send").await?.completed()?)
    }
}

/// A run that would go on for longer than a life may take.
struct Endless;

impl Agent for Endless {
    const TYPE: &'static str = "Endless";
}

impl Child for Endless {
    type Input = ();
    type Output = ();

    async fn run(&self, cx: &RunContext, (): ()) -> Result<(), RunError> {
        cx.milestone("up", json!(null)).await?;
        cx.step("hang", async || {
            tokio::time::sleep(2 * ghostlight_sim::LIFE_MAX).await;
            Ok(())
        })
        .await
    }
}

/// A run that ends because it is cancelled.
pub(crate) struct Cancelled;

impl Scenario for Cancelled {
    fn agents(&self, system: SystemBuilder, _: &World) -> SystemBuilder {
        system.child(Endless)
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        let run = life.agent::<Endless>("a")?.start::<Endless>(()).id("r").await?;
        if run.milestone("up").await.is_ok() {
            run.cancel("enough").await?;
        }
        assert_eq!(run.outcome().await?.status(), Status::Aborted);
        Ok(())
    }
}
