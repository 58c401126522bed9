//! A run gathers readings of eight sensors, three at a time; one of them fails, one panics.

use std::time::Duration;

use ghostlight::SystemBuilder;
use ghostlight::prelude::*;

use super::unless_changed;
use crate::effects::Effects;
use crate::{Fault, Invariants, Life, Scenario, World};

/// The shipped scenario of a parent with a cap, a queue, and children that fail and panic.
#[derive(Debug, Clone, Copy, Default)]
pub struct FanOut;

const SENSORS: u64 = 8;
const AT_ONCE: usize = 3;
const BROKEN: u64 = 3;
const PANICKING: u64 = 5;

/// What a survey returns: the sum of the readings, and the sensors without one.
type Gathered = (u64, Vec<u64>);

struct Survey;

impl Agent for Survey {
    const TYPE: &'static str = "Survey";

    fn settings(&self) -> AgentSettings {
        AgentSettings {
            max_concurrent_runs: Some(AT_ONCE),
            at_cap: AtCap::Queue,
            ..AgentSettings::default()
        }
    }
}

impl Child for Survey {
    type Input = u64;
    type Output = Gathered;

    async fn run(&self, cx: &RunContext, sensors: u64) -> Result<Gathered, RunError> {
        let me = cx.agent::<Self>();
        let mut readings = Vec::new();
        for sensor in 0..sensors {
            readings.push(me.start::<Sensor>(sensor).await?);
        }
        let (mut sum, mut silent) = (0, Vec::new());
        for (sensor, reading) in (0..).zip(readings) {
            match reading.outcome().await?.completed() {
                Ok(value) => sum += value,
                Err(_) => silent.push(sensor),
            }
            cx.progress(Progress::of(sensor + 1, sensors));
        }
        Ok((sum, silent))
    }
}

struct Sensor(Effects);

impl Agent for Sensor {
    const TYPE: &'static str = "Sensor";
}

impl Child for Sensor {
    type Input = u64;
    type Output = u64;

    async fn run(&self, cx: &RunContext, sensor: u64) -> Result<u64, RunError> {
        let value = cx
            .step("read", async || {
                self.0.perform("read", &cx.key());
                tokio::time::sleep(Duration::from_millis(10 * (sensor % 3))).await;
                match sensor {
                    BROKEN => Err(RunError::new("no signal")),
                    _ => Ok(sensor * 10),
                }
            })
            .await?;
        assert!(sensor != PANICKING, "a reading that cannot be");
        Ok(value)
    }
}

impl Scenario for FanOut {
    fn name(&self) -> String {
        "fan-out".into()
    }

    fn agents(&self, system: SystemBuilder, world: &World) -> SystemBuilder {
        system.child(Survey).child(Sensor(world.effects()))
    }

    async fn drive(&self, life: &Life) -> Result<(), RunError> {
        let field = life.agent::<Survey>("field")?;
        let gathered = field.run::<Survey>(SENSORS).id("survey-1").await?;
        life.world().promise("survey-1", &gathered);
        unless_changed(life, gathered, &(200, vec![BROKEN, PANICKING]))
    }

    fn invariants(&self) -> Invariants {
        Invariants::none()
            .always("at most three sensors are awake", |world| {
                let awake = world.durable(|durable| {
                    let sensors = durable.runs().filter(|(_, run)| {
                        run.record.as_ref().is_some_and(|record| record.agent_type == Sensor::TYPE)
                    });
                    sensors.filter(|(_, run)| run.live.is_some()).count()
                });
                awake <= AT_ONCE
            })
            .finally("every sensor was read", |world| {
                world.effects().count("read") == SENSORS || world.ends_may_change()
            })
    }

    fn tolerates(&self, fault: Fault) -> bool {
        matches!(fault, Fault::Cancel | Fault::PanicChild | Fault::StallChild(_))
    }
}
