//! Camps on the way down a mountain, each of which waits for a sign from the one below it, and sleeps
//! meanwhile, outside memory.

use std::time::Duration;

use ghostlight::SystemBuilder;
use ghostlight::prelude::*;

use super::unless_changed;
use crate::effects::Effects;
use crate::{Fault, Invariants, Life, Scenario, World};

/// The shipped scenario of runs that are nested to some depth, and suspended while they wait: for timers,
/// for milestones of their children, and for the ends of them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nest;

/// How many camps there are below the first one.
const DEPTH: u32 = 3;
const HOUR: Duration = Duration::from_secs(3600);

struct Camp(Effects);

impl Agent for Camp {
    const TYPE: &'static str = "Camp";
}

impl Child for Camp {
    type Input = u32;
    type Output = u32;

    async fn run(&self, cx: &RunContext, below: u32) -> Result<u32, RunError> {
        let mut camps = 1;
        if below == 0 {
            cx.sleep(2 * HOUR).await;
            cx.milestone("reached", json!(0)).await?;
            cx.sleep(HOUR).await;
        } else {
            let next = cx.agent::<Self>().start::<Self>(below - 1).await?;
            // A camp below that fails gives no sign.
            if next.milestone_within("reached", 24 * HOUR).await.is_ok() {
                cx.milestone("reached", json!(below)).await?;
            }
            if let Ok(deeper) = next.outcome().await?.completed() {
                camps += deeper;
            }
            // Longer than an agent without work stays in memory.
            cx.sleep(HOUR / 10).await;
        }
        cx.step("strike", async || {
            self.0.perform("strike", &cx.key());
            Ok(())
        })
        .await?;
        Ok(camps)
    }
}

impl Scenario for Nest {
    fn name(&self) -> String {
        "nest".into()
    }

    fn agents(&self, system: SystemBuilder, world: &World) -> SystemBuilder {
        system.child(Camp(world.effects()))
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        let summit = life.agent::<Camp>("summit")?;
        let camps = summit.run::<Camp>(DEPTH).id("descent").await?;
        life.world().promise("descent", &camps);
        unless_changed(life, camps, &(DEPTH + 1))
    }

    fn invariants(&self) -> Invariants {
        Invariants::none().finally("every camp was struck", |world| {
            let struck = world.effects().count("strike");
            struck == u64::from(DEPTH) + 1 || world.ends_may_change()
        })
    }

    fn tolerates(&self, fault: Fault) -> bool {
        matches!(fault, Fault::Cancel | Fault::PanicChild | Fault::StallChild(_))
    }
}
