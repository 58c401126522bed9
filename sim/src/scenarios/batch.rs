//! A foreman sets many small jobs going, and waits for the first sign of each with a time limit.

use std::time::Duration;

use ghostlight::SystemBuilder;
use ghostlight::prelude::*;

use super::unless_changed;
use crate::effects::Effects;
use crate::{Fault, Invariants, Life, Scenario, World};

/// The shipped scenario of many small runs, progress, milestones, and races of waits with sleeps.
#[derive(Debug, Clone, Copy, Default)]
pub struct Batch;

const JOBS: u64 = 6;

struct Foreman;

impl Agent for Foreman {
    const TYPE: &'static str = "Foreman";
}

impl Child for Foreman {
    type Input = u64;
    type Output = u64;

    async fn run(&self, cx: &RunContext, jobs: u64) -> Result<u64, RunError> {
        let me = cx.agent::<Self>();
        let mut started = Vec::new();
        for job in 0..jobs {
            started.push(me.start::<Job>(job).await?);
        }
        let mut in_time = 0;
        for job in &started {
            // Which of the two wins is recorded, and is the same after a crash.
            tokio::select! {
                begun = job.milestone("begun") => {
                    begun?;
                    in_time += 1;
                }
                () = cx.sleep(Duration::from_millis(100)) => {}
            }
        }
        cx.milestone("all-seen", json!({ "inTime": in_time })).await?;
        let mut done = 0;
        for job in &started {
            done += u64::from(job.outcome().await?.completed().is_ok());
            cx.progress(Progress::of(done, jobs));
        }
        Ok(done)
    }
}

struct Job(Effects);

impl Agent for Job {
    const TYPE: &'static str = "Job";
}

impl Child for Job {
    type Input = u64;
    type Output = ();

    async fn run(&self, cx: &RunContext, job: u64) -> Result<(), RunError> {
        // Every fourth one keeps the foreman waiting.
        let late = if job % 4 == 3 { 300 } else { 0 };
        cx.sleep(Duration::from_millis(late)).await;
        cx.milestone("begun", json!(job)).await?;
        cx.progress(Progress::fraction(0.5).message("half"));
        cx.step("work", async || {
            self.0.perform("work", &cx.key());
            Ok(())
        })
        .await
    }
}

impl Scenario for Batch {
    fn name(&self) -> String {
        "batch".into()
    }

    fn agents(&self, system: SystemBuilder, world: &World) -> SystemBuilder {
        system.child(Foreman).child(Job(world.effects()))
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        let site = life.agent::<Foreman>("site")?;
        let done = site.run::<Foreman>(JOBS).id("batch-1").await?;
        life.world().promise("batch-1", &done);
        unless_changed(life, done, &JOBS)
    }

    fn invariants(&self) -> Invariants {
        Invariants::none().finally("every job was done once", |world| {
            let done = world.effects().count("work");
            done == JOBS || (done < JOBS && world.ends_may_change())
        })
    }

    fn tolerates(&self, fault: Fault) -> bool {
        matches!(fault, Fault::Cancel | Fault::PanicChild | Fault::StallChild(_))
    }
}
